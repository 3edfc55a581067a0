"""What a log means, and what has to happen next in it: pure, so the same after every restart."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.controller.agent_controller import recalls
from agent_core.controller.guards import check_budget, check_limits, failure_of, rephrase
from agent_core.controller.state import ControllerState, Limits, Move
from agent_core.errors import DrydockError, LimitReachedError, LLMAuthenticationError, LLMContentPolicyError
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    ConfirmationPolicyChanged,
    HookExecutionEvent,
    RecallAction,
    RecallObservation,
)
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    MetricsSnapshot,
    ObservationEvent,
)
from agent_core.events.messages import Message
from agent_core.events.schema import Observation
from agent_core.events.serialization import AnyEvent
from agent_core.security.confirmation import AlwaysConfirm
from agent_core.tools.builtin import FinishAction, FinishObservation
from agent_core.tools.terminal import TerminalAction


class Log:
    """Folds events as they are written, under consecutive ids."""

    def __init__(self, *, max_iterations: int = 10, max_budget: float | None = None) -> None:
        self.state = ControllerState(Limits(max_iterations, max_budget))

    def add(self, event: AnyEvent) -> int:
        stored = event.stored_as(self.state.last_event_id + 1)
        self.state.fold(stored)
        return stored.id

    def user(self, text: str = "go") -> int:
        return self.add(MessageEvent(source="user", llm_message=Message.user(text)))

    def enter(self, state: AgentState) -> int:
        return self.add(AgentStateChanged(agent_state=state))

    def recalled(self, message: int) -> int:
        asked = self.add(RecallAction(recall_type="knowledge", cause=message))
        return self.add(RecallObservation(recall_type="knowledge", cause=asked))

    def running(self) -> int:
        """A message of the user, recalled, in a running conversation; returns the newest event's id."""
        message = self.user()
        self.enter(AgentState.RUNNING)
        return self.recalled(message)

    def act(self, seen: int, response: str = "r1", **fields: Any) -> int:
        values: dict[str, Any] = {"action": TerminalAction(command="ls"), "tool_name": "terminal", **fields}
        return self.add(ActionEvent(tool_call_id="c", llm_response_id=response, seen=seen, **values))

    def answer(self, cause: int, observation: Observation | None = None) -> int:
        result = observation or Observation.from_text("ok")
        return self.add(ObservationEvent(cause=cause, observation=result, tool_name="terminal"))

    def say(self, seen: int) -> int:
        """The model answers without a call."""
        said = Message.assistant("?")
        return self.add(MessageEvent(source="agent", llm_message=said, llm_response_id="r", seen=seen))

    def finish(self, seen: int) -> int:
        action = self.act(seen, action=FinishAction(message="done"), tool_name="finish")
        return self.answer(action, FinishObservation.from_text("done"))

    def move(self) -> Move:
        return self.state.next_move()


def test_a_message_is_recalled_first_and_then_stepped_on() -> None:
    log = Log()
    message = log.user()
    log.enter(AgentState.RUNNING)
    assert log.move() is Move.RECALL
    asked = log.add(RecallAction(recall_type="workspace_context", cause=message))
    assert log.move() is Move.WAIT
    log.add(RecallObservation(recall_type="workspace_context", cause=asked))
    assert log.move() is Move.STEP


def test_nothing_happens_unless_the_agent_runs() -> None:
    log = Log()
    log.running()
    for state in (AgentState.PAUSED, AgentState.STOPPED, AgentState.ERROR, AgentState.FINISHED):
        log.enter(state)
        assert log.move() is Move.WAIT


def test_a_step_waits_until_every_action_has_its_answer() -> None:
    log = Log()
    seen = log.running()
    one, two = log.act(seen), log.act(seen)
    assert log.move() is Move.WAIT
    log.answer(two)
    assert log.move() is Move.WAIT
    log.answer(one)
    assert log.move() is Move.STEP


def test_an_answer_of_the_model_without_calls_waits_for_the_user() -> None:
    log = Log()
    seen = log.running()
    log.say(seen)
    assert log.move() is Move.AWAIT_INPUT


def test_a_finish_ends_the_run() -> None:
    log = Log()
    seen = log.running()
    log.finish(seen)
    assert log.move() is Move.FINISH


@pytest.mark.parametrize("finishing", [True, False])
def test_a_message_that_the_model_had_not_seen_is_answered_before_it_rests(finishing: bool) -> None:
    log = Log()
    seen = log.running()
    log.recalled(log.user("wait"))
    if finishing:
        log.finish(seen)
    else:
        log.say(seen)
    assert log.move() is Move.STEP


def test_an_action_that_awaits_confirmation_holds_everything_until_it_is_decided_and_done() -> None:
    log = Log()
    seen = log.running()
    action_id = log.act(seen, awaits_confirmation=True)
    log.enter(AgentState.AWAITING_USER_CONFIRMATION)
    assert set(log.state.undecided) == {action_id}
    action = log.state.undecided[action_id]
    log.add(ActionDecision(cause=action_id, decision="confirmed", action=action))
    log.enter(AgentState.USER_CONFIRMED)
    assert log.move() is Move.WAIT
    log.answer(action_id)
    assert log.move() is Move.RESUME


def test_a_command_of_the_user_makes_no_step() -> None:
    log = Log()
    seen = log.running()
    log.say(seen)
    typed = log.add(ActionEvent(source="user", action=TerminalAction(command="ls"), tool_name="terminal"))
    log.answer(typed)
    assert log.move() is Move.AWAIT_INPUT


def test_a_later_stop_outweighs_an_earlier_message() -> None:
    log = Log()
    seen = []
    log.user()
    seen.append(log.state.wants_attention)
    log.add(ChangeAgentState(source="user", agent_state=AgentState.STOPPED))
    seen.append(log.state.wants_attention)
    log.user("go on")
    seen.append(log.state.wants_attention)
    assert seen == [True, False, True]


def test_iterations_count_answers_of_the_model_not_calls() -> None:
    log = Log()
    seen = log.running()
    for response in ("r1", "r1", "r2"):
        log.answer(log.act(seen, response))
    assert log.state.iterations == 2


def test_a_limit_stops_the_agent_and_running_again_extends_it_by_its_first_amount() -> None:
    log = Log(max_iterations=1)
    seen = log.running()
    check_limits(log.state)
    log.answer(log.act(seen))
    with pytest.raises(LimitReachedError, match=r"Current iteration: 1, max iteration: 1$"):
        check_limits(log.state)
    log.enter(AgentState.ERROR)
    log.enter(AgentState.RUNNING)
    assert log.state.limits.iteration_limit == 2
    check_limits(log.state)


@pytest.mark.parametrize(("per_run", "limit"), [(False, 3), (True, 4)])
def test_to_be_loaded_while_actions_wait_is_a_new_run_only_where_runs_are_counted(per_run: bool, limit: int) -> None:
    log = Log(max_iterations=3)
    log.state.limits.per_run = per_run
    log.act(log.running(), awaits_confirmation=True)
    log.enter(AgentState.AWAITING_USER_CONFIRMATION)
    log.enter(AgentState.LOADING)
    assert log.state.limits.iteration_limit == limit


@pytest.mark.parametrize(("refused", "is_blocked"), [(0, False), (1, True)])
def test_only_with_the_newest_message_refused_nothing_is_left_to_be_done(refused: int, is_blocked: bool) -> None:
    log = Log()
    messages = [log.user("one"), log.user("other")]
    log.add(
        HookExecutionEvent(
            hook_event_type="UserPromptSubmit",
            hook_command="x",
            success=True,
            blocked=True,
            message_id=messages[refused],
        )
    )
    assert (log.state.is_blocked, list(log.state.unrecalled)) == (is_blocked, [messages[1 - refused]])


def test_a_policy_that_was_chosen_on_an_undone_branch_stays_in_force() -> None:
    whole = Log()
    whole.add(ConfirmationPolicyChanged(policy=AlwaysConfirm().model_dump(mode="json")))
    branch = Log().state
    branch.keep(whole.state)
    assert branch.policy == AlwaysConfirm().model_dump(mode="json")


def test_a_budget_counts_what_the_log_says_was_spent() -> None:
    log = Log(max_budget=1.0)
    seen = log.running()
    log.answer(log.act(seen, metrics=MetricsSnapshot(accumulated_cost=1.5)))
    with pytest.raises(LimitReachedError, match="maximum budget"):
        check_limits(log.state)
    log.enter(AgentState.ERROR)
    log.enter(AgentState.RUNNING)
    assert log.state.limits.budget_limit == 2.5


def test_loading_remembers_where_the_conversation_was_even_when_loaded_twice() -> None:
    log = Log()
    log.running()
    log.enter(AgentState.LOADING)
    log.enter(AgentState.LOADING)
    assert log.state.resumable is AgentState.RUNNING


@pytest.mark.parametrize(
    ("asked", "goes_on"),
    [
        ([AgentState.PAUSED], AgentState.PAUSED),
        ([AgentState.STOPPED], AgentState.STOPPED),
        ([AgentState.PAUSED, AgentState.RUNNING], AgentState.RUNNING),
        ([AgentState.USER_CONFIRMED], AgentState.RUNNING),
    ],
)
def test_what_the_user_asked_for_right_before_a_crash_is_heeded_after_it(
    asked: list[AgentState], goes_on: AgentState
) -> None:
    log = Log()
    log.running()
    for state in asked:
        log.add(ChangeAgentState(agent_state=state, source="user"))
    log.enter(AgentState.LOADING)
    log.enter(AgentState.LOADING)
    assert log.state.resumable is goes_on


def test_what_was_asked_for_and_done_says_nothing_of_a_later_crash() -> None:
    log = Log()
    log.running()
    log.add(ChangeAgentState(agent_state=AgentState.PAUSED, source="user"))
    log.enter(AgentState.PAUSED)
    log.enter(AgentState.RUNNING)
    log.enter(AgentState.LOADING)
    assert log.state.resumable is AgentState.RUNNING


def test_an_error_answers_an_action_too() -> None:
    log = Log()
    action = log.act(log.running())
    log.add(AgentErrorEvent(cause=action, error="interrupted", tool_name="terminal"))
    assert not log.state.unanswered
    assert log.move() is Move.STEP


@pytest.mark.parametrize(
    ("error", "reason", "advice"),
    [
        (
            LimitReachedError("Agent reached maximum iteration", code="MaxIterationsReached"),
            "RuntimeError: Agent reached",
            "Send a message",
        ),
        (LLMAuthenticationError("the key is wrong"), "STATUS$ERROR_LLM_AUTHENTICATION", "the key is wrong"),
        (DrydockError("the disk is full"), "DrydockError: the disk is full", "the disk is full"),
        (KeyError("secret-detail"), "RuntimeError: There was an unexpected error", "the log says what"),
    ],
)
def test_a_failure_has_a_public_reason_and_a_text_for_people(error: Exception, reason: str, advice: str) -> None:
    public, text = failure_of(error)
    assert public.startswith(reason)
    assert advice in text
    assert "secret-detail" not in public + text


def test_money_is_spent_once_all_of_it_is_and_no_call_may_follow() -> None:
    limits = Limits(max_iterations=5, max_budget=0.5)
    check_budget(limits, 0.49)
    with pytest.raises(LimitReachedError, match=r"max budget: 0\.5000") as caught:
        check_budget(limits, 0.5)
    assert caught.value.code == "MaxBudgetReached"
    limits.extend(iterations=1, cost=0.5)
    check_budget(limits, 0.99)


def test_a_refusal_of_the_provider_is_told_to_the_model_by_the_environment_and_is_no_word_of_the_user() -> None:
    log = Log()
    log.user()
    said = rephrase(LLMContentPolicyError("no"), log.state)
    assert (said.source, said.llm_message.role) == ("environment", "user")
    log.add(said)
    assert log.state.user_messages == 1


def test_of_the_messages_that_open_a_conversation_only_the_first_asks_about_the_workspace() -> None:
    log = Log()
    first, second = log.user("go"), log.user("and quickly")
    asked = [event for event in recalls(log.state) if isinstance(event, RecallAction)]
    assert [(event.cause, event.recall_type, event.query) for event in asked] == [
        (first, "workspace_context", "go"),
        (second, "knowledge", "and quickly"),
    ]
    for event in asked:
        log.add(event)
    third = log.user("stop")
    assert [(event.cause, getattr(event, "recall_type", "")) for event in recalls(log.state)] == [(third, "knowledge")]
