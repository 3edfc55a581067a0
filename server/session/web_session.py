"""`WebSession`: one conversation and its connected clients; while it is loaded it owns an `AgentSession`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from agent_core.controller.state import INTERRUPTING
from agent_core.errors import DrydockError, SandboxError, StreamClosedError
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.llm_events import MessageEvent
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore
from agent_core.events.stream import EventStream
from agent_core.events.transient import STORAGE, StatusNotice
from agent_core.llm.llm import LLM, CallContext
from agent_core.runtime.channel.connection import ConversationSandbox, SandboxConnection
from agent_core.session.agent_session import AfterClose
from agent_core.skills.skill import Skill
from agent_core.tools.definition import ToolDefinition
from agent_core.troubles import CONVERSATION, Trouble, coded, trouble_of
from server.db.repositories.conversations import ConversationRecord, ConversationRepository
from server.db.storage_health import StorageHealth
from server.errors import AgentAtWorkError, ConversationNotFoundError, EndingError, SessionError
from server.metrics import ServerMetrics
from server.session.activity import Activity
from server.session.agents.agent_sessions import AgentFactory, LoadedAgent
from server.session.agents.programs import PROGRAM
from server.session.client_tools import CLIENT_TOOLS, ClientToolSpec, stored_tools
from server.session.crash_guard import HELD_BACK, SENTENCE, CrashGuard
from server.session.images import check_images
from server.session.listening import Listeners
from server.session.loaded_conversation import LoadedConversation
from server.session.recorder import BUSY_STATES, BranchKeeper, Recorder
from server.session.run_queue import RunQueue
from server.session.serial_executor import SerialExecutor
from server.session.tickets import QueuePlace, Ticket
from server.session.unloaded_log import UnloadedLog

logger = logging.getLogger(__name__)

_AT_WORK = frozenset(state.value for state in BUSY_STATES - {AgentState.LOADING})
_WORK_WISHED = frozenset({AgentState.RUNNING, AgentState.USER_CONFIRMED})
READY_SECONDS = 10.0

_T = TypeVar("_T")


class SessionOwner(Protocol):
    """Interface of the manager for its sessions."""

    guard: CrashGuard
    queue: RunQueue

    def attended(self, conversation_id: str) -> None:
        """Its sandbox, if it has one, is in a session's hands, or gone."""

    def unattended(self, conversation_id: str) -> None:
        """No session has its sandbox any more, which may be up."""

    def first_message(self, session: WebSession, text: str) -> None:
        """The user said something; the conversation may still want a title."""

    def start_failed(self, session: WebSession, error: DrydockError) -> None:
        """Its start has failed; where that is because nothing can be stored, it is started again when that passes."""


class WebSession:
    """One conversation as the server runs it; `users` counts calls in progress, for which the manager keeps it.

    `user_id` says whose it is, from its first loading on; `farewell` is what its clients are told once it ended.
    `load` and `unload` may be called by anyone at any time, and take effect one after the other. A session that `end`ed
    is loaded no more. Of one that was at work and is taken up later, those who `look` at it have the log alone.
    """

    def __init__(
        self,
        conversation_id: str,
        *,
        owner: SessionOwner,
        agents: AgentFactory,
        conversations: ConversationRepository,
        events: EventStore,
        listeners: Listeners,
        metrics: ServerMetrics,
    ) -> None:
        self.conversation_id = conversation_id
        self.connections: set[str] = set()
        self.users = 0
        self.user_id: str | None = None
        self.farewell: StatusNotice | None = None
        self.failure: DrydockError | None = None
        self.last_activity = time.monotonic()
        self._owner = owner
        self._agents = agents
        self._conversations = conversations
        self._listeners = listeners
        self._trouble = partial(metrics.trouble, conversation_id=conversation_id)
        self._loaded: LoadedConversation | None = None
        self._unloaded_log = UnloadedLog(
            conversation_id,
            store=events,
            conversations=conversations,
            guard=owner.guard,
            queue=owner.queue,
            changed=self._tell,
        )
        self._loading = False
        self._was_calmed = False
        self._unbegun_since: int | None = None
        self._ended = False
        self._changed = asyncio.Event()
        # The changes between loaded and unloaded.
        self._executor = SerialExecutor(f"session:{conversation_id}")

    # --- facts ---

    @property
    def _agent(self) -> LoadedAgent | None:
        return self._loaded.agent if self._loaded is not None else None

    @property
    def _stream(self) -> EventStream | None:
        return self._agent.stream if self._agent is not None else self._unloaded_log.stream

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None or self._loading

    @property
    def is_changing(self) -> bool:
        """Whether it is being loaded or unloaded."""
        return self._executor.is_running

    @property
    def is_unused(self) -> bool:
        return not (self.is_loaded or self.connections or self.users or self._executor.has_work)

    @property
    def side_model(self) -> tuple[LLM, CallContext]:
        """The loaded conversation's model and what calls beside its agent are made with; else the demo."""
        agent = self._agent
        return (agent.settings.llm, agent.call_context) if agent is not None else (LLM(), CallContext())

    @property
    def title_model(self) -> tuple[LLM, CallContext]:
        """The same for titles, which may have a model of their own; a program's is asked only what the program asks."""
        llm, context = self.side_model
        if self._loaded is not None and self._loaded.is_programs:
            llm = LLM()
        return (self._agent.settings.purpose_llms.get("title", llm) if self._agent is not None else llm), context

    def masked(self, text: str) -> str:
        """The text as the conversation's log would have it."""
        return self._agent.stream.secrets.text(text) if self._agent is not None else text

    @property
    def sandbox(self) -> ConversationSandbox | None:
        return self._agent.sandbox if self._agent is not None and self._agent.is_ready else None

    @property
    def tools(self) -> list[ToolDefinition]:
        """The tools that the agent has; none while it is not there or starts."""
        return self._agent.tools if self._agent is not None and self._agent.is_ready else []

    async def skills(self) -> list[Skill] | None:
        """The skills that the agent may be told; None while it is not there or starts."""
        return await self._agent.skills() if self._agent is not None and self._agent.is_ready else None

    @property
    def is_ready(self) -> bool:
        """Whether sandbox and agent have come up (or have failed to, which the log tells)."""
        loaded = self._loaded
        return loaded is not None and (loaded.agent.is_ready or loaded.starting.done())

    @property
    def runtime_status(self) -> str | None:
        """Public id of the sandbox's state; None when nothing is loaded."""
        return self._loaded.runtime_status if self._loaded is not None else None

    @property
    def runtime_warning(self) -> str:
        """Why its sandbox is frozen or not there yet, or what is wrong with its network; empty if nothing is."""
        return self._loaded.runtime_warning if self._loaded is not None else ""

    @property
    def start_failed(self) -> bool:
        """From before a client is told on: what it sends then is for another attempt. So it is with a broken one."""
        loaded = self._loaded
        if loaded is None or loaded.agent.is_ready:
            return loaded is not None and loaded.agent.is_broken
        return loaded.agent.has_failed or loaded.starting.done()

    def activity(self) -> Activity:
        busy, loaded = self._loading, self._loaded
        if loaded is not None:
            works = loaded.agent.is_ready and loaded.agent.agent_state in BUSY_STATES
            starts = not loaded.starting.done() and not self._owner.queue.is_waiting(loaded.ticket, to_work=False)
            busy = busy or works or starts
        return Activity(self.last_activity, busy, len(self.connections))

    @property
    def can_lose_sandbox(self) -> bool:
        """Whether it has a sandbox, its agent rests, and nothing is just being said to it."""
        loaded = self._loaded
        if loaded is None or self.users or not loaded.starting.done():
            return False
        return loaded.ticket.has_sandbox and not loaded.ticket.works and (loaded.agent.is_at_rest or self.start_failed)

    @property
    def can_be_unloaded(self) -> bool:
        """Whether nobody has it open either; what could not be started stays, to be started again."""
        return self.can_lose_sandbox and not (self.connections or self.start_failed)

    def tell_turn(self, turn: QueuePlace | None) -> None:
        """Tell its clients its place in the queue; None: its turn has come."""
        if (agent := self._agent) is None:
            self._unloaded_log.tell()
        elif turn is not None:
            agent.stream.publish(turn.notice)
        elif agent.is_ready:  # otherwise what its start has to say follows
            agent.stream.publish(StatusNotice(agent.runtime_status, ""))

    def tell_storage(self, health: StorageHealth) -> None:
        """Tell its clients that nothing can be stored, or that it can again."""
        if (stream := self._stream) is None:
            return
        if health.problem:
            stream.publish(StatusNotice(STORAGE, health.sentence, "error"))
        elif (agent := self._agent) is not None:
            stream.publish(StatusNotice(agent.runtime_status, "The server stores again what is said and done."))
        else:
            self._unloaded_log.tell()

    # --- clients ---

    async def next_stream(self, previous: EventStream | None) -> EventStream | None:
        while not self._ended:
            stream = self._stream
            if stream is not None and stream is not previous and not stream.closed:
                return stream
            if previous is None:
                await self.look()
            else:
                await self._changed.wait()
        return None

    async def send(self, event: AnyEvent) -> AnyEvent:
        """Store what the user sent, starting the conversation if need be; returns it as stored.

        Raises `ConversationNotFoundError`, `ImagesRefusedError` or another `DrydockError`; nothing is stored then.
        """
        self._active()
        if isinstance(event, ChangeAgentState) and event.agent_state in INTERRUPTING:
            await self._judge()
            if (stored := await self._executor.run(self._halt(event))) is not None:
                return stored
        if self.start_failed and (begins_work(event) or not isinstance(event, ChangeAgentState)):
            await self.unload(stopped=False)
        try:
            return await self._send_to(await self.load(to_work=begins_work(event)), event)
        except StreamClosedError:
            # It was unloaded in this moment. This time nothing of the kind comes between.
            async def load_and_send() -> AnyEvent:
                return await self._send_to(await self._load(to_work=begins_work(event)), event)

            return await self._executor.run(load_and_send())

    async def _send_to(self, agent: LoadedAgent, event: AnyEvent) -> AnyEvent:
        check_images(event, agent.settings.llm, inspected=agent.has_images_inspected)
        loaded, begins = self._loaded, begins_work(event)
        if begins and isinstance(event, MessageEvent) and loaded and loaded.recorder.recorded_state not in BUSY_STATES:
            before = await loaded.recorder.noted_state()
            try:
                # Recovery looks at it from before the message is in the log until it is dealt with.
                await loaded.recorder.note(AgentState.RUNNING)
                return await self._put_to(agent, event)
            except DrydockError:
                await loaded.recorder.record_state(before)
                raise
        return await self._put_to(agent, event)

    async def _put_to(self, agent: LoadedAgent, event: AnyEvent) -> AnyEvent:
        loaded, begins = self._loaded, begins_work(event)
        if self._was_calmed and begins and not agent.is_ready:
            # As if it had not been halted: a wish to run counts for what is being loaded.
            self._was_calmed = False
            await agent.stream.add_event(AgentStateChanged(agent_state=AgentState.LOADING))
        stored = await agent.send(event)
        if begins:
            self._owner.guard.release(self.conversation_id)
        if loaded is not None and not agent.is_ready:  # there is no controller yet that would see to it
            if begins:
                await self._owner.queue.hurry(loaded.ticket)
            elif isinstance(event, ChangeAgentState) and event.agent_state in INTERRUPTING:
                await self._calm(loaded, event.agent_state)
        return stored

    async def _calm(self, loaded: LoadedConversation, state: AgentState) -> None:
        if self._owner.queue.calm(loaded.ticket) or self._owner.guard.is_held(self.conversation_id):
            self._was_calmed = True
            await loaded.agent.stream.add_event(AgentStateChanged(agent_state=state))

    async def halt(self, state: AgentState, notice: StatusNotice) -> None:
        """Write down that its user wants this state, if it is not loaded; `notice` is shown to the clients first."""
        await self._executor.run(self._halt(ChangeAgentState(agent_state=state), notice))

    async def _halt(self, event: ChangeAgentState, notice: StatusNotice | None = None) -> AnyEvent | None:
        record = await self._conversations.get(self.conversation_id)
        if record is None or self._agent is not None:
            return None
        if notice is None and not self._unloaded_log.is_put_off(record):
            return None
        return await self._unloaded_log.halt(event, notice)

    async def write_down(self, events: Sequence[AnyEvent]) -> None:
        """Add these to its log, which need not be loaded for that."""
        await self._executor.run(self._write_down(events))

    async def _write_down(self, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        log = self._unloaded_log.add if self._agent is None else self._agent.stream.add_events
        return await log(events)

    async def restart_if_failed(self) -> None:
        """Load it; where sandbox or agent could not be started, try that again."""
        if self.start_failed:
            await self.unload(stopped=False)
        await self.load()

    async def set_client_tools(self, specs: Sequence[ClientToolSpec]) -> bool:
        """Have these tools of clients from the next step on; False: it was deleted. ValueError: a name is taken."""
        return await self._executor.run(self._set_client_tools(specs))

    async def _set_client_tools(self, specs: Sequence[ClientToolSpec]) -> bool:
        record = await self._conversations.get(self.conversation_id)
        if record is None:
            return False
        if self._agent is not None:
            self._agent.set_client_tools([spec.spec for spec in specs])
        options = {**record.options, CLIENT_TOOLS: stored_tools(specs)}
        return await self._conversations.update(self.conversation_id, options=options)

    async def reconfigure(self, changes: Mapping[str, Any]) -> bool:
        """Replace these options, with which the next session runs; a loaded one at rest is ended for that.

        False: it was deleted. Raises `AgentAtWorkError`, and changes nothing, while the agent works or waits for that.
        """
        return await self._executor.run(self._reconfigure(changes))

    async def _reconfigure(self, changes: Mapping[str, Any]) -> bool:
        record = await self._conversations.get(self.conversation_id)
        if record is None:
            return False
        if (loaded := self._loaded) is not None:
            works = loaded.agent.is_ready and loaded.agent.agent_state in BUSY_STATES - {AgentState.LOADING}
            if works or self._owner.queue.is_waiting(loaded.ticket, to_work=True):
                raise AgentAtWorkError(self.conversation_id)
        await self._unload(stopped=False, sandbox="keep", notice=None)
        return await self._conversations.update(self.conversation_id, options={**record.options, **changes})

    async def refresh_secrets(self, user_id: str) -> None:
        """Have commands use, and the log hide, this user's secrets as they are now, if it is theirs."""
        await self._executor.run(self._refresh_secrets(user_id))

    async def _refresh_secrets(self, user_id: str) -> None:
        loaded = self._loaded
        if loaded is not None and self.user_id == user_id:
            secrets = await self._agents.secrets_of(user_id)
            loaded.agent.stream.secrets.add(secrets.hidden)
            if not loaded.is_programs:  # a program's commands have the secrets that it gave them
                loaded.agent.set_named_secrets(secrets.named)

    # --- the disk ---

    async def freeze(self, problem: str) -> None:
        if self._loaded is not None:
            await self._loaded.freeze(problem, self._trouble)

    async def host_changed(self, host: str, problem: str) -> None:
        """Tell who follows it, where its sandbox is on this host, that this cannot be reached ("": it can again)."""
        agent = self._agent
        if agent is None or not isinstance(agent.sandbox, SandboxConnection):
            return
        if agent.sandbox.sandbox.state.get("host") == host:
            await agent.sandbox.host_changed(problem)

    async def thaw(self) -> None:
        """Let a sandbox go on that was frozen; one that could not be started is started now."""
        try:
            if self.start_failed:
                await self.restart_if_failed()
            elif self._loaded is not None:
                await self._loaded.thaw()
        except DrydockError as error:
            self._trouble(Trouble.OTHER, f"it does not go on by itself: {error}")

    # --- loading and unloading ---

    async def load(self, *, to_work: bool = False) -> LoadedAgent:
        """Open the log and begin to start sandbox and agent, unless it is loaded; `to_work`: in its turn.

        Raises `ConversationNotFoundError`, or another `DrydockError` where its log cannot be opened.
        """
        if self._agent is not None and not self._executor.is_running:
            return self._agent
        return await self._executor.run(self._load(to_work=to_work))

    async def look(self) -> None:
        """Open the log for whoever follows it; with the rest, unless that is taken up later, by the guard or in turn.

        Raises as `load` does.
        """
        if self._stream is None or self._executor.is_running:
            await self._judge()
            await self._executor.run(self._look())

    async def _judge(self) -> None:
        """Have the guard know what to think of it; not by the executor, which writes down what it has to say."""
        if self._agent is None and (record := await self._conversations.get(self.conversation_id)) is not None:
            await self._owner.guard.holds_back(record)

    async def _look(self) -> None:
        if self._stream is not None and not self._ended:
            return
        if self._ended:
            raise self._gone
        record = await self._conversations.get(self.conversation_id)
        if record is None:
            raise ConversationNotFoundError(self.conversation_id)
        if self._unloaded_log.is_put_off(record):
            self.user_id = record.user_id
            await self._unloaded_log.open()
        else:
            await self._load(to_work=False)

    async def until_ready(self) -> None:
        """Wait, within `READY_SECONDS`, until what is being started is ready, or has failed."""
        if self._loading:
            await self.opened()
        if (loaded := self._loaded) is not None:
            await asyncio.wait([loaded.starting], timeout=READY_SECONDS)

    async def opened(self) -> None:
        """Wait until what is begun of loading and unloading has come to its end, whatever that is."""

        async def nothing() -> None:
            return

        await self._executor.run(nothing())

    async def unload(self, *, stopped: bool, sandbox: AfterClose = "keep", notice: StatusNotice | None = None) -> None:
        """End the agent session, if there is one; see `AgentSession.close`. `notice` is shown to the clients first."""
        await self._executor.run(self._unload(stopped=stopped, sandbox=sandbox, notice=notice))

    async def unload_if(self, condition: Callable[[Activity], bool], *, sandbox: AfterClose) -> bool:
        """Unload it as it is, if its activity fulfils the condition when its turn has come; returns whether it did."""

        async def unload() -> bool:
            if self._agent is None or not condition(self.activity()):
                return False
            await self._unload(stopped=False, sandbox=sandbox, notice=None)
            return True

        return await self._executor.run(unload())

    async def give_up_sandbox(self) -> bool:
        """Unload it as it is and stop its sandbox, which another needs; False: it is not at rest any more."""
        return await self.unload_if(lambda _: self.can_lose_sandbox, sandbox="stop")

    async def end(self, *, stopped: bool, sandbox: AfterClose = "keep", farewell: StatusNotice | None = None) -> None:
        """Unload it for good: it is loaded no more, and its connections are told to go, with a `farewell` if any."""
        self._ended, self.farewell = True, farewell
        self._tell()
        await self.unload(stopped=stopped, sandbox=sandbox)

    async def _load(self, *, to_work: bool) -> LoadedAgent:
        if self._ended:
            raise self._gone
        if self._agent is not None:
            return self._agent
        CONVERSATION.set(self.conversation_id)  # also of the tasks that come of this
        self._loading, self._was_calmed = True, False
        try:
            record = await self._conversations.get(self.conversation_id)
            if record is None:
                raise ConversationNotFoundError(self.conversation_id)
            self.user_id = record.user_id
            self._owner.attended(self.conversation_id)
            ticket = self._owner.queue.ticket(self.conversation_id, record.user_id)
            try:
                agent = await self._opened(record, ticket)
            except BaseException as error:
                self._owner.queue.leave(ticket)
                self._unloaded_log.tell_failure(error)
                raise
        finally:
            self._loading = False
        self.last_activity = time.monotonic()
        recorder = Recorder(
            agent.stream,
            self._conversations,
            on_user_message=lambda text: self._owner.first_message(self, text),
            on_activity=self._active,
            on_step=partial(self._owner.guard.made_step, record.id),
            on_rest=partial(self._owner.guard.came_to_rest, record.id),
            on_trouble=self._trouble,
            on_state=partial(self._state_changed, ticket),
            branches=BranchKeeper(self.conversation_id, self._conversations, lambda: self.sandbox),
        )
        starting = self._start(agent, ticket, record, to_work=to_work)
        recording = recorder.run(after=agent.stream.last_id)
        self._loaded = LoadedConversation(
            agent,
            ticket,
            PROGRAM in record.options,
            recorder,
            readers=[asyncio.create_task(recording, name="recorder"), *self._listeners.follow(agent.stream)],
            starting=asyncio.create_task(starting, name=f"start:{self.conversation_id}"),
        )
        self._unloaded_log.close()
        return agent

    async def _opened(self, record: ConversationRecord, ticket: Ticket) -> LoadedAgent:
        async def take_turn() -> None:
            if (agent := self._agent) is not None:
                await self._owner.queue.enter(ticket, to_work=True, after=agent.stream.last_id)

        try:
            return await self._agents.make(record, lambda: len(self.connections), take_turn, self._unbegun_since)
        except (KeyError, ValueError) as error:  # what the settings name does not exist here
            why = error.args[0] if isinstance(error, KeyError) and error.args else error  # as text it is quoted
            raise SessionError(f"the conversation cannot be loaded: {why}") from error

    def _state_changed(self, ticket: Ticket, state: AgentState, event_id: int) -> None:
        if state not in BUSY_STATES:
            self._owner.queue.rest(ticket, event_id)

    async def _start(self, agent: LoadedAgent, ticket: Ticket, record: ConversationRecord, *, to_work: bool) -> None:
        began, success, guard = time.monotonic(), False, self._owner.guard
        try:
            if await guard.holds_back(record):
                agent.stream.publish(StatusNotice(HELD_BACK, SENTENCE))
                await guard.until_released(record)
                record = await self._conversations.get(record.id) or record  # its user may have paused it
            worked = record.agent_state in _AT_WORK
            await self._owner.queue.enter(
                ticket,
                to_work=worked or to_work,
                after=agent.stream.last_id,
                number=record.waiting_number if worked else None,
            )
            await guard.admit(record)
            await guard.begin(record.id)
            if isinstance(agent.sandbox, SandboxConnection):
                agent.sandbox.on_running = partial(guard.found_running, record.id)
            began = time.monotonic()
            await agent.start()
            await self._agents.started(record)
            success = True
        except DrydockError as error:
            # The log and the status say so already; a new message or a restart tries again.
            if trouble_of(type(error).__name__) is None:  # else the recorder says it
                code = trouble_of(error.code) if isinstance(error, SandboxError) else None
                text = f"could not be started: {error}"
                self._trouble(code or Trouble.START_FAILED, text)
            self.failure = error
            self._owner.start_failed(self, error)
        except Exception:
            # A bug; the clients were told the same way.
            extra = coded(Trouble.UNEXPECTED, self.conversation_id)
            logger.exception("conversation %s could not be started", self.conversation_id, extra=extra)
        if not success:
            self._owner.queue.rest(ticket)
        self._listeners.started(success=success, seconds=time.monotonic() - began)
        self._active()

    async def _unload(self, *, stopped: bool, sandbox: AfterClose, notice: StatusNotice | None) -> None:
        loaded = self._loaded
        if loaded is None:
            if self._ended:
                self._unloaded_log.close()
            return
        CONVERSATION.set(self.conversation_id)
        if notice is not None:
            loaded.agent.stream.publish(notice)
        try:
            await loaded.close(stopped=stopped, sandbox=sandbox)
        finally:
            self._loaded = None
            self._unbegun_since = loaded.agent.unbegun_since if loaded.agent.has_failed else None
            if sandbox in ("keep", "pause"):
                self._owner.unattended(self.conversation_id)
            self._owner.queue.leave(loaded.ticket)
            self._tell()

    @property
    def _gone(self) -> DrydockError:
        """Why it is loaded no more: it was deleted, which is what a farewell says, or goes on elsewhere, or later."""
        return ConversationNotFoundError(self.conversation_id) if self.farewell is not None else EndingError()

    def _active(self) -> None:
        self.last_activity = time.monotonic()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def begins_work(event: AnyEvent) -> bool:
    """Whether the agent goes to work when its user has said this."""
    if isinstance(event, MessageEvent):
        return event.source == "user" and not event.waits_for_run
    return isinstance(event, ChangeAgentState) and event.agent_state in _WORK_WISHED
