"""Agents of a program's own, asynchronous or not: what they may do, and what they may leave out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import Field

from agent_core import (
    ActionEvent,
    Agent,
    AgentBase,
    AgentErrorEvent,
    Conversation,
    ConversationRunError,
    Event,
    ExecutionStatus,
    Message,
    MessageEvent,
    ObservationEvent,
    StepInput,
    StepOutcome,
    SystemPromptEvent,
    TextContent,
    Tool,
)
from agent_core.agent.step import SteppedConversation
from agent_core.tools import TerminalAction
from tests.unit.library.playing import DONE, Said, Sandbox, Script, conversation, model, run

FINISHED = ExecutionStatus.FINISHED
TOOLS = [Tool(name="terminal")]
Step = Callable[[Any, SteppedConversation, Callable[[Any], object]], None]


def said(text: str, **fields: Any) -> MessageEvent:
    return MessageEvent(source="agent", llm_message=Message.assistant(text), **fields)


def acting(does: Step) -> AgentBase:
    """An agent whose blocking `step` is this."""

    class Acting(AgentBase):
        def step(self, conversation: Any, on_event: Any = None, on_token: Any = None) -> None:
            does(self, conversation, on_event)

    return Acting(llm=model(Script()), tools=TOOLS)  # type: ignore[abstract] # its step stands for the missing one


def played(who: AgentBase, **arguments: Any) -> Conversation:
    """A conversation with one message, run to its rest."""
    one = conversation(who, **arguments)
    one.send_message("Hello there.")
    one.run()
    return one


def texts(one: Conversation) -> list[str]:
    """What the agent has said."""
    return [
        event.llm_message.text
        for event in one.state.events
        if isinstance(event, MessageEvent) and event.source == "agent"
    ]


def test_a_blocking_step_sees_the_conversation_and_speaks() -> None:
    threads: list[threading.Thread] = []

    def echo(self: Any, where: SteppedConversation, on_event: Callable[[Any], object]) -> None:
        threads.append(threading.current_thread())
        heard = [event for event in where.state.events if isinstance(event, MessageEvent)][-1]
        assert isinstance(where.state.events[0], SystemPromptEvent)
        assert where.state.view.messages()[-1].text.startswith(heard.llm_message.text)
        assert (where.agent, where.id, where.state.execution_status) == (self, one.id, "running")
        on_event(said(heard.llm_message.text.upper()))
        where.state.execution_status = FINISHED

    one = conversation(acting(echo))
    with one:
        one.send_message("Hello there.")
        one.run()
        assert texts(one) == ["HELLO THERE."]
        assert one.state.execution_status is FINISHED
        assert threads[0].name.startswith("agent-step")
        one.send_message("And?")
        one.run()
        assert texts(one)[1:] == ["AND?"]


def test_its_calls_are_carried_out_and_it_steps_again() -> None:
    sandbox = Sandbox()

    def work(self: Any, where: SteppedConversation, on_event: Callable[[Any], object]) -> None:
        if any(isinstance(event, ObservationEvent) for event in where.state.events):
            on_event(said("done"))
            where.state.execution_status = "finished"
            return
        for command in ("a", "b"):
            on_event(ActionEvent(tool_name="terminal", action=TerminalAction(command=command)))

    with played(acting(work), workspace=sandbox) as one:
        assert sandbox.ran == ["a", "b"]
        assert one.state.execution_status is FINISHED
        calls = [event for event in one.state.events if isinstance(event, ActionEvent)]
        assert len({call.tool_call_id for call in calls}) == 2
        assert {call.llm_response_id for call in calls} == {calls[0].llm_response_id}
        assert [call.calls_in_response for call in calls] == [2, 2]
        roles = [message.role for message in one.state.view.messages()]
        assert roles[-4:] == ["assistant", "tool", "tool", "assistant"]


def test_a_step_that_only_says_that_it_is_finished_ends_the_run() -> None:
    def stop(self: Any, where: SteppedConversation, on_event: Callable[[Any], object]) -> None:
        where.state.execution_status = FINISHED

    with played(acting(stop)) as one:
        assert one.state.execution_status is FINISHED
        assert texts(one) == [""]


def test_other_states_cannot_be_set() -> None:
    def pause(self: Any, where: SteppedConversation, on_event: Callable[[Any], object]) -> None:
        where.state.execution_status = "paused"

    with pytest.raises(ConversationRunError) as caught:
        played(acting(pause))
    assert "a step can set it to 'finished' only, not to 'paused'" in str(caught.value.__cause__)


class Watchful(Agent):
    """Counts its steps, and lets nothing but calls of the terminal through."""

    counted: list[str] = Field(default_factory=list)

    def step(self, conversation: Any, on_event: Any = None, on_token: Any = None) -> None:
        heard: list[Event] = []
        super().step(conversation, heard.append, on_token)
        self.counted.extend(type(event).__name__ for event in heard)
        for event in heard:
            on_event(event)


class MoreWatchful(Watchful):
    """The same once more."""

    def step(self, conversation: Any, on_event: Any = None, on_token: Any = None) -> None:
        self.counted.append("more")
        super().step(conversation, on_event, on_token)


@pytest.mark.parametrize(("kind", "first"), [(Watchful, []), (MoreWatchful, ["more"])])
def test_a_step_may_be_that_of_the_class_it_comes_from_and_something_more(
    kind: type[Watchful], first: list[str]
) -> None:
    garbage: Said = ("", [("terminal", "{"), ("terminal", '{"command": "ls"}')])
    script, sandbox, told = Script(garbage, ("All is well.", [])), Sandbox(), list[str]()
    who = kind(llm=model(script), tools=TOOLS)
    with played(who, workspace=sandbox, token_callbacks=[lambda delta: told.append(delta.text)]) as one:
        assert isinstance(one.agent, Watchful)
        assert one.agent.counted == [*first, "ActionEvent", "ActionEvent", *first, "MessageEvent"]
        assert sandbox.ran == ["ls"]
        (error,) = [event for event in one.state.events if isinstance(event, AgentErrorEvent)]
        assert "could not be parsed" in error.error
        assert "".join(told) == "All is well."
        assert one.state.execution_status is FINISHED
        assert one.state.stats.usage_to_metrics["agent"].accumulated_token_usage.prompt_tokens == 20


def test_an_agent_without_a_class_to_fall_back_on_says_so() -> None:
    class Bare(AgentBase):
        def step(self, conversation: Any, on_event: Any = None, on_token: Any = None) -> None:
            super().step(conversation, on_event, on_token)

    with pytest.raises(ConversationRunError) as caught:
        played(Bare(llm=model(Script())))  # type: ignore[abstract] # as above
    assert "Bare comes from no class that has a step of its own" in str(caught.value.__cause__)


def test_a_step_from_outside_calls_it_as_well() -> None:
    def speak(self: Any, where: SteppedConversation, on_event: Callable[[Any], object]) -> None:
        on_event(said("Yes?", wait_for_response=True))

    who = acting(speak)
    with conversation(who) as one:
        one.send_message("Hello there.")
        one.step()
        assert texts(one) == ["Yes?"]


def test_a_pause_leaves_a_step_that_blocks_to_itself() -> None:
    begun, go_on, late = threading.Event(), threading.Event(), list[Exception]()
    ended = threading.Event()

    def block(self: Any, where: SteppedConversation, on_event: Callable[[Any], object]) -> None:
        begun.set()
        go_on.wait(60)
        try:
            on_event(said("too late"))
        except Exception as error:  # noqa: BLE001 - it is what is looked at
            late.append(error)
        ended.set()

    with conversation(acting(block)) as one:
        one.send_message("Hello there.")
        running = threading.Thread(target=one.run)
        running.start()
        assert begun.wait(60)
        one.pause()
        running.join(60)
        assert not running.is_alive()
        assert one.state.execution_status is ExecutionStatus.PAUSED
        go_on.set()
        assert ended.wait(60)
        assert "counts for nothing" in str(late)
        assert texts(one) == []


def test_what_is_no_event_is_refused() -> None:
    def babble(self: Any, where: SteppedConversation, on_event: Callable[[Any], object]) -> None:
        on_event("words")

    with pytest.raises(ConversationRunError) as caught:
        played(acting(babble))
    assert "on_event takes events, not a str" in str(caught.value.__cause__)


def test_an_asynchronous_step_is_called_astep() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.step is asynchronous: call it astep"):

        class Wrong(AgentBase):
            async def step(self, conversation: Any, on_event: Any = None, on_token: Any = None) -> None:  # type: ignore[override] # that is the point
                """Never called."""


def awaiting(*outcomes: StepOutcome) -> AgentBase:
    """An agent whose `astep` comes to these, one after another, the last of them again and again."""
    left = list(outcomes)

    class Awaiting(AgentBase):
        async def astep(self, step: StepInput) -> StepOutcome:
            assert step.view is not None
            assert len(step.prompt) == len(step.view.messages())
            return left.pop(0) if len(left) > 1 else left[0]

    return Awaiting(llm=model(Script()), tools=TOOLS)


def test_steps_that_come_to_nothing_end_in_an_error() -> None:
    one = conversation(awaiting(StepOutcome([])))
    with one:
        one.send_message("Go.")
        with pytest.raises(ConversationRunError, match="3 empty replies in a row"):
            one.run()
        assert one.state.execution_status is ExecutionStatus.ERROR
        nudges = [event for event in one.state.events if getattr(event, "source", "") == "environment"]
        assert sum("came to nothing" in str(event) for event in nudges) == 3


def test_steps_without_a_response_id_count_as_steps() -> None:
    call = ActionEvent(tool_name="terminal", action=TerminalAction(command="again"))
    sandbox = Sandbox()
    with conversation(awaiting(StepOutcome([call])), workspace=sandbox, max_iteration_per_run=3) as one:
        one.send_message("Go.")
        one.run()
        assert one.state.execution_status is ExecutionStatus.ERROR
        assert sandbox.ran == ["again"] * 3


def test_a_thought_on_any_call_but_the_first_is_refused() -> None:
    first = ActionEvent(tool_name="terminal", action=TerminalAction(command="a"), thought=[TextContent(text="I think")])
    with pytest.raises(ConversationRunError, match="not the first of its response and has a thought"):
        played(awaiting(StepOutcome([first, first])))


def test_a_call_keeps_what_it_says_of_itself() -> None:
    sandbox, script = Sandbox(), Script(run("x"), DONE)
    with played(Agent(llm=model(script), tools=TOOLS), workspace=sandbox) as one:
        call = next(event for event in one.state.events if isinstance(event, ActionEvent))
        assert (call.tool_call_id, call.calls_in_response) == ("call-1-0", 1)
        assert not call.llm_response_id.startswith("step-")
