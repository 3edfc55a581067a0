"""One action carried out: its hooks, its locks, its tool, and the answer to it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final, Self

from pydantic import ValidationError

from agent_core.errors import EventStoreError, SandboxError, SandboxLostError, ToolError
from agent_core.events.branches import Branches, Pages, Rewind, read_branch
from agent_core.events.classification import ErrorClassification
from agent_core.events.control import CondensationRequest
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.masking import StreamingMask
from agent_core.events.messages import TextContent
from agent_core.events.schema import Observation, UnknownAction, problems_in
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import OutputDelta
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.runtime.hook_calls import ConversationHooks
from agent_core.security.secrets import SecretRegistry
from agent_core.spans import Span
from agent_core.tools.context import Clients, DraftModel, SandboxAccess, SubAgents, Vision
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import CallableTools, tool_called
from agent_core.tools.spec import DeclaredResources
from agent_core.tools.truncation import maybe_truncate


class LatestResults:
    """The newest result that is no error, of each tool that `remembers`."""

    def __init__(self, tools: Mapping[str, ToolDefinition], log: Pages[AnyEvent]) -> None:
        self._remembering = frozenset(name for name, tool in tools.items() if tool.remembers)
        self._log = log
        self._branches = Branches()
        self._found: dict[str, ObservationEvent] = {}
        self._unstored: dict[str, tuple[int, Observation]] = {}
        self._is_stale = False

    def observe(self, event: AnyEvent) -> None:
        counts = self._branches.fold(event)
        if isinstance(event, Rewind):
            self._found = {}
            self._unstored.clear()
            self._is_stale = True
        elif counts:
            self._take(self._found, event)

    def done(self, action: ActionEvent, observation: Observation) -> None:
        if action.tool_name in self._remembering and not observation.is_error:
            self._unstored[action.tool_name] = action.id, observation

    def answered(self, event: AnyEvent) -> None:
        if event.cause is None or self._branches.has(event.cause):
            self._take(self._found, event)
        if isinstance(event, ObservationEvent) and self._unstored.get(event.tool_name, (None,))[0] == event.cause:
            self._unstored.pop(event.tool_name, None)

    async def of(self, tool_name: str) -> Observation | None:
        """The newest result of this tool, if any. After a rewind the log is read once more."""
        if tool_name not in self._remembering:
            return None
        while self._is_stale:
            rewinds, found = self._branches.rewinds, dict[str, ObservationEvent]()
            async for event in read_branch(self._log, self._branches):
                self._take(found, event)
            if rewinds == self._branches.rewinds:
                for event in self._found.values():  # what has come meanwhile
                    self._take(found, event)
                self._found, self._is_stale = found, False
        if tool_name in self._unstored:
            return self._unstored[tool_name][1]
        known = self._found.get(tool_name)
        return None if known is None else known.observation

    def _take(self, found: dict[str, ObservationEvent], event: AnyEvent) -> None:
        if not isinstance(event, ObservationEvent) or event.tool_name not in self._remembering:
            return
        before = found.get(event.tool_name)
        if not event.observation.is_error and (before is None or before.id < event.id):
            found[event.tool_name] = event


STOPPED_ID = "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_STOPPED"
MAX_ANSWER_CHARS = 30_000
FAILED_ID = "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_ERROR"

LOST = (
    "The server was restarted, and whoever knew about this action is gone: it is unknown whether it took effect, "
    "wholly or in part. Look before you repeat it."
)


STOPPED_BEFORE = "Stopped by the user before it ran."
NOT_BEGUN = "The server was restarted before it could run."
BROKEN_OFF = "The server was restarted before it was done; what it had done by then stands."


def rejection(action: ActionEvent, decision: ActionDecision) -> UserRejectObservation:
    """The answer to an action that the user refused."""
    extra = {"rejection_reason": f"the user refused it and said: {decision.reason}"} if decision.reason else {}
    return UserRejectObservation(cause=action.id, tool_name=action.tool_name, tool_call_id=action.tool_call_id, **extra)


def interrupted(action: ActionEvent, text: str) -> AgentErrorEvent:
    """The answer to an action that was stopped before or while it ran."""
    return failure(action, text, classification=ErrorClassification.INTERRUPTED, error_id=STOPPED_ID)


def failure(
    action: ActionEvent,
    text: str,
    *,
    classification: ErrorClassification = ErrorClassification.AGENT_ACTION,
    error_id: str = "",
) -> AgentErrorEvent:
    """The answer to an action that could not be done."""
    return AgentErrorEvent(
        source=action.source,
        cause=action.id,
        error=maybe_truncate(text, MAX_ANSWER_CHARS),
        tool_name=action.tool_name,
        tool_call_id=action.tool_call_id,
        classification=classification,
        error_id=error_id,
    )


LOCK_SECONDS: Final = {"file": 30.0, "terminal": 300.0, "ipython": 300.0, "browser": 300.0, "mcp": 300.0, "tool": 60.0}
OTHER_SECONDS: Final = 30.0


class ResourceLocks:
    """A queue for each resource that is used or waited for; whoever is first in it may use it."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[ResourceTurn]] = {}

    def turn(self, tool_name: str, resources: DeclaredResources) -> ResourceTurn:
        """A place, taken at once, in the queue of each key of a call, or of the whole tool: so calls keep their order.

        To be entered, which waits until it is first everywhere; no two ever wait for each other.
        """
        keys = sorted(set(resources.keys)) if resources.declared else [f"tool:{tool_name}"]
        turn = ResourceTurn(self._queues, keys)
        for key in keys:
            self._queues.setdefault(key, deque()).append(turn)
        return turn


class ResourceTurn:
    """One call's places in the queues."""

    def __init__(self, queues: dict[str, deque[ResourceTurn]], keys: list[str]) -> None:
        self._queues = queues
        self._keys = keys
        self._moved = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Wait until everything is free; raises `ToolError` after the limit."""
        try:
            for key in self._keys:
                await self._be_first(key)
        except BaseException:
            self.leave()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.leave()

    def leave(self) -> None:
        keys, self._keys = self._keys, []
        for key in keys:
            queue = self._queues[key]
            queue.remove(self)
            if queue:
                queue[0]._moved.set()
            else:
                del self._queues[key]

    async def _be_first(self, key: str) -> None:
        queue = self._queues[key]
        if queue[0] is self:
            return
        limit = LOCK_SECONDS.get(key.partition(":")[0], OTHER_SECONDS)
        try:
            async with asyncio.timeout(limit):
                while queue[0] is not self:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            text = f"{key} is in use by another call, and was not free within {limit:g} s; try again later"
            raise ToolError(text) from None


@dataclass(frozen=True, slots=True)
class CallServices:
    """What the calls of a conversation's tools can draw on besides its sandbox."""

    secrets: SecretRegistry | None = None
    subagents: SubAgents | None = None
    vision: Vision | None = None
    draft_model: DraftModel | None = None
    clients: Clients | None = None


class ActionContext:
    """The context of an executor's call (`agent_core.tools.spec.ToolContext`)."""

    def __init__(
        self,
        stream: EventStream,
        sandbox: SandboxAccess,
        action: ActionEvent,
        services: CallServices,
        latest: Observation | None = None,
    ) -> None:
        self.conversation_id = stream.conversation_id
        self.action_id = action.id
        self.hard_timeout = action.hard_timeout
        self.hidden = action.hidden
        self.at_once = action.source == "user"
        self.sandbox = sandbox
        self.latest = latest
        self.subagents = services.subagents
        self.vision = services.vision
        self.draft_model = services.draft_model
        self.clients = services.clients
        self._secrets = services.secrets
        self._stream = stream
        self._mask = StreamingMask(stream.secrets)

    @property
    def idempotency_key(self) -> str:
        return f"{self.conversation_id}:{self.action_id}"

    async def secrets_for(self, command: str) -> dict[str, str]:
        return await self._secrets.environment_for(command) if self._secrets else {}

    def emit_output(self, text: str) -> None:
        if shown := self._mask.feed(text):
            self._stream.publish(OutputDelta(self.action_id, shown))

    async def request_condensation(self) -> None:
        await self._stream.add_event(CondensationRequest(cause=self.action_id))


class DirectContext:
    """The context of a call that is in no log (`agent_core.tools.spec.ToolContext`), or of no conversation at all."""

    action_id = -1
    hard_timeout: float | None = None
    hidden: bool = False
    at_once: bool = False
    subagents: SubAgents | None = None
    vision: Vision | None = None
    clients: Clients | None = None

    def __init__(
        self,
        sandbox: ConversationSandbox,
        conversation_id: str = "",
        *,
        secrets: SecretRegistry | None = None,
        latest: Observation | None = None,
        draft_model: DraftModel | None = None,
    ) -> None:
        self.sandbox = sandbox
        self.conversation_id = conversation_id
        self.latest = latest
        self.draft_model = draft_model
        self.idempotency_key = f"direct:{token_hex(16)}" if conversation_id else ""
        self._secrets = secrets

    async def secrets_for(self, command: str) -> dict[str, str]:
        return await self._secrets.environment_for(command) if self._secrets else {}

    def emit_output(self, text: str) -> None:
        """Nobody is looking."""

    async def request_condensation(self) -> None:
        raise ToolError("the history can be condensed only at an agent's own wish; use Conversation.condense()")


logger = logging.getLogger(__name__)

LAST_OUTPUT_SECONDS = 2.0
LAST_OUTPUT_CHARS = 10_000
MAX_ERROR_CHARS = 2_000


class ActionRunner:
    """Carries out single actions of one conversation, several at a time if need be; it stores nothing.

    `rules_for` gives the rules, and their names, of a touched file that were not told before.
    """

    def __init__(
        self,
        stream: EventStream,
        tools: Mapping[str, ToolDefinition],
        sandbox: ConversationSandbox,
        latest: LatestResults,
        services: CallServices,
        *,
        hooks: ConversationHooks,
        rules_for: Callable[[str], tuple[TextContent, list[str]] | None],
    ) -> None:
        self._stream = stream
        self._tools = tools
        self._callable = CallableTools(tools)
        self._sandbox = sandbox
        self._latest = latest
        self._services = services
        self._hooks = hooks
        self._rules_for = rules_for
        self._locks = ResourceLocks()

    def key(self, action: ActionEvent) -> str:
        return f"{self._stream.conversation_id}:{action.id}"

    async def execute(self, action: ActionEvent) -> AnyEvent:
        asked_in = self._stream.step if action.source == "agent" else self._stream.asked_in
        with Span("tool_call", asked_in, tool=action.tool_name, conversation=self._stream.conversation_id) as span:

            def failed(text: str, **more: Any) -> AgentErrorEvent:
                answer = failure(action, text, **more)
                span.error = str(answer.classification)
                return answer

            # In one piece: a coroutine around this one would be left by an exit that a tool's thread throws in.
            definition = self._callable.of(action) or await tool_called(action.tool_name, self._tools)
            if definition is None or action.action is None or isinstance(action.action, UnknownAction):
                return failed(f"Tool {action.tool_name!r} is not available in this conversation any more.")
            hooks = self._hooks if action.source == "agent" else None
            turn: ResourceTurn | None = None
            try:
                waits_itself = definition.tells_when_busy and action.source == "user"
                touched = (
                    DeclaredResources(declared=True) if waits_itself else definition.declared_resources(action.action)
                )
                turn = self._locks.turn(definition.name, touched)
                if definition.journaled:  # before the hooks, too, which run in the sandbox
                    await self._sandbox.until_thawed()
                if hooks is not None and (refused := await hooks.before(action)) is not None:
                    return refused
                async with turn:
                    latest = await self._latest.of(action.tool_name)
                    context = ActionContext(self._stream, self._sandbox, action, self._services, latest)
                    observation = await definition.acall(action.action, context)
                    self._latest.done(action, observation)
                if hooks is not None and (words := await hooks.after(action, observation)):
                    remarks = [TextContent(text=f"[A hook says] {text}") for text in words]
                    observation = observation.model_copy(update={"content": [*observation.content, *remarks]})
            except ValueError as error:
                reason = problems_in(error) if isinstance(error, ValidationError) else str(error)
                return failed(f"Error executing tool {action.tool_name!r}: {reason}")
            except SandboxLostError as error:
                text = f"The sandbox was lost while this ran, so it is unknown whether it took effect. {error}"
                return failed(text, classification=ErrorClassification.SANDBOX, error_id=FAILED_ID)
            except SandboxError as error:
                return failed(str(error), classification=ErrorClassification.SANDBOX, error_id=FAILED_ID)
            except EventStoreError as error:  # it reads or writes the log, which fails for now
                logger.warning("tool %s failed in %s: %s", action.tool_name, self.key(action), error)
                return failed(str(error), classification=ErrorClassification.INTERNAL, error_id=FAILED_ID)
            except Exception as error:
                logger.exception("tool %s failed in %s", action.tool_name, self.key(action))
                text = f"Error executing tool {action.tool_name!r}: {type(error).__name__}: {error}"[:MAX_ERROR_CHARS]
                return failed(text, classification=ErrorClassification.INTERNAL, error_id=FAILED_ID)
            finally:
                if turn is not None:
                    turn.leave()
            span.error = "is_error" if observation.is_error else ""
            path = getattr(action.action, "path", None)
            rules = self._rules_for(path) if isinstance(path, str) and path else None
            return ObservationEvent(
                source=action.source,
                extended_content=[rules[0]] if rules is not None else [],
                activated_skills=rules[1] if rules is not None else [],
                cause=action.id,
                observation=observation,
                tool_name=action.tool_name,
                tool_call_id=action.tool_call_id,
                hidden=action.hidden,
            )

    async def stopped(self, action: ActionEvent) -> AnyEvent:
        text = "Stopped by the user while it ran."
        if output := await self._last_output(action):
            text += f" Its output until then:\n{output[-LAST_OUTPUT_CHARS:]}"
        subagents = self._services.subagents
        if subagents is not None and (note := subagents.stopped_by(action.id)):
            text += f" {note}"
        return interrupted(action, text)

    async def _last_output(self, action: ActionEvent) -> str:
        definition = self._callable.of(action)
        if definition is None or action.action is None:
            return ""
        try:
            async with asyncio.timeout(LAST_OUTPUT_SECONDS):
                if await self._sandbox.lookup(self.key(action)) in ("running", "done"):
                    services = CallServices(self._services.secrets)
                    context = ActionContext(self._stream, self._sandbox, action, services)
                    return (await definition.acall(action.action, context)).text
        except (TimeoutError, SandboxError, ToolError):
            pass
        except Exception:  # whatever the tool makes of a result that was cut short, the action gets its answer
            logger.debug("the last output of %s is not known", self.key(action), exc_info=True)
        return ""
