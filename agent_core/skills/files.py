"""A skill from the text of one file: a YAML header between two lines of three dashes, and the text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pydantic import ValidationError

from agent_core.errors import SkillValidationError
from agent_core.skills.skill import KeywordTrigger, PathTrigger, Skill, SkillInput, TaskTrigger, Trigger
from agent_core.spelling import probably_meant

MAX_HEADER_CHARS = 64 * 1024
MAX_DEPTH = 20
_HEADER = re.compile(r"\A---[ \t]*\n(.*?)(?:\n|(?<=\n))---[ \t]*(?:\n|\Z)", re.DOTALL)
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


def skill_from_text(path: str, text: str, *, name: str | None = None) -> Skill:
    """The skill in a Markdown file; raises `SkillValidationError`, naming the file, the line and the field.

    Without a name in its header it gets `name`, or that of the file; that of a ``SKILL.md`` must be its folder's.
    """
    try:
        header, body = split_frontmatter(text)
        is_agentskills = is_skill_file(path)
        skill = _build_skill(path, header, body, name, is_agentskills=is_agentskills)
        if is_agentskills:
            _check_name(skill.name, PurePosixPath(path).parent.name)
    except ValidationError as error:
        problems = "; ".join(_problem(one["loc"], one["msg"]) for one in error.errors(include_url=False))
        raise unusable_file(path, ValueError(problems), text) from None
    except ValueError as error:
        raise unusable_file(path, error, text) from None
    return skill


def misspelled_keys(text: str) -> list[str]:
    """A sentence for each key of the header of a usable file that is not read and is like one that is."""
    header, _ = split_frontmatter(text)
    known = _KEYS | {"type"}
    return probably_meant((key for key in header if str(key).replace("-", "_") not in known), known)


def unusable_file(path: str, error: ValueError, text: str) -> SkillValidationError:
    """What is told of a file with this text that has a mistake in its header, with its line if that can be found."""
    line = getattr(error, "line", None)
    if line is None:  # then it begins with the name of the field, if it is about one
        field = re.split(r"[.:]", str(error), maxsplit=1)[0]
        names = (field, field.replace("_", "-"), field.replace("-", "_"))
        found = _HEADER.match(_normal(text))
        lines = found.group(1).split("\n") if found is not None else []
        line = next((number for number, one in enumerate(lines, 2) if one.partition(":")[0].strip() in names), None)
    where = path if line is None else f"{path}, line {line}"
    return SkillValidationError(f"{where}: {error}", path=path, line=line)


def _normal(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _build_skill(path: str, header: Mapping[str, Any], body: str, name: str | None, *, is_agentskills: bool) -> Skill:
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
        if not isinstance(metadata := values["metadata"], dict):
            raise ValueError(f"metadata: must be a mapping of names to texts, not {type(metadata).__name__}")
        values["metadata"] = {str(key): str(item) for key, item in metadata.items()}
    if "allowed_tools" in values:
        values["allowed_tools"] = _words(values["allowed_tools"], "allowed-tools", separator=None)
    is_task = "inputs" in values
    inputs = _inputs(values.pop("inputs", []))
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


def _inputs(value: Any) -> list[SkillInput]:
    found = []
    for number, one in enumerate(_list(value, "inputs")):
        try:
            found.append(SkillInput.model_validate(one))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(_problem(("inputs", number, *first["loc"]), first["msg"])) from None
    return found


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
    if isinstance(value, str):
        return [part.strip() for part in value.split(separator) if part.strip()]
    words = _list(value, field)
    if any(not isinstance(word, str | int | float) for word in words):
        raise ValueError(f"{field}: must hold texts only")
    return [str(word) for word in words]


def third_party_skill(path: str, text: str) -> Skill:
    """The always-on skill of a file like AGENTS.md (`path` from the project's root), for its folder and below.

    Raises `SkillValidationError` where no program has instructions in a file of this name.
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


class _HeaderError(ValueError):
    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(f"its header is no valid YAML: {problem}")
        self.line = line


def split_frontmatter(text: str) -> tuple[dict[str, Any], str]:
    """The values of the YAML header between two lines of dashes, if there is one, and the text after it.

    Aliases are refused: a few of them can stand for gigabytes. Raises `ValueError` saying where the mistake is.
    """
    text = _normal(text)
    found = _HEADER.match(text)
    if found is None:
        return {}, text.strip()
    header = found.group(1)
    if len(header) > MAX_HEADER_CHARS:
        raise ValueError(f"its header has {len(header)} characters; at most {MAX_HEADER_CHARS} are allowed")
    values = _parsed(header)
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ValueError("its header must be a YAML mapping of names to values, for example `name: my-skill`")
    if strange := [key for key in values if not isinstance(key, str)]:
        raise ValueError(f"its header has a name that is no text: {strange[0]!r}")
    return values, text[found.end() :].strip()


def _parsed(header: str) -> Any:
    import yaml  # here, since only conversations with skills need it, and it costs every start of the server 15 ms

    # The one in C takes a tenth of the time, which matters: a stranger's repository may hold megabytes of headers.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(header, Loader=loader):
            if isinstance(event, yaml.events.AliasEvent):
                problem = "aliases (*name) are not allowed here; write the value out"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
            depth += isinstance(event, yaml.events.CollectionStartEvent)
            depth -= isinstance(event, yaml.events.CollectionEndEvent)
            if depth > MAX_DEPTH:
                problem = f"it is nested more than {MAX_DEPTH} levels deep"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return yaml.load(header, Loader=loader)  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise _HeaderError(problem, mark.line + 2 if mark is not None else None) from None  # the dashes are line 1
    except (ValueError, OverflowError, RecursionError) as error:  # a date that does not exist, for example
        raise ValueError(f"its header is no valid YAML: {error}") from None
