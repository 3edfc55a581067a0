"""Bringing up the plugins of an agent's sandbox, when it starts and whenever it has started anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.session.repository import report
from agent_core.tools.context import SandboxAccess
from agent_core.tools.plugins import PLUGINS_FOLDER, PluginRequirement
from agent_core.troubles import Trouble, coded

SETTING_UP_PLUGIN: Final = "STATUS$SETTING_UP_WORKSPACE"

_MARK: Final = f"{PLUGINS_FOLDER}/.up"
"""Is there once all were brought up: a server that ended before finds the sandbox at work, and its plugins in part."""
_MARK_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


class SandboxPlugins:
    """The plugins of one conversation's sandbox; false where each sandbox has all of them already."""

    def __init__(self, plugins: Sequence[PluginRequirement], stream: EventStream) -> None:
        self._plugins = [one for one in plugins if not one.is_there_already]
        self._stream = stream

    def __bool__(self) -> bool:
        return bool(self._plugins)

    async def are_up(self, sandbox: SandboxAccess) -> bool:
        """Whether they were brought up, all of them, in this sandbox, which was at work all the time."""
        return not self._plugins or await _marked(sandbox, f"test -e {_MARK}")

    async def bring_up(self, sandbox: SandboxAccess) -> None:
        """One after the other; a failure is told, and the others are brought up. Raises `SandboxError`."""
        if not self._plugins:
            return
        await _marked(sandbox, f"rm -f {_MARK}")
        for plugin in self._plugins:
            self._stream.publish(StatusNotice(SETTING_UP_PLUGIN, f"Setting up the plugin {plugin.name}..."))
            try:
                async with asyncio.timeout(plugin.limit_seconds):
                    await plugin.bring_up(sandbox)
            except SandboxLostError:
                raise
            except TimeoutError:
                await self._failed(plugin, f"it was not there within {plugin.limit_seconds:g} s")
            except (SandboxError, ToolError) as error:
                await self._failed(plugin, str(error))
            except Exception as error:  # a plugin of somebody's own
                logger.debug("the plugin %s failed", plugin.name, exc_info=True)
                await self._failed(plugin, f"{type(error).__name__}: {error}")

        await _marked(sandbox, f"mkdir -p {PLUGINS_FOLDER} && touch {_MARK}")

    async def _failed(self, plugin: PluginRequirement, problem: str) -> None:
        text, where = f"The plugin {plugin.name} could not be set up: {problem}", self._stream.conversation_id
        logger.warning("conversation %s: %s", where, text, extra=coded(Trouble.PLUGIN_FAILED, where))
        await report(self._stream, text)


async def _marked(sandbox: SandboxAccess, command: str) -> bool:
    args = {"command": command, "fresh": True, "timeout": _MARK_SECONDS}
    return bool((await sandbox.request("shell.run", args, limit_seconds=2 * _MARK_SECONDS)).result["exit_code"] == 0)
