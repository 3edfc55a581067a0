"""`ToolContext`: what an executor is given for one call, and whom it reaches through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent_core.errors import ToolError
from agent_core.events.control import ClientToolResult
from agent_core.events.messages import Frozen, Message
from agent_core.events.schema import Observation


class ToolContext(Protocol):
    """What an executor is told about the call that it serves."""

    conversation_id: str
    action_id: int
    hard_timeout: float | None
    hidden: bool
    """Whether the call is for its caller only, not for the agent: then what it returns is not cut for a model."""
    at_once: bool
    """Whether its caller does not wait for others: a terminal that is busy says so, and input is answered soon."""

    @property
    def latest(self) -> Observation | None:
        """The tool's newest result in this conversation; None where there is none, or the tool does not `remember`."""

    @property
    def sandbox(self) -> SandboxAccess: ...

    @property
    def subagents(self) -> SubAgents | None:
        """The sub-agents of the conversation; None where there cannot be any."""

    @property
    def vision(self) -> Vision | None:
        """The images of the conversation, and who can look at them; None outside of one."""

    @property
    def draft_model(self) -> DraftModel | None:
        """What writes out drafts; None where there is no conversation."""

    @property
    def clients(self) -> Clients | None:
        """The clients of the conversation, who may carry out calls; None where it is in no log that they follow."""

    @property
    def idempotency_key(self) -> str:
        """``conversation_id:event_id``: the same for each attempt at the same action."""

    async def secrets_for(self, command: str) -> dict[str, str]:
        """The values of the secrets that `command` names, as variables for it; hidden wherever they appear."""

    def emit_output(self, text: str) -> None:
        """Show output of the running call live; nothing is stored."""

    async def request_condensation(self) -> None:
        """Have the history condensed before the agent's next step, where the agent has a condenser for that."""


class SandboxReply(Protocol):
    """The answer to one request to the sandbox."""

    @property
    def result(self) -> dict[str, Any]: ...

    @property
    def blob(self) -> bytes | None: ...


class SandboxAccess(Protocol):
    """How a tool's executor reaches the conversation's sandbox."""

    @property
    def working_dir(self) -> str:
        """Absolute path of the workspace inside the sandbox."""

    async def request(
        self,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        limit_seconds: float | None = None,
        on_output: Callable[[str], None] | None = None,
        blob: bytes | None = None,
    ) -> SandboxReply:
        """Ask the runner for one operation; starts or revives the sandbox if need be. Cancelling cancels it there.

        With a `key` it runs at most once. `limit_seconds` is the outer limit. Raises ToolError (arguments refused),
        SandboxLostError (whether it took effect is unknown) or SandboxError (no sandbox; it says why and what to do).
        """


class DraftModel(Protocol):
    """The model that writes out what an agent has drafted."""

    async def answer(self, messages: Sequence[Message]) -> str:
        """What it says, at the conversation's cost; ToolError where it cannot be asked."""


class Clients(Protocol):
    """The clients that follow one conversation."""

    async def ask(
        self, action_id: int, name: str, arguments: Mapping[str, Any], limit_seconds: float
    ) -> ClientToolResult:
        """Have one of them carry out a call; ToolError if none answers in time. After a crash the answer is found."""


class SubAgents(Protocol):
    """The sub-agents of one conversation. A call repeated after a crash goes on; cancelling stops those put to work.

    Methods raise `SubAgentError` where what is asked for does not exist, or nothing may be delegated.
    """

    async def spawn(self, call: ToolContext, ids: Sequence[str], types: Sequence[str]) -> dict[str, SpawnedAgent]:
        """Have a sub-agent for each id, all or none; an id that is in use gets a new one. `types` may be fewer.

        They exist for later calls once the call's result is in the log.
        """

    async def delegate(self, call: ToolContext, tasks: Mapping[str, str]) -> list[TaskReport]:
        """Give these sub-agents their tasks at once, and wait for all; reports in the order of `tasks`."""

    async def task(self, call: ToolContext, prompt: str, agent_type: str, *, resume: str | None) -> TaskRun:
        """Have a new sub-agent do something or, with `resume`, the one of an earlier task, which remembers it."""

    def stopped_by(self, action_id: int) -> str:
        """What became of the sub-agents that this call had put to work, where it was stopped; empty for any other."""

    async def ask(self, call: ToolContext, agent: str, task: str) -> TaskReport:
        """Have a new agent of this class, or sub-agent of this kind, do something; its steps count as the caller's."""


class SpawnedAgent(Frozen):
    """A sub-agent that waits for tasks: what kind it is, and the name of its conversation."""

    agent_type: str
    name: str


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What came of one task: the last word, perhaps empty or partial; and why it did not finish ("" when it did)."""

    result: str
    problem: str = ""

    @property
    def text(self) -> str:
        """Result, or problem with what there is of a result."""
        if not self.problem:
            return self.result or "(It finished without a word.)"
        return f"{self.problem}\nIts last word before that: {self.result}" if self.result else self.problem


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One call of the `task` tool: the id under which the sub-agent can be asked again, its kind, what came of it."""

    task_id: str
    agent_type: str
    report: TaskReport


class SubAgentError(ToolError):
    """Sub-agents cannot do what was asked; the message says why and what to do, for the model."""


class Vision(Protocol):
    """The images of one conversation, and the models that can look at them."""

    async def look(self, call: ToolContext, image_index: int, question: str, profile_name: str | None) -> Sight:
        """Have a stored model answer a question about an image that the call's maker was told of; else `ToolError`."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a stored model says of an image."""

    text: str
    profile_name: str
    model: str
