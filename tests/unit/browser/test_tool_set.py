"""The browser tools as definitions: names, parameters, hints, executors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_core.agent.presets import get_default_agent
from agent_core.events.messages import ImageContent
from agent_core.events.schema import Observation
from agent_core.llm.llm import LLM
from agent_core.tools.browser import (
    BrowserClickTool,
    BrowserNavigateAction,
    BrowserNavigateTool,
    BrowserObservation,
    BrowserToolExecutor,
    BrowserToolSet,
)
from agent_core.tools.browser_code import BrowserCodeAction, BrowserCodeExecutor, BrowserTool
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.presets import get_default_tools
from agent_core.tools.registry import is_tool_usable, register_tool, resolve_tool
from agent_core.tools.spec import Tool

PARAMETERS = {
    "browser_navigate": {"url", "new_tab"},
    "browser_click": {"index", "new_tab"},
    "browser_type": {"index", "text"},
    "browser_get_state": {"include_screenshot"},
    "browser_get_content": {"extract_links", "start_from_char"},
    "browser_scroll": {"direction"},
    "browser_go_back": set(),
    "browser_list_tabs": set(),
    "browser_switch_tab": {"tab_id"},
    "browser_close_tab": {"tab_id"},
    "browser_get_storage": set(),
    "browser_set_storage": {"storage_state"},
    "browser_start_recording": set(),
    "browser_stop_recording": set(),
}
READ_ONLY = {"browser_get_state", "browser_get_content", "browser_list_tabs", "browser_get_storage"}
DESTRUCTIVE = {"browser_close_tab", "browser_set_storage"}


class Reply:
    blob = None

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result


class Sandbox:
    """Answers as a browser would, and keeps what it was asked."""

    working_dir = "/workspace"

    def __init__(self, **result: Any) -> None:
        plain = {"status": "completed", "text": "", "error": "", "notices": [], "downloads": [], "url": "", "tabs": []}
        pictures = {"active": -1, "focused": "", "tree": "", "screenshot": "", "screenshot_path": "", "marks": ""}
        self.result = {**plain, **pictures, **result}
        self.asked: list[tuple[str, dict[str, Any], str | None, float | None]] = []

    async def request(
        self, op: str, args: Any, *, key: str | None = None, limit_seconds: float | None = None, **_: Any
    ) -> Reply:
        self.asked.append((op, dict(args), key, limit_seconds))
        return Reply(self.result)


class Context:
    conversation_id, action_id, idempotency_key = "c", 1, "c:1"
    hard_timeout: float | None = None

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox


def schema(tool: ToolDefinition) -> dict[str, Any]:
    parameters: dict[str, Any] = tool.to_openai_tool(add_security_risk_prediction=True)["function"]["parameters"]
    return parameters


def test_the_set_has_fourteen_tools_with_their_parameters_and_hints() -> None:
    tools = resolve_tool(Tool(name="BrowserToolSet"))
    assert [tool.name for tool in tools] == list(PARAMETERS)
    assert BrowserToolSet.name == "browser_tool_set"
    for tool in tools:
        asked = set(schema(tool)["properties"]) - {"summary"}
        assert asked - {"security_risk"} == PARAMETERS[tool.name]
        assert ("security_risk" in asked) == (tool.name not in READ_ONLY)
        assert tool.annotations.readOnlyHint == (tool.name in READ_ONLY)
        assert tool.annotations.destructiveHint == (tool.name in DESTRUCTIVE)
        assert tool.journaled
    assert len({id(tool.executor) for tool in tools}) == 1
    touched = {tool.declared_resources(BrowserNavigateAction(url="x")).keys for tool in tools}
    assert touched == {("browser:session",)}


def test_single_tools_resolve_by_both_their_names() -> None:
    assert resolve_tool(Tool(name="BrowserNavigateTool"))[0].name == "browser_navigate"
    assert resolve_tool(Tool(name="browser_click"))[0].name == "browser_click"
    assert is_tool_usable("BrowserToolSet")


def test_a_factory_may_give_a_part_of_them_with_an_executor_of_its_own() -> None:
    executor = BrowserToolExecutor(allowed_domains=["example.com"])

    def narrow(conv_state: Any, **_: Any) -> list[ToolDefinition]:
        return [*BrowserNavigateTool.create(executor), *BrowserClickTool.create(executor=executor)]

    register_tool("narrow_browser", narrow)
    tools = resolve_tool(Tool(name="narrow_browser"))
    assert [tool.name for tool in tools] == ["browser_navigate", "browser_click"]
    assert all(tool.executor is executor for tool in tools)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"speed": 3}, r"browser_tool_set cannot be made with the parameters \['speed'\]"),
        ({"init_timeout_seconds": 0}, "init_timeout_seconds is 0; it must be above zero"),
        ({"allowed_domains": "example.com"}, "allowed_domains is 'example.com'; it must be a list"),
        ({"headless": False}, "headless is False; the browser is in a sandbox, which has no screen"),
        ({"allowed_domains": [""]}, "it must be a list of host names"),
    ],
)
def test_wrong_parameters_are_named(params: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        resolve_tool(Tool(name="browser_tool_set", params=params))


def test_default_tools_have_the_browser_unless_it_is_not_wished() -> None:
    names = [[tool.name for tool in get_default_tools(enable_browser=wished)] for wished in (True, False)]
    assert ["browser_tool_set" in listed for listed in names] == [True, False]
    llm = LLM(model="openai/x")
    agents = [get_default_agent(llm, cli_mode=cli) for cli in (False, True)]
    assert ["browser_tool_set" in [tool.name for tool in agent.tools] for agent in agents] == [True, False]
    assert "<BROWSER>" in agents[0].static_system_message
    assert "<BROWSER>" not in agents[1].static_system_message


async def test_a_call_is_one_request_under_the_actions_key_within_limits() -> None:
    sandbox = Sandbox(text="Opened it.", url="http://a/", tabs=[{"id": "ab12", "url": "http://a/", "title": "A"}])
    context = Context(sandbox)
    tool = BrowserNavigateTool.create(BrowserToolExecutor(navigation_timeout_seconds=7, session_timeout_minutes=1))[0]
    seen = await tool.acall(BrowserNavigateAction(url="http://a", new_tab=True), context)  # type: ignore[arg-type] # a fake
    assert seen.text == "Opened it."
    op, args, key, limit = sandbox.asked[0]
    assert (op, key) == ("browser.run", "c:1")
    assert args["calls"] == [{"name": "navigate", "args": {"url": "http://a", "new_tab": True}}]
    assert (args["timeout"], args["start_seconds"]) == (300, 30)
    assert (args["navigation_seconds"], args["idle_seconds"]) == (7, 60)
    assert limit is not None
    assert limit > 330
    context.hard_timeout = 5.0
    await tool.acall(BrowserNavigateAction(url="http://a"), context)  # type: ignore[arg-type] # a fake
    assert sandbox.asked[1][1]["timeout"] == 5.0
    (usual,) = BrowserNavigateTool.create(BrowserToolExecutor())
    await usual.acall(BrowserNavigateAction(url="http://a"), context)  # type: ignore[arg-type] # a fake
    assert (sandbox.asked[2][1]["navigation_seconds"], sandbox.asked[2][1]["idle_seconds"]) == (30, 1800)


async def test_the_code_tool_tells_the_page_in_its_form() -> None:
    tabs = [{"id": "ab12", "url": "http://a/", "title": "A"}]
    tree = {
        "tree": "[3] link",
        "focused": "3",
        "screenshot": "data:s",
        "marks": "data:m",
        "screenshot_path": "/w/1.jpg",
    }
    sandbox = Sandbox(url="http://a/", tabs=tabs, active=0, **tree)
    tool = BrowserTool.create()[0]
    seen = await tool.acall(BrowserCodeAction(code="click('3')"), Context(sandbox))  # type: ignore[arg-type] # a fake
    lines = seen.text.splitlines()
    assert lines[:4] == [
        "[Current URL: http://a/]",
        "[Focused element bid: 3]",
        "[Screenshot saved to: /w/1.jpg]",
        "[The action was done.]",
    ]
    assert lines[-1] == "[3] link"
    assert "whole page" in lines[-2]
    assert sandbox.asked[0][1]["look"] == {"tree": True, "screenshot": True, "marks": True, "visible_only": False}
    parts = seen.to_llm_content
    assert isinstance(parts[-1], ImageContent)
    assert parts[-1].image_urls == ["data:m"]
    sandbox.result |= {"status": "failed", "error": "There is no element 3."}
    failed = await BrowserTool.create(executor=BrowserCodeExecutor(set_of_marks=False, visible_only=True))[0].acall(
        BrowserCodeAction(code="click('3')"),
        Context(sandbox),  # type: ignore[arg-type] # a fake
    )
    assert failed.is_error
    assert [part.type for part in failed.to_llm_content] == ["text", "text"]
    assert isinstance(failed, BrowserObservation)
    assert failed.screenshot == "data:s"
    assert "[The action failed: There is no element 3.]" in failed.text
    assert "the part that the window shows" in failed.text
    assert sandbox.asked[1][1]["look"]["visible_only"]


async def test_a_call_without_a_page_tells_why_or_nothing() -> None:
    for status, error, told in (
        ("unavailable", "There is no browser.", "There is no browser."),
        ("interrupted", "", ""),
        ("completed", "", "Done."),
    ):
        context = Context(Sandbox(status=status, error=error))
        code = await BrowserTool.create()[0].acall(BrowserCodeAction(code="noop()"), context)  # type: ignore[arg-type] # a fake
        assert code.text == ("" if status == "completed" else told)
        opened = await BrowserNavigateTool.create()[0].acall(BrowserNavigateAction(url="x"), context)  # type: ignore[arg-type] # likewise
        assert opened.text == told
        assert opened.is_error == (status != "completed")


def test_an_observation_is_the_same_when_read_back() -> None:
    tabs = [{"id": "ab12", "url": "http://a/", "title": "A"}]
    seen = BrowserObservation.from_text("x", url="http://a/", open_pages=tabs, active_page_index=0)
    stored = json.loads(seen.model_dump_json())
    assert Observation.revive(stored) == seen
