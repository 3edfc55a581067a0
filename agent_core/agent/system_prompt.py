"""System prompts: folders of templates, and notes for the family that a model belongs to."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from agent_core.events.control import RecalledKnowledge, RecallObservation
from agent_core.memory.transcript import facts_message
from agent_core.spelling import spelled
from agent_core.templates import rendered

_FAMILIES: Final = (
    ("anthropic_claude", re.compile(r"claude")),
    ("google_gemini", re.compile(r"gemini|gemma")),
    ("openai_gpt", re.compile(r"gpt|(?:^|/)o[1-9](?![a-z0-9])|codex")),
    ("qwen", re.compile(r"qwen|qwq")),
    ("deepseek", re.compile(r"deepseek")),
    ("mistral", re.compile(r"mistral|devstral|codestral")),
)
_VARIANTS: Final = (
    ("anthropic_claude", "thinking", re.compile(r"thinking")),
    ("openai_gpt", "codex", re.compile(r"codex")),
    ("openai_gpt", "gpt-5", re.compile(r"gpt-5")),
    ("openai_gpt", "reasoning", re.compile(r"(?:^|/)o[1-9](?![a-z0-9])")),
)


class ModelFamily(NamedTuple):
    """The family and the variant within it; empty where they are not known."""

    family: str = ""
    variant: str = ""


def family_of(model: str) -> ModelFamily:
    """The family of a model by its name, whoever serves it."""
    name = model.lower()
    family = next((family for family, pattern in _FAMILIES if pattern.search(name)), "")
    of_family = ((variant, pattern) for its, variant, pattern in _VARIANTS if its == family)
    return ModelFamily(family, next((variant for variant, pattern in of_family if pattern.search(name)), ""))


PROMPT_DIR: Final = Path(__file__).parent / "prompts"
IDENTITY_FILE: Final = ".openhands/SOUL.md"
"""In the user's home: who the agent is, in the user's own words."""
MAX_IDENTITY_CHARS: Final = 6_000
NAME: Final = "Drydock"

logger = logging.getLogger(__name__)


def static_message(
    folder: Path,
    template: str,
    *,
    policy: str,
    model: str,
    has_browser: bool,
    remembers: bool,
    overrides: Mapping[str, Any],
) -> str:
    """The rendered `template` (relative to `folder`, or absolute); `overrides` count before all others.

    Raises `jinja2.TemplateNotFound`, or `jinja2.UndefinedError` for a variable that was not given.
    """
    kind = family_of(model)
    variables = {
        "agent_name": NAME,
        "identity": user_identity(),
        "llm_security_analyzer": True,
        "cli_mode": True,
        "enable_browser": has_browser,
        "memory_enabled": remembers,
        "model_name": model,
        "model_family": kind.family,
        "model_variant": kind.variant,
        "security_policy_filename": policy,
        **overrides,
    }
    variables["security_policy"] = rendered(folder, policy) if policy else ""
    variables["model_notes"] = _notes(folder, str(variables["model_family"]), str(variables["model_variant"]))
    return rendered(folder, template, variables)


def user_identity(home: Path | None = None) -> str:
    """The content of the user's own `IDENTITY_FILE`."""
    try:
        path = (home or Path.home()) / IDENTITY_FILE
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_IDENTITY_CHARS).strip()
    except FileNotFoundError:
        return ""
    except (OSError, RuntimeError, UnicodeDecodeError) as error:  # RuntimeError: the user has no home
        logger.warning("the identity of the agent is the default one: %s", error)
        return ""


def _notes(folder: Path, family: str, variant: str) -> str:
    if not family:
        return ""
    names = [f"model_specific/{family}/{variant}.j2"] if variant else []
    for name in [*names, f"model_specific/{family}.j2"]:
        for place in dict.fromkeys((folder, PROMPT_DIR)):
            if (place / name).is_file():
                return rendered(place, name)
    return ""


SYSTEM_PROMPT: Final = "system_prompt.j2"
USER_PROMPT: Final = "user_prompt.j2"
SECURITY_POLICY: Final = "security_policy.j2"


@spelled
class PromptManager:
    """Renders the prompts in a folder, ours by default; raises `FileNotFoundError` without a system message."""

    def __init__(self, prompt_dir: str | Path | None = None, system_prompt_filename: str = SYSTEM_PROMPT) -> None:
        self.prompt_dir = Path(prompt_dir) if prompt_dir is not None else PROMPT_DIR
        self.system_prompt_filename = system_prompt_filename
        if not (self.prompt_dir / system_prompt_filename).is_file():
            raise FileNotFoundError(f"there is no prompt template {system_prompt_filename!r} in {self.prompt_dir}")

    def get_system_message(self, **context: Any) -> str:
        policy = SECURITY_POLICY if (self.prompt_dir / SECURITY_POLICY).is_file() else ""
        return static_message(
            self.prompt_dir,
            self.system_prompt_filename,
            policy=policy,
            model=str(context.get("model_name", "")),
            has_browser=False,
            remembers=False,
            overrides=context,
        )

    def get_example_user_message(self) -> str:
        if not (self.prompt_dir / USER_PROMPT).is_file():
            return ""
        return rendered(self.prompt_dir, USER_PROMPT, {"agent_name": NAME})

    def build_workspace_context(self, recalled: RecallObservation) -> str:
        message = facts_message(recalled)
        return message.text if message is not None else ""

    def build_microagent_info(self, triggered: Sequence[RecalledKnowledge]) -> str:
        known = RecallObservation(cause=-1, recall_type="knowledge", microagent_knowledge=list(triggered))
        return self.build_workspace_context(known)
