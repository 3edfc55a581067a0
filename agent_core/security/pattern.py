"""An analyzer that searches the text of a call for dangerous patterns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from agent_core.events.llm_events import ActionEvent
from agent_core.events.risk import SecurityRisk
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.shell_rules import judgement_of

MAX_CORPUS: Final = 30_000

_DELETE = re.compile(r"\brm((?:\s{1,8}-{1,2}[\w-]{1,40}){1,8})")
_HIGH_EXECUTABLE = (
    re.compile(r"\bsudo\s{1,8}(?:-\S{1,40}\s{1,8}){0,5}(?:/[\w/.-]{0,40}/)?rm\b"),
    re.compile(r"\bmkfs\.\w"),
    re.compile(r"\bdd\b[^\n|;&]{0,200}\bof=/dev/"),
    re.compile(r"\b(?:eval|exec)\s{0,4}\("),
    re.compile(r"\bos\.system\s{0,4}\("),
    re.compile(r"\bsubprocess\.\w{1,30}\s{0,4}\("),
    re.compile(r"\b(?:curl|wget)\b[^\n;]{0,300}\|\s{0,8}(?:sudo\s{1,8})?(?:/[\w/.-]{0,40}/)?(?:ba|z|da|k|a)?sh\b"),
)
_HIGH_ANYWHERE = (
    re.compile(
        r"\b(?:ignore|disregard|forget|override|bypass)\s{1,8}(?:[\w']{1,20}\s{1,8}){0,3}"
        r"(?:previous|prior|above|earlier|preceding|foregoing)\s{1,8}(?:\w{1,20}\s{1,8}){0,3}"
        r"(?:instructions?|prompts?|rules?|directives?|guidelines?|commands?|messages?|context)\b",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:ignore|disregard|forget|override|bypass)\s{1,8}(?:all|any|your|the)\s{1,8}(?:of\s{1,8})?"
        r"(?:your\s{1,8}|the\s{1,8})?(?:system\s{1,8}|safety\s{1,8}|security\s{1,8})?"
        r"(?:instructions|prompts?|rules|directives|guidelines)\b",
        re.IGNORECASE,
    ),
)
_MEDIUM_EXECUTABLE = (re.compile(r"\b(?:curl|wget)\b[^\n]{0,300}https?://", re.IGNORECASE),)
_MEDIUM_ANYWHERE = (
    re.compile(
        r"\b(?:enter|switch\s{1,8}to|activate|enable|you\s{1,8}are\s{1,8}now\s{1,8}in)\s{1,8}(?:\w{1,20}\s{1,8}){0,2}"
        r"(?:developer|debug|god|admin|root|jailbreak|dan|unrestricted|maintenance|sudo)\s{1,8}mode\b",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:you\s{1,8}are\s{1,8}now\s{1,8}(?:an?|the|my|dan|root|evil|free|jailbroken|unrestricted|unfiltered)\b"
        r"|you\s{1,8}are\s{1,8}no\s{1,8}longer\s{1,8}(?:an?|the|bound|restricted|limited)\b|pretend\s{1,8}(?:to\s{1,8}be|you(?:'re|\s{1,8}are))\b"
        r"|from\s{1,8}now\s{1,8}on,?\s{1,8}you\s{1,8}(?:are|will\s{1,8}be)\b"
        r"|act\s{1,8}as\s{1,8}(?:an?|the|if\s{1,8}you\s{1,8}(?:are|were))\s{1,8}(?:an?\s{1,8})?"
        r"(?:unrestricted|different|new|another|unfiltered|evil)\b)",
        re.IGNORECASE,
    ),
)
_BLANKS = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" ?\n[ \n]*")
_HIGH_RULES: Final = frozenset(
    {"recursive-forced-delete", "catastrophic-delete", "root-delete", "remote-code", "hidden-code"}
)
_UNCERTAIN_RULES: Final = frozenset({"syntax", "too-complex", "characters"})


class PatternSecurityAnalyzer(SecurityAnalyzer):
    """Searches what would be executed, and what the model wrote, for dangerous patterns; up to 30,000 characters each.

    It matches text, so a command that only prints ``rm -rf /`` is HIGH too. Shell commands are also parsed
    (`agent_core.security.shell`); when that fails and nothing was found the risk is UNKNOWN, else LOW.
    """

    immediate: ClassVar[bool] = True

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        executable = normalised("\n".join(_executable_texts(action)))
        other = normalised("\n".join(_other_texts(action)))
        judgement = judgement_of(action)
        if _deletes(executable) or _found(_HIGH_EXECUTABLE, executable) or _found(_HIGH_ANYWHERE, executable, other):
            return SecurityRisk.HIGH
        rules = {finding.rule for finding in judgement.findings} if judgement is not None else set()
        if rules & _HIGH_RULES:
            return SecurityRisk.HIGH
        if _found(_MEDIUM_EXECUTABLE, executable) or _found(_MEDIUM_ANYWHERE, executable, other):
            return SecurityRisk.MEDIUM
        if rules & _UNCERTAIN_RULES:
            return SecurityRisk.UNKNOWN
        return SecurityRisk.LOW


def normalised(text: str) -> str:
    """The text as a person reads it: no invisible characters, compatibility forms unified, white space collapsed."""
    visible = "".join(
        character
        for character in text[:MAX_CORPUS]
        if character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf"}
    )
    unified = unicodedata.normalize("NFKC", visible)[:MAX_CORPUS]
    return _LINES.sub("\n", _BLANKS.sub(" ", unified))


def _executable_texts(action: ActionEvent) -> Iterator[str]:
    yield action.tool_name
    if action.action is not None:
        yield from _leaves(action.action.model_dump(exclude={"kind"}))
    elif action.tool_call is not None:
        yield action.tool_call.arguments


def _other_texts(action: ActionEvent) -> Iterator[str]:
    yield action.thought_text
    yield action.reasoning_content or ""
    yield action.summary
    yield from _leaves(action.thinking_blocks)


def _leaves(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend(reversed(item.values()))
        elif isinstance(item, list | tuple):
            waiting.extend(reversed(item))


def _deletes(text: str) -> bool:
    for found in _DELETE.finditer(text):
        options = found[1].split()
        letters = "".join(option[1:] for option in options if not option.startswith("--"))
        recursive = "r" in letters or "R" in letters or "--recursive" in options
        if recursive and ("f" in letters or "--force" in options):
            return True
    return False


def _found(patterns: tuple[re.Pattern[str], ...], *texts: str) -> bool:
    return any(pattern.search(text) for pattern in patterns for text in texts)
