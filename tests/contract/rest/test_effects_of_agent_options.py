"""Each option of an agent does something to a conversation of the server: seen in what its model is asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent_core.agent.base import AgentBase
from agent_core.session.settings import ELSEWHERE, AgentOptions
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Call, Turn, call, calls, fail, finish, say
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server
from tests.contract.rest.test_agent_context import talking, workspace
from tests.unit.mcp.conftest import fake

IN_TOOLS: dict[str, tuple[dict[str, Any], str, bool]] = {
    # option: what is chosen, the tool that it is about, and whether the model is then offered it
    "enable_cmd": ({"enable_cmd": False}, "terminal", False),
    "enable_think": ({"enable_think": False}, "think", False),
    "enable_finish": ({"enable_finish": False}, "finish", False),
    "enable_condensation_request": ({"enable_condensation_request": True}, "request_condensation", True),
    "enable_jupyter": ({"enable_jupyter": False}, "execute_ipython_cell", False),
    "enable_plan_mode": ({"enable_plan_mode": False}, "task_tracker", False),
    "enable_llm_editor": ({"enable_llm_editor": True}, "edit_file", True),
    "enable_editor": ({"enable_editor": False}, "file_editor", False),
    "enable_sub_agents": ({"enable_sub_agents": True}, "delegate", True),
    "enable_memory": ({"enable_memory": False}, "notes", False),
    "filter_tools_regex": ({"filter_tools_regex": "term"}, "file_editor", False),
    "preset": ({"preset": "gpt5"}, "apply_patch", True),
    "tools": ({"tools": ["grep"]}, "grep", True),
    "include_default_tools": ({"include_default_tools": ["FinishTool"]}, "think", False),
}
IN_PROMPT: dict[str, tuple[dict[str, Any], str, bool]] = {
    # option: what is chosen, words, and whether the model is then told them
    "cli_mode": ({"cli_mode": True}, "what changes the system", True),
    "enable_prompt_extensions": ({"enable_prompt_extensions": False}, "/workspace/.openhands", False),
    "disabled_microagents": ({"disabled_microagents": ["boats"]}, "Boats float.", False),
    "system_prompt": ({"system_prompt": "You are a lighthouse."}, "You are a lighthouse.", True),
    "system_prompt_filename": (
        {"system_prompt_filename": "system_prompt_read_only.j2"},
        "who answers questions about",
        True,
    ),
    "security_policy_filename": ({"security_policy_filename": ""}, "only the user gives you tasks", False),
    "system_prompt_kwargs": ({"system_prompt_kwargs": {"agent_name": "Moby"}}, "You are Moby", True),
}
"""Each is otherwise the other way round."""


def hello(_request: ModelRequest) -> Turn:
    return say("Hello.")


async def question(server: Server, model: ModelServer, **options: Any) -> dict[str, Any]:
    """What the model is asked first in a new conversation with these options."""
    before = len(model.requests)
    await server.create(initial_user_msg="Begin.", agent_options=options)

    async def is_asked() -> bool:
        return len(model.requests) > before

    await server.until(is_asked, seconds=MODEL_SECONDS)
    asked: dict[str, Any] = model.requests[before].json
    return asked


async def test_options_about_tools_decide_which_the_model_is_offered(make_server: MakeServer) -> None:
    async with talking(make_server, hello) as (server, model):
        usual = {one["function"]["name"] for one in (await question(server, model))["tools"]}
        for chosen, tool, is_offered in IN_TOOLS.values():
            offered = {one["function"]["name"] for one in (await question(server, model, **chosen))["tools"]}
            assert (tool in usual, tool in offered) == (not is_offered, is_offered), chosen


async def test_options_about_the_prompt_decide_what_the_model_is_told(make_server: MakeServer) -> None:
    async with talking(make_server, hello, workspace(boats="Boats float.")) as (server, model):
        usual = json.dumps((await question(server, model))["messages"])
        for chosen, words, is_told in IN_PROMPT.values():
            told = json.dumps((await question(server, model, **chosen))["messages"])
            assert (words in usual, words in told) == (not is_told, is_told), chosen


async def until_said(server: Server, conversation: str, key: str, value: str) -> None:
    async def is_said() -> bool:
        events = await server.events(conversation)
        return any(event.get(key) == value or event.get("extras", {}).get(key) == value for event in events)

    await server.until(is_said, seconds=MODEL_SECONDS)


@pytest.mark.parametrize("limit", [1, 2])
async def test_so_many_calls_run_together_as_tool_concurrency_limit_says(make_server: MakeServer, limit: int) -> None:
    at_work = most = 0

    async def search(_call: FakeRequest) -> FakeAnswer:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        for _ in range(200):  # time for the other one, where it may come
            await asyncio.sleep(0)
        at_work -= 1
        return {"root": "/workspace", "files": [], "truncated": False}

    provider = workspace()
    provider.handlers["search.glob"] = search
    both = calls(Call("glob", {"pattern": "*.a"}), Call("glob", {"pattern": "*.b"}))
    async with talking(make_server, [both, finish("Done.")], provider) as (server, _):
        options = {"tools": ["glob"], "tool_concurrency_limit": limit}
        conversation = await server.create(initial_user_msg="Search.", agent_options=options)
        await until_said(server, conversation, "action", "finish")
    assert most == limit


@pytest.mark.parametrize("sees", [True, False])
async def test_a_model_is_shown_pictures_of_pages_where_enable_som_visual_browsing_says_so(
    make_server: MakeServer, sees: bool
) -> None:
    looks: list[Any] = []

    async def browse(call: FakeRequest) -> FakeAnswer:
        looks.append(call.args["look"])
        return {"error": "there is no browser"}

    provider = workspace()
    provider.handlers["browser.run"] = browse
    script = [call("browser", {"code": "noop()"}), finish("Done.")]
    async with talking(make_server, script, provider, enable_browsing="always") as (server, _):
        options = {"enable_som_visual_browsing": sees}
        await server.create(initial_user_msg="Look.", agent_options=options)

        async def has_looked() -> bool:
            return bool(looks)

        await server.until(has_looked, seconds=MODEL_SECONDS)
    assert looks[0]["marks"] is sees


BY_OPTION = {"enable_browsing": "browser", "enable_mcp": "echo"}


async def test_enable_browsing_and_enable_mcp_take_away_tools_that_there_are(make_server: MakeServer) -> None:
    async with talking(make_server, hello, enable_browsing="always") as (server, model):
        servers = {"sse_servers": [], "stdio_servers": [{"name": "own", **fake("echo")}], "shttp_servers": []}
        await server.post("/api/settings", json={"mcp_config": servers})
        for options in ({}, {"enable_browsing": False}, {"enable_mcp": False}):
            offered = {one["function"]["name"] for one in (await question(server, model, **options))["tools"]}
            wanted = {
                "browser" if "enable_browsing" not in options else "",
                "echo" if "enable_mcp" not in options else "",
            }
            assert offered & {"browser", "echo"} == wanted - {""}


@pytest.mark.parametrize("is_condensed", [True, False])
async def test_a_history_that_is_too_long_is_condensed_where_enable_history_truncation_says_so(
    make_server: MakeServer, is_condensed: bool
) -> None:
    shown: list[int] = []

    def turn(request: ModelRequest) -> Turn:
        shown.append(len(request.messages))
        if shown[-1] > 20:
            return fail(400, "This model's maximum context length is 8192 tokens")
        if shown[-1] < max(shown):
            return finish("Done.")
        return call("terminal", {"command": f"ls {shown[-1]}"})

    async with talking(make_server, turn) as (server, _):
        options = {"enable_history_truncation": is_condensed}
        conversation = await server.create(initial_user_msg="List.", agent_options=options)
        key, value = ("action", "finish") if is_condensed else ("agent_state", "error")
        await until_said(server, conversation, key, value)
        assert (shown[-1] < max(shown)) is is_condensed


async def test_the_condenser_of_the_options_shortens_what_the_model_is_shown(make_server: MakeServer) -> None:
    def turn(request: ModelRequest) -> Turn:
        times = len(made)
        made.append(len(request.messages))
        return finish("Done.") if times == 8 else call("terminal", {"command": f"ls {times}"})

    made: list[int] = []
    async with talking(make_server, turn) as (server, _):
        options = {"condenser": {"type": "recent", "max_events": 5, "keep_first": 1}}
        conversation = await server.create(initial_user_msg="List.", agent_options=options)
        await until_said(server, conversation, "action", "finish")
    assert made[-1] == made[-2] < 9


OF_OTHERS = {
    "tool_concurrency_limit",
    "enable_som_visual_browsing",
    "enable_browsing",
    "enable_mcp",
    "enable_history_truncation",
    "condenser",
    "critic",  # test_models_of_judges.py
    "draft_editor_model",  # integration/server/test_editing.py
}


def test_every_option_of_an_agent_has_a_test_of_what_it_does_or_is_refused() -> None:
    assert AgentOptions.model_fields.keys() == IN_TOOLS.keys() | IN_PROMPT.keys() | OF_OTHERS
    assert (
        AgentBase.model_fields.keys()
        == (AgentBase.model_fields.keys() & AgentOptions.model_fields.keys()) | ELSEWHERE.keys()
    )


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
async def test_what_is_chosen_elsewhere_is_refused_with_the_place(server: Server, name: str) -> None:
    for path in ("/api/conversations", "/api/settings"):
        response = await server.post(path, json={"agent_options": {name: {}}})
        found = response.json()["detail"][0]
        assert (response.status_code, found["loc"]) == (422, ["body", "agent_options", name])
        assert found["msg"] == ELSEWHERE[name]


@pytest.mark.parametrize(
    ("options", "place", "problem"),
    [
        ({"system_prompt": "x", "system_prompt_filename": "system_prompt.j2"}, (), "exclude each other"),
        ({"system_prompt_filename": "/etc/passwd"}, ("system_prompt_filename",), "give one of system_prompt.j2"),
        ({"system_prompt_filename": "../base.py"}, ("system_prompt_filename",), "no template"),
        ({"security_policy_filename": "policy.j2"}, ("security_policy_filename",), "give one of security_policy.j2"),
        ({"system_prompt_filename": "system_prompt_planning.j2"}, (), "'plan_structure' is undefined"),
        ({"system_prompt_kwargs": {"model_family": "../../prompts/security_policy"}}, (), "cannot be made"),
        ({"system_prompt_kwargs": {"agent_name": "x" * 200_000}}, (), "over 200000 characters"),
        ({"system_prompt_kwargs": {"agent_name": "x"}, "system_prompt_kwarg": {}}, ("system_prompt_kwarg",), "did you"),
        ({"include_default_tools": ["ThinkTol"]}, ("include_default_tools",), "not built in"),
        ({"system_prompt": "x" * 200_001}, ("system_prompt",), "at most 200000"),
    ],
)
async def test_a_prompt_that_cannot_be_made_is_refused_before_anything_starts(
    server: Server, options: dict[str, Any], place: tuple[str, ...], problem: str
) -> None:
    for path in ("/api/conversations", "/api/settings"):
        response = await server.post(path, json={"agent_options": options})
        found = response.json()["detail"][0]
        assert (response.status_code, found["loc"]) == (422, ["body", "agent_options", *place])
        assert problem in found["msg"]


async def test_nearer_variables_of_the_prompt_join_those_of_the_server(make_server: MakeServer) -> None:
    parts = {"plan_structure": "1. All of it.", "agent_name": "Ahab"}
    of_server = {"system_prompt_filename": "system_prompt_planning.j2", "system_prompt_kwargs": parts}
    async with talking(make_server, hello, agent_options=of_server) as (server, model):
        asked = await question(server, model, system_prompt_kwargs={"agent_name": "Moby"})
        system = str(asked["messages"][0])
        assert ("You are Moby" in system, "1. All of it." in system) == (True, True)
        asked = await question(server, model, system_prompt="Short.")
        assert "plan" not in str(asked["messages"][0]).lower()
