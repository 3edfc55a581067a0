"""Tools as a program defines them: names, the registry, executors and renderings."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from agent_core.errors import ToolNotFoundError
from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.schema import Action, Observation, parameters_of, reduced
from agent_core.tools import registry
from agent_core.tools.builtin import ThinkAction, ThinkObservation, ThinkTool
from agent_core.tools.context import Clients, SubAgents, Vision
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import ThreadCall, ToolExecutor, present_call
from agent_core.tools.file_editor import FileEditorTool
from agent_core.tools.registry import (
    is_tool_usable,
    list_registered_tools,
    list_usable_tools,
    register_tool,
    resolve_tool,
    resolve_tools,
)
from agent_core.tools.spec import DeclaredResources, Tool
from agent_core.tools.terminal import BashExecutor, BashTool, TerminalExecutor, TerminalTool, execute_bash_tool
from tests.waiting import until


class CountAction(Action):
    word: str = Field(description="What to count.")


class CountObservation(Observation):
    count: int = 0

    @property
    def to_llm_content(self) -> Sequence[TextContent | ImageContent]:
        return [TextContent(text=f"{self.count} times")]


class CountExecutor(ToolExecutor[CountAction, CountObservation]):
    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.started = threading.Event()
        self.interrupted = threading.Event()

    def __call__(self, action: CountAction, conversation: Any = None) -> CountObservation:
        self.threads.append(threading.current_thread())
        self.started.set()
        if action.word == "wait":
            self.interrupted.wait(30)
        return CountObservation(count=len(action.word))

    def interrupt(self) -> None:
        self.interrupted.set()


class CountTool(ToolDefinition[CountAction, CountObservation]):
    @classmethod
    def create(cls, conv_state: Any, executor: CountExecutor | None = None) -> Sequence[ToolDefinition]:
        return [counting(executor or CountExecutor())]

    @classmethod
    def is_usable(cls) -> bool:
        raise OSError("nobody knows")


def counting(executor: Any) -> CountTool:
    return CountTool(
        description="Counts.", action_type=CountAction, observation_type=CountObservation, executor=executor
    )


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(registry, "_registered", dict(registry.registered_tools()))
        yield


# --- names ---


def test_a_tool_is_called_like_its_class_without_its_ending() -> None:
    class HTTPFetchTool(ToolDefinition):
        pass

    class BrowserToolSet(ToolDefinition):
        pass

    assert CountTool.name == "count"
    assert counting(CountExecutor()).name == "count"
    assert HTTPFetchTool.name == "http_fetch"
    assert BrowserToolSet.name == "browser_tool_set"
    assert (TerminalTool.name, FileEditorTool.name) == ("terminal", "file_editor")


def test_a_class_may_say_its_name_in_any_way() -> None:
    class Plain(ToolDefinition):
        name = "plain"  # type: ignore[pydantic-field] # what programs for older libraries write

    class Annotated(ToolDefinition):
        name: str = "annotated"

    class OfClass(ToolDefinition):
        name: ClassVar[str] = "of_class"  # type: ignore[misc] # what programs for older libraries write

    cases: list[tuple[type[ToolDefinition], str]] = [
        (Plain, "plain"),
        (Annotated, "annotated"),
        (OfClass, "of_class"),
    ]
    for made, name in cases:
        assert made.name == name
        assert made(description="d", action_type=CountAction).name == name


def test_one_instance_may_have_a_name_of_its_own() -> None:
    assert ToolDefinition(name="grep", description="d", action_type=CountAction).name == "grep"


@pytest.mark.parametrize("name", ["terminal", "TerminalTool", "BashTool", "bash", "execute_bash"])
def test_the_terminal_is_found_under_each_of_its_names(name: str) -> None:
    (found,) = resolve_tool(Tool(name=name))
    assert found.name == "terminal"


def test_class_style_names_of_registered_tools_are_found() -> None:
    register_tool("count", CountTool)
    (found,) = resolve_tool(Tool(name="CountTool"), None)
    assert isinstance(found, CountTool)


@pytest.mark.parametrize("name", ["count_up", "CountUpTool"])
def test_a_tool_that_is_registered_under_its_classs_name_is_found_under_its_own(name: str) -> None:
    class CountUpTool(CountTool):
        pass

    register_tool("CountUpTool", CountUpTool)
    (found,) = resolve_tool(Tool(name=name))
    assert isinstance(found, CountTool)
    assert registry.canonical_name("count_up") == registry.canonical_name("CountUpTool") == "CountUpTool"
    assert is_tool_usable("TerminalTool")
    assert not is_tool_usable(name)


def test_every_built_in_tool_is_found_by_the_name_of_its_class() -> None:
    classes = {name: tool for name, tool in registry.registered_tools().items() if isinstance(tool, type)}
    assert {registry.canonical_name(tool.__name__) for tool in classes.values()} == set(classes)
    (found,) = resolve_tool(Tool(name="CondensationRequestTool"))
    assert found.name == "request_condensation"


@pytest.mark.parametrize(
    "name", ["apply_patch", "file_editor", "finish", "glob", "grep", "task_tracker", "terminal", "think"]
)
def test_a_built_in_tool_can_be_called_as_it_is(name: str) -> None:
    (found,) = resolve_tool(Tool(name=name))
    assert found.as_executable().executor is not None


# --- the registry ---


def test_a_factory_gets_the_state_and_the_parameters() -> None:
    def factory(conv_state: Any, **params: Any) -> list[ToolDefinition]:
        assert (conv_state, params) == ("state", {"depth": 2})
        executor = CountExecutor()
        shared = counting(executor)
        return [shared, shared.model_copy(update={"name": "other"})]

    register_tool("Both", factory)
    one, other = resolve_tool(Tool(name="Both", params={"depth": 2}), "state")
    assert one.executor is other.executor


@pytest.mark.parametrize("made", [counting(None), ["terminal"], None, "terminal"])
def test_a_factory_must_return_definitions(made: Any) -> None:
    register_tool("Wrong", lambda _state: made)
    with pytest.raises(TypeError, match="must return a sequence of ToolDefinition"):
        resolve_tool(Tool(name="Wrong"))


def test_an_instance_takes_no_parameters_and_needs_an_executor() -> None:
    register_tool("fixed", counting(CountExecutor()))
    with pytest.raises(ValueError, match="takes no parameters"):
        resolve_tool(Tool(name="fixed", params={"x": 1}))
    with pytest.raises(ValueError, match="no executor"):
        register_tool("empty", counting(None))


def test_a_form_of_answers_is_for_exactly_one_tool() -> None:
    register_tool("none", lambda _state: [])
    for name, count in (("none", 0), ("browser_tool_set", 14)):
        with pytest.raises(ValueError, match=f"'{name}' stands for {count} tools; it must be exactly one"):
            resolve_tool(Tool(name=name, response_schema={"type": "object"}))


def test_an_unknown_tool_is_a_key_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ToolNotFoundError, match="terminal") as caught:
        resolve_tool(Tool(name="nonesuch"))
    assert isinstance(caught.value, KeyError)


def test_registering_again_warns_and_the_last_wins(caplog: pytest.LogCaptureFixture) -> None:
    first, last = counting(CountExecutor()), counting(CountExecutor())
    register_tool("again", first)
    with caplog.at_level(logging.WARNING):
        register_tool("again", last)
    assert "registered again" in caplog.text
    assert resolve_tool(Tool(name="again"))[0].executor is last.executor


def test_a_check_that_fails_makes_a_tool_unusable() -> None:
    register_tool("count", CountTool)
    register_tool("fixed", counting(CountExecutor()).model_copy())
    register_tool("factory", lambda _state: [])
    assert "count" in list_registered_tools()
    assert "count" not in list_usable_tools()
    assert not is_tool_usable("nonesuch")
    assert is_tool_usable("factory")
    assert is_tool_usable("TerminalTool")


def test_a_spec_without_parameters_may_say_none() -> None:
    assert Tool.model_validate({"name": "x", "params": None}).params == {}
    with pytest.raises(ValidationError):
        Tool(name="")


# --- executors ---


async def test_a_synchronous_executor_never_runs_in_the_loop() -> None:
    executor = CountExecutor()
    observation = await counting(executor).acall(CountAction(word="four"))
    assert observation == CountObservation(count=4)
    assert executor.threads != [threading.current_thread()]


async def test_a_synchronous_executor_is_interrupted_with_its_call() -> None:
    executor = CountExecutor()
    call = asyncio.create_task(counting(executor).acall(CountAction(word="wait")))
    assert await asyncio.to_thread(executor.started.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert executor.interrupted.is_set()


def test_a_tool_is_called_and_answers_at_once() -> None:
    executor = CountExecutor()
    assert counting(executor)(CountAction(word="four")) == CountObservation(count=4)
    assert executor.threads == [threading.current_thread()]
    assert ThinkTool.create()[0](ThinkAction(thought="hm")).text == "Your thought has been logged."
    with pytest.raises(NotImplementedError, match="'count' has no executor"):
        counting(None)(CountAction(word="x"))


async def test_a_tool_is_called_where_a_loop_runs() -> None:
    assert isinstance(ThinkTool.create()[0](ThinkAction(thought="hm")), ThinkObservation)


async def test_an_asynchronous_tool_that_another_calls_works_in_the_loop_of_their_conversation() -> None:
    async def inner(action: CountAction, conversation: Any = None) -> Observation:
        return Observation.from_text(f"{conversation} {threading.current_thread() is loop_thread}")

    def outer(action: CountAction, conversation: Any = None) -> Observation:
        return tool.set_executor(inner)(action)

    loop_thread = threading.current_thread()
    tool = ToolDefinition(name="t", description="d", action_type=CountAction)
    context: Any = "the conversation"
    assert (await tool.set_executor(outer).acall(CountAction(word="x"), context)).text == "the conversation True"


async def test_what_a_call_had_its_loop_do_ends_with_it_and_nothing_is_begun_after_it() -> None:
    context: Any = "the conversation"
    call, ended = ThreadCall(context, asyncio.get_running_loop()), asyncio.Event()

    async def work(context: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(30):
        asking = asyncio.create_task(asyncio.to_thread(call.do, work))
        await until(lambda: call.futures)
        call.end()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.to_thread(call.do, work)
    assert call.futures == set()


class LengthTool(ToolDefinition[CountAction, CountObservation]):
    description: str = "Says how long a word is."
    resources: ClassVar[tuple[str, ...] | None] = ("words",)

    @classmethod
    def make_executor(cls, *, factor: int = 1) -> Any:
        return lambda action, conversation=None: CountObservation(count=factor * len(action.word))


def test_a_class_that_says_what_its_tool_is_needs_no_create() -> None:
    register_tool("length", LengthTool)
    (made,) = resolve_tool(Tool(name="length", params={"factor": 2}), "state")
    assert made(CountAction(word="four")) == CountObservation(count=8)
    assert (made.name, made.action_type, made.observation_type) == ("length", CountAction, CountObservation)
    assert made.declared_resources(CountAction(word="x")) == DeclaredResources(keys=("words",), declared=True)
    assert counting(None).declared_resources(CountAction(word="x")) == DeclaredResources()
    given = LengthTool.create(executor=CountExecutor())[0].executor
    assert isinstance(given, CountExecutor)


def test_types_that_are_given_count_more_than_those_in_the_brackets() -> None:
    class Longer(CountAction):
        more: int = 0

    class LongerTool(LengthTool):
        action_type: type[Action] = Longer

    assert LongerTool.create()[0].action_type is Longer
    assert CountTool(description="d", action_type=Longer).action_type is Longer
    assert CountTool(description="d", action_type=Longer, observation_type=None).observation_type is None


@pytest.mark.parametrize("tool", ["think", "glob", "terminal", "browser", "browser_tool_set"])
def test_parameters_that_a_tool_does_not_have_are_named(tool: str) -> None:
    with pytest.raises(
        TypeError, match=rf"{tool} cannot be made with the parameters \['colour'\].*it takes \['executor'"
    ):
        resolve_tool(Tool(name=tool, params={"colour": "red"}))
    with pytest.raises(TypeError, match=rf"executor of {tool} is a str; it must be callable"):
        resolve_tool(Tool(name=tool, params={"executor": "red"}))


def test_a_class_that_says_nothing_cannot_be_made() -> None:
    class BareTool(ToolDefinition):
        pass

    with pytest.raises(TypeError, match="BareTool has no create"):
        BareTool.create(None)


async def test_an_executor_that_is_built_from_another_uses_its_conversation() -> None:
    class Context:
        conversation_id = "c"
        action_id = 7
        hard_timeout: float | None = None
        hidden = False
        at_once = False
        idempotency_key = "c:7"
        latest: Observation | None = None
        sandbox: Any = None
        subagents: SubAgents | None = None
        vision: Vision | None = None
        draft_model: Any = None
        clients: Clients | None = None

        async def secrets_for(self, command: str) -> dict[str, str]:
            raise AssertionError(command)

        def emit_output(self, text: str) -> None:
            raise AssertionError(text)

        async def request_condensation(self) -> None:
            raise AssertionError

    async def ask(context: Any) -> str:
        return f"{context.idempotency_key} in {threading.current_thread() is loop_thread}"

    def executor(action: CountAction, conversation: Any = None) -> Observation:
        call = present_call()
        assert isinstance(call, ThreadCall)
        return Observation.from_text(call.do(ask))

    loop_thread = threading.current_thread()
    tool = ToolDefinition(name="t", description="d", action_type=CountAction, executor=executor)
    assert (await tool.acall(CountAction(word="x"), Context())).text == "c:7 in True"
    assert present_call() is None


class Tally(BaseModel):
    count: int


class Verdict(BaseModel):
    is_error: bool


async def test_results_become_observations_or_are_refused() -> None:
    async def given(result: Any, observation_type: type[Observation] | None) -> Observation:
        tool = ToolDefinition(
            name="t",
            description="d",
            action_type=CountAction,
            observation_type=observation_type,
            executor=lambda _action, _conversation=None: result,
        )
        return await tool.acall(CountAction(word="x"))

    kept = CountObservation(count=3)
    assert await given(kept, CountObservation) is kept
    assert await given({"count": 2}, CountObservation) == CountObservation(count=2)
    assert await given(Tally(count=4), CountObservation) == CountObservation(count=4)
    assert await given(Observation.from_text("four"), CountObservation) == CountObservation.from_text("four")
    assert await given(Verdict(is_error=True), None) == Observation(is_error=True)
    assert await given(kept, None) is kept
    assert await given({"is_error": True}, None) == Observation(is_error=True)
    with pytest.raises(TypeError, match="not an Observation"):
        await given("text", None)
    with pytest.raises(TypeError, match="'t' returned no CountObservation: Input should be"):
        await given(3, CountObservation)
    with pytest.raises(TypeError, match="returned no Observation: "):
        await given({"is_error": "perhaps"}, None)


async def test_a_tool_without_executor_says_so() -> None:
    tool = ToolDefinition(name="t", description="d", action_type=CountAction)
    with pytest.raises(NotImplementedError, match="'t' has no executor"):
        await tool.acall(CountAction(word="x"))
    with pytest.raises(NotImplementedError):
        tool.as_executable()


def test_set_executor_returns_a_copy() -> None:
    executor = terminal = TerminalExecutor()
    assert execute_bash_tool.set_executor(executor=executor).executor is executor
    assert execute_bash_tool.executor is not executor
    assert TerminalTool.create(None, executor=terminal)[0].executor is terminal
    assert BashTool.create()[0].name == "terminal"
    assert BashExecutor is TerminalExecutor


# --- what is shown ---


def test_the_extras_stand_first_and_only_where_they_belong() -> None:
    shown = counting(CountExecutor()).to_openai_tool(add_security_risk_prediction=True)["function"]["parameters"]
    assert list(shown["properties"]) == ["security_risk", "summary", "word"]
    assert shown["required"] == ["word"]
    think = ThinkTool.create()[0].to_openai_tool(add_security_risk_prediction=True)["function"]["parameters"]
    assert list(think["properties"]) == ["summary", "thought"]


def test_a_tool_with_a_summary_of_its_own_gets_no_second_one() -> None:
    class WithSummary(Action):
        summary: int

    tool = ToolDefinition(name="t", description="d", action_type=WithSummary)
    assert tool.to_openai_tool()["function"]["parameters"]["properties"] == {"summary": {"type": "integer"}}


class Crate(BaseModel):
    label: str = Field(description="What stands on it.")
    inside: list[Crate] = []


class LoadAction(Action):
    crate: Crate | None = Field(None, description="The crate.")
    weights: int | str = 1
    place: tuple[int, int] = (0, 0)
    names: list[Any] = Field(default_factory=list)
    colour: Literal["red", "blue"] = "red"
    fragile: Literal[True] = True
    notes: Annotated[str, Field(min_length=2, max_length=9, pattern="^x", title="N")] = "xx"


def test_a_schema_is_reduced_to_what_models_understand() -> None:
    assert parameters_of(LoadAction) == {
        "type": "object",
        "properties": {
            "crate": {
                "type": "object",
                "description": "The crate.",
                "properties": {
                    "label": {"type": "string", "description": "What stands on it."},
                    "inside": {"type": "array", "items": {"type": "object"}},
                },
                "required": ["label"],
            },
            "weights": {"type": "integer"},
            "place": {"type": "array", "items": {"type": "integer"}},
            "names": {"type": "array", "items": {}},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "fragile": {"type": "boolean", "enum": [True]},
            "notes": {"type": "string"},
        },
        "required": [],
    }


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ({"type": ["null", "integer"]}, {"type": "integer"}),
        ({"type": ["null"]}, {"type": "string"}),
        (
            {"anyOf": [{"type": "null"}, {"type": "integer"}], "description": "d"},
            {"type": "integer", "description": "d"},
        ),
        ({"anyOf": [{"type": "null"}]}, {}),
        ({"$ref": "#/$defs/Unknown"}, {"type": "object"}),
        ({"const": 5}, {"enum": [5]}),
        ({"type": "string", "title": "T", "format": "uri"}, {"type": "string"}),
    ],
)
def test_a_schema_of_another_program_is_reduced_to_one_type(node: dict[str, Any], shown: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"it": node}, "required": ["it", 5]}
    assert reduced(schema) == {"type": "object", "properties": {"it": shown}, "required": ["it"]}


def test_two_tools_of_one_name_are_refused() -> None:
    assert list(resolve_tools([Tool(name="think"), Tool(name="finish")])) == ["think", "finish"]
    with pytest.raises(ValueError, match="two tools are named 'think'; names must differ"):
        resolve_tools([Tool(name="think"), Tool(name="ThinkTool")])


class Note(Action):
    text: str


class Labelled(BaseModel):
    kind: Literal["big", "small"]


class PinAction(Action):
    notes: list[Note]
    label: Labelled


def test_the_model_does_not_see_which_classes_of_ours_things_are_but_it_sees_a_programs_own_kinds() -> None:
    shown = parameters_of(PinAction)["properties"]
    assert list(shown["notes"]["items"]["properties"]) == ["text"]
    assert shown["label"]["properties"] == {"kind": {"type": "string", "enum": ["big", "small"]}}


def test_the_responses_form_is_flat_and_not_strict() -> None:
    tool = counting(CountExecutor())
    shown = tool.to_responses_tool()
    assert (shown["type"], shown["name"], shown["strict"]) == ("function", "count", False)
    assert shown["parameters"] == tool.to_openai_tool()["function"]["parameters"]


def test_the_mcp_form_has_the_plain_schema_and_the_hints() -> None:
    shown = ThinkTool.create()[0].to_mcp_tool()
    assert list(shown["inputSchema"]["properties"]) == ["thought"]
    assert shown["annotations"]["readOnlyHint"] is True
    assert shown["annotations"]["title"] == "Think"
    with_meta = counting(None).model_copy(update={"meta": {"a": 1}}).to_mcp_tool()
    assert with_meta["_meta"] == {"a": 1}
    assert "count" in with_meta["outputSchema"]["properties"]


def test_an_error_observation_is_announced_to_the_model() -> None:
    shown = Observation.from_text("no such file", is_error=True).to_llm_content
    assert [part.text for part in shown if isinstance(part, TextContent)] == [
        "[An error occurred during execution.]",
        "no such file",
    ]
