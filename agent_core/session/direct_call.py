"""`DirectContext`: single calls of a conversation's tools by its program or a hook, which are in no log."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping

from agent_core.errors import ToolError
from agent_core.events.schema import Action, Observation
from agent_core.runtime.channel.shared_sandbox import KeyedSandbox
from agent_core.security.secrets import GivenSecret, SecretRegistry
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import Clients, DraftModel
from agent_core.tools.subagents import SubAgents
from agent_core.tools.vision_inspect import Vision


class DirectContext:
    """What an executor is told about a call that is in no log (`agent_core.tools.spec.ToolContext`)."""

    action_id = -1
    hard_timeout: float | None = None
    hidden: bool = False
    at_once: bool = False
    subagents: SubAgents | None = None
    vision: Vision | None = None
    clients: Clients | None = None

    def __init__(
        self,
        conversation_id: str,
        sandbox: KeyedSandbox,
        given: Mapping[str, GivenSecret],
        hide: Callable[[Iterable[str]], None],
        latest: Observation | None,
        draft_model: DraftModel | None = None,
    ) -> None:
        self.conversation_id = conversation_id
        self.sandbox = sandbox
        self.latest = latest
        self.draft_model = draft_model
        self.idempotency_key = f"direct:{secrets.token_hex(16)}"
        self._secrets = SecretRegistry(hide)
        self._secrets.update(given)

    async def secrets_for(self, command: str) -> dict[str, str]:
        return await self._secrets.environment_for(command)

    def emit_output(self, text: str) -> None:
        """Nobody is looking."""

    async def request_condensation(self) -> None:
        raise ToolError("the history can be condensed only at an agent's own wish; use Conversation.condense()")


def tool_named(tools: Mapping[str, ToolDefinition], name: str, action: Action) -> ToolDefinition:
    """The tool of this name; `KeyError` where there is none, `TypeError` where it takes another kind of action."""
    found = tools.get(name)
    if found is None:
        raise KeyError(f"tool {name!r} is not there; available are {sorted(tools)}")
    if not isinstance(action, found.action_type):
        raise TypeError(f"tool {name!r} takes a {found.action_type.__name__}, not a {type(action).__name__}")
    return found.as_executable()


async def call_directly(definition: ToolDefinition, action: Action, context: DirectContext) -> Observation:
    """Carry out one call; the sandbox keeps nothing of it."""
    try:
        return await definition.acall(action, context)
    finally:
        await context.sandbox.ack([context.idempotency_key])
