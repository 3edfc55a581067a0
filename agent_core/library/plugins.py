"""Plugins that a conversation takes in."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agent_core.agent.base import AgentBase
from agent_core.errors import SkillValidationError
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.library.run_loop import RunLoop
from agent_core.mcp.config import McpConfig
from agent_core.security.hooks import HookConfig
from agent_core.skills.agent_catalog import is_registered, register_agent_definition
from agent_core.skills.context import AgentContext
from agent_core.skills.plugin import Plugin, read_plugin

logger = logging.getLogger(__name__)

SENDER = "plugin"


class Extension:
    """A plugin in a folder, read and checked."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.plugin = read_plugin(Path(folder).expanduser())
        self.hooks = _hooks(self.plugin)
        self.servers = _servers(self.plugin)

    def register_agents(self) -> None:
        for definition in self.plugin.agents:
            if is_registered(definition.name):
                text = "the sub-agent %r of plugin %r is not used: it is there"
                logger.warning(text, definition.name, self.plugin.name)
            else:
                register_agent_definition(definition)


async def add_extension(work: RunLoop, extension: Extension) -> None:
    """Add the extension to the agent; one that has begun is told of the skills that are new to it."""
    agent = work.agent
    known = {skill.name for skill in agent.agent_context.skills} if agent.agent_context else set()
    skills = [skill for skill in extension.plugin.skills if skill.name not in known]
    await work.use_agent(agent.with_additions(skills, extension.servers))
    work.sessions.settings = replace(work.settings, hooks=work.settings.hooks.followed_by(extension.hooks))
    has_begun = (await work.log.present()).last_id >= 0
    told = AgentContext(skills=skills, current_datetime=None).get_system_message_suffix()
    if has_begun and told:
        text = f"The plugin {extension.plugin.name} was added to this conversation.\n\n{told}"
        await work.write(MessageEvent(source="environment", sender=SENDER, llm_message=Message.user(text)))


def with_plugins(
    agent: AgentBase, hooks: HookConfig, folders: Iterable[str | os.PathLike[str]]
) -> tuple[AgentBase, HookConfig]:
    """An agent that has not begun, and hooks, with what the plugins in these folders bring."""
    for extension in [Extension(folder) for folder in folders]:
        agent = agent.with_additions(extension.plugin.skills, extension.servers)
        hooks = hooks.followed_by(extension.hooks)
        extension.register_agents()
    return agent, hooks


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
