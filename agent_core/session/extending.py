"""What a library's conversation is given while it exists: plugins."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from agent_core.agent.base import AgentBase
from agent_core.errors import SkillValidationError
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.mcp.config import McpConfig
from agent_core.security.hooks import HookConfig
from agent_core.session import operations
from agent_core.session.conversation_loop import ConversationLoop
from agent_core.session.conversation_state import ConversationView
from agent_core.skills.agent_catalog import is_registered, register_agent_definition
from agent_core.skills.context import AgentContext
from agent_core.skills.plugin import Plugin, read_plugin
from agent_core.skills.skill import Skill

logger = logging.getLogger(__name__)

T = TypeVar("T")

SENDER = "plugin"


class Extending(ABC):
    """The part of a `Conversation` that takes in plugins."""

    agent: AgentBase
    state: ConversationView
    _work: ConversationLoop

    def load_plugin(self, folder: str | os.PathLike[str]) -> Plugin:
        """Take in the plugin in a folder of this host; from the next run on the agent has what it brings.

        Its skills, commands, servers and kinds of sub-agents give way to others of the same name; its hooks come after
        those that are there. An agent that has begun already is told of its skills. What it has already, from the same
        plugin before, it neither gets nor is told again.

        Raises:
            SkillValidationError: there is no plugin, or it cannot be used; the message names the file.
            RuntimeError: the agent is at work; pause it first.
        """
        plugin = read_plugin(Path(folder).expanduser())
        hooks, servers = _hooks(plugin), _servers(plugin)
        self._make_tools()
        known = {skill.name for skill in self.agent.agent_context.skills} if self.agent.agent_context else set()
        new = [skill for skill in plugin.skills if skill.name not in known]
        self._do(self._load(plugin.name, new, hooks, self.agent.with_additions(new, servers)))
        self.agent = self.state.agent = self._work.agent
        _register_agents(plugin)
        return plugin

    async def _load(self, name: str, skills: list[Skill], hooks: HookConfig, agent: AgentBase) -> None:
        work = self._work
        await operations.use_agent(work, agent)
        work.sessions.settings = replace(work.settings, hooks=work.settings.hooks.followed_by(hooks))
        has_begun = (await work.log.present()).last_id >= 0
        told = AgentContext(skills=skills, current_datetime=None).get_system_message_suffix()
        if has_begun and told:
            text = f"The plugin {name} was added to this conversation.\n\n{told}"
            await work.write(MessageEvent(source="environment", sender=SENDER, llm_message=Message.user(text)))

    @abstractmethod
    def _do(self, work: Coroutine[Any, Any, T]) -> T: ...

    @abstractmethod
    def _make_tools(self) -> None: ...


def with_plugins(
    agent: AgentBase, hooks: HookConfig, folders: Iterable[str | os.PathLike[str]]
) -> tuple[AgentBase, HookConfig]:
    """An agent that has not begun, and hooks, with what the plugins in these folders bring; see `load_plugin`.

    Raises:
        SkillValidationError: there is no plugin, or it cannot be used; the message names the file.
    """
    for plugin in [read_plugin(Path(folder).expanduser()) for folder in folders]:
        agent, hooks = agent.with_additions(plugin.skills, _servers(plugin)), hooks.followed_by(_hooks(plugin))
        _register_agents(plugin)
    return agent, hooks


def _register_agents(plugin: Plugin) -> None:
    for definition in plugin.agents:
        if is_registered(definition.name):
            logger.warning("the sub-agent %r of plugin %r is not used: it is there", definition.name, plugin.name)
        else:
            register_agent_definition(definition)


def _hooks(plugin: Plugin) -> HookConfig:
    try:
        return HookConfig.from_json(plugin.hooks) if plugin.hooks else HookConfig()
    except ValueError as error:
        raise SkillValidationError(f"plugin {plugin.name!r}, hooks/hooks.json: {error}") from None


def _servers(plugin: Plugin) -> McpConfig:
    try:
        return TypeAdapter(McpConfig).validate_python(plugin.mcp_servers)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise SkillValidationError(f"plugin {plugin.name!r}, .mcp.json: {place}: {problem['msg']}") from None
