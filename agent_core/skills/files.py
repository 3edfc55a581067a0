"""One skill from the text of one file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pydantic import ValidationError

from agent_core.errors import SkillValidationError
from agent_core.skills import frontmatter
from agent_core.skills.skill import Skill, SkillInput
from agent_core.skills.trigger import KeywordTrigger, PathTrigger, TaskTrigger, Trigger

SKILL_FILE = "SKILL.md"
MAX_NAME_CHARS = 64
TYPES = ("repo", "knowledge", "task", "agentskills")
THIRD_PARTY = {
    ".cursorrules": "cursorrules",
    "agents.md": "agents",
    "agent.md": "agents",
    "claude.md": "claude",
    "gemini.md": "gemini",
    ".openhands_instructions": "repo_legacy",
    "copilot-instructions.md": "copilot",
}
"""Files that other programs read as well, in lower case, and the names of the skills that are made of them."""

_AGENTSKILLS_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_KEYS = frozenset(
    {"name", "description", "triggers", "inputs", "paths", "mcp_tools", "version", "license", "compatibility"}
    | {"metadata", "allowed_tools", "disable_model_invocation"}
)
"""What is read of a header, whose keys may be written with hyphens as well."""
_ASK_FOR_MISSING = (
    "If the user has not said what one of the variables in this task stands for, ask for it before you begin."
)


def is_skill_file(path: str) -> bool:
    """Whether a file is the ``SKILL.md`` of its folder, in whatever case it is written."""
    return PurePosixPath(path).name.lower() == SKILL_FILE.lower()


def third_party_skill(path: str, text: str) -> Skill:
    """The always-on skill of a file like AGENTS.md; in a folder below the root it applies to that folder.

    `path` is relative to the project's root. Its text is taken as it is, without a header.

    Raises:
        SkillValidationError: no program has instructions in a file of this name.
    """
    place = PurePosixPath(path)
    name = THIRD_PARTY.get(place.name.lower())
    if name is None:
        raise SkillValidationError(f"{path}: is none of {sorted(THIRD_PARTY)}")
    folder = place.parent.as_posix()
    if folder in (".", ".github"):
        return Skill(name=name, content=text.strip(), source=path)
    trigger = PathTrigger(paths=[f"{folder}/**"])
    return Skill(name=f"{name}:{folder}", content=text.strip(), source=path, trigger=trigger)


def skill_from_text(path: str, text: str, *, name: str | None = None) -> Skill:
    """The skill in a Markdown file.

    Without a name in its header it gets `name`, or that of the file. A file called ``SKILL.md`` has the AgentSkills
    format, in which the name must be that of its folder.

    Raises:
        SkillValidationError: the file cannot be used; the message names it and the field.
    """
    try:
        header, body = frontmatter.split(text)
        is_agentskills = is_skill_file(path)
        skill = _made(path, header, body, name, is_agentskills=is_agentskills)
        if is_agentskills:
            _check_name(skill.name, PurePosixPath(path).parent.name)
    except ValidationError as error:
        problems = "; ".join(_problem(one["loc"], one["msg"]) for one in error.errors(include_url=False))
        raise SkillValidationError(f"{path}: {problems}") from None
    except ValueError as error:
        raise SkillValidationError(f"{path}: {error}") from None
    return skill


def _made(path: str, header: Mapping[str, Any], body: str, name: str | None, *, is_agentskills: bool) -> Skill:
    kind = header.get("type")
    if kind is not None and kind not in TYPES:
        raise ValueError(f"type: {kind!r} is none of {list(TYPES)}; it may be left out, the other fields tell")
    place = PurePosixPath(path)
    usual = place.parent.name if is_agentskills else place.stem
    known = {key.replace("-", "_"): value for key, value in header.items() if value is not None}
    values = {key: value for key, value in known.items() if key in _KEYS}
    for field in ("name", "description", "version", "license", "compatibility"):
        if isinstance(values.get(field), int | float):
            values[field] = str(values[field])  # YAML reads `1.0` as a number
    values["name"] = values.get("name") or name or usual
    if "metadata" in values:
        values["metadata"] = _texts(values["metadata"])
    if "allowed_tools" in values:
        values["allowed_tools"] = _words(values["allowed_tools"], "allowed-tools", separator=None)
    is_task = "inputs" in values
    inputs = [SkillInput.model_validate(one) for one in _list(values.pop("inputs", []), "inputs")]
    triggers = _words(values.pop("triggers", []), "triggers")
    paths = _words(values.pop("paths", []), "paths")
    trigger: Trigger | None = None
    if paths:
        trigger = PathTrigger(paths=paths)
    elif is_task:
        command = f"/{values['name']}"
        trigger = TaskTrigger(triggers=triggers if command in triggers else [*triggers, command])
        body = f"{body}\n\n{_ASK_FOR_MISSING}" if inputs else body
    elif triggers:
        trigger = KeywordTrigger(keywords=triggers)
    return Skill(
        content=body, source=path, trigger=trigger, inputs=inputs, is_agentskills_format=is_agentskills, **values
    )


def _check_name(name: str, folder: str) -> None:
    if len(name) > MAX_NAME_CHARS or not _AGENTSKILLS_NAME.fullmatch(name):
        raise ValueError(
            f"name: {name!r} must be lower-case letters, digits and single hyphens, at most {MAX_NAME_CHARS} characters"
        )
    if name != folder:
        raise ValueError(f"name: {name!r} must be the name of its folder, {folder!r}")


def _problem(place: tuple[int | str, ...], message: str) -> str:
    field = ".".join(str(part) for part in place)
    text = message.removeprefix("Value error, ")
    return f"{field}: {text}" if field else text


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{field}: must be a list, not {type(value).__name__}")
    return value


def _words(value: Any, field: str, *, separator: str | None = ",") -> list[str]:
    """A list of texts; a single text may name several."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(separator) if part.strip()]
    words = _list(value, field)
    if any(not isinstance(word, str | int | float) for word in words):
        raise ValueError(f"{field}: must hold texts only")
    return [str(word) for word in words]


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"metadata: must be a mapping of names to texts, not {type(value).__name__}")
    return {str(key): str(item) for key, item in value.items()}
