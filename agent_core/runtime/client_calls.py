"""The calls of one conversation that its clients carry out: who waits for what, and which answers count.

An answer is an event of the log, stored before whoever gave it is told so: it survives a crash, and may be given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

from agent_core.errors import ClientToolError, ToolError
from agent_core.events.control import ClientToolResult
from agent_core.events.event import utc_now
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import ClientCall


class ClientCalls:
    """Implements `agent_core.tools.spec.Clients`; `connected` counts the clients, None where nobody can know.

    `unanswered` and `decisions` are the calls at hand. Clients know a call by its own id, or by that of an approval.
    """

    def __init__(
        self,
        stream: EventStream,
        unanswered: Mapping[int, ActionEvent],
        decisions: Mapping[int, ActionDecision],
        is_clients: Callable[[ActionEvent], bool],
        connected: Callable[[], int] | None = None,
    ) -> None:
        self.connected = connected
        self._stream = stream
        self._unanswered = unanswered
        self._decisions = decisions
        self._is_clients = is_clients
        self._accepted: dict[int, ClientToolResult] = {}
        self._waiting: dict[int, asyncio.Future[ClientToolResult]] = {}
        self._over: set[int] = set()
        # Of two answers, and of an answer and the time limit, one comes first.
        self._turn = asyncio.Lock()

    def observe(self, event: AnyEvent) -> None:
        match event:
            case ClientToolResult() if event.cause in self._unanswered:
                self._give(event)
            case ObservationEvent() | AgentErrorEvent() | UserRejectObservation() if event.cause is not None:
                self._accepted.pop(event.cause, None)
                self._over.discard(event.cause)

    async def ask(
        self, action_id: int, name: str, arguments: Mapping[str, Any], limit_seconds: float
    ) -> ClientToolResult:
        if (earlier_answer := self._accepted.get(action_id)) is not None:
            return earlier_answer
        future = self._waiting[action_id] = asyncio.get_running_loop().create_future()
        deadline = utc_now() + timedelta(seconds=limit_seconds)
        self._stream.publish(ClientCall(action_id, name, dict(arguments), deadline))
        try:
            async with asyncio.timeout(limit_seconds):
                return await asyncio.shield(future)
        except TimeoutError:
            async with self._turn:
                if (earlier_answer := self._accepted.get(action_id)) is not None:
                    return earlier_answer
                self._over.add(action_id)
            problem = f"no client has answered within {limit_seconds:g} s"
            if self.connected is not None and self.connected() == 0:
                problem = (
                    f"no client is connected that could carry it out, and none has come within {limit_seconds:g} s"
                )
            raise ToolError(problem) from None
        except asyncio.CancelledError:
            self._over.add(action_id)
            raise
        finally:
            future.cancel()
            self._waiting.pop(action_id, None)
            self._stream.publish(ClientCall(action_id, name, is_over=True))

    async def accept(self, result: ClientToolResult) -> AnyEvent:
        """Store an answer, once, and return the event; raises `ClientToolError` for one that nothing waits for."""
        async with self._turn:
            call = self._call(result.cause)
            if call is None:
                return await self._of_the_past(result)
            if call.id not in self._waiting and not self._is_clients(call):
                raise ClientToolError(f"call {result.cause} is not of a tool that a client carries out", code="unknown")
            if (earlier := self._accepted.get(call.id)) is not None:
                return self._same(earlier, result)
            if call.awaits_confirmation and call.id not in self._decisions:
                raise ClientToolError(f"call {result.cause} still waits for the user's approval", code="early")
            if call.id in self._over:
                raise ClientToolError(_late(result.cause), code="late")
            stored = await self._stream.add_event(result.model_copy(update={"cause": call.id}), "user")
            if isinstance(stored, ClientToolResult):
                self._give(stored)
            return stored

    def _give(self, result: ClientToolResult) -> None:
        if result.cause is None or result.cause in self._accepted:
            return
        self._accepted[result.cause] = result
        waiting = self._waiting.get(result.cause)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def _call(self, event_id: int | None) -> ActionEvent | None:
        for call_id, decision in self._decisions.items():
            if decision.id == event_id:
                return self._unanswered.get(call_id)
        return self._unanswered.get(-1 if event_id is None else event_id)

    async def _of_the_past(self, result: ClientToolResult) -> AnyEvent:
        ids = {result.cause}
        found: Literal["", "call", "answered"] = ""
        async for event in self._stream.history():
            if isinstance(event, ActionDecision) and event.id == result.cause:
                ids.add(event.cause)
                found = "call"
            elif isinstance(event, ActionEvent) and event.id == result.cause:
                found = "call"
            elif isinstance(event, ClientToolResult) and event.cause in ids:
                return self._same(event, result)
            elif isinstance(event, ObservationEvent | AgentErrorEvent | UserRejectObservation) and event.cause in ids:
                found = "answered"
        if not found:
            raise ClientToolError(f"there is no call {result.cause} in this conversation", code="unknown")
        raise ClientToolError(_late(result.cause), code="late")

    def _same(self, earlier: ClientToolResult, result: ClientToolResult) -> ClientToolResult:
        content = [self._stream.secrets.data(one.model_dump(mode="json")) for one in result.content]
        if content == [one.model_dump(mode="json") for one in earlier.content] and earlier.is_error == result.is_error:
            return earlier
        raise ClientToolError(
            f"call {result.cause} was answered before, otherwise; the first answer counts", code="answered"
        )


def _late(call_id: int | None) -> str:
    return f"the answer to call {call_id} comes too late: the call has ended, and the agent has gone on"
