"""`DirectContext`: the context of a call by a program or a hook, which is in no log."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping

from agent_core.errors import ToolError
from agent_core.events.schema import Observation
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.security.secrets import GivenSecret, SecretRegistry
from agent_core.tools.context import Clients, DraftModel, SubAgents, Vision


class DirectContext:
    """The context of a call that is in no log (`agent_core.tools.spec.ToolContext`)."""

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
        sandbox: ConversationSandbox,
        named_secrets: Mapping[str, GivenSecret],
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
        self._secrets.update(named_secrets)

    async def secrets_for(self, command: str) -> dict[str, str]:
        return await self._secrets.environment_for(command)

    def emit_output(self, text: str) -> None:
        """Nobody is looking."""

    async def request_condensation(self) -> None:
        raise ToolError("the history can be condensed only at an agent's own wish; use Conversation.condense()")
