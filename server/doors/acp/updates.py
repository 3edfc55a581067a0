"""Updates of an editor's session, from the items of its conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acp import plan_entry, schema, text_block, update_plan
from pydantic import BaseModel

from drydock_client import Action, Connected, Live, Observation, OutputDelta, Status, TextDelta, TextDiscarded
from server.doors.acp.prompts import blocks_of
from server.doors.acp.tool_calls import (
    LIVE_TAIL,
    awaits_confirmation,
    call_decided,
    call_ended,
    call_output,
    call_started,
    is_call,
)

_PLAN_STATUS: Final[Mapping[str, schema.PlanEntryStatus]] = {
    "todo": "pending",
    "in_progress": "in_progress",
    "done": "completed",
}
_REASONING: Final = ":"
_HIDDEN: Final = "<secret_hidden>"
_RETRY: Final = "STATUS$LLM_RETRY"


class Updates:
    """The updates of one session, from its items in order. `waiting`: actions to be allowed, by call id."""

    def __init__(self) -> None:
        self.waiting: dict[str, Action] = {}
        self._expected: list[str] = []
        self._sent: dict[str, str] = {}
        self._sent_before: dict[str, str] = {}
        self._calls: dict[int, str] = {}
        self._outputs: dict[str, str] = {}
        self._plan: schema.AgentPlanUpdate | None = None
        self._speaker: str | None = None
        self._told = ""

    def expect(self, text: str) -> None:
        """The editor has said this and shows it already: when it comes back it is no update."""
        self._expected.append(text)
        self._speaker, self._told = None, ""

    def expect_no_more(self, text: str) -> None:
        if text in self._expected:
            self._expected.remove(text)

    def take(self, item: Live) -> list[BaseModel]:
        return [self._apart(update) for update in self._shown(item)]

    def _apart(self, update: BaseModel) -> BaseModel:
        """A message that follows upon another one begins a paragraph, for editors that join them."""
        if isinstance(update, schema.UsageUpdate | schema.SessionInfoUpdate):
            return update  # they are shown elsewhere
        speaker = update.message_id if isinstance(update, schema.AgentMessageChunk) else None
        before, self._speaker = self._speaker, speaker
        if speaker is None or before in (None, speaker) or not isinstance(update, schema.AgentMessageChunk):
            return update
        return _message_chunk(f"\n\n{getattr(update.content, 'text', '')}", speaker)

    def _shown(self, item: Live) -> list[BaseModel]:
        match item:
            case TextDelta():
                return self._piece(item)
            case TextDiscarded():
                self._forget(item.response_id)  # it cannot be taken back; what follows is another message
            case Connected():  # what is on its way is told from its beginning again
                self._sent_before, self._sent = {**self._sent_before, **self._sent}, {}
                self._outputs.clear()
            case OutputDelta():
                return self._output(item)
            case Action():
                return self._action(item)
            case Observation():
                return self._observation(item)
            case Status(conversation_title=str(title)):
                return [schema.SessionInfoUpdate(session_update="session_info_update", title=title)]
            case Status() if (item.tells_trouble or item.id == _RETRY) and item.message not in ("", self._told):
                self._told = item.message  # a wait is told again with each connection
                return [_thought(f"\n{item.message}\n", None)]
        return []

    def _piece(self, delta: TextDelta) -> list[BaseModel]:
        ident = delta.response_id if delta.kind == "message" else f"{delta.response_id}{_REASONING}"
        so_far = self._sent[ident] = self._sent.get(ident, "") + delta.text
        text = delta.text
        if (before := self._sent_before.get(ident)) is not None:
            if before.startswith(so_far):
                return []
            del self._sent_before[ident]
            text = so_far[len(before) :] if so_far.startswith(before) else delta.text
        return [_message_chunk(text, ident) if delta.kind == "message" else _thought(text, ident)]

    def _output(self, delta: OutputDelta) -> list[BaseModel]:
        call_id = self._calls.get(delta.cause)
        if call_id is None:
            return []
        self._outputs[call_id] = (self._outputs.get(call_id, "") + delta.text)[-LIVE_TAIL:]
        return [call_output(call_id, self._outputs[call_id])]

    def _action(self, action: Action) -> list[BaseModel]:
        thought = str(action.args.get("thought") or "")
        event_id = f"event-{action.id}"
        updates: list[BaseModel] = []
        match action.action:
            case "message":
                updates = self._message(action)
            case "finish":
                updates = self._rest(action, thought)
                if last := str(action.args.get("final_thought") or ""):
                    updates.append(_message_chunk(last, event_id))
            case "reject":
                updates = [*self._rest(action, thought), _message_chunk(action.message, event_id)]
            case "think":
                if rest := thought.removeprefix(self._forget(_response_id(action))).lstrip("\n"):
                    updates.append(_thought(rest, event_id))
            case "rewind":
                to = action.args.get("to")
                where = "to its beginning" if to is None else f"to event {to}"
                text = f"\nThe conversation was taken back {where}; what came after it counts no more.\n"
                updates.append(_thought(text, None))
            case _:
                updates = self._rest(action, thought)
                if is_call(action):
                    updates.append(self._call(action))
        metrics = action.llm_metrics
        usage = metrics.accumulated_token_usage if metrics is not None else None
        if metrics is not None and usage is not None and usage.context_window > 0:
            cost = schema.Cost(amount=metrics.accumulated_cost, currency="USD")
            used, size = max(0, usage.per_turn_token), usage.context_window
            updates.append(schema.UsageUpdate(session_update="usage_update", used=used, size=size, cost=cost))
        return updates

    def _call(self, action: Action) -> BaseModel:
        if action.args.get("confirmation_state") in ("confirmed", "rejected"):
            decided = next((ident for ident, one in self.waiting.items() if _is_same_call(one, action)), None)
            if decided is not None:
                del self.waiting[decided]
                self._calls[action.id] = decided
                return call_decided(action, decided)
        call_id = f"call-{action.id}"
        self._calls[action.id] = call_id
        if awaits_confirmation(action):
            self.waiting[call_id] = action
        return call_started(action, call_id)

    def _observation(self, observation: Observation) -> list[BaseModel]:
        if observation.observation == "task_tracking":
            return self._tasks(observation)
        call_id = self._calls.pop(-1 if observation.cause is None else observation.cause, None)
        if call_id is not None:
            self._outputs.pop(call_id, None)
            self.waiting.pop(call_id, None)
            return [call_ended(observation, call_id)]
        if observation.observation == "error" and observation.content:
            return [_message_chunk(observation.content, f"event-{observation.id}")]
        return []

    def _message(self, action: Action) -> list[BaseModel]:
        text = str(action.args.get("content") or "")
        if action.source != "user":
            return self._rest(action, text)
        # One in which a secret was hidden is taken for the first that the editor has said.
        mine = next((one for one in self._expected if one == text.strip() or _HIDDEN in text), None)
        if mine is not None:
            self._expected.remove(mine)
            return []
        images = action.args.get("image_urls")
        urls = [url for url in images if isinstance(url, str)] if isinstance(images, list) else []
        return [
            schema.UserMessageChunk(session_update="user_message_chunk", content=block, message_id=f"event-{action.id}")
            for block in blocks_of(text, urls)
        ]

    def _tasks(self, observation: Observation) -> list[BaseModel]:
        tasks = observation.extras.get("task_list")
        if not isinstance(tasks, list):
            return []
        entries = [
            plan_entry(str(task.get("title", "")), status=_PLAN_STATUS.get(str(task.get("status")), "pending"))
            for task in tasks
            if isinstance(task, dict)
        ]
        plan = update_plan(entries)
        if plan == self._plan or (not entries and self._plan is None):
            return []
        self._plan = plan
        return [plan]

    def _rest(self, action: Action, text: str) -> list[BaseModel]:
        ident = _response_id(action)
        # A message says nothing of its response; there is at most one that is not complete.
        known = {**self._sent_before, **self._sent}.items()
        ident = ident or next((one for one, sent in known if one[-1:] != _REASONING and text.startswith(sent)), "")
        sent = self._forget(ident)
        rest = text[len(sent) :] if text.startswith(sent) else ""
        return [_message_chunk(rest, ident or f"event-{action.id}")] if rest else []

    def _forget(self, ident: str) -> str:
        shown = [texts.pop(ident, "") for texts in (self._sent, self._sent_before)]
        for texts in (self._sent, self._sent_before):
            texts.pop(f"{ident}{_REASONING}", None)
        return max(shown, key=len)


def _is_same_call(one: Action, other: Action) -> bool:
    mine, others = one.tool_call_metadata, other.tool_call_metadata
    if mine is not None and others is not None:
        return mine.tool_call_id == others.tool_call_id and _response_id(one) == _response_id(other)
    return one.action == other.action


def _response_id(action: Action) -> str:
    response = action.tool_call_metadata.model_response if action.tool_call_metadata is not None else None
    return str(response.get("id") or "") if response else ""


def _message_chunk(text: str, message_id: str) -> schema.AgentMessageChunk:
    return schema.AgentMessageChunk(
        session_update="agent_message_chunk", content=text_block(text), message_id=message_id or None
    )


def _thought(text: str, message_id: str | None) -> schema.AgentThoughtChunk:
    return schema.AgentThoughtChunk(
        session_update="agent_thought_chunk", content=text_block(text), message_id=message_id
    )
