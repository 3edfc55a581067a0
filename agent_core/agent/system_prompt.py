"""The static part of a system message: a template, and what it is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent_core.agent.model_family import family_of
from agent_core.templates import rendered

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
    given: Mapping[str, Any],
) -> str:
    """The rendered `template` (relative to `folder`, or absolute); `given` variables count before all others.

    Raises:
        jinja2.TemplateNotFound: there is no such file.
        jinja2.UndefinedError: it names a variable that was not given.
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
        **given,
    }
    variables["security_policy"] = rendered(folder, policy) if policy else ""
    variables["model_notes"] = _notes(folder, str(variables["model_family"]), str(variables["model_variant"]))
    return rendered(folder, template, variables)


def user_identity(home: Path | None = None) -> str:
    """What the user's own file says that the agent is; empty where there is none."""
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
    """What is said to models of this kind: notes of the variant, or else of the family."""
    if not family:
        return ""
    names = [f"model_specific/{family}/{variant}.j2"] if variant else []
    for name in [*names, f"model_specific/{family}.j2"]:
        for place in dict.fromkeys((folder, PROMPT_DIR)):
            if (place / name).is_file():
                return rendered(place, name)
    return ""
