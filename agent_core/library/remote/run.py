"""`RemoteRun`: the runs of a conversation that a server carries out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar, cast

from agent_core.agent.base import AgentBase
from agent_core.agent.client_tool import ClientTool, ClientToolAction
from agent_core.errors import (
    DrydockError,
    NoSuchEventError,
    NotStuckError,
    RemoteError,
    ToolError,
)
from agent_core.events.branches import Rewind
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    ClientToolResult,
    InterruptEvent,
    LoopRecovery,
    PauseEvent,
)
from agent_core.events.event import utc_now
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent, SystemPromptEvent
from agent_core.events.messages import TextContent
from agent_core.events.schema import Action, Observation
from agent_core.events.serialization import AnyEvent, from_payload, to_payload
from agent_core.events.store import InMemoryEventStore, NewEvent, StoredEvent
from agent_core.events.transient import TextDelta
from agent_core.library.callbacks import Callbacks
from agent_core.library.conversation_log import ExecutionStatus, StatusFold
from agent_core.library.remote.program import ProgramData, program_of
from agent_core.library.remote.sandbox import RemoteSandbox, RemoteSandboxUse
from agent_core.library.run_loop import RunLoop
from agent_core.library.workspace import RemoteWorkspace
from agent_core.llm.metrics import ConversationStats, Metrics
from agent_core.runtime.action_runner import DirectContext
from agent_core.runtime.loop_thread import library_loop
from agent_core.security.secrets import SecretRegistry
from agent_core.session.agent_session import AT_REST
from agent_core.session.factory import with_full_context
from agent_core.session.settings import SessionSettings
from agent_core.tools.definition import ToolDefinition
from drydock_client import ClientError, ConflictError, DrydockClient, InvalidError, NotFoundError
from drydock_client.live import FIRST_DELAY, MAX_DELAY
from drydock_client.programs import PASSING, LogItem

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAGE = 200
DECIDE_SECONDS = 60.0
"""How long a server may take to answer what waits for the user, or to pause an agent."""


class MirroredLog(InMemoryEventStore):
    """A copy of the server's log, made before it is first read."""

    def __init__(self, make_ready: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._make_ready = make_ready

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        await self._make_ready()
        return await super().read(conversation_id, after=after, limit=limit)


class RemoteRun(RunLoop):
    """Does what a `Conversation` is asked to do by asking the server, whose log it follows from the first use on.

    The agent, its settings and its secrets are the server's from the next run on; the program's own tools are called in
    this process. Errors of the connection are `RemoteError`.
    """

    def __init__(
        self,
        conversation_id: str,
        *,
        agent: AgentBase,
        settings: SessionSettings,
        workspace: RemoteWorkspace,
        callbacks: Callbacks,
    ) -> None:
        self._mirror = MirroredLog(self._ready)
        self._workspace = workspace
        self._client = DrydockClient(
            workspace.url, workspace.api_key, timeout=workspace.timeout, ca_file=workspace.ca_file
        )
        self._sandbox = RemoteSandbox(conversation_id, self._client.programs, self._call)
        super().__init__(
            conversation_id,
            store=self._mirror,
            data_dir="",
            persistence_dir=None,
            agent=agent,
            settings=settings,
            sandbox=RemoteSandboxUse(self._found_sandbox),
            callbacks=callbacks,
        )
        self._program: ProgramData | None = None
        self._opening = asyncio.Lock()
        self._is_open = False
        self._at_work = False
        self._asked: int | None = None
        """Where the log asks for the run that is at work; None until it does."""
        self._stopped_by: ChangeAgentState | None = None
        """What has stopped the run that is at work before it was asked for."""
        self._last_change = -1
        self._loading = -1
        self._failed_to_load = False
        self._moved = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._results: dict[int, Observation] = {}
        self._counted: Mapping[str, Metrics] = {}

    @property
    def is_running(self) -> bool:
        return self._at_work

    # --- the server ---

    async def _call(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except ClientError as error:
            raise RemoteError(f"{self._workspace.url}: {error}") from error

    async def _found_sandbox(self) -> RemoteSandbox:
        await self._ready()
        return self._sandbox

    async def _ready(self) -> None:
        """Make the conversation, or find it; then follow its log."""
        if self._is_open:
            return
        async with self._opening:
            if self._following is not None:  # another one was first
                return
            if not self.agent.is_initialized:
                await asyncio.get_running_loop().run_in_executor(self.callbacks.thread, self._make_tools)
            await self._client.__aenter__()
            try:
                self._program = await program_of(self.agent, self.settings, self.state)
                await self._call(self._found_or_made(self._program))
            except BaseException:
                await self._client.__aexit__(None, None, None)
                raise
            self._is_open = True
            library_loop().close_at_exit(self.close)
            self._following = asyncio.create_task(self._follow(), name=f"follow:{self.conversation_id}")

    def _make_tools(self) -> None:
        """For a program that looks before it does anything."""
        self.sessions.use_agent(with_full_context(self.agent))
        self.agent.initialize(self.state)

    async def _found_or_made(self, program: ProgramData) -> None:
        api = self._client.programs
        try:
            await self._client.conversation(self.conversation_id)
        except NotFoundError:
            await api.create(self.conversation_id, program.data)
            return
        with contextlib.suppress(ConflictError):  # it is at work: it is told before the next run
            await api.replace(self.conversation_id, program.data)
        last = await self._mirror.last_id(self.conversation_id)  # of an attempt that was broken off
        while (page := await api.page(self.conversation_id, after=last)).events:
            for data in page.events:
                last = await self._keep(data, int(data["id"]))

    async def _keep(self, data: dict[str, Any], event_id: int) -> int:
        payload = json.dumps({name: value for name, value in data.items() if name != "id"}).encode()
        event = from_payload(payload, event_id, self.conversation_id)
        if isinstance(event, AgentStateChanged):
            failed = event.agent_state is AgentState.ERROR and bool(event.reason)
            self._failed_to_load = failed and self._last_change == self._loading
            self._last_change = event_id
            self._loading = event_id if event.agent_state is AgentState.LOADING else self._loading
        await self._mirror.append(
            self.conversation_id,
            [NewEvent(event.kind, event.source, event.cause, utc_now(), to_payload(self._own(event)))],
        )
        return event_id

    def _own(self, event: AnyEvent) -> AnyEvent:
        """The event with the program's own action and observation in it, where it is of a tool of its own."""
        own = self._program.own_tools if self._program is not None else {}
        definition = own.get(getattr(event, "tool_name", ""))
        if definition is None:
            return event
        if isinstance(event, ActionEvent) and isinstance(event.action, ClientToolAction):
            with contextlib.suppress(ValueError):
                return event.model_copy(update={"action": definition.action_from_arguments(event.action.data)})
        if isinstance(event, ObservationEvent) and event.cause in self._results:
            return event.model_copy(update={"observation": self._results[event.cause]})
        return event

    async def _follow(self) -> None:
        fold = await self.log.present()
        self._counted = ConversationStats(fold.core.metrics).usage_to_metrics
        try:
            follow = self._client.programs.follow(
                self.conversation_id, after=fold.last_id, reconnect_seconds=self._workspace.reconnect_seconds
            )
            async for item in follow:
                await self._take(item, fold)
        finally:
            self._moved.set()

    async def _take(self, item: LogItem, fold: StatusFold) -> None:
        data = item.data
        if item.kind == "text" and self.callbacks.for_tokens:
            await self.callbacks.tell(TextDelta(data["response_id"], data["text"], data["channel"]))
        elif item.kind == "client_call":
            self._take_call(data)
        elif item.kind == "event":
            await self._keep(data, item.id)
            (stored,) = await InMemoryEventStore.read(self._mirror, self.conversation_id, after=item.id - 1, limit=1)
            event = from_payload(stored.payload, stored.id, self.conversation_id)
            await self.callbacks.tell(event)
            fold.observe(event)
            if isinstance(event, Rewind):
                await self.log.rejoin(fold)
            self._moved.set()

    async def _until(self, is_so: Any, *, limit_seconds: float | None = None) -> None:
        """Wait until the log makes it so; raises `RemoteError` where it cannot be followed any more."""
        try:
            async with asyncio.timeout(limit_seconds):
                while not is_so():
                    self._moved.clear()
                    following = self._following
                    if following is None or following.done():
                        self._raise_lost()
                    await self._moved.wait()
        except TimeoutError:
            raise RemoteError(f"{self._workspace.url}: the server has not answered in {limit_seconds:g} s") from None

    def _raise_lost(self) -> None:
        error = self._following.exception() if self._following is not None and self._following.done() else None
        text = str(error) if error is not None else "the conversation has ended there"
        raise RemoteError(f"{self._workspace.url}: {text}") from error

    async def _post(self, event: AnyEvent, *, key: str | None = None) -> int:
        data = json.loads(to_payload(event))
        try:
            return (await self._client.programs.add(self.conversation_id, data, key=key)).id
        except InvalidError as error:
            if isinstance(event, Rewind):
                raise NoSuchEventError(error.message) from error
            if isinstance(event, LoopRecovery):
                raise NotStuckError(error.message) from error
            raise RemoteError(f"{self._workspace.url}: {error}") from error
        except ClientError as error:
            raise RemoteError(f"{self._workspace.url}: {error}") from error

    async def _configured(self) -> None:
        """See to it that the server has the agent and the settings as they are now."""
        await self._ready()
        program = await program_of(self.agent, self.settings, self.state)
        if self._program is None or program.data != self._program.data:
            await self._call(self._client.programs.replace(self.conversation_id, program.data))
        self._program = program

    # --- what a conversation asks for ---

    async def say(self, *events: AnyEvent) -> None:
        await self._ready()
        last = -1
        for event in events:
            waits = isinstance(event, MessageEvent)
            last = await self._post(event.model_copy(update={"waits_for_run": True}) if waits else event)
        await self._seen(last)

    async def write(self, *events: AnyEvent) -> list[AnyEvent]:
        await self.say(*events)
        return list(events)

    async def _seen(self, event_id: int) -> None:
        if not (self._at_work or self.callbacks.is_inside):
            fold = await self.log.present()
            await self._until(lambda: fold.last_id >= event_id, limit_seconds=self._workspace.reconnect_seconds)

    async def call_by_server(self, definition: ToolDefinition, action: Action) -> Observation:
        """Have the server carry out a call of the user's, whose result is in the log."""
        await self._ready()
        call_id = await self._post(ActionEvent(source="user", tool_name=definition.name, action=action))
        fold = await self.log.present()
        await self._until(lambda: fold.last_id >= call_id and call_id not in fold.core.unanswered)
        async for event in self.log.history():
            if event.cause == call_id and isinstance(event, ObservationEvent):
                return event.observation
            if event.cause == call_id and isinstance(event, AgentErrorEvent):
                raise ToolError(event.error)
        raise ToolError("the call was not carried out")

    async def reject(self, reason: str, only: Collection[int] | None = None) -> None:
        fold = await self.log.present()
        waiting = [one.id for one in fold.core.undecided.values()]
        pending = [one for one in waiting if only is None or one in only]
        if not pending or self._at_work:
            logger.warning("conversation %s: there are no actions to reject", self.conversation_id)
            return
        refusal = ChangeAgentState(agent_state=AgentState.USER_REJECTED, reason=reason, action_ids=pending)
        place = await self._post(refusal)
        is_all = len(pending) == len(waiting)

        def is_done() -> bool:
            is_idle = fold.state is AgentState.AWAITING_USER_INPUT or not is_all
            return fold.last_id >= place and is_idle and not fold.core.unanswered.keys() & set(pending)

        await self._until(is_done, limit_seconds=DECIDE_SECONDS)

    async def between_runs(self, wish: AnyEvent) -> None:
        await self._ready()
        if not self._at_work:
            self.callbacks.check_outside("this")
        place = await self._post(wish)
        await self._seen(place)

    async def pause(self) -> None:
        await self._stop_by(PauseEvent())

    async def interrupt(self) -> None:
        await self._stop_by(InterruptEvent() if self._at_work else PauseEvent())

    async def _stop_by(self, request: ChangeAgentState) -> None:
        fold = await self.log.present()
        if self._at_work:
            if self._asked is None:
                self._stopped_by = request
            elif fold.state not in AT_REST or self._last_change <= self._asked:
                await self._post(request)
        elif fold.status in (ExecutionStatus.IDLE, ExecutionStatus.RUNNING):
            place = await self._post(request)
            await self._until(lambda: self._last_change > place, limit_seconds=DECIDE_SECONDS)
            await self._seen(self._last_change)

    async def run(self, *, max_steps: int | None = None) -> None:
        if may_not := "closed" if self.is_closed else "" if self._ended.is_set() else "running already":
            raise RuntimeError(f"conversation {self.conversation_id} is {may_not}")
        self.callbacks.check_outside("a run")
        self._running, self._at_work = asyncio.current_task(), True
        self._asked = self._stopped_by = None
        self._ended.clear()
        try:
            await self._run_there(max_steps)
        except asyncio.CancelledError:
            with contextlib.suppress(DrydockError, TimeoutError):
                async with asyncio.timeout(5):
                    await self._interrupted()
            if not self.is_closed:
                raise
            return
        except RemoteError as error:
            raise self._failure(str(error)) from error
        finally:
            self._at_work = False
            self._ended.set()
        fold = await self.log.present()
        if fold.is_failure:
            raise self._failure(fold.failure)

    async def _run_there(self, max_steps: int | None) -> None:
        await self._ready()
        fold = await self.log.present()
        if not fold.wants_run:
            return
        await self._configured()
        await self._call(self._client.start(self.conversation_id))
        if not await self._has_begun(fold):
            return
        while True:
            if self._stopped_by is not None and fold.awaits_approval:
                break
            state = AgentState.USER_CONFIRMED if fold.awaits_approval else AgentState.RUNNING
            wish = self._stopped_by or ChangeAgentState(agent_state=state, max_steps=max_steps)
            place = self._asked = await self._post(wish)
            if self._stopped_by not in (None, wish):  # it came while the run was asked for
                await self._post(self._stopped_by)
            await self._rested(fold, place)
            newest = fold.facts.last_user_message_id
            if not (fold.has_request and newest is not None and newest > place and max_steps is None):
                break  # else the user has said something in the last moment
        self._count(fold)
        await self._learn_tools()

    async def _has_begun(self, fold: StatusFold) -> bool:
        """Wait until the session there is in its first state, which is no answer to a request; False: it has failed."""
        await self._read_up(fold)
        await self._until(lambda: self._last_change > self._loading and fold.last_id >= self._last_change)
        return not self._failed_to_load

    async def _read_up(self, fold: StatusFold) -> bool:
        """Read what is stored by now; returns whether that was anything."""
        page = await self._call(self._client.programs.page(self.conversation_id, after=fold.last_id, limit=1))
        if page.last_id <= fold.last_id:
            return False
        await self._until(lambda: fold.last_id >= page.last_id)
        return True

    def _count(self, fold: StatusFold) -> None:
        """Have the program's own models know what was asked of them there since they were counted last."""
        now = ConversationStats(fold.core.metrics).usage_to_metrics
        for llm in self.agent.get_all_llms():
            if (metrics := now.get(llm.usage_id)) is not None:
                before = self._counted.get(llm.usage_id, Metrics())
                llm.metrics.merge(metrics.diff(before))
        self._counted = now

    async def _rested(self, fold: StatusFold, place: int) -> None:
        def is_at_rest() -> bool:
            is_over = fold.state in AT_REST and not fold.awaits_change and self._last_change > place
            return is_over and fold.last_id >= max(place, self._last_change)

        while True:
            await self._until(is_at_rest)
            if not await self._read_up(fold):
                return

    async def _interrupted(self) -> None:
        if self._is_open:
            fold = await self.log.present()
            await self._post(InterruptEvent())
            await self._until(lambda: fold.state in AT_REST)

    async def _learn_tools(self) -> None:
        """Have the agent know the tools that MCP servers have brought it there."""
        agent, known = self.agent, self.agent.tools_map
        found = await self._call(self._client.programs.tools(self.conversation_id))
        brought = [
            tool
            for one in found
            if one["name"] not in known
            for tool in ClientTool.create(
                name=one["name"], description=one.get("description") or one["name"], schema=one.get("inputSchema")
            )
        ]
        if brought:
            agent.add_runtime_tools(brought, client="server")

    async def end_session(self) -> None:
        self.callbacks.check_outside("this")

    async def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._at_work and self._running is not None:
            self._running.cancel()
        await self.until_run_ended()
        tasks = [one for one in (self._following, *self._calls.values()) if one is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        library_loop().forget(self.close)
        if self._is_open:
            await self._client.__aexit__(None, None, None)
        await asyncio.get_running_loop().run_in_executor(None, self.agent.close)
        self.callbacks.close()

    async def delete(self) -> None:
        """Delete the conversation there, and with it its log and files."""
        place = self._workspace
        async with DrydockClient(place.url, place.api_key, ca_file=place.ca_file) as client:
            await self._call(client.delete(self.conversation_id))

    async def opening_prompt(self) -> SystemPromptEvent | None:
        return None  # a server that forks writes it itself

    async def copy_to(
        self,
        fork: RunLoop,
        upto: int | None,
        reset_metrics: bool,
        prompt: SystemPromptEvent | None,
        *,
        with_files: bool,
    ) -> None:
        if not isinstance(fork, RemoteRun) or fork._workspace.url != self._workspace.url:
            raise ValueError("workspace: the fork of a server's conversation is on that server; leave workspace out")
        await self._configured()
        options: dict[str, Any] = {"event_id": upto, "reset_metrics": reset_metrics, "copy_files": with_files}
        if fork.agent != self.agent:
            options["program"] = (await program_of(fork.agent, fork.settings, fork.state)).data
        try:
            await self._client.programs.fork(self.conversation_id, fork.conversation_id, options)
        except ConflictError as error:
            raise ValueError(f"conversation_id: {error.message}") from error
        except InvalidError as error:
            raise NoSuchEventError(error.message) from error
        except ClientError as error:
            raise RemoteError(f"{self._workspace.url}: {error}") from error
        await fork._ready()

    # --- tools of the program's own ---

    def _take_call(self, data: dict[str, Any]) -> None:
        own = self._program.own_tools if self._program is not None else {}
        definition, call_id = own.get(str(data["name"])), int(data["id"])
        running = self._calls.get(call_id)
        if data.get("is_over"):
            if running is not None:
                running.cancel()
        elif definition is not None and running is None:
            work = self._carry_out(definition, call_id, data.get("arguments") or {})
            self._calls[call_id] = asyncio.create_task(work, name=f"own-tool:{call_id}")

    async def _carry_out(self, definition: ToolDefinition, call_id: int, arguments: dict[str, Any]) -> None:
        registry = SecretRegistry(self.masker.add)
        registry.update(self.settings.named_secrets)
        context = DirectContext(self._sandbox, self.conversation_id, secrets=registry)
        try:
            observation = await definition.acall(definition.action_from_arguments(arguments), context)
            self._results[call_id] = observation
            content, failed = list(observation.to_llm_content), observation.is_error
        except Exception as error:  # noqa: BLE001 - the boundary: the model is told, whatever it was
            text = str(error) if isinstance(error, DrydockError) else f"{type(error).__name__}: {error}"
            content, failed = [TextContent(text=text)], True
        answer = ClientToolResult(cause=call_id, content=cast(Any, content), is_error=failed)
        try:
            await self._deliver(answer)
        except RemoteError as error:
            logger.warning("the answer of %s was not taken: %s", definition.name, error)

    async def _deliver(self, answer: ClientToolResult) -> None:
        """Have the server take the answer of a call, once, however often it is away while that is tried."""
        key, delay = uuid.uuid4().hex, FIRST_DELAY
        until = asyncio.get_running_loop().time() + self._workspace.reconnect_seconds
        while True:
            try:
                await self._post(answer, key=key)
            except RemoteError as error:
                if not isinstance(error.__cause__, PASSING) or asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(delay)
                delay = min(delay * 2, MAX_DELAY)
            else:
                return
