"""What a program writes wrongly is refused where it is written, with the right spelling."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import agent_core
import agent_core.tools
import drydock_client
from agent_core import (
    LLM,
    Action,
    Agent,
    AgentDefinition,
    CodeActAgent,
    Conversation,
    DockerWorkspace,
    LocalWorkspace,
    Observation,
    Tool,
    ToolDefinition,
    ToolExecutor,
)
from agent_core.errors import ToolNotFoundError
from agent_core.spelling import nearest
from agent_core.tools.registry import resolve_tool
from drydock_client.events import Tolerant


class NeverSeenTool(ToolDefinition[Action, Observation]):
    """One that nobody has registered."""

    description: str = "Does nothing."


def _options() -> dict[type[Any], list[str]]:
    """The public classes that are made with options, and those options."""
    found: dict[type[Any], list[str]] = {}
    for module in (agent_core, agent_core.tools, drydock_client):
        for name in module.__all__:
            one = getattr(module, name)
            if not isinstance(one, type) or issubclass(one, BaseException | enum.Enum) or inspect.isabstract(one):
                continue
            if getattr(one, "_is_protocol", False) or issubclass(one, Tolerant):
                continue  # what a server sends is read, not made with options
            if one is agent_core.HookConfig:
                continue  # events may be its options, and one that it does not know is told as such
            parameters = inspect.signature(one.__init__ if not issubclass(one, BaseModel) else one).parameters.values()
            names = [each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]
            if names := [each for each in names if each != "self" and len(each) > 3]:
                found[one] = names
    return found


@pytest.mark.parametrize(("cls", "options"), _options().items(), ids=lambda value: getattr(value, "__name__", ""))
def test_an_option_that_a_public_class_does_not_have_is_refused_with_the_one_that_was_meant(
    cls: type[Any], options: list[str]
) -> None:
    option = max(options, key=len)
    misspelled = f"{option[:-2]}{option[-1]}q"
    with pytest.raises((TypeError, ValidationError), match=rf"{misspelled}.*(\n.*)?did you mean '{option}'\?"):
        cls(**{misspelled: "x"})


def test_many_public_classes_are_checked() -> None:
    assert len(_options()) > 100


@pytest.mark.parametrize("place", [DockerWorkspace, partial(LocalWorkspace, "project")])
def test_a_network_that_there_is_not_is_refused_with_the_one_that_was_meant(place: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="network is 'host_acess': did you mean 'host-access'"):
        place(network="host_acess")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"secrets": ["TOKEN"]}, "secrets is a list: give values by their names, in a dictionary"),
        ({"secrets": {"TOKEN": 17}}, "secrets.TOKEN: a secret is a int: give a text"),
        ({"secrets": {17: "x"}}, "secrets: a name is a int"),
        ({"stuck_detection_thresholds": {"monolog": 3}}, "monolog\n  unknown option: did you mean 'monologue'?"),
        ({"max_iteration_per_run": True}, "max_iteration_per_run is True: give a whole number"),
    ],
)
def test_an_option_of_a_conversation_that_cannot_be_used_is_refused_by_name(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(problem)):
        Conversation(Agent(llm=LLM()), **options)


def test_a_conversation_goes_on_with_models_alone() -> None:
    with Conversation(Agent(llm=LLM()), visualizer=None) as conversation:
        with pytest.raises(TypeError, match="llm is a str: give a LLM"):
            conversation.switch_llm("openai/gpt-5")  # type: ignore[arg-type]
        assert conversation.agent.llm.model == LLM().model


def test_secrets_that_are_none_change_nothing() -> None:
    with Conversation(Agent(llm=LLM()), visualizer=None) as conversation:
        with pytest.raises(TypeError, match=r"secrets\.B: a secret is a NoneType"):
            conversation.update_secrets({"A": "a-value", "B": None})  # type: ignore[dict-item]
        assert not conversation._work.settings.named_secrets


def test_a_parameter_of_a_tool_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(TypeError, match=r"it takes \[.*'several'\], and you probably mean several"):
        resolve_tool(Tool(name="terminal", params={"sevral": True}))


@pytest.mark.parametrize(
    ("option", "told"),
    [("modl", "did you mean 'model'?"), ("Model", "did you mean 'model'?"), ("xyzzy_quux", "there are ")],
)
def test_a_model_is_not_made_with_an_option_that_it_does_not_have(option: str, told: str) -> None:
    with pytest.raises(ValidationError, match=f"{option}\n  unknown option: {told.replace('?', '[?]')}"):
        LLM(**{option: "demo/tour"})


def test_unknown_fields_of_data_that_are_read_are_left_aside() -> None:
    assert LLM.model_validate({"model": "demo/tour", "of_a_newer_version": 1}).model == "demo/tour"
    assert LLM.model_validate_json('{"model": "demo/tour", "of_a_newer_version": 1}').model == "demo/tour"


def test_every_problem_is_told_and_no_value() -> None:
    with pytest.raises(ValidationError) as caught:
        Agent(llm=LLM(), mcp_confg="s3cret", system_prompt=7)  # type: ignore[call-arg]
    assert "did you mean 'mcp_config'?" in str(caught.value)
    assert "system_prompt" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_former_names_are_options_still() -> None:
    definition = AgentDefinition(name="reader", mcp_servers={})
    assert definition.mcp_config == {}


@pytest.mark.parametrize("agent", [Agent, CodeActAgent])
@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("terminal", "'terminal' is a name; write Tool(name='terminal')"),
        ("TerminalTool", "'TerminalTool' is a name; write Tool(name='terminal')"),
        ("teminal", "'teminal' is a name; write Tool(name='terminal')"),
        ("xyzzy", "'xyzzy' is a name; write Tool(name='xyzzy'), once register_tool('xyzzy', …) has made it known"),
        (
            NeverSeenTool,
            "NeverSeenTool is a class; write register_tool('NeverSeenTool', NeverSeenTool) once, then"
            " Tool(name='NeverSeenTool')",
        ),
        (agent_core.tools.TerminalTool, "TerminalTool is a class; write Tool(name='TerminalTool')"),
    ],
)
def test_a_tool_that_is_not_given_by_a_spec_is_refused_with_what_to_write(
    agent: type[Agent], tool: object, told: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        agent(llm=LLM(), tools=[tool])
    assert told in str(caught.value)


def test_what_is_to_be_written_works() -> None:
    assert [one.name for one in Agent(llm=LLM(), tools=[Tool(name="TerminalTool")]).tools] == ["TerminalTool"]
    assert [one.name for one in resolve_tool(Tool(name="TerminalTool"))] == ["terminal"]


def test_a_tool_that_nobody_registered_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(ToolNotFoundError, match=r"'teminal' is not registered \(did you mean 'terminal'\?\)"):
        resolve_tool(Tool(name="teminal"))


def test_an_executor_of_ones_own_is_checked_too() -> None:
    class Roller(ToolExecutor[Action, Observation]):
        def __init__(self, *, sides: int = 6, folder: Path | None = None) -> None:
            self.sides = sides

        def __call__(self, action: Action, conversation: Any = None) -> Observation:
            return Observation.from_text(str(self.sides))

    class Loaded(Roller):
        """Has its options from its base."""

    assert Loaded(sides=20).sides == 20
    with pytest.raises(TypeError, match=r"Loaded has no option 'side': did you mean 'sides'\?"):
        Loaded(side=20)  # type: ignore[call-arg] # it is what is tried


def test_a_name_longer_than_any_is_compared_with_none() -> None:
    assert nearest("m" * 99, ["m" * 100]) == "m" * 100
    assert nearest("m" * 101, ["m" * 100]) is None, "to compare megabytes would take seconds"


@pytest.mark.parametrize(("made", "told"), [(LLM, "LLM(model=…)"), (Agent, "Agent(llm=…)"), (Tool, "Tool(name=…)")])
def test_an_option_without_its_name_is_refused_with_how_it_is_written(made: Callable[..., Any], told: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"takes its options by name: {told}")):
        made("openai/x")
