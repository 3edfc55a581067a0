"""What a program can do with its conversation beside talking and running."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import SecretStr

from agent_core import Conversation, ConversationErrorEvent, Event, ExecutionStatus, Tool
from agent_core.agent.agent import Agent
from agent_core.errors import (
    ConversationRunError,
    DrydockError,
    LLMBadRequestError,
    LLMContextWindowError,
    LLMError,
    LLMRateLimitError,
    NoCondensationError,
)
from agent_core.events.control import Condensation
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.masking import MASK
from agent_core.events.transient import TextDelta
from agent_core.llm.llm import LLM, CallContext
from agent_core.llm.registry import ProfileStore
from agent_core.memory.condenser import Condenser, PipelineCondenser
from agent_core.memory.condensers import (
    AmortizedForgettingCondenser,
    ConversationWindowCondenser,
    LLMSummarizingCondenser,
)
from agent_core.memory.view import View
from agent_core.security.analyzer import LLMSecurityAnalyzer
from agent_core.security.confirmation import AlwaysConfirm, ConfirmRisky, NeverConfirm
from agent_core.security.hooks import HookConfig
from agent_core.security.secrets import CallableSecret
from agent_core.skills.context import AgentContext
from agent_core.testing.fake_sandbox import BROKEN, FakeBehaviour
from agent_core.tools.builtin import ThinkAction, ThinkObservation
from agent_core.tools.context import SandboxAccess
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import ToolExecutor
from agent_core.tools.registry import register_tool
from agent_core.tools.task_tracker import TaskItem, TaskTrackerAction, TaskTrackerObservation, TaskTrackerTool
from agent_core.tools.terminal import TerminalAction, TerminalTool
from tests.unit.library.playing import DONE, Said, Sandbox, Script, agent, conversation, model, run

IDLE, FINISHED = ExecutionStatus.IDLE, ExecutionStatus.FINISHED
WAITING, PAUSED = ExecutionStatus.WAITING_FOR_CONFIRMATION, ExecutionStatus.PAUSED


@pytest.fixture
def sandbox() -> Sandbox:
    return Sandbox()


def status(one: Conversation) -> ExecutionStatus:
    return one.state.execution_status


def kinds(one: Conversation) -> list[str]:
    return [event.kind for event in one.state.events]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"agent": "me"}, "agent is a str: give an Agent"),
        ({"workspace": 5}, "workspace is a int: give the path"),
        ({"max_iteration_per_run": 0}, "max_iteration_per_run is 0: "),
        ({"max_iteration_per_run": "many"}, "max_iteration_per_run is 'many': "),
        ({"max_budget_per_run": -1}, "max_budget_per_run is -1: "),
        ({"max_budget_per_run": float("nan")}, "max_budget_per_run is nan: "),
        ({"callbacks": 5}, "callbacks is a int: give a list of functions"),
        ({"token_callbacks": ["x"]}, "token_callbacks holds a str: give functions"),
        ({"hook_config": {}}, "hook_config is a dict: give a HookConfig"),
        ({"git": "https://x"}, "git is a str: give a GitSetup"),
    ],
)
def test_what_a_conversation_cannot_be_made_of_is_refused_at_once(given: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        Conversation(**{"agent": agent(Script()), **given})


def test_what_a_conversation_cannot_be_told_is_refused_in_words() -> None:
    with conversation(agent(Script())) as one:
        with pytest.raises(TypeError, match="message is a int: give a text or a Message"):
            one.send_message(5)  # type: ignore[arg-type] # a program that is not type-checked
        with pytest.raises(TypeError, match="policy is a str: give a ConfirmationPolicy"):
            one.set_confirmation_policy("never")  # type: ignore[arg-type] # likewise
        with pytest.raises(TypeError, match="analyzer is a str: give a SecurityAnalyzer"):
            one.set_security_analyzer("llm")  # type: ignore[arg-type] # likewise


def test_a_stuck_conversation_is_idle_after_a_message_and_a_failed_one_is_not(sandbox: Sandbox) -> None:
    script = Script(*[run("ls")] * 4)
    with conversation(agent(script), workspace=sandbox) as one:
        one.send_message("Go.")
        one.run()
        assert status(one) is ExecutionStatus.STUCK
        one.send_message("Try another way.")
        assert status(one) is ExecutionStatus.IDLE
        script.answers = [LLMBadRequestError("no"), DONE]
        with pytest.raises(ConversationRunError):
            one.run()
        one.send_message("Once more.")
        assert status(one) is ExecutionStatus.ERROR
        one.run()
        assert status(one) is ExecutionStatus.FINISHED


def test_a_secret_that_is_none_is_refused_without_showing_it() -> None:
    with pytest.raises(TypeError, match=r"secrets\.PIN: a secret is a int: give a text") as caught:
        conversation(agent(Script()), secrets={"PIN": 271828})
    assert "271828" not in str(caught.value)


# --- confirmation ---


def test_a_policy_set_between_runs_holds_back_actions_and_a_second_run_confirms_them(sandbox: Sandbox) -> None:
    with conversation(agent(Script(run("rm x"), DONE)), workspace=sandbox) as one:
        before = one.state.confirmation_policy
        one.set_confirmation_policy(AlwaysConfirm())
        assert (before, one.state.confirmation_policy) == (NeverConfirm(), AlwaysConfirm())
        active = [one.is_confirmation_mode_active]
        one.set_security_analyzer(LLMSecurityAnalyzer())
        assert [*active, one.is_confirmation_mode_active] == [False, True], "it takes an analyzer"
        assert isinstance(one.state.security_analyzer, LLMSecurityAnalyzer)
        one.send_message("Remove x.")
        one.run()
        assert status(one) is WAITING
        assert sandbox.ran == []
        one.pause()
        assert status(one) is WAITING, "a pause changes nothing for an agent that waits"
        one.run()
        assert status(one) is FINISHED
        assert sandbox.ran == ["rm x"]


def test_a_message_to_an_agent_that_waits_refuses_its_actions_with_these_words_at_the_next_run(
    sandbox: Sandbox,
) -> None:
    with conversation(agent(Script(run("rm x"), DONE)), workspace=sandbox) as one:
        one.set_confirmation_policy(AlwaysConfirm())
        one.send_message("Remove x.")
        one.run()
        one.send_message("Keep x.")
        assert status(one) is WAITING, "nothing is decided before the run"
        one.run()
        assert status(one) is FINISHED
        refused = [event for event in one.state.events if isinstance(event, UserRejectObservation)]
        assert ["Keep x." in event.rejection_reason for event in refused] == [True]
        assert sandbox.ran == []


def test_a_refusal_answers_each_pending_action_at_once_and_the_next_run_tells_the_reason(sandbox: Sandbox) -> None:
    two: Said = ("", [("terminal", '{"command": "rm x"}'), ("terminal", '{"command": "rm y"}')])
    script = Script(two, DONE)
    with conversation(agent(script), workspace=sandbox) as one:
        one.set_confirmation_policy(AlwaysConfirm())
        one.send_message("Remove both.")
        one.run()
        assert status(one) is WAITING
        one.reject_pending_actions("Not the y one.")
        refused = [event for event in one.state.events if isinstance(event, UserRejectObservation)]
        actions = [event.id for event in one.state.events if isinstance(event, ActionEvent)]
        assert [event.cause for event in refused] == actions
        assert {event.rejection_source for event in refused} == {"user"}
        assert status(one) is IDLE
        one.set_confirmation_policy(NeverConfirm())
        one.run()
        assert status(one) is FINISHED
        assert script.prompt().count("Action rejected: Not the y one.") == 2
        assert sandbox.ran == []


def pair(*commands: str) -> Said:
    return "", [("terminal", json.dumps({"command": command})) for command in commands]


def held_back(one: Conversation) -> list[int]:
    """Has the agent's calls wait; their ids."""
    one.set_confirmation_policy(AlwaysConfirm())
    one.send_message("Go.")
    one.run()
    assert status(one) is WAITING
    return [event.id for event in one.state.events if isinstance(event, ActionEvent)]


def test_some_actions_may_be_refused_and_the_others_approved_also_after_a_restart(tmp_path: Path) -> None:
    script, kept = Script(pair("rm x", "ls"), DONE), {"persistence_dir": tmp_path, "conversation_id": "c"}
    with conversation(agent(script), **kept) as one:
        first, _ = held_back(one)
        one.reject_pending_actions("Keep x.", [first])
        assert status(one) is WAITING
    sandbox = Sandbox()
    with conversation(agent(script), workspace=sandbox, **kept) as one:
        assert status(one) is WAITING
        one.run()
        assert status(one) is FINISHED
    assert sandbox.ran == ["ls"]
    told = [message["content"] for message in script.requests[-1].messages if message["role"] == "tool"]
    assert ["Keep x." in str(text) for text in told] == [True, False]


def test_when_the_last_action_is_refused_nothing_waits_any_more(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    with conversation(agent(Script(pair("rm x", "rm y"), DONE)), workspace=sandbox) as one:
        first, second = held_back(one)
        one.reject_pending_actions("no", [second])
        one.reject_pending_actions("no", [second, 999])
        assert "no actions to reject" in caplog.text
        assert status(one) is WAITING
        one.reject_pending_actions("no", {first})
        assert status(one) is IDLE
        one.run()
        assert status(one) is FINISHED
    assert sandbox.ran == []


def test_refusals_at_the_same_time_answer_each_action_once() -> None:
    with conversation(agent(Script(pair("rm x", "rm y"), DONE))) as one:
        actions = held_back(one)
        threads = [threading.Thread(target=one.reject_pending_actions, args=(f"no {n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [event.cause for event in one.state.events if isinstance(event, UserRejectObservation)] == actions


def test_a_message_refuses_what_is_left_of_a_batch(sandbox: Sandbox) -> None:
    script = Script(pair("rm x", "rm y"), DONE)
    with conversation(agent(script), workspace=sandbox) as one:
        first, _ = held_back(one)
        one.reject_pending_actions("Keep x.", [first])
        one.send_message("And y.")
        one.run()
        assert status(one) is FINISHED
        refused = [event.rejection_reason for event in one.state.events if isinstance(event, UserRejectObservation)]
    assert sandbox.ran == []
    assert ("Keep x." in refused[0], "And y." in refused[1]) == (True, True)


def test_nothing_to_refuse_is_warned_of_only(caplog: pytest.LogCaptureFixture) -> None:
    with conversation(agent(Script())) as one, caplog.at_level(logging.WARNING):
        one.reject_pending_actions()
    assert "no actions to reject" in caplog.text


def test_an_analyzer_set_during_a_run_judges_the_next_answer(sandbox: Sandbox) -> None:
    script = Script(run("ls", "HIGH"), run("rm x", "HIGH"), DONE)
    with conversation(agent(script), workspace=sandbox) as one:
        one.set_confirmation_policy(ConfirmRisky(confirm_unknown=False))
        one.send_message("Go.")
        sandbox.held.clear()

        def change() -> None:
            one.set_security_analyzer(LLMSecurityAnalyzer())
            sandbox.held.set()

        changer = threading.Thread(target=change)
        one.add_callback(
            lambda event: changer.start() if isinstance(event, ActionEvent) and not changer.ident else None
        )
        one.run()
        assert status(one) is WAITING
        assert sandbox.ran == ["ls"], "nobody judged the first call, so its risk was unknown"


# --- questions ---


def test_a_question_is_answered_from_the_history_and_leaves_no_trace_but_its_cost() -> None:
    script = Script(run("ls"), DONE, ("It listed files.", ()))
    with conversation(agent(script)) as one:
        one.send_message("List the files.")
        one.run()
        before = kinds(one)
        assert one.ask_agent("What did you do?") == "It listed files."
        assert kinds(one) == before
        assert "What did you do?" in script.prompt()
        assert "ran ls" in script.prompt()
        assert not script.requests[-1].tools
        assert set(one.stats.usage_to_metrics) == {"agent", "ask-agent-llm"}
        combined = one.conversation_stats.get_combined_metrics()
        assert combined.accumulated_cost == pytest.approx(3 * 0.15)
        with pytest.raises(ValueError, match="question is empty"):
            one.ask_agent("  ")


def test_no_question_tells_a_model_a_secret(sandbox: Sandbox) -> None:
    script = Script(DONE, verdict(complete=True), ("It was used.", ()))
    with conversation(agent(script), workspace=sandbox, secrets={"TOKEN": "tok-987654"}) as one:
        one.pursue("Use tok-987654.")
        one.ask_agent("What did you do with tok-987654?")
        assert len(script.requests) == 3
        for place in range(3):
            assert "tok-987654" not in script.prompt(place)
            assert MASK in script.prompt(place)


def test_a_question_is_answered_while_the_agent_works() -> None:
    asked: list[str] = []
    script = Script(run("sleep 1"), ("I sleep.", ()), DONE)
    sandbox = Sandbox()

    with conversation(agent(script), workspace=sandbox) as one:
        asking = threading.Thread(target=lambda: asked.append(one.ask_agent("What are you doing?")))

        def on_event(event: Event) -> None:
            if isinstance(event, ActionEvent) and event.tool_name == "terminal":
                asking.start()
                asking.join(60)
                sandbox.held.set()

        one.add_callback(on_event)
        sandbox.held.clear()
        one.send_message("Sleep.")
        one.run()
        assert asked == ["I sleep."]
        assert status(one) is FINISHED


def test_an_agent_may_answer_questions_itself() -> None:
    class Knowing(Agent):
        def ask_agent(self, question: str) -> str | None:
            return f"{question} I know."

    with conversation(Knowing(llm=model(Script()))) as one:
        assert one.ask_agent("What?") == "What? I know."


def test_a_model_that_says_nothing_to_a_question_is_an_error() -> None:
    with conversation(agent(Script(("", ())))) as one, pytest.raises(LLMError, match="no answer"):
        one.ask_agent("What?")


def test_a_title_is_the_models_cut_to_its_length_or_else_the_messages_beginning() -> None:
    long = "\N{BUG} " + "w" * 60
    script = Script(("\N{BUG} Mend the login\n", ()), (long, ()), LLMRateLimitError("busy"), ("", ()))
    with conversation(agent(script)) as one:
        with pytest.raises(ValueError, match="no message of the user"):
            one.generate_title()
        one.send_message("Mend " + "x" * 2000)
        assert one.generate_title() == "\N{BUG} Mend the login"
        assert script.prompt().count("x") < 1100, "only the beginning of the message is sent"
        assert one.generate_title() == long[:47] + "..."
        assert one.generate_title() == "Mend " + "x" * 42 + "..."
        assert one.generate_title(max_length=10) == "Mend xx..."
        other = Script(("\N{GEAR} Other", ()))
        assert one.generate_title(llm=model(other)) == "\N{GEAR} Other"
        with pytest.raises(ValueError, match="max_length"):
            one.generate_title(max_length=3)


def test_another_model_goes_on_with_the_same_tools_and_its_costs_stand_beside(tmp_path: Path) -> None:
    one_script, other_script, third_script = Script(run("cd /tmp"), DONE), Script(run("pwd"), DONE), Script(DONE)
    with conversation(agent(one_script)) as one:
        one.send_message("Go.")
        one.run()
        tools = one.agent.tools_map
        one.send_message("Go on.")
        one.switch_llm(model(other_script, usage_id="other"))
        one.run()
        assert status(one) is FINISHED
        assert one.agent.tools_map == tools
        assert "ran cd /tmp" in other_script.prompt()
        assert len(one_script.requests) == 2
        assert set(one.stats.usage_to_metrics) == {"agent", "other"}
        ProfileStore(tmp_path).save("third", model(third_script, model="openai/third"))
        with pytest.raises(FileNotFoundError):
            one.switch_profile("nonesuch", tmp_path)
        one.switch_profile("third", tmp_path)
        assert (one.agent.llm.model, one.state.agent.llm.model) == ("openai/third", "openai/third")


def test_the_model_is_not_switched_under_an_agent_at_work(sandbox: Sandbox) -> None:
    problems: list[str] = []
    with conversation(agent(Script(run("ls"), DONE)), workspace=sandbox) as one:
        sandbox.held.clear()

        def switch() -> None:
            with pytest.raises(RuntimeError, match="pause it first") as caught:
                one.switch_llm(model(Script()))
            problems.append(str(caught.value))
            sandbox.held.set()

        switching = threading.Thread(target=switch)
        one.add_callback(
            lambda event: switching.start() if isinstance(event, ActionEvent) and not switching.ident else None
        )
        one.send_message("Go.")
        one.run()
        switching.join(60)
    assert problems


def verdict(*, complete: bool, missing: str = "") -> Said:
    said = {"score": 1.0 if complete else 0.4, "complete": complete, "missing": missing}
    return f"```json\n{json.dumps(said)}\n```", ()


def test_an_objective_is_pursued_until_the_judge_is_content() -> None:
    script = Script(run("ls"), DONE, verdict(complete=False, missing="the tests"), DONE, verdict(complete=True))
    with conversation(agent(script)) as one:
        result = one.pursue("Build a boat.")
        assert (result.score, result.complete) == (1.0, True)
        said = [event.llm_message.text for event in one.state.events if isinstance(event, MessageEvent)]
        assert said[0] == "Build a boat."
        assert "What is missing: the tests" in said[1]
        judged = script.prompt(2)
        assert "Build a boat." in judged
        assert "ran ls" in judged
        assert "You are Drydock" not in judged, "the system's text is not part of the transcript"
        assert set(one.stats.usage_to_metrics) == {"agent", "goal-judge"}


@pytest.mark.parametrize(
    "answer",
    [
        "Fine!",
        "[]",
        '{"score": 1, "complete": true}',
        '{"score": 1, "complete": "yes", "missing": ""}',
        '{"score": 1, "complete": true, "missing": null}',
        *(f'{{"score": {score}, "complete": true, "missing": ""}}' for score in ("7", "-0.1", "NaN", "true", '"1"')),
    ],
)
def test_an_answer_of_a_judge_that_cannot_be_read_scores_nothing_and_the_runs_are_bounded(answer: str) -> None:
    judge = Script((answer, ()), (answer, ()), (answer, ()))
    script = Script(DONE, DONE, DONE)
    with conversation(agent(script)) as one:
        result = one.pursue("Build a boat.", max_runs=2, judge=model(judge))
        assert (result.score, result.complete) == (0.0, False)
    assert (len(script.requests), len(judge.requests)) == (2, 2)


def test_of_a_long_history_a_judge_is_told_its_beginning_and_its_end(sandbox: Sandbox) -> None:
    sandbox.answer = lambda command: command * 30_000
    script = Script(*[run(str(number)) for number in range(6)], ("The end.", ()), verdict(complete=True))
    with conversation(agent(script), workspace=sandbox) as one:
        one.pursue("Build a boat.")
    told = script.prompt()
    assert len(told) < 120_000
    assert "[user] Build a boat." in told
    assert "[left out]" in told
    assert "The end." in told


def test_an_agent_that_waits_for_its_user_is_not_pushed_on() -> None:
    script = Script(run("rm x"), verdict(complete=False, missing="all"))
    with conversation(agent(script)) as one:
        one.set_confirmation_policy(AlwaysConfirm())
        assert not one.pursue("Remove x.").complete
        assert status(one) is WAITING
        with pytest.raises(ValueError, match="max_runs"):
            one.pursue("x", max_runs=0)


# --- acting beside the agent ---


def test_a_tool_is_called_directly_between_runs_and_the_log_does_not_hear_of_it(sandbox: Sandbox) -> None:
    secrets = {"TOKEN": "swordfish-1"}
    with conversation(agent(Script(run("ls"), DONE)), workspace=sandbox, secrets=secrets) as one:
        result = one.execute_tool("terminal", TerminalAction(command="echo $TOKEN"))
        assert result.text == "ran echo $TOKEN\n"
        assert sandbox.env == {"TOKEN": "swordfish-1"}
        shown = one.execute_tool("terminal", TerminalAction(command="echo swordfish-1"))
        assert (shown.text, type(shown)) == (f"ran echo {MASK}\n", type(result))
        assert kinds(one) == []
        one.send_message("Go.")
        one.run()
        assert one.execute_tool("terminal", TerminalAction(command="pwd")).text == "ran pwd\n"
        assert sandbox.ran == ["echo $TOKEN", "echo swordfish-1", "ls", "pwd"]
        with pytest.raises(KeyError, match=r"nope.*available.*terminal"):
            one.execute_tool("nope", TerminalAction(command="pwd"))
        with pytest.raises(TypeError, match="takes a TerminalAction"):
            one.execute_tool("terminal", ThinkAction(thought="x"))


def tracking(script: Script) -> Agent:
    return Agent(llm=model(script), tools=[Tool(name="terminal"), Tool(name="task_tracker")])


PLAN = TaskTrackerAction(command="plan", task_list=[TaskItem(title="Sweep")])
VIEW = TaskTrackerAction(command="view")


def test_a_task_list_that_the_program_makes_is_the_agents_too() -> None:
    script = Script(("", [("task_tracker", '{"command": "view"}')]), DONE)
    with conversation(tracking(script)) as one:
        assert "1 item" in one.execute_tool("task_tracker", PLAN).text
        assert kinds(one)[-2:] == ["ActionEvent", "ObservationEvent"]
        assert "Sweep" in one.execute_tool("task_tracker", VIEW).text
        one.send_message("Go.")
        one.run()
        seen = [event.observation for event in one.state.events if isinstance(event, ObservationEvent)]
        assert [view.text for view in seen if "Sweep" in view.text] == [view.text for view in seen[1:3]]
        assert "The user used a tool directly: task_tracker: plan" in script.prompt(0)
        assert status(one) is FINISHED


class BrokenTracker(TaskTrackerTool):
    """Remembers, and fails."""

    tool_name: ClassVar[str] = "broken_tracker"

    @classmethod
    def make_executor(cls) -> Any:
        def fail(action: TaskTrackerAction, conversation: Any = None) -> TaskTrackerObservation:
            raise ValueError("no paper")

        return fail


def test_a_call_that_fails_stands_in_the_log_with_its_error() -> None:
    register_tool("broken_tracker", BrokenTracker)
    with conversation(Agent(llm=model(Script()), tools=[Tool(name="broken_tracker")])) as one:
        with pytest.raises(ValueError, match="no paper"):
            one.execute_tool("broken_tracker", PLAN)
        asked, answer = list(one.state.events)[-2:]
        assert isinstance(answer, AgentErrorEvent)
        assert (answer.cause, answer.error, answer.tool_name) == (asked.id, "no paper", "broken_tracker")


def test_a_task_list_that_was_undone_is_gone_for_the_program_too() -> None:
    with conversation(tracking(Script())) as one:
        one.send_message("Hello.")
        before = list(one.state.events)[-1].id
        one.execute_tool("task_tracker", PLAN)
        one.navigate_to(before)
        assert "There is no task list yet" in one.execute_tool("task_tracker", VIEW).text


def test_a_task_list_is_changed_while_the_agent_works() -> None:
    results: list[str] = []
    with conversation(tracking(Script(run("ls"), DONE))) as one:

        def call() -> None:
            results.append(one.execute_tool("task_tracker", PLAN).text)

        calling = threading.Thread(target=call)

        def on_event(event: Event) -> None:
            if isinstance(event, ActionEvent) and event.source == "agent" and not calling.ident:
                calling.start()

        one.add_callback(on_event)
        one.send_message("Go.")
        one.run()
        calling.join(60)
        assert "1 item" in results[0]
        assert "Sweep" in one.execute_tool("task_tracker", VIEW).text
        causes = {event.cause for event in one.state.events if isinstance(event, ObservationEvent)}
        made = {event.id for event in one.state.events if isinstance(event, ActionEvent)}
        assert made == causes


def test_a_tool_is_called_directly_while_the_agent_works(sandbox: Sandbox) -> None:
    results: list[str] = []
    with conversation(agent(Script(run("ls"), DONE)), workspace=sandbox) as one:

        def call() -> None:
            results.append(one.execute_tool("terminal", TerminalAction(command="pwd")).text)

        calling = threading.Thread(target=call)

        def on_event(event: Event) -> None:
            if isinstance(event, ObservationEvent) and not calling.ident:
                calling.start()
                calling.join(60)

        one.add_callback(on_event)
        one.send_message("Go.")
        one.run()
        assert results == ["ran pwd\n"]
        assert status(one) is FINISHED


def test_what_the_agent_did_is_done_again_up_to_the_first_failure(sandbox: Sandbox) -> None:
    bad: Said = ("", [("terminal", "{}")])
    script = Script(run("one"), bad, run("two"), run("three"), DONE)
    with conversation(agent(script), workspace=sandbox) as one:
        one.send_message("Go.")
        one.run()
        count = len(one.state.log)
        assert [result.text for result in one.rerun_actions()] == ["ran one\n", "ran two\n", "ran three\n"]
        assert len(one.state.log) == count
        sandbox.ran.clear()
        sandbox.exit_code = 1
        assert [result.text for result in one.rerun_actions()] == ["ran one\n"]
        assert sandbox.ran == ["one"]
    assert len(script.requests) == 5


def test_condense_makes_the_history_shorter_at_once_between_runs() -> None:
    script = Script(*[run(f"echo {i}") for i in range(8)], DONE, ("SUMMARY", ()), DONE)
    llm = model(script)
    condenser = LLMSummarizingCondenser(llm=llm.model_copy(update={"usage_id": "condenser"}), max_size=100)
    with conversation(agent(script, condenser=condenser)) as one:
        one.send_message("Count.")
        one.run()
        before = len(one.state.view)
        one.condense()
        assert isinstance(one.state.events[-1], Condensation)
        assert len(one.state.view) < before
        assert set(one.stats.usage_to_metrics) == {"agent", "condenser"}
        one.send_message("Go on.")
        one.run()
        assert "SUMMARY" in script.prompt()


class Forgetful(Condenser):
    """Of a program that returns something else than it should."""

    handles_requests: ClassVar[bool] = True
    returned: Any = None

    def condense(self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None) -> Any:
        return self.returned


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_what_is_no_result_of_a_condenser_is_named(in_pipeline: bool) -> None:
    condenser: Condenser = Forgetful(returned=["an event"])  # type: ignore[abstract] # it has the other form
    if in_pipeline:
        condenser = PipelineCondenser(condensers=[condenser])
    with conversation(agent(Script(DONE), condenser=condenser)) as one:
        one.send_message("Hello")
        with pytest.raises(ConversationRunError, match="Forgetful returned list; it must return a View or"):
            one.run()
        with pytest.raises(DrydockError, match="Forgetful returned list"):
            one.condense()


def test_condense_without_a_condenser_that_can_is_refused() -> None:
    with conversation(agent(Script())) as one, pytest.raises(ValueError, match="condenser"):
        one.condense()


def test_condense_with_nothing_to_condense_says_so_and_the_agent_works_as_before() -> None:
    script = Script(DONE)
    condenser = LLMSummarizingCondenser(llm=model(Script(), usage_id="condenser"), max_size=100)
    with conversation(agent(script, condenser=condenser)) as one:
        one.send_message("Hello")
        before = kinds(one)
        with pytest.raises(NoCondensationError):
            one.condense()
        assert kinds(one) == before
        one.run()
        assert status(one) is FINISHED


def test_what_waits_for_the_user_still_waits_when_the_history_is_made_shorter(sandbox: Sandbox) -> None:
    script = Script(*[run(f"echo {i}") for i in range(8)], run("rm x"), DONE)
    condenser = LLMSummarizingCondenser(llm=model(Script(("SUMMARY", ())), usage_id="condenser"))
    with conversation(agent(script, condenser=condenser), workspace=sandbox) as one:
        one.send_message("Go.")
        for _ in range(8):
            one.step()
        one.set_confirmation_policy(AlwaysConfirm())
        one.run()
        assert status(one) is WAITING
        one.condense()
        assert status(one) is WAITING
        assert "rm x" not in sandbox.ran
        one.run()
        assert status(one) is FINISHED
        assert sandbox.ran.count("rm x") == 1
    assert "SUMMARY" in script.prompt()
    assert "ran rm x" in script.prompt()


def test_a_history_too_long_for_one_model_may_be_short_enough_for_another() -> None:
    small, large = Script(LLMContextWindowError("too long")), Script(DONE)
    with conversation(agent(small, condenser=ConversationWindowCondenser())) as one:
        one.send_message("Hello")
        with pytest.raises(ConversationRunError, match="none can be spared"):
            one.run()
        one.switch_llm(model(large))
        one.run()
        assert status(one) is FINISHED


def test_an_agent_that_asks_in_vain_for_a_shorter_history_goes_on(sandbox: Sandbox) -> None:
    script = Script(("", [("request_condensation", "{}")]), DONE)
    condenser = AmortizedForgettingCondenser(keep_first=4)
    asking = Agent(llm=model(script), tools=[Tool(name="request_condensation")], condenser=condenser)
    with conversation(asking, workspace=sandbox) as one:
        one.send_message("Hello")
        one.run()
        assert status(one) is FINISHED
        (error,) = [event for event in one.state.log if isinstance(event, ConversationErrorEvent)]
        assert (error.code, "cannot be" in error.detail) == ("NoCondensationError", True)


def test_secrets_given_later_are_hidden_and_reach_the_commands_that_name_them(sandbox: Sandbox) -> None:
    with conversation(agent(Script(run("echo $TOKEN"), DONE)), workspace=sandbox) as one:
        one.send_message("First.")
        one.update_secrets({"TOKEN": "swordfish-9"})
        one.send_message("Use swordfish-9.")
        sandbox.answer = lambda command: "swordfish-9\n"
        one.run()
        assert sandbox.env == {"TOKEN": "swordfish-9"}
        assert "swordfish-9" not in "".join(event.model_dump_json() for event in one.state.events)


def test_a_value_that_was_replaced_stays_hidden_in_later_runs(sandbox: Sandbox) -> None:
    given = iter(["first-of-pin", "second-of-pin"])
    script = Script(run("echo $TOKEN $PIN"), DONE)
    with conversation(agent(script), workspace=sandbox, secrets={"TOKEN": "swordfish-9", "PIN": given.__next__}) as one:
        one.send_message("First.")
        one.run()
        one.update_secrets({"TOKEN": "mackerel-7"})
        script.answers = [run("echo $TOKEN $PIN"), DONE]
        sandbox.answer = lambda command: "swordfish-9 first-of-pin mackerel-7 second-of-pin\n"
        one.send_message("Now swordfish-9.")
        one.run()
        assert sandbox.env == {"TOKEN": "mackerel-7", "PIN": "second-of-pin"}
        log = "".join(event.model_dump_json() for event in one.state.log)
        assert not [value for value in ("swordfish", "first-of", "mackerel", "second-of") if value in log]


def test_text_is_heard_as_it_comes_before_the_event_that_has_all_of_it() -> None:
    heard: list[str] = []

    async def token(delta: TextDelta) -> None:
        heard.append(delta.text)

    def event(one: Event) -> None:
        if isinstance(one, MessageEvent) and one.source == "agent":
            heard.append(f"[{one.llm_message.text}]")

    who = agent(Script(("Hello there.", ())))
    with conversation(who, callbacks=[event], token_callbacks=[token]) as one:
        one.send_message("Hello")
        one.run()
    assert "".join(heard) == "Hello there.[Hello there.]"


@pytest.mark.parametrize("error", [OSError("no such display"), SystemExit("no such display"), StopIteration()])
def test_a_callback_that_fails_disturbs_nobody(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def broken(one: Event) -> None:
        raise error

    with conversation(agent(Script(DONE)), callbacks=[broken, lambda one: seen.append(one.kind)]) as one:
        one.send_message("Hello")
        one.run()
        assert len(seen) == len(one.state.log)
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "broken failed" in told.message
    assert (f"{type(error).__name__}: no such display" in told.message) or "raised StopIteration" in told.message
    assert __file__ in told.message
    assert told.exc_info is None


class Shows:
    """Keeps the kinds of what it is shown, for each of its makes."""

    shown: ClassVar[list[str]] = []

    def on_event(self, event: Any) -> None:
        self.shown.append(event.kind)


@pytest.mark.parametrize("form", ["function", "object", "class"])
def test_a_visualizer_is_shown_each_event_before_the_callbacks(form: str) -> None:
    Shows.shown.clear()
    order: list[bool] = []
    visualizer = {"function": Shows().on_event, "object": Shows(), "class": Shows}[form]

    def callback(event: Event) -> None:
        order.append(len(Shows.shown) == len(order) + 1)

    with conversation(agent(Script(DONE)), visualizer=visualizer, callbacks=[callback]) as one:
        one.send_message("Hello")
        one.run()
        assert Shows.shown == [event.kind for event in one.state.log]
    assert order
    assert all(order)


def test_what_is_no_visualizer_is_refused() -> None:
    with pytest.raises(TypeError, match="visualizer is a int: give a function of an event, or what has on_event"):
        conversation(agent(Script()), visualizer=5)


@pytest.mark.parametrize("deletes", [True, False])
async def test_a_conversation_is_deleted_with_its_end_where_that_is_wished(tmp_path: Path, deletes: bool) -> None:
    async with conversation(agent(Script(DONE)), persistence_dir=tmp_path, delete_on_close=deletes) as one:
        await one.asend_message("Hello")
        await one.arun()
        assert (tmp_path / one.id).is_dir()
    await one.aclose()
    assert (tmp_path / one.id).is_dir() is not deletes


def test_the_cause_of_a_failed_run_is_what_its_model_failed_with() -> None:
    error = LLMRateLimitError("too many requests")
    with conversation(agent(Script(error, DONE))) as one:
        one.send_message("Hello")
        with pytest.raises(ConversationRunError) as caught:
            one.run()
        assert caught.value.__cause__ is error
        one.send_message("Again")
        one.run()
        assert status(one) is FINISHED


def test_the_state_tells_the_names_of_the_secrets_and_what_a_command_gets() -> None:
    given = {"TOKEN": "swordfish-1", "OTHER": SecretStr("halibut-22")}
    who = agent(Script(), agent_context=AgentContext(secrets={"OLD": "pike-333", "TOKEN": "pike-444"}))
    with conversation(who, secrets=given) as one:
        registry = one.state.secret_registry
        assert sorted(registry) == ["OLD", "OTHER", "TOKEN"]
        assert "TOKEN" in registry
        assert "SWORD" not in registry
        assert registry.environment_for("echo $token $OLD") == {"TOKEN": "swordfish-1", "OLD": "pike-333"}
        registry.update({"LATE": CallableSecret(lambda: "cod-55555", "fresh")})
        assert registry.descriptions()["LATE"] == "fresh"
        assert registry.environment_for("LATE") == {"LATE": "cod-55555"}
        assert len(registry) == 4
        assert "swordfish" not in f"{registry!r} {registry.descriptions()}"


# --- status and state ---


def test_a_message_sent_before_a_pause_is_answered_by_the_next_run() -> None:
    with conversation(agent(Script(DONE))) as one:
        one.send_message("Hello")
        one.pause()
        assert status(one) is PAUSED
        one.run()
        assert status(one) is FINISHED


def test_a_pause_leaves_a_finished_conversation_as_it_is() -> None:
    with conversation(agent(Script(DONE))) as one:
        one.send_message("Hello")
        one.run()
        one.pause()
        assert status(one) is FINISHED


def test_each_run_may_take_as_many_iterations_as_are_allowed_for_one(sandbox: Sandbox) -> None:
    first = [run("1"), ("Yes?", ())]  # fewer than it might take: what is left counts for no other run
    script = Script(*first, run("2"), run("3"), ("Yes?", ()), *[run(str(i)) for i in range(9)])
    with conversation(agent(script), workspace=sandbox, max_iteration_per_run=3) as one:
        for _ in range(2):
            one.send_message("Go.")
            one.run()
            assert status(one) is FINISHED
        one.send_message("Go.")
        one.run()
        assert status(one) is ExecutionStatus.ERROR
        assert len(script.requests) == 8
        assert one.state.max_iterations == 3


def test_a_run_that_begins_with_the_users_word_may_take_as_many_iterations_too(sandbox: Sandbox) -> None:
    script = Script(*[run(str(number)) for number in range(5)], DONE)
    with conversation(agent(script), workspace=sandbox, max_iteration_per_run=2) as one:
        one.set_confirmation_policy(AlwaysConfirm())
        one.send_message("Go.")
        for _ in range(5):
            one.run()
            assert status(one) is WAITING
        one.run()
        assert status(one) is FINISHED


def test_a_run_that_cannot_begin_is_an_error_with_its_class_in_the_log() -> None:
    sandbox, script = Sandbox(), Script(DONE)
    with conversation(agent(script), workspace=sandbox) as one:
        one.send_message("Go.")
        sandbox.behaviour = BROKEN
        with pytest.raises(ConversationRunError, match="on fire") as caught:
            one.run()
        assert (caught.value.conversation_id, status(one)) == (one.id, ExecutionStatus.ERROR)
        assert [event.code for event in one.state.events if isinstance(event, ConversationErrorEvent)] == [
            "SandboxError"
        ]
        sandbox.behaviour = FakeBehaviour()
        one.run()
        assert status(one) is FINISHED


class Unready(ToolExecutor[ThinkAction, ThinkObservation]):
    """Cannot get ready."""

    async def prepare(self, sandbox: SandboxAccess) -> None:
        raise ZeroDivisionError("nothing is there")

    def __call__(self, action: ThinkAction, conversation: Any = None) -> ThinkObservation:
        return ThinkObservation.from_text(action.thought)


class UnreadyTool(ToolDefinition[ThinkAction, ThinkObservation]):
    """A tool that cannot be made ready."""

    description: str = "Think, some day."

    @classmethod
    def make_executor(cls) -> Unready:
        return Unready()


def test_whatever_keeps_a_run_from_beginning_is_the_cause_of_its_error() -> None:
    register_tool("UnreadyTool", UnreadyTool)
    with conversation(Agent(llm=model(Script(DONE)), tools=[Tool(name="UnreadyTool")])) as one:
        one.send_message("Go.")
        with pytest.raises(ConversationRunError, match="ZeroDivisionError: nothing is there") as caught:
            one.run()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert [event.code for event in one.state.events if isinstance(event, ConversationErrorEvent)] == [
            "ZeroDivisionError"
        ]


def test_the_state_tells_what_is_in_the_log() -> None:
    with conversation(agent(Script(("Hi.", ()))), tags={"team": "docks"}, stuck_detection=False) as one:
        state = one.state
        before = state.last_user_message_id
        assert (state.leaf_event_id, state.head_is_empty) == (None, False)
        one.send_message("Hello")
        one.run()
        assert (state.leaf_event_id, state.head_is_empty) == (list(state.events)[-1].id, False)
        assert list(state.log)[-1].kind == "AgentStateChanged"
        said = [event.id for event in state.events if isinstance(event, MessageEvent)]
        assert (before, state.last_user_message_id) == (None, said[0])
        assert (state.tags, state.stuck_detection) == ({"team": "docks"}, False)
        assert (state.activated_knowledge_skills, state.activated_path_rules, state.invoked_skills) == ([], [], [])
        assert state.agent_state == {"iterative_refinement_iteration": 0}
        assert state.blocked_actions == {}
        assert [message.role for message in state.view.messages()] == ["system", "user", "assistant"]


def test_a_program_says_after_how_many_repetitions_its_agent_is_stuck() -> None:
    again: Said = ("", [("think", '{"thought": "hm"}')])
    script = Script(again, again, again, again)
    with conversation(agent(script), stuck_detection_thresholds={"action_observation": 2}) as one:
        one.send_message("Go.")
        one.run()
        assert one.state.execution_status is ExecutionStatus.STUCK
        with one.fork(workspace=Sandbox(), copy_files=False) as other:
            other.send_message("Once more.")
            other.run()
            assert other.state.execution_status is ExecutionStatus.STUCK
    with pytest.raises(ValueError, match="action_eror"):
        conversation(agent(script), stuck_detection_thresholds={"action_eror": 2})


def test_a_message_that_a_hook_refuses_leaves_the_conversation_finished(sandbox: Sandbox) -> None:
    refusing = HookConfig.from_json('{"UserPromptSubmit": [{"hooks": [{"command": "judge"}]}]}')
    script = Script(DONE)
    with conversation(agent(script), workspace=sandbox, hook_config=refusing) as one:
        sandbox.exit_code, sandbox.answer = 2, lambda command: "not that"
        one.send_message("Hello")
        one.run()
        assert status(one) is FINISHED
        assert script.requests == []
        assert one.state.blocked_messages == {one.state.last_user_message_id: "not that"}
        assert one.state.hook_config == refusing


def test_hooks_hear_of_the_beginning_and_the_end_of_a_conversation_once(sandbox: Sandbox) -> None:
    telling = HookConfig.from_json(
        '{"SessionStart": [{"hooks": [{"command": "hook-begins"}]}],'
        ' "SessionEnd": [{"hooks": [{"command": "hook-ends"}]}]}'
    )

    def told(word: str) -> int:
        return sum(word in command for command in sandbox.ran)

    with conversation(agent(Script(DONE, DONE)), workspace=sandbox, hook_config=telling) as one:
        for _ in range(2):
            one.send_message("Hello")
            one.run()
        assert (told("hook-begins"), told("hook-ends")) == (1, 0)
    assert (told("hook-begins"), told("hook-ends")) == (1, 1)


@pytest.mark.parametrize("tags", [{"Team": "x"}, {"a-b": "x"}, {"": "x"}, {5: "x"}, {"team": "x" * 257}, {"team": 5}])
def test_tags_have_plain_names_and_short_values(tags: dict[Any, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match="tag "):
        conversation(agent(Script()), tags=tags)
    longest = {"team7": "x" * 256}
    assert conversation(agent(Script()), tags=longest).state.tags == longest


def test_a_conversation_taken_up_again_counts_on(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"persistence_dir": tmp_path, "conversation_id": "c"}
    with conversation(agent(Script(DONE)), **arguments) as first:
        first.send_message("Hello")
        first.run()
        cost = first.stats.accumulated_cost
    with conversation(agent(Script(DONE)), **arguments) as second:
        assert second.stats.accumulated_cost == pytest.approx(cost)
        second.send_message("Again")
        second.run()
        assert second.stats.accumulated_cost == pytest.approx(2 * cost)
        assert second.stats.usage_to_metrics["agent"].accumulated_cost == pytest.approx(2 * cost)


def test_the_last_event_of_a_run_is_what_was_said_or_done_last_and_the_log_has_all(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"persistence_dir": tmp_path, "conversation_id": "c"}
    with conversation(agent(Script(run("ls"), ("All done.", ()))), **arguments) as one:
        one.send_message("Go.")
        one.run()
        events = one.state.events
        last = events[-1]
        assert isinstance(last, MessageEvent)
        assert last.llm_message.text == "All done."
        assert events[0].kind == "SystemPromptEvent"
        assert list(events) == [events[i] for i in range(len(events))] == events[:]
        assert [event.id for event in one.state.log] == list(range(len(one.state.log)))
        assert len(one.state.log) > len(events)
        assert one.state.log[-1].kind == "AgentStateChanged"
        with pytest.raises(IndexError):
            events[len(events)]
    with conversation(agent(Script()), **arguments) as again:
        assert list(again.state.events) == list(events)


def test_another_agent_cannot_go_on_with_a_kept_conversation(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"persistence_dir": tmp_path, "conversation_id": "c"}
    with conversation(agent(Script(DONE)), **arguments) as first:
        first.send_message("Hello")
        first.run()
        count = len(first.state.log)
    with conversation(Agent(llm=model(Script()), tools=[Tool(name="file_editor")]), **arguments) as other:
        with pytest.raises(ValueError, match=r"missing \['terminal'\], added \['file_editor'\].*fork"):
            other.send_message("Go on.")
        assert len(other.state.log) == count, "nothing was written"
    kept = next(tmp_path.rglob("agent.json"))
    kept.write_text("nonsense")
    with conversation(agent(Script(DONE), system_prompt_kwargs={"cli_mode": False}), **arguments) as same:
        same.send_message("Go on.")
        same.run()
        assert status(same) is FINISHED
    assert "terminal" in kept.read_text()


# --- life ---


class Counting(ToolExecutor):
    """Counts how often it was made and closed."""

    made = closed = 0

    def __init__(self) -> None:
        type(self).made += 1

    def __call__(self, action: Any, conversation: Any = None) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def counting() -> type[Counting]:
    Counting.made = Counting.closed = 0
    register_tool("counting", lambda state: [TerminalTool.create()[0].set_executor(Counting())])
    return Counting


def test_the_tools_are_made_once_for_all_runs_and_their_executors_closed_once(counting: type[Counting]) -> None:
    who = Agent(llm=model(Script(DONE, DONE)), tools=[Tool(name="counting")])
    with conversation(who) as one:
        for _ in range(2):
            one.send_message("Hello")
            one.run()
        assert (counting.made, counting.closed) == (1, 0)
    one.close()
    assert (counting.made, counting.closed) == (1, 1)


async def test_an_asynchronous_program_uses_the_same_conversation() -> None:
    async with conversation(agent(Script(DONE))) as one:
        await one.asend_message("Hello")
        await one.arun()
        assert await asyncio.to_thread(status, one) is FINISHED
    with pytest.raises(RuntimeError, match="closed"):
        await one.arun()
    with pytest.raises(RuntimeError, match="closed"):
        await asyncio.to_thread(one.send_message, "Hello?")


def test_every_secret_of_the_agents_models_is_hidden_in_the_log() -> None:
    keys = {"api_key": "key-of-the-model", "aws_secret_access_key": "key-of-the-cloud"}
    llm = model(Script(DONE), extra_headers={"X-Team-Token": "token-of-the-team", "X-Team": "the-tools-team"}, **keys)
    with conversation(Agent(llm=llm)) as one:
        one.send_message("key-of-the-model key-of-the-cloud token-of-the-team the-tools-team")
        one.run()
        shown = " ".join(event.model_dump_json() for event in one.state.log)
    assert "the-tools-team" in shown
    for hidden in (*keys.values(), "token-of-the-team"):
        assert hidden not in shown
