"""What a tool's executor is told about the call that it serves."""

from __future__ import annotations

from agent_core.events.control import CondensationRequest
from agent_core.events.llm_events import ActionEvent
from agent_core.events.masking import StreamingMask
from agent_core.events.schema import Observation
from agent_core.events.stream import EventStream
from agent_core.events.transient import OutputDelta
from agent_core.security.secrets import SecretRegistry
from agent_core.tools.clients import Clients
from agent_core.tools.spec import DraftModel, SandboxAccess
from agent_core.tools.subagents import SubAgents
from agent_core.tools.vision_inspect import Vision


class CallContext:
    """What an executor is told about its call (`agent_core.tools.spec.ToolContext`)."""

    def __init__(
        self,
        stream: EventStream,
        sandbox: SandboxAccess,
        action: ActionEvent,
        secrets: SecretRegistry | None = None,
        latest: Observation | None = None,
        subagents: SubAgents | None = None,
        vision: Vision | None = None,
        draft_model: DraftModel | None = None,
        clients: Clients | None = None,
    ) -> None:
        self.conversation_id = stream.conversation_id
        self.action_id = action.id
        self.hard_timeout = action.hard_timeout
        self.hidden = action.hidden
        self.at_once = action.source == "user"
        self.sandbox = sandbox
        self.latest = latest
        self.subagents = subagents
        self.vision = vision
        self.draft_model = draft_model
        self.clients = clients
        self._secrets = secrets
        self._stream = stream
        self._mask = StreamingMask(stream.secrets)

    @property
    def idempotency_key(self) -> str:
        """The same for each attempt at the same action."""
        return f"{self.conversation_id}:{self.action_id}"

    async def secrets_for(self, command: str) -> dict[str, str]:
        """The variables with the secrets that `command` names; their values are hidden from now on."""
        return await self._secrets.environment_for(command) if self._secrets else {}

    def emit_output(self, text: str) -> None:
        """Show output live, masked."""
        if shown := self._mask.feed(text):
            self._stream.publish(OutputDelta(self.action_id, shown))

    async def request_condensation(self) -> None:
        """Store the request."""
        await self._stream.add_event(CondensationRequest(cause=self.action_id))
