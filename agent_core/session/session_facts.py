"""What can be asked of a session at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from agent_core.controller.state import INTERRUPTING, ConversationState
from agent_core.controller.step import Step
from agent_core.events.control import AgentState
from agent_core.events.stream import EventStream
from agent_core.security.hooks import HookEvent
from agent_core.security.secrets import GivenSecret, SecretRegistry
from agent_core.session.parts import Parts
from agent_core.session.settings import SessionSettings
from agent_core.session.status_report import StatusReport
from agent_core.session.tool_servers import ToolServers
from agent_core.skills.skill import Skill
from agent_core.tools.live import LiveTools
from agent_core.tools.spec import Tool
from agent_core.tools.vision_inspect import VisionInspectTool

AT_REST = INTERRUPTING | {AgentState.ERROR, AgentState.AWAITING_USER_CONFIRMATION}
"""States in which an agent waits for its user."""
LOOK_SECONDS: Final = 0.005
SETTLE_LOOKS: Final = 100


class SessionFacts:
    """The part of an `AgentSession` that tells how it is, and changes what it has from others."""

    stream: EventStream
    settings: SessionSettings
    secrets: SecretRegistry
    _report: StatusReport
    _parts: Parts | None
    _step: Step
    _tools: LiveTools
    _tool_servers: ToolServers

    def set_client_tools(self, tools: Sequence[Tool]) -> None:
        """From its next step on the agent has these tools of clients, in place of those before; valid after `open`.

        Calls that clients carry out at the moment are not touched.

        Raises:
            ValueError: the agent has another tool of such a name, or one cannot be made; nothing has changed then.
        """
        self._tool_servers.set_client_tools(tools)

    def set_named_secrets(self, secrets: Mapping[str, GivenSecret]) -> None:
        """From now on commands get these secrets in place of the settings' `named_secrets`; valid after `open`.

        What was a secret once stays hidden.
        """
        self.secrets.remove(self.settings.named_secrets.keys() - secrets.keys())
        self.secrets.update(secrets)
        self.settings = replace(self.settings, named_secrets=dict(secrets))

    @property
    def runtime_status(self) -> str:
        """State of the sandbox as the public protocol names it."""
        return self._report.status

    @property
    def runtime_warning(self) -> str:
        """What is wrong with the network of the sandbox, for people; empty if nothing is."""
        return self._report.warning

    @property
    def agent_state(self) -> AgentState:
        """What the agent is doing, as far as the log was read; loading before the session is ready."""
        return self._state.agent_state if self._state is not None else AgentState.LOADING

    async def settled_state(self) -> AgentState:
        """`agent_state` by all that is stored now; its controller reads that a moment later than others may."""
        stored = self.stream.last_id
        for _ in range(SETTLE_LOOKS):
            if self._state is None or self._state.last_event_id >= stored:
                break
            await asyncio.sleep(LOOK_SECONDS)
        return self.agent_state

    @property
    def has_images_inspected(self) -> bool:
        """Whether the agent can have a stored model look at images that its own does not see; valid after `open`."""
        return VisionInspectTool.tool_name in self._tools

    @property
    def is_confirmation_mode_active(self) -> bool:
        """Whether actions are analyzed and may wait for the user; valid after `open`."""
        return self._step.gate(self._state).is_confirmation_mode_active

    @property
    def _state(self) -> ConversationState | None:
        return self._parts.controller.state if self._parts is not None else None

    async def skills(self) -> list[Skill] | None:
        """The skills that the agent may be told, with those of its workspace; None before the session is ready."""
        return await self._parts.memory.skills() if self._parts is not None else None

    @property
    def failure(self) -> Exception | None:
        """What the agent failed with the last time in this session; None where it did not."""
        return self._parts.controller.failure if self._parts is not None else None

    def has_hooks(self, event: HookEvent) -> bool:
        """Whether any hook wants to know of such an event; valid after `start`."""
        return self._parts is not None and self._parts.hooks.has(event)

    @property
    def is_at_rest(self) -> bool:
        """Whether the agent has read the whole log and does nothing until its user does something.

        What it was doing is stopped and answered then, unless a part of the session has failed for good.
        """
        state, parts = self._state, self._parts
        if self._report.is_broken:
            return True
        if state is None or parts is None:
            return False
        waits = state.agent_state in AT_REST and (state.agent_state is AgentState.ERROR or not state.wants_attention)
        return waits and min(state.last_event_id, parts.runtime.dealt_with) >= self.stream.last_id
