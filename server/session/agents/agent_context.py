"""What an agent of the server is told beside its prompt and its tools: the one place where that is put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agent_core.errors import SkillValidationError
from agent_core.mcp.servers import servers_of
from agent_core.skills.context import AgentContext
from agent_core.skills.files import is_skill_file, skill_from_text, unusable_file
from agent_core.skills.skill import Skill
from server.db.repositories.user_settings import StoredSettings
from server.db.repositories.user_skills import StoredSkill
from server.settings.settings import Settings


def own_skill(name: str, content: str) -> Skill:
    """The skill that a user has written under this name; `SkillValidationError`: what is wrong with its text."""
    path = f"{name}.md"
    if is_skill_file(path):
        raise SkillValidationError(f"name: a skill cannot be called {name!r}; choose a name that says what it is about")
    skill = skill_from_text(path, content)
    try:
        if skill.name != name:
            raise ValueError(f"name: {skill.name!r} must be {name!r}, or be left out")
        if not skill.content.strip():
            raise ValueError("it says nothing; write below the header what the agent is to be told")
        servers_of(skill)
    except ValueError as error:
        problem = error if str(error).startswith(("name:", "it says")) else ValueError(f"mcp_tools: {error}")
        raise unusable_file(path, problem, content) from None
    return skill.at("user").model_copy(update={"source": None})


def agent_context(
    user: StoredSettings | None,
    server: Settings,
    skills: Iterable[StoredSkill],
    report: Callable[[SkillValidationError], None],
    memory: str = "",
) -> AgentContext:
    """The context of a user's agents: the server's texts before the user's, and what neither of them has disabled.

    `skills` are the user's own; `report` is told of those that cannot be used. `memory` are notes of earlier
    conversations, as they are told.

    It tells no time: a conversation's first recall tells the date, and the system message stays the same from one
    conversation to the next, which providers charge less for.
    """
    user = user or StoredSettings()
    own = []
    for stored in skills:
        if not stored.enabled:
            continue
        try:
            own.append(own_skill(stored.name, stored.content))
        except SkillValidationError as error:  # an earlier version took it
            report(error)
    return AgentContext(
        skills=own,
        system_message_suffix=_joined(server.system_message_suffix, user.system_message_suffix),
        user_message_suffix=_joined(server.user_message_suffix, user.user_message_suffix),
        memory_context=memory,
        disabled_skills=sorted({*server.disabled_skills, *(user.disabled_skills or ())}),
        load_public_skills=chosen(user.load_public_skills, server.load_public_skills),
        registered_marketplaces=list(server.registered_marketplaces),
        marketplace_path=server.marketplace_path,
        load_project_skills=chosen(user.load_project_skills, server.load_project_skills),
        current_datetime=None,
    )


def chosen(of_user: bool | None, of_server: bool) -> bool:
    """What a user has chosen, or else the server."""
    return of_server if of_user is None else of_user


def _joined(*texts: str | None) -> str:
    return "\n\n".join(text.strip() for text in texts if text and text.strip())
