"""Factory of sub-agents: from a kind or a class to its agent."""

from __future__ import annotations

import logging
from typing import Any, Final

from pydantic import ValidationError

from agent_core.agent.agent import Agent
from agent_core.agent.base import AgentBase
from agent_core.llm.llm import LLM
from agent_core.llm.registry import ProfileStore
from agent_core.memory.condenser import Condenser
from agent_core.memory.condensers.catalog import get_default_condenser
from agent_core.skills.agent_catalog import INHERIT, AgentDefinition, AgentKind
from agent_core.skills.context import AgentContext
from agent_core.tools.context import SubAgentError
from agent_core.tools.registry import canonical_name
from agent_core.tools.spec import Tool
from agent_core.tools.subagents import has_usable_tools, usable_tools

logger = logging.getLogger(__name__)

DELEGATING: Final = frozenset({"delegate", "task", "task_tool_set", "delegate_to_browsing_agent"})
"""The tools that make sub-agents; any but the main agent gets them only by name."""


def make_subagent(kind: AgentKind, asking: AgentBase, label: str) -> AgentBase:
    """A fresh agent of this kind for a sub-conversation of `asking`; its model is counted under `label`.

    Raises `SubAgentError` where its profile, its condenser or a tool is not there.
    """
    definition = kind.definition
    llm = _llm(definition, asking.llm).model_copy(update={"usage_id": label})
    llm.reset_metrics()
    try:
        if kind.make is not None:
            return _made(kind.make(llm), definition.name)
        return Agent(
            llm=llm,
            tools=_tools(kind, asking),
            agent_context=_context(definition, asking.agent_context),
            condenser=_condenser(definition, llm),
            system_prompt_kwargs=dict(asking.system_prompt_kwargs),
            **_servers(definition),
        )
    except (ValidationError, ValueError) as error:
        raise SubAgentError(f"the sub-agent {definition.name!r} cannot be made: {error}") from error


def make_agent_of_class(name: str, asking: AgentBase, label: str) -> AgentBase | None:
    """A fresh agent of a registered class as that is configured; None for no such class, or one without its tools."""
    if name not in AgentBase.list_agents():
        return None
    llm = asking.llm.model_copy(update={"usage_id": label})
    llm.reset_metrics()
    agent = AgentBase.get_cls(name)(llm=llm, condenser=get_default_condenser(llm))
    return agent if has_usable_tools(agent.tools) else None


def _made(agent: Any, name: str) -> AgentBase:
    if not isinstance(agent, AgentBase):
        raise SubAgentError(f"the function of the sub-agent {name!r} made no agent, but a {type(agent).__name__}")
    return agent


def _llm(definition: AgentDefinition, inherited: LLM) -> LLM:
    if definition.model == INHERIT:
        return inherited
    if definition.level == "project":
        # Whoever wrote the files of a workspace does not decide which of its user's models, with whose key, is paid.
        logger.warning("the sub-agent %r of the project uses the asking agent's model", definition.name)
        return inherited
    try:
        return ProfileStore(definition.profile_store_dir).load(definition.model)
    except (FileNotFoundError, ValueError) as error:
        raise SubAgentError(f"the sub-agent {definition.name!r} has no model: {error}") from error


def _tools(kind: AgentKind, asking: AgentBase) -> list[Tool]:
    names = usable_tools(kind)
    if names is not None:
        return [Tool(name=name) for name in names]
    return [tool for tool in asking.tools if canonical_name(tool.name) not in DELEGATING]


def _context(definition: AgentDefinition, asking: AgentContext | None) -> AgentContext:
    at_hand = {skill.name: skill for skill in asking.skills} if asking is not None else {}
    if missing := [name for name in definition.skills if name not in at_hand]:
        logger.warning("the sub-agent %r goes without the skills %s: they are not at hand", definition.name, missing)
    return AgentContext(
        skills=[at_hand[name] for name in definition.skills if name in at_hand],
        system_message_suffix=definition.instructions,
        load_project_skills=asking is None or asking.load_project_skills,
    )


def _condenser(definition: AgentDefinition, llm: LLM) -> Condenser | None:
    if definition.condenser == "none":
        return None
    if definition.condenser == "default":
        return get_default_condenser(llm)
    revived: Condenser = Condenser.revive(definition.condenser)
    return revived


def _servers(definition: AgentDefinition) -> dict[str, Any]:
    """Without the servers that a project's file names: they would be started outside of the sandbox."""
    if not definition.mcp_config or "mcp_config" not in Agent.model_fields:
        return {}
    if definition.level == "project":
        logger.warning("the servers of the sub-agent %r are left out: a project's file names them", definition.name)
        return {}
    return {"mcp_config": definition.mcp_config}
