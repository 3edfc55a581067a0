"""Bringing up the plugins of an agent's sandbox, when it starts and whenever it has started anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from agent_core.errors import DrydockError, SandboxError, SandboxLostError, ToolError
from agent_core.events.stream import EventStream
from agent_core.events.transient import READY, StatusNotice
from agent_core.runtime.channel.connection import SandboxConnection, SharedSandbox
from agent_core.session.repository import report
from agent_core.tools.plugins import PluginRequirement

SETTING_UP_PLUGIN: Final = "STATUS$SETTING_UP_WORKSPACE"

logger = logging.getLogger(__name__)


class SandboxPlugins:
    """The plugins of one conversation's sandbox. `changed` listens to the sandbox; `run` is a task of the session's."""

    def __init__(
        self, plugins: Sequence[PluginRequirement], sandbox: SandboxConnection | SharedSandbox, stream: EventStream
    ) -> None:
        # A sub-agent's sandbox is its parent's, who has brought up what is there.
        is_own = isinstance(sandbox, SandboxConnection)
        self._plugins = [one for one in plugins if is_own and not one.is_there_already]
        self._sandbox = sandbox
        self._stream = stream
        self._started_anew = asyncio.Event()

    async def start(self) -> None:
        """Bring them up in a sandbox that has come up, unless it was at work all the time."""
        if self._is_new:
            await self.bring_up()

    @property
    def _is_new(self) -> bool:
        return isinstance(self._sandbox, SandboxConnection) and not self._sandbox.sandbox.survived

    async def bring_up(self) -> None:
        """One after the other; a failure is told, and the others are brought up. Raises `SandboxLostError`."""
        self._started_anew.clear()
        for plugin in self._plugins:
            self._stream.publish(StatusNotice(SETTING_UP_PLUGIN, f"Setting up the plugin {plugin.name}..."))
            try:
                async with asyncio.timeout(plugin.limit_seconds):
                    await plugin.bring_up(self._sandbox)
            except SandboxLostError:
                raise
            except TimeoutError:
                await self._failed(plugin, f"it was not there within {plugin.limit_seconds:g} s")
            except (SandboxError, ToolError) as error:
                await self._failed(plugin, str(error))
            except Exception as error:  # a plugin of somebody's own
                logger.exception("the plugin %s failed", plugin.name)
                await self._failed(plugin, f"{type(error).__name__}: {error}")

    def changed(self, status_id: str, text: str) -> None:
        if status_id == READY and self._plugins and self._is_new:
            self._started_anew.set()

    async def run(self) -> None:
        """Bring them up again each time that the sandbox has started anew, until it is cancelled."""
        while True:
            await self._started_anew.wait()
            try:
                await self.bring_up()
            except DrydockError as error:
                logger.warning("conversation %s: plugins were not brought up: %s", self._stream.conversation_id, error)

    async def _failed(self, plugin: PluginRequirement, problem: str) -> None:
        await report(self._stream, f"The plugin {plugin.name} could not be set up: {problem}")
