"""Tools that fail: the model is told, and no conversation comes to harm."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from agent_core import (
    Action,
    Agent,
    Conversation,
    ConversationRunError,
    ExecutionStatus,
    Observation,
    Tool,
    ToolDefinition,
    ToolExecutor,
    register_tool,
)
from agent_core.events.llm_events import AgentErrorEvent
from agent_core.runtime.action_runner import MAX_ANSWER_CHARS
from agent_core.runtime.loop_thread import library_loop
from tests.unit.library.playing import DONE, Said, Sandbox, Script, model


class DareAction(Action):
    """What to do."""


class DareObservation(Observation):
    """What came of it."""


class Wordless(DareObservation):
    """Cannot be put in words."""

    words: Any = None

    @property
    def to_llm_content(self) -> Any:
        if self.words is None:
            raise LookupError("no words")
        return self.words


class Dare(ToolExecutor[DareAction, DareObservation]):
    """Does what it is made for."""

    def __init__(self, does: BaseException | object) -> None:
        self.does = does

    def __call__(self, action: DareAction, conversation: Any = None) -> Any:
        if isinstance(self.does, BaseException):
            raise self.does
        return self.does


class AsynchronousDare(Dare):
    """The same, awaited."""

    async def acall(self, action: DareAction, conversation: Any = None) -> Any:
        return self(action, conversation)


CALL: Said = ("", [("dare", "{}")])


def daring(executor: Dare, script: Script | None = None) -> Conversation:
    """A conversation with an agent that has this tool and calls it."""
    definition = ToolDefinition[DareAction, DareObservation](
        name="dare",
        description="Dares.",
        action_type=DareAction,
        observation_type=DareObservation,
        executor=executor,
    )
    register_tool("dare", definition)
    agent = Agent(llm=model(script or Script(CALL, DONE)), tools=[Tool(name="dare")])
    return Conversation(agent=agent, workspace=Sandbox())


def told(executor: Dare) -> AgentErrorEvent:
    """What the model is told of a call."""
    script = Script(CALL, DONE)
    with daring(executor, script) as one:
        one.send_message("Dare.")
        one.run()
        assert one.state.execution_status is ExecutionStatus.FINISHED
        (error,) = [event for event in one.state.log if isinstance(event, AgentErrorEvent)]
    assert error.error[:100] in script.prompt()
    return error


@pytest.mark.parametrize(
    ("does", "kind", "says"),
    [
        (ValueError("there is no seat free"), "agent_action", "Error executing tool 'dare': there is no seat free"),
        (KeyError("seat"), "internal", "Error executing tool 'dare': KeyError: 'seat'"),
        (RuntimeError("the boat leaks"), "internal", "Error executing tool 'dare': RuntimeError: the boat leaks"),
        (StopIteration(), "internal", "Error executing tool 'dare': RuntimeError: it raised StopIteration"),
        (None, "internal", "the executor of 'dare' returned no DareObservation: Input should be a valid dictionary"),
        (Wordless(), "internal", "Error executing tool 'dare': LookupError: no words"),
        (Wordless(words="words"), "internal", "TypeError: Wordless.to_llm_content is no list of TextContent"),
        ("text", "internal", "the executor of 'dare' returned no DareObservation: Input should be a valid dictionary"),
    ],
)
def test_the_model_is_told_what_went_wrong_and_whether_it_can_mend_it(does: object, kind: str, says: str) -> None:
    error = told(Dare(does))
    assert says in error.error
    assert "errors.pydantic.dev" not in error.error
    assert error.classification == kind


@pytest.mark.parametrize("executor", [Dare, AsynchronousDare])
@pytest.mark.parametrize("does", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_tool_that_would_end_the_program_fails_and_nothing_else(executor: type[Dare], does: BaseException) -> None:
    error = told(executor(does))
    assert error.classification == "internal"
    assert f"it tried to end the program ({type(does).__name__})" in error.error


class DareInTask(Dare):
    """Fails in a task of its own, which ends the loop and not only the call."""

    async def acall(self, action: DareAction, conversation: Any = None) -> Any:
        async def work() -> Any:
            return self(action, conversation)

        return await asyncio.gather(work())


class Leaving(DareObservation):
    """Ends the program where it is put in words."""

    @property
    def to_llm_content(self) -> Any:
        raise SystemExit(4)


@pytest.mark.parametrize("executor", [DareInTask(SystemExit(3)), Dare(Leaving())])
def test_a_call_that_would_end_the_loop_of_all_conversations_fails_alone(executor: Dare) -> None:
    error = told(executor)
    assert "it tried to end the program (SystemExit)" in error.error
    assert "words" in told(Dare(Wordless())).error, "others go on"


class LeavingAtTheEnd(Dare):
    """Ends the program when it is closed."""

    def close(self) -> None:
        raise SystemExit(5)


def test_a_tool_that_would_end_the_program_at_its_end_does_not(caplog: pytest.LogCaptureFixture) -> None:
    with daring(LeavingAtTheEnd(DareObservation())) as one:
        one.send_message("Dare.")
        one.run()
    assert "an executor could not be closed" in caplog.text


class Leaver(Agent):
    """Ends the program when it is to think."""

    async def astep(self, step: Any) -> Any:
        raise SystemExit(6)


def test_an_agent_that_would_end_the_program_fails_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with Conversation(agent=Leaver(llm=model(Script(DONE))), workspace=Sandbox()) as one:
        one.send_message("Think.")
        with pytest.raises(ConversationRunError, match="Something failed that should not"):
            one.run()
        assert one.state.execution_status is ExecutionStatus.ERROR
    assert "it tried to end the program (SystemExit)" in caplog.text


def test_work_that_ends_the_program_ends_itself_and_not_the_thread_of_all_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def leave() -> None:
        raise SystemExit(7)

    async def stay() -> str:
        return "here"

    assert library_loop().run(stay()) == "here"
    with pytest.raises(SystemExit):
        library_loop().submit(leave()).result(60)
    assert library_loop().submit(stay()).result(60) == "here"
    assert "something tried to end the program" in caplog.text


class Stubborn(Dare):
    """Cannot be interrupted, and says so too loudly."""

    def __init__(self) -> None:
        super().__init__(None)
        self.begun = threading.Event()
        self.released = threading.Event()

    def __call__(self, action: DareAction, conversation: Any = None) -> Any:
        self.begun.set()
        self.released.wait(60)
        return DareObservation.from_text("late")

    def interrupt(self) -> None:
        raise RuntimeError("never")


def test_a_call_whose_interruption_fails_is_interrupted_all_the_same() -> None:
    executor = Stubborn()
    with daring(executor) as one:
        one.send_message("Dare.")
        running = threading.Thread(target=one.run)
        running.start()
        assert executor.begun.wait(60)
        one.interrupt()
        running.join(60)
        executor.released.set()
        assert one.state.execution_status is ExecutionStatus.PAUSED
        (error,) = [event for event in one.state.log if isinstance(event, AgentErrorEvent)]
        assert error.classification == "interrupted"


class Many(BaseModel):
    count: int


def test_what_a_tool_says_of_its_failure_is_cut_and_holds_no_values_of_data_that_did_not_fit() -> None:
    with pytest.raises(ValidationError) as caught:
        Many.model_validate({"count": "plum-4711"})
    error = told(Dare(caught.value)).error
    assert error == (
        "Error executing tool 'dare': count: Input should be a valid integer, unable to parse string as an integer"
    )
    long = told(Dare(ValueError("x" * 100_000))).error
    assert len(long) == MAX_ANSWER_CHARS
    assert "characters were left out here" in long
