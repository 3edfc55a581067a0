"""The agent's context with what its conversation adds to it: skills and notes that are found elsewhere (7.1, 7.3)."""

from __future__ import annotations

import logging

from agent_core.skills.context import AgentContext
from agent_core.skills.loader import load_user_skills
from agent_core.skills.notes import user_notes
from agent_core.skills.public import load_public_skills
from agent_core.skills.skill import Skill

logger = logging.getLogger(__name__)


def completed(context: AgentContext | None) -> AgentContext | None:
    """The context with the user's skills, public ones and the user's notes, as far as it asks for them.

    Reads files, and may fetch a repository; what cannot be had is left out with a warning.
    """
    if context is None:
        return None
    user = _users() if context.load_user_skills else []
    public = _public(context) if context.load_public_skills else []
    merged = context.merged(user=user, public=public) if user or public else context
    notes = user_notes() if context.load_memory else ""
    if not notes or notes in (context.memory_context or ""):
        return merged
    together = "\n\n".join(filter(None, [context.memory_context, notes]))
    return merged.model_copy(update={"memory_context": together})


def _users() -> list[Skill]:
    try:
        return load_user_skills()
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        logger.warning("the user's skills are left out: %s", error)
        return []


def _public(context: AgentContext) -> list[Skill]:
    try:
        return load_public_skills(context.marketplace_path, context.registered_marketplaces)
    except Exception:  # the agent can work without them, whatever a stranger's repository holds
        logger.exception("the public skills are left out")
        return []
