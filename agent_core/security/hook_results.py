"""What hooks say, and what it comes to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent_core.security.hooks import HookEvent

BLOCKED_EXIT_CODE: Final = 2
MAX_REASON_CHARS: Final = 10_000
UNEXPLAINED: Final = "blocked by a hook"


@dataclass(frozen=True, slots=True)
class HookResult:
    """What one hook came to.

    Attributes:
        blocked: it wants to stop what is about to happen.
        reason: why, for the model and the user.
        additional_context: text for the model.
        error: what went wrong with the hook itself; it then blocks nothing.
    """

    blocked: bool = False
    reason: str = ""
    additional_context: str = ""
    error: str = ""


def read_result(exit_code: int, stdout: str, stderr: str) -> HookResult:
    """What a command hook's exit says: 0 is fine, 2 blocks, any other is an error that blocks nothing.

    A JSON object on the standard output of a hook that did not fail may carry ``decision`` (``allow`` or ``deny``),
    ``reason``, ``additionalContext`` and ``continue`` (false blocks as well).
    """
    if exit_code not in {0, BLOCKED_EXIT_CODE}:
        return HookResult(
            error=f"the hook ended with exit code {exit_code}: {_short(stderr.strip() or stdout.strip())}"
        )
    said = _object_in(stdout)
    result = _result_of(said)
    blocked = exit_code == BLOCKED_EXIT_CODE or result.blocked
    reason = result.reason
    if blocked and not reason:
        reason = _short(stderr.strip() or ("" if said else stdout.strip()) or UNEXPLAINED)
    return replace(result, blocked=blocked, reason=reason)


def judgement_in(text: str) -> HookResult:
    """What a model says that was asked to judge: a JSON object as for `read_result`, words around it left aside.

    Raises:
        ValueError: there is no such object in it, or it decides nothing.
    """
    said = _object_in(text[text.find("{") : text.rfind("}") + 1])
    decision = str(said.get("decision", "")).lower()
    if decision not in {"allow", "deny"} and not isinstance(said.get("continue"), bool):
        raise ValueError("the model's answer is no judgement")
    result = _result_of(said)
    return replace(result, reason=result.reason or UNEXPLAINED) if result.blocked else result


def _result_of(said: Mapping[str, Any]) -> HookResult:
    blocked = str(said.get("decision", "")).lower() == "deny" or said.get("continue") is False
    reason, context = str(said.get("reason") or ""), str(said.get("additionalContext") or "")
    return HookResult(blocked, _short(reason), _short(context))


def _object_in(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _short(text: str) -> str:
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"


@dataclass(frozen=True, slots=True)
class HookExecution:
    """One hook that was run: its command or question, what came of it, and how a command ended."""

    hook: str
    result: HookResult
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class HookDecision:
    """What all hooks of an event came to: the first block, all context, all errors; and each of those that ran."""

    blocked: bool = False
    reason: str = ""
    additional_context: tuple[str, ...] = ()
    errors: tuple[str, ...] = field(default=())
    executions: tuple[HookExecution, ...] = field(default=(), compare=False)


def decide(event: HookEvent, results: Sequence[HookResult]) -> HookDecision:
    """Put results together, in the order of their hooks; the first that blocks wins, if the event can be blocked."""
    context: list[str] = []
    errors: list[str] = []
    for result in results:
        context.extend([result.additional_context] if result.additional_context else [])
        errors.extend([result.error] if result.error else [])
        if result.blocked and event.can_block:
            return HookDecision(True, result.reason, tuple(context), tuple(errors))
    return HookDecision(False, "", tuple(context), tuple(errors))
