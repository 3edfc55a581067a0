"""What the agent makes of answers that are not as they should be, and what its user is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from agent_core.agent.agent import AFTER_FINISH, CUT_OFF, NUDGE, TEXT_CALL_NUDGE, is_call_in_text
from agent_core.controller.guards import MAX_FRUITLESS_REPLIES
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.session.settings import AgentOptions
from agent_core.tools.builtin import FinishAction
from server.wire.envelope import to_wire
from tests.unit.controller.stage import REPLIES, Reply, Stage
from tests.waiting import ticks

TOOLS = ["terminal", "think", "finish"]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    await stage.begin()
    yield stage
    await stage.end()


async def until(
    stage: Stage, done: Callable[[list[AnyEvent]], object], replies: list[Reply] | None = None
) -> list[AnyEvent]:
    """The log once `done` holds for it; meanwhile the model says `replies`, the last of them for ever."""
    left = list(replies or [])
    async with asyncio.timeout(60):
        while not done(events := await stage.log()):
            stage.shell.open()
            if left and stage.model.gate.open(left[0]) and len(left) > 1:
                left.pop(0)
            await asyncio.sleep(0.001)
    return events


def is_in(*states: AgentState) -> Callable[[list[AnyEvent]], bool]:
    def check(events: list[AnyEvent]) -> bool:
        changes = [event.agent_state for event in events if isinstance(event, AgentStateChanged)]
        return changes[-1] in states

    return check


async def test_a_finish_among_other_calls_ends_the_task_and_every_call_is_answered(stage: Stage) -> None:
    await stage.say()
    events = await until(stage, is_in(AgentState.FINISHED), [REPLIES["mixed"]])
    calls = [event for event in events if isinstance(event, ActionEvent)]
    errors = {event.cause: event.error for event in events if isinstance(event, AgentErrorEvent)}
    results = [event.cause for event in events if isinstance(event, ObservationEvent)]
    assert [call.tool_name for call in calls] == ["nope", "finish", "terminal"]
    assert "not found" in errors[calls[0].id]
    assert errors[calls[2].id] == AFTER_FINISH
    assert results == [calls[1].id]
    assert len(stage.model.prompts) == 1


async def test_a_call_written_as_text_is_shown_and_asked_for_again_as_a_call(stage: Stage) -> None:
    await stage.say()
    replies = [REPLIES["call in text"], REPLIES["nothing"], REPLIES["finish"]]
    events = await until(stage, is_in(AgentState.FINISHED), replies)
    said = [(event.source, event.llm_message.text) for event in events if isinstance(event, MessageEvent)]
    assert said[1:] == [
        ("agent", REPLIES["call in text"][0]),
        ("environment", TEXT_CALL_NUDGE),
        ("agent", ""),
        ("environment", NUDGE),
    ]


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        ('<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>', True),
        ("Let me look.\n<function=terminal>\n<parameter=command>ls</parameter>\n</function>", True),
        ('[TOOL_CALLS][{"name": "terminal", "arguments": {}}]', True),
        ('```json\n{"name": "terminal", "parameters": {"command": "ls"}}\n```', True),
        ('{"type": "function", "function": {"name": "think", "arguments": "{}"}}', True),
        ('{"name": "Alice", "arguments": ["good ones"]}', False),
        ("The tag <tool_call> marks where a model begins to call something.", False),
        ("I used the terminal and then finish.", False),
        ("{" * 5000, False),
        ("", False),
    ],
)
def test_calls_in_text_are_told_from_text_about_calls(text: str, is_call: bool) -> None:
    assert is_call_in_text(text, TOOLS) is is_call


@pytest.mark.parametrize("name", ["bad", "nothing", "call in text"])
async def test_a_model_that_repeats_its_nonsense_is_stopped_and_a_message_lets_it_go_on(name: str) -> None:
    stage = Stage(settings={"max_iterations": 100})
    await stage.begin()
    await stage.say()
    await until(stage, is_in(AgentState.ERROR), [REPLIES[name]])
    assert 3 <= len(stage.model.prompts) <= 5
    await stage.say()
    await until(stage, is_in(AgentState.FINISHED), [REPLIES["finish"]])
    await stage.end()


async def test_a_model_whose_calls_are_all_nonsense_is_asked_a_bounded_number_of_times() -> None:
    stage = Stage(settings={"max_iterations": 100})
    await stage.begin()
    await stage.say()
    nonsense: list[Reply] = [("", [(f"tool_{number}", "{}")]) for number in range(50)]
    await until(stage, is_in(AgentState.ERROR), nonsense)
    assert len(stage.model.prompts) == MAX_FRUITLESS_REPLIES
    await stage.session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
    await until(stage, is_in(AgentState.FINISHED), [REPLIES["finish"]])  # trying again is a new chance
    await stage.end()


async def test_the_iteration_limit_is_extended_by_the_user_and_not_by_a_restart() -> None:
    stage = Stage(settings={"max_iterations": 2})
    await stage.begin()
    await stage.say()
    await until(stage, lambda events: sum(isinstance(event, ActionEvent) for event in events) == 2, [REPLIES["one"]])
    await stage.crash()
    await stage.begin()
    events = await until(stage, is_in(AgentState.ERROR))
    assert len(stage.model.prompts) == 2
    failed = events[-1]
    assert isinstance(failed, AgentStateChanged)
    assert failed.reason == "RuntimeError: Agent reached maximum iteration. Current iteration: 2, max iteration: 2"
    await stage.say()
    await until(stage, is_in(AgentState.FINISHED), [REPLIES["one"], REPLIES["finish"]])
    await stage.end()


async def test_the_budget_is_checked_before_the_model_is_asked_and_extended_by_a_message() -> None:
    stage = Stage(settings={"max_budget": 0.2})
    await stage.begin()
    await stage.say()
    events = await until(stage, is_in(AgentState.ERROR), [REPLIES["one"]])
    failed = events[-1]
    assert isinstance(failed, AgentStateChanged)
    cost = 2 * 15 * 0.01
    assert failed.reason == (
        f"RuntimeError: Agent reached maximum budget for conversation.Current budget: {cost:.4f}, max budget: 0.2000"
    )
    await stage.say()
    await until(stage, is_in(AgentState.FINISHED), [REPLIES["finish"]])
    await stage.end()


async def test_a_pause_that_is_asked_for_while_the_conversation_loads_is_kept() -> None:
    stage = Stage()
    await stage.begin()
    await stage.say()
    await until(stage, lambda _: stage.model.asking == 1)
    await stage.crash()
    await stage.begin(asking_for=AgentState.PAUSED)
    await until(stage, is_in(AgentState.PAUSED))
    assert len(stage.model.prompts) == 1
    await stage.session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
    await until(stage, is_in(AgentState.FINISHED), [REPLIES["finish"]])
    await stage.end()


async def test_the_same_request_twice_changes_the_state_once(stage: Stage) -> None:
    await stage.say()
    await until(stage, lambda _: stage.model.asking == 1)
    wish = ChangeAgentState(agent_state=AgentState.PAUSED)
    await asyncio.gather(stage.session.send(wish), stage.session.send(wish))
    await until(stage, is_in(AgentState.PAUSED))
    await ticks(100)
    states = [event.agent_state for event in await stage.log() if isinstance(event, AgentStateChanged)]
    assert states.count(AgentState.PAUSED) == 1


async def test_a_call_that_was_cut_off_at_the_output_limit_is_answered_with_the_reason(stage: Stage) -> None:
    stage.model.finish_reason = "length"
    await stage.say()
    half = ("", [("terminal", '{"command": "echo')])
    events = await until(stage, lambda events: any(isinstance(event, AgentErrorEvent) for event in events), [half])
    (error,) = (event.error for event in events if isinstance(event, AgentErrorEvent))
    assert error.endswith(CUT_OFF)


async def test_an_answer_that_holds_only_reasoning_is_kept_and_the_model_is_told_to_go_on(stage: Stage) -> None:
    await stage.say()
    events = await until(stage, is_in(AgentState.FINISHED), [REPLIES["nothing"], REPLIES["finish"]])
    said = [event for event in events if isinstance(event, MessageEvent)][1:]
    assert [(event.source, event.llm_message.role) for event in said] == [
        ("agent", "assistant"),
        ("environment", "user"),
    ]
    assert said[0].llm_message.reasoning_content == "Hm"
    assert said[0].llm_response_id == said[1].llm_response_id
    assert not said[0].wait_for_response
    roles = [message["role"] for message in stage.model.prompts[-1]]
    assert roles == ["system", "user"], "an empty message is none that a provider would take"
    assert NUDGE in str(stage.model.prompts[-1])


async def test_exit_leaves_a_finish_in_the_log_without_a_question_to_the_model_and_the_next_message_goes_on(
    stage: Stage,
) -> None:
    await stage.session.send(MessageEvent(source="user", llm_message=Message.user(" /exit\n")))

    def is_left(events: list[AnyEvent]) -> bool:
        return is_in(AgentState.FINISHED)(events) and isinstance(events[-1], ObservationEvent)

    events = await until(stage, is_left)
    assert not stage.model.prompts
    [left] = [event for event in events if isinstance(event, ActionEvent)]
    assert isinstance(left.action, FinishAction)
    assert [event.cause for event in events if isinstance(event, ObservationEvent)] == [left.id]
    shown = [frame for event in events if (frame := to_wire(event, live=True)) is not None]
    finish = next(frame for frame in shown if frame.get("action") == "finish")
    assert (finish["source"], finish["args"]) == ("agent", {"final_thought": "", "outputs": {}, "thought": ""})
    assert shown[-1]["extras"]["agent_state"] == "finished", "the state comes behind it, and nothing behind that"
    await stage.say()
    await until(stage, lambda _: stage.model.prompts)
    said = {turn["role"] for turn in stage.model.prompts[0]}
    assert said == {"system", "user"}, "what no model said is not shown to it"


async def test_exit_is_left_once_also_where_the_agent_has_no_finish_and_after_a_crash() -> None:
    stage = Stage(settings={"agent_options": AgentOptions(enable_finish=False)})
    await stage.begin()
    await stage.session.send(MessageEvent(source="user", llm_message=Message.user("/exit")))
    await until(stage, is_in(AgentState.FINISHED))
    await stage.crash()
    await stage.begin()
    events = await until(stage, lambda log: isinstance(log[-1], AgentStateChanged) and log[-1].id > 6)
    await ticks(50)
    assert [event.tool_name for event in await stage.log() if isinstance(event, ActionEvent)] == ["finish"]
    assert is_in(AgentState.FINISHED, AgentState.AWAITING_USER_INPUT)(events)
    await stage.end()


async def test_what_the_sandbox_did_for_events_that_the_log_has_lost_is_not_taken_for_what_has_their_number() -> None:
    stage = Stage()
    await stage.begin()
    for number in range(40):  # a tail of the log, which a disk lost, or which an older backup does not have
        left = asyncio.create_task(
            stage.session.sandbox.request("shell.run", {"command": "lost"}, key=f"c:{number + 4}")
        )
        await ticks(5)
        stage.shell.open()
        await left
    await stage.crash()
    await stage.begin()
    await stage.say()
    events = await until(stage, is_in(AgentState.FINISHED), [REPLIES["one"], REPLIES["finish"]])
    (ran,) = [
        event.observation.text
        for event in events
        if isinstance(event, ObservationEvent)
        if event.tool_name == "terminal"
    ]
    assert ran.startswith("ran ls")
    await stage.end()
