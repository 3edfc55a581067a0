"""AgentContext: what an agent is told beside its prompt and its tools."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import Field, SecretStr, field_serializer, field_validator

from agent_core.events.control import RecalledKnowledge
from agent_core.events.event import utc_now
from agent_core.events.messages import Frozen, Message, TextContent
from agent_core.skills.skill import SKILL_LEVELS, Skill, SkillLevel
from agent_core.templates import rendered

logger = logging.getLogger(__name__)

PROMPT_DIR = Path(__file__).parent / "prompts"
MAX_LISTED_CHARS = 200
MARKETPLACE = "marketplaces/default.json"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


class AgentContext(Frozen):
    """Skills and texts for an agent; configuration only, which may be stored and sent (without secret values).

    `skills` win over all others of the same name; `disabled_skills` are left out, wherever they come from. Those of the
    workspace are used unless `load_project_skills` is False; its ``AGENTS.md`` and the like always are.
    `load_user_skills` adds those of the home directory, `load_public_skills` those of the repository ``EXTENSIONS_URL``
    and of `registered_marketplaces` (further addresses), as the list `marketplace_path` in them says; `load_memory` the
    notes in home and workspace. `memory_context` are notes from earlier conversations. The model is told names and
    descriptions of `secrets` only; they are not stored, so a resumed conversation is given them again.
    `current_datetime`, by default the present, is told to the minute; None tells none.
    """

    skills: list[Skill] = Field(default_factory=list)
    system_message_suffix: str | None = None
    user_message_suffix: str | None = None
    load_user_skills: bool = False
    load_public_skills: bool = False
    marketplace_path: str = MARKETPLACE
    registered_marketplaces: list[str] = Field(default_factory=list)
    load_project_skills: bool = True
    load_memory: bool = False
    memory_context: str | None = None
    disabled_skills: list[str] = Field(default_factory=list)
    secrets: dict[str, Any] | None = None
    current_datetime: datetime | str | None = Field(default_factory=utc_now)

    @field_validator("system_message_suffix", "user_message_suffix", "memory_context")
    @classmethod
    def _empty_is_none(cls, value: str | None) -> str | None:
        return (value or "").strip() or None

    @field_validator("skills")
    @classmethod
    def _names_differ(cls, value: list[Skill]) -> list[Skill]:
        seen: set[str] = set()
        for skill in value:
            if skill.name in seen:
                raise ValueError(f"Duplicate skill name: {skill.name!r}; give each skill its own")
            seen.add(skill.name)
        return value

    @field_validator("secrets")
    @classmethod
    def _values_are_hidden(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else {name: _secret(name, secret) for name, secret in value.items()}

    @field_validator("current_datetime", mode="before")
    @classmethod
    def _as_it_was_stored(cls, value: Any) -> Any:
        """A time that was written as JSON is a time again; any other text is told as it is."""
        if not isinstance(value, str):
            return value
        try:
            return datetime.fromisoformat(value) if _MOMENT.match(value) else value
        except ValueError:
            return value

    @field_serializer("secrets", when_used="json")
    def _values_are_not_stored(self, secrets: dict[str, Any] | None) -> dict[str, str] | None:
        return None if secrets is None else dict.fromkeys(secrets, "")

    @property
    def active_skills(self) -> list[Skill]:
        return [skill for skill in self.skills if skill.name not in self.disabled_skills]

    @property
    def invocable_skills(self) -> list[Skill]:
        return [skill for skill in self.active_skills if skill.is_agentskills_format and skill.is_listed]

    def merged(
        self,
        *,
        plugin: Iterable[Skill] = (),
        project: Iterable[Skill] = (),
        organization: Iterable[Skill] = (),
        user: Iterable[Skill] = (),
        public: Iterable[Skill] = (),
    ) -> AgentContext:
        """This context with these skills besides; of one name that of the first of `SKILL_LEVELS`, with a warning."""
        found = {skill.name: skill for skill in self.skills}
        more: dict[SkillLevel, Iterable[Skill]] = {
            "plugin": plugin,
            "project": project,
            "organization": organization,
            "user": user,
            "public": public,
        }
        for skill in (skill.at(level) for level, skills in more.items() for skill in skills):
            other = found.setdefault(skill.name, skill)
            if other is skill:
                continue
            wins = SKILL_LEVELS.index(skill.level) < SKILL_LEVELS.index(other.level)
            loser = other if wins else skill
            logger.warning("the %s skill %r is not used: another one of this name wins", loser.level, loser.name)
            found[skill.name] = skill if wins else other
        return self.model_copy(update={"skills": list(found.values())})

    def get_system_message_suffix(self, secret_descriptions: Mapping[str, str] | None = None) -> str | None:
        """What the system message says of this conversation, the date last, as it changes most; None for nothing."""
        own = {name: getattr(source, "description", "") for name, source in (self.secrets or {}).items()}
        secrets = own | dict(secret_descriptions or {})
        moment = self.current_datetime or ""
        if isinstance(moment, datetime):
            moment = f"{moment:%Y-%m-%d %H:%M} {moment:%Z}".strip()
        variables: dict[str, Any] = {
            "repo_skills": [skill for skill in self.active_skills if skill.is_always_on],
            "memory_context": self.memory_context,
            "available_skills": available_skills(self.active_skills, can_invoke=bool(self.invocable_skills)),
            "suffix": self.system_message_suffix,
            "secrets": secrets,
            "current_datetime": moment,
        }
        return rendered(PROMPT_DIR, "system_message_suffix.j2", variables) or None

    def triggered(self, message: str, skip_skill_names: Collection[str] = ()) -> list[RecalledKnowledge]:
        """The skills that `message` brings up, but for those named in `skip_skill_names`."""
        return [
            RecalledKnowledge(name=skill.name, trigger=trigger, content=skill.content)
            for skill in self.active_skills
            if skill.name not in skip_skill_names and (trigger := skill.match_trigger(message)) is not None
        ]

    def get_user_message_suffix(
        self, message: Message, skip_skill_names: Collection[str] = ()
    ) -> tuple[TextContent, list[str]] | None:
        """What is added to a message of the user, and the names of the skills in it; None when there is nothing."""
        query = "\n".join(part.text for part in message.content if isinstance(part, TextContent)).strip()
        triggered = self.triggered(query, skip_skill_names) if query else []
        parts = [rendered(PROMPT_DIR, "skill_knowledge_info.j2", {"triggered": triggered})] if triggered else []
        if self.user_message_suffix:
            parts.append(self.user_message_suffix)
        if not parts:
            return None
        return TextContent(text="\n".join(parts)), [known.name for known in triggered]

    def get_tool_use_suffix(
        self, path: str, skip_skill_names: Collection[str] = ()
    ) -> tuple[TextContent, list[str]] | None:
        """What is said about a touched file (relative to the project's root), and the names of the rules in it."""
        rules = [
            RecalledKnowledge(name=skill.name, trigger=pattern, content=skill.content)
            for skill in self.active_skills
            if skill.name not in skip_skill_names and (pattern := skill.match_path(path)) is not None
        ]
        if not rules:
            return None
        text = "\n\n".join(f"[Rule {rule.name} for {rule.trigger}]\n{rule.content}" for rule in rules)
        return TextContent(text=text), [rule.name for rule in rules]


def available_skills(skills: Iterable[Skill], *, can_invoke: bool) -> str:
    """The list of the skills that an agent can get when it needs them; "" when there are none."""
    listed = [
        {"name": skill.name, "description": _shortened(skill.summary), "source": skill.source}
        for skill in skills
        if skill.is_listed
    ]
    return rendered(PROMPT_DIR, "available_skills.j2", {"skills": listed, "can_invoke": can_invoke}) if listed else ""


def _secret(name: str, value: Any) -> Any:
    """A value, hidden from whoever prints it, or what gives one when it is needed (`agent_core.SecretSource`)."""
    if isinstance(value, str):
        return SecretStr(value)
    if isinstance(value, SecretStr) or callable(value) or callable(getattr(value, "value", None)):
        return value
    raise ValueError(f"secret {name!r} is a {type(value).__name__}: give a text, a function, or a source of secrets")


def _shortened(text: str) -> str:
    if len(text) <= MAX_LISTED_CHARS:
        return text
    return f"{text[:MAX_LISTED_CHARS].rstrip()}… (load the skill to read on)"


NOTES_FILE: Final = ".openhands/MEMORY.md"
"""Relative to the user's home, and to the workspace."""
MAX_NOTES_CHARS: Final = 6_000


def user_notes(home: Path | None = None) -> str:
    """What stands in the notes of the user's home; empty where there are none."""
    try:
        with ((home or Path.home()) / NOTES_FILE).open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_NOTES_CHARS).strip()
    except FileNotFoundError:
        return ""
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        logger.warning("the user's notes are not used: %s", error)
        return ""
