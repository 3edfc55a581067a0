"""A sandbox without a runner: each request is answered at once, by a method of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_core.events.schema import Observation
from agent_core.tools.context import Clients, DraftModel, SubAgents, Vision


@dataclass(frozen=True, slots=True)
class Asked:
    """One request; see `agent_core.tools.spec.SandboxAccess.request` for what its parts mean."""

    op: str
    args: dict[str, Any]
    key: str | None = None
    limit_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    result: dict[str, Any]
    blob: bytes | None = None


@dataclass
class AnsweringSandbox:
    """The interface `SandboxAccess`, answered by `answer`; `asked` holds every request in order."""

    asked: list[Asked] = field(default_factory=list, kw_only=True)
    working_dir: str = field(default="/workspace", kw_only=True)

    def answer(self, asked: Asked) -> dict[str, Any]:
        """What a request results in; subclasses say it, or raise what the request is to raise."""
        raise NotImplementedError

    async def request(
        self,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        limit_seconds: float | None = None,
        on_output: Callable[[str], None] | None = None,
        blob: bytes | None = None,
    ) -> Reply:
        """Answer one request."""
        asked = Asked(op, dict(args), key, limit_seconds)
        self.asked.append(asked)
        return Reply(self.answer(asked))


@dataclass
class FakeCall:
    """The interface `ToolContext` of action 3 of the conversation ``c``; `shown` is what was shown live.

    The one secret, ``TOKEN``, is for the commands that name it.
    """

    sandbox: AnsweringSandbox
    conversation_id: str = "c"
    action_id: int = 3
    hard_timeout: float | None = None
    hidden: bool = False
    at_once: bool = False
    idempotency_key: str = "c:3"
    latest: Observation | None = None
    subagents: SubAgents | None = None
    vision: Vision | None = None
    clients: Clients | None = None
    draft_model: DraftModel | None = None
    shown: list[str] = field(default_factory=list)

    async def secrets_for(self, command: str) -> dict[str, str]:
        """The secrets that the command names."""
        return {"TOKEN": "s3cret"} if "token" in command.lower() else {}

    def emit_output(self, text: str) -> None:
        """Keep what is shown."""
        self.shown.append(text)

    async def request_condensation(self) -> None:
        """There is no history."""
