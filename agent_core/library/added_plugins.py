"""How a conversation's agent gets what a plugin in a folder of this host brings."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.library.run_loop import RunLoop
from agent_core.session.plugins import PluginParts
from agent_core.skills.agent_catalog import is_registered, register_agent_definition
from agent_core.skills.context import AgentContext
from agent_core.skills.plugin import Plugin

logger = logging.getLogger(__name__)


def read_plugin(folder: str | os.PathLike[str]) -> PluginParts:
    """The plugin in a folder of this host; raises `SkillValidationError`, which names the file that cannot be used."""
    return PluginParts.read(Path(folder).expanduser())


def register_agents(plugin: Plugin) -> None:
    """Have delegation find the plugin's sub-agents; one of a name that is there stays what it is."""
    for definition in plugin.agents:
        if is_registered(definition.name):
            text = "the sub-agent %r of plugin %r is not used: it is there"
            logger.warning(text, definition.name, plugin.name)
        else:
            register_agent_definition(definition)


async def add_plugin(work: RunLoop, extension: PluginParts) -> None:
    """Add it to the agent of a conversation at rest; one that has begun is told of the skills that are new to it."""
    agent = work.agent
    known = {skill.name for skill in agent.agent_context.skills} if agent.agent_context else set()
    skills = [skill for skill in extension.plugin.skills if skill.name not in known]
    await work.use_agent(agent.with_additions(skills, extension.servers))
    work.sessions.settings = replace(work.settings, hooks=work.settings.hooks.followed_by(extension.hooks))
    has_begun = (await work.log.present()).last_id >= 0
    suffix = AgentContext(skills=skills, current_datetime=None).get_system_message_suffix()
    if has_begun and suffix:
        text = f"The plugin {extension.plugin.name} was added to this conversation.\n\n{suffix}"
        await work.write(MessageEvent(source="environment", sender="plugin", llm_message=Message.user(text)))
