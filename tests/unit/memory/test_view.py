"""The view: whatever the log holds, what a model is shown is a conversation that providers accept."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_core.events.control import Condensation, RecallObservation
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    SystemPromptEvent,
    UserRejectObservation,
)
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.events.schema import Observation
from agent_core.events.serialization import AnyEvent
from agent_core.memory.transcript import Prefix, PromptCache
from agent_core.memory.view import View
from agent_core.tools.terminal import TerminalAction


def call(event_id: int, response: str, *, of: int = 1, thought: str = "", thinks: bool = False) -> ActionEvent:
    call_id = f"call_{event_id}"
    return ActionEvent(
        id=event_id,
        action=TerminalAction(command="ls"),
        tool_name="terminal",
        tool_call_id=call_id,
        tool_call=MessageToolCall(id=call_id, name="terminal", arguments='{"command": "ls"}'),
        llm_response_id=response,
        calls_in_response=of,
        thought=[TextContent(text=thought)] if thought else [],
        thinking_blocks=[{"type": "thinking", "thinking": "hm", "signature": "s"}] if thinks else [],
    )


def result(event_id: int, cause: int, text: str = "out") -> ObservationEvent:
    return ObservationEvent(id=event_id, cause=cause, observation=Observation.from_text(text), tool_name="terminal")


def error(event_id: int, cause: int) -> AgentErrorEvent:
    return AgentErrorEvent(id=event_id, cause=cause, error="interrupted", tool_name="terminal")


def user(event_id: int, text: str) -> MessageEvent:
    return MessageEvent(id=event_id, source="user", llm_message=Message.user(text))


def agent(event_id: int, text: str) -> MessageEvent:
    return MessageEvent(
        id=event_id, source="agent", llm_message=Message.assistant(text), llm_response_id=f"r{event_id}"
    )


def shown(*events: AnyEvent) -> list[Message]:
    view = View()
    for event in events:
        view.add(event)
    return view.messages()


def roles(messages: list[Message]) -> list[str]:
    return [message.role for message in messages]


def test_a_batch_becomes_one_message_and_its_results_follow_in_the_order_of_the_calls() -> None:
    messages = shown(
        user(0, "go"),
        call(1, "r", of=2, thought="both"),
        call(2, "r", of=2),
        result(3, 2, "second"),
        result(4, 1, "first"),
    )
    assert roles(messages) == ["user", "assistant", "tool", "tool"]
    assert [c.id for c in messages[1].tool_calls or []] == ["call_1", "call_2"]
    assert messages[1].text == "both"
    assert [(m.tool_call_id, m.text) for m in messages[2:]] == [("call_1", "first"), ("call_2", "second")]


def test_only_plain_messages_of_the_user_are_joined() -> None:
    named = Message(role="user", content=[TextContent(text="I am Ada.")], name="ada")
    said = MessageEvent(id=2, source="user", llm_message=named)
    view = View()
    for event in (user(0, "a"), user(1, "b"), said, user(3, "c"), user(4, "d")):
        view.add(event)
    messages = view.messages()
    assert [message.text for message in messages] == ["a\nb", "I am Ada.", "c\nd"]
    assert messages[1].name == "ada"
    assert list(PromptCache(wire).prompt(view.transcript)) == [wire(message) for message in messages]


def test_calls_that_nobody_has_counted_are_a_batch_by_their_response() -> None:
    bad = call(2, "r", of=0).model_copy(update={"action": None})
    events: list[AnyEvent] = [call(1, "r", of=0), bad, error(3, 2), call(4, "r", of=0), result(5, 1), result(6, 4)]
    messages = shown(user(0, "go"), *events, call(7, "s", of=0), result(8, 7))
    assert roles(messages) == ["user", "assistant", "tool", "tool", "tool", "assistant", "tool"]
    assert [c.id for c in messages[1].tool_calls or []] == ["call_1", "call_2", "call_4"]
    assert [message.tool_call_id for message in messages[2:5]] == ["call_1", "call_2", "call_4"]
    assert list(View.from_events([user(0, "go"), *events]).cut_positions()) == [0, 1, 7]
    apart = shown(call(1, "", of=0), call(2, "", of=0), result(3, 2))
    assert [c.id for message in apart for c in message.tool_calls or []] == ["call_2"], "no id is none in common"


def test_answers_may_name_what_they_answer_as_other_programs_do() -> None:
    failed = AgentErrorEvent(id=2, error="no such file", tool_name="terminal", tool_call_id="call_1")
    unknown = AgentErrorEvent(id=3, error="?", tool_name="terminal", tool_call_id="call_9")
    refused = {"id": 5, "action_id": 4, "tool_name": "terminal", "rejection_reason": "too risky"}
    messages = shown(call(1, "r"), failed, unknown, call(4, "s"), UserRejectObservation.model_validate(refused))
    assert [message.text for message in messages if message.role == "tool"] == [
        "no such file",
        "Action rejected: too risky",
    ]
    named = ObservationEvent.model_validate({**result(6, 4).model_dump(exclude={"cause"}), "action_id": 4})
    assert named == result(6, 4).model_copy(update={"timestamp": named.timestamp})
    assert "action_id" not in named.model_dump()


def test_a_message_between_a_call_and_its_result_is_shown_after_the_result() -> None:
    messages = shown(user(0, "go"), call(1, "r"), user(2, "wait"), result(3, 1))
    assert roles(messages) == ["user", "assistant", "tool", "user"]
    assert messages[-1].text == "wait"


def test_a_call_without_a_result_is_not_shown_but_what_was_said_meanwhile_is() -> None:
    messages = shown(user(0, "go"), call(1, "r"), user(2, "hello?"))
    assert roles(messages) == ["user"]
    assert messages[0].text == "go\nhello?"


def test_the_first_result_wins() -> None:
    messages = shown(user(0, "go"), call(1, "r"), error(2, 1), result(3, 1, "late"))
    assert [m.text for m in messages if m.role == "tool"] == ["interrupted"]


def test_a_command_of_the_user_is_told_as_the_users() -> None:
    typed = ActionEvent(id=1, source="user", action=TerminalAction(command="ls -la"), tool_name="terminal")
    messages = shown(user(0, "go"), typed, result(2, 1, "a.txt"))
    assert roles(messages) == ["user"]
    assert "ls -la" in messages[0].text
    assert "a.txt" in messages[0].text
    hidden = typed.model_copy(update={"hidden": True})
    assert "ls -la" not in shown(user(0, "go"), hidden, result(2, 1, "a.txt"))[0].text


def test_facts_of_the_workspace_are_told_and_an_empty_recall_is_not() -> None:
    facts = RecallObservation(id=1, cause=0, recall_type="workspace_context", working_dir="/workspace")
    nothing = RecallObservation(id=2, cause=0, recall_type="knowledge")
    assert "/workspace" in shown(facts)[0].text
    assert shown(nothing) == []


def test_the_system_prompt_is_marked_for_the_providers_cache() -> None:
    (message,) = shown(SystemPromptEvent(id=0, system_prompt=TextContent(text="be good")))
    assert message.content == [TextContent(text="be good", cache_prompt=True)]


@st.composite
def logs(draw: st.DrawFn) -> list[AnyEvent]:
    """Logs as crashes, interruptions, repeated results and impatient users make them."""
    events: list[AnyEvent] = [SystemPromptEvent(id=0, system_prompt=TextContent(text="s"))]
    calls: list[int] = []
    response = 0
    for _ in range(draw(st.integers(0, 25))):
        event_id = len(events)
        kind = draw(st.sampled_from(["user", "agent", "batch", "part", "result", "error", "again", "orphan"]))
        if kind == "user":
            events.append(user(event_id, "u"))
        elif kind == "agent":
            events.append(agent(event_id, "a"))
        elif kind in ("batch", "part"):
            response += 1
            size = draw(st.integers(1, 4))
            written = size if kind == "batch" else draw(st.integers(1, size))
            name = draw(st.sampled_from([f"r{response}", "always the same"]))
            thinks = draw(st.booleans())
            told = draw(st.sampled_from([size, size, 0]))
            for i in range(written):
                events.append(call(event_id + i, name, of=told, thinks=thinks and i == 0))
                calls.append(event_id + i)
        elif calls and kind in ("result", "error"):
            cause = calls.pop(draw(st.integers(0, len(calls) - 1)))
            events.append(result(event_id, cause) if kind == "result" else error(event_id, cause))
        elif kind == "again" and event_id > 2:
            events.append(result(event_id, draw(st.integers(0, event_id - 1))))
        else:
            events.append(result(event_id, 10_000 + event_id))
    return events


def check(messages: list[dict[str, Any]]) -> None:
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        assert message["role"] != "tool", "a result without its call"
        wanted = list(message["calls"])
        assert len(wanted) == len(set(wanted))
        for call_id in wanted:
            assert messages[position]["role"] == "tool", "a call without its result"
            assert messages[position]["answers"] == call_id, "results out of order"
            position += 1
    neighbours = list(itertools.pairwise(messages))
    assert not any(one["role"] == two["role"] == "user" for one, two in neighbours)


def wire(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "calls": [c.id for c in message.tool_calls or []],
        "answers": message.tool_call_id,
        "text": message.text,
    }


@given(logs())
def test_every_prefix_of_every_log_gives_a_valid_conversation(events: list[AnyEvent]) -> None:
    view = View()
    for event in events:
        view.add(event)
        check([wire(message) for message in view.messages()])


@given(logs(), st.data())
def test_the_kept_rendering_equals_a_fresh_one_and_renders_each_message_once(
    events: list[AnyEvent], data: st.DataObject
) -> None:
    view = View()
    rendered: list[Message] = []

    def render(message: Message) -> dict[str, Any]:
        rendered.append(message)
        return wire(message)

    cache = PromptCache(render)
    for event in events:
        view.add(event)
        if data.draw(st.booleans()):
            assert cache.prompt(view.transcript) == [wire(message) for message in view.messages()]
    cache.prompt(view.transcript)
    rendered.clear()
    cache.prompt(view.transcript)
    assert len(rendered) <= 1, "only what is not settled yet may be rendered again"


@given(logs())
def test_a_prompt_that_was_given_out_stays_as_it_was_whatever_comes_after_it(events: list[AnyEvent]) -> None:
    view, cache = View(), PromptCache(wire)
    given_out = []
    for event in events:
        view.add(event)
        prompt = cache.prompt(view.transcript)
        given_out.append((prompt, list(prompt)))
    for prompt, then in given_out:
        assert prompt == then
        assert [prompt[index] for index in range(-len(prompt), 0)] == then == prompt[:]


def test_equal_system_prompts_of_several_conversations_are_kept_once() -> None:
    def seen() -> SystemPromptEvent:
        tools = [{"type": "function", "function": {"name": "terminal"}}]
        given = SystemPromptEvent(id=0, system_prompt=TextContent(text="be good"), tools=tools)
        (kept,) = View.from_log([given]).events
        assert isinstance(kept, SystemPromptEvent)
        assert kept == given
        return kept

    first, second = seen(), seen()
    assert first.tools is second.tools
    assert first.system_prompt is second.system_prompt


def test_a_prompt_of_a_long_log_is_not_copied() -> None:
    view, cache = View(), PromptCache(wire)
    for number in range(50):
        view.add(user(2 * number, "u"))
        view.add(agent(2 * number + 1, "a"))
    first, second = cache.prompt(view.transcript), cache.prompt(view.transcript)
    assert isinstance(first, Prefix)
    assert isinstance(second, Prefix)
    assert first.items is second.items


@given(logs())
def test_no_message_of_the_user_is_ever_lost(events: list[AnyEvent]) -> None:
    said = sum(1 for event in events if isinstance(event, MessageEvent) and event.source == "user")
    text = "\n".join(message.text for message in shown(*events) if message.role == "user")
    assert text.count("u") == said


def test_a_blank_thought_is_no_content_of_the_message_with_the_calls() -> None:
    messages = shown(user(0, "x"), call(1, "r", thought=" \n"), result(2, 1))
    assert (messages[1].role, messages[1].content) == ("assistant", [])


def test_the_users_first_words_are_told_as_long_as_no_summary_stands_for_them() -> None:
    log = [user(1, "build a boat"), agent(2, "yes"), agent(3, "done"), user(4, "and now?")]
    gone = Condensation(id=5, forgotten_event_ids=[1, 2])
    assert [message.text for message in shown(*log, gone)] == ["build a boat", "done", "and now?"]
    summed_up = gone.model_copy(update={"summary": "a boat was built", "summary_offset": 0})
    assert not any("build a boat" in message.text for message in shown(*log, summed_up))


def test_a_model_is_told_the_uploaded_files_that_a_message_does_not_name() -> None:
    names = ["/workspace/a.txt", "/workspace/b c.txt", " "]
    nameless, some, every = (
        MessageEvent(id=number, source="user", llm_message=Message.user(text), file_urls=names)
        for number, text in enumerate(("", "Read /workspace/a.txt first.", " ".join(names)))
    )
    texts = [event.to_llm_message().text for event in (nameless, some, every)]
    assert texts[0].strip() == "Uploaded files:\n/workspace/a.txt\n/workspace/b c.txt"
    assert texts[1] == "Read /workspace/a.txt first.\nUploaded files:\n/workspace/b c.txt"
    assert every.to_llm_message() == every.llm_message
    assert View.from_log([some]).messages()[0].text == texts[1]
