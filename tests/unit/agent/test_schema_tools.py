"""Structured answers, and tools that clients carry out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_core import Agent, Tool
from agent_core.agent.tool_calls import parse_call
from agent_core.errors import ClientToolError
from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.messages import MessageToolCall
from agent_core.tools.builtin import FinishAction, ThinkTool
from agent_core.tools.registry import register_tool
from agent_core.tools.terminal import TerminalTool
from tests.unit.library.playing import DONE, Script, conversation, model

REPORT: dict[str, Any] = {
    "type": "object",
    "properties": {"passed": {"type": "integer"}, "failed": {"type": "array", "items": {"type": "string"}}},
    "required": ["passed"],
}


def made(*specs: Tool) -> dict[str, Any]:
    return dict(Agent(llm=model(Script()), tools=list(specs)).initialize())


def test_a_structured_answer_is_offered_checked_and_ends_the_run_as_json() -> None:
    finish = made(Tool(name="FinishTool", response_schema=REPORT))["finish"]
    shown = finish.to_openai_tool(add_security_risk_prediction=True)["function"]
    assert [name for name in shown["parameters"]["properties"] if name != "summary"] == ["passed", "failed"]
    assert shown["parameters"]["required"] == ["passed"]

    def parsed(arguments: dict[str, Any]) -> Any:
        return parse_call(MessageToolCall(id="1", name="finish", arguments=json.dumps(arguments)), {"finish": finish})

    good = parsed({"passed": 3, "failed": ["a"], "summary": "reports"})
    assert isinstance(good.action, FinishAction)
    assert json.loads(good.action.message) == {"passed": 3, "failed": ["a"]}
    assert "must be given" in parsed({"failed": []}).error


def test_a_run_with_a_structured_answer() -> None:
    script = Script(("", [("finish", "{}")]), ("", [("finish", '{"passed": 3}')]))
    who = Agent(llm=model(script), tools=[Tool(name="finish", response_schema=REPORT)])
    with conversation(who) as one:
        one.send_message("Report.")
        one.run()
        last = one.state.events[-1]
        assert isinstance(last, ObservationEvent)
        assert json.loads(last.observation.text) == {"passed": 3}
    assert len(script.requests) == 2


def test_a_form_of_answers_needs_one_tool_with_one_text() -> None:
    for name in ("task_tracker", "terminal"):  # a terminal would take the object for a command
        with pytest.raises(ValueError, match=f"'{name}' does not take exactly one text; give a form to one that does"):
            made(Tool(name=name, response_schema=REPORT))
    with pytest.raises(ValueError, match="response_schema of tool 'think'"):
        made(Tool(name="think", response_schema={"type": "string"}))
    register_tool("pair", lambda state: [*ThinkTool.create(), *TerminalTool.create()])
    with pytest.raises(ValueError, match="stands for 2 tools"):
        made(Tool(name="pair", response_schema=REPORT))
    spec = Tool(name="finish", response_schema=REPORT)
    assert Tool.model_validate_json(spec.model_dump_json()) == spec


def test_a_clients_tool_is_only_acknowledged_and_the_client_reads_the_call() -> None:
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    paint = Tool(name="client_tool", params={"name": "paint", "description": "Paints the page.", "schema": schema})
    script = Script(("", [("paint", "{}")]), ("", [("paint", '{"color": "red"}')]), DONE)
    seen: list[Any] = []

    def client(event: Any) -> None:
        if isinstance(event, ActionEvent) and event.tool_name == "paint" and event.action is not None:
            seen.append(event.action.model_dump()["data"])

    with conversation(Agent(llm=model(script), tools=[paint]), callbacks=[client]) as one:
        one.send_message("Paint.")
        one.run()
        results = [event for event in one.state.events if isinstance(event, ObservationEvent)]
    assert seen == [{"color": "red"}]
    assert "client has been told" in results[0].observation.text
    assert "must be given" in script.prompt(1)


def test_a_program_answers_the_calls_of_its_own_tools() -> None:
    params = {"name": "ask", "description": "Asks the program.", "timeout": 30}
    script = Script(("", [("ask", "{}")]), DONE)
    said: list[str] = []

    def client(event: Any) -> None:
        if isinstance(event, ActionEvent) and event.tool_name == "ask":
            one.answer_client_call(event.id, "7 rows")
            one.answer_client_call(event.id, "7 rows")
            with pytest.raises(ClientToolError, match="otherwise"):
                one.answer_client_call(event.id, "8 rows")
            said.append("answered")

    ask = Tool(name="client_tool", params=params)
    with conversation(Agent(llm=model(script), tools=[ask]), callbacks=[client]) as one:
        one.send_message("Ask.")
        one.run()
        results = [event for event in one.state.events if isinstance(event, ObservationEvent)]
    assert said == ["answered"]
    assert results[0].observation.text == "[Tool 'ask' executed.]\n7 rows"
    assert "7 rows" in script.prompt(1)


@pytest.mark.parametrize("params", [{}, {"name": "x"}, {"name": "x", "description": "d", "schema": {"type": "array"}}])
def test_a_clients_tool_needs_a_name_a_description_and_an_object(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"name|object"):
        made(Tool(name="client_tool", params=params))


def test_a_program_gives_an_agent_other_tools_of_its_own_between_runs_and_while_it_runs() -> None:
    def tool(name: str) -> Tool:
        return Tool(name="client_tool", params={"name": name, "description": "Paints the page.", "timeout": 30})

    script = Script(("", [("paint", "{}")]), ("", [("draw", "{}")]), DONE)

    def client(event: Any) -> None:
        if isinstance(event, ActionEvent) and event.tool_name == "paint":
            with pytest.raises(ValueError, match="two tools are named 'finish'"):
                one.set_client_tools([tool("finish")])
            one.set_client_tools([tool("draw")])
        if isinstance(event, ActionEvent) and event.tool_name in ("paint", "draw"):
            one.answer_client_call(event.id, "painted")

    with conversation(Agent(llm=model(script)), callbacks=[client]) as one:
        one.set_client_tools([tool("paint")])
        with pytest.raises(ValueError, match="needs a name"):
            one.set_client_tools([Tool(name="client_tool")])
        one.send_message("Paint.")
        one.run()
        results = [event for event in one.state.events if isinstance(event, ObservationEvent)]
        assert [event.tool_name for event in results] == ["paint", "draw", "finish"]
        assert "draw" in one.agent.tools_map
