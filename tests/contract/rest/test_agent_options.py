"""What may be chosen about a conversation's agent over REST."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.rest.conftest import MakeServer, Server


async def tools_of(server: Server, conversation: str) -> list[str]:
    async def is_there() -> bool:
        return any(event.get("action") == "system" for event in await server.events(conversation))

    await server.until(is_there)
    system = next(event for event in await server.events(conversation) if event.get("action") == "system")
    return [tool["function"]["name"] for tool in system["args"]["tools"]]


async def tools_with(server: Server, **options: Any) -> list[str]:
    return await tools_of(server, await server.create(agent_options=options))


async def test_a_conversation_its_user_and_the_server_choose_tools_and_the_nearest_counts(
    make_server: MakeServer,
) -> None:
    async with make_server(agent_options={"enable_plan_mode": False, "enable_condensation_request": True}) as server:
        every = await tools_of(server, await server.create())
        assert every[:4] == ["terminal", "think", "finish", "request_condensation"]
        assert "task_tracker" not in every
        await server.post("/api/settings", json={"agent_options": {"enable_cmd": False}})
        stored = (await server.get("/api/settings")).json()
        assert stored["agent_options"] == {"enable_cmd": False}
        assert "terminal" not in await tools_of(server, await server.create())
        named = await tools_with(server, tools=["grep", {"name": "terminal", "params": {"soft_timeout": 3}}])
        assert named == ["terminal", "think", "finish", "grep"]
        assert await tools_with(server, preset="planning", filter_tools_regex="g") == [
            "think",
            "finish",
            "glob",
            "grep",
        ]
        assert (await tools_with(server, enable_sub_agents=True))[-2:] == ["delegate", "task"]
        await server.post("/api/settings", json={"agent_options": None})
        assert "terminal" in await tools_of(server, await server.create())


@pytest.mark.parametrize(
    ("options", "place", "problem"),
    [
        ({"tools": ["nope"]}, "tools", "tool 'nope' is not registered"),
        ({"preset": "nope"}, "preset", "give one of default"),
        ({"filter_tools_regex": "("}, "filter_tools_regex", "no regular expression"),
        ({"enable_magic": True}, "enable_magic", "there is no such field"),
        ({"condenser": {"type": "pipeline", "condensers": 3}}, "condenser", "a list of condensers"),
        ({"condenser": {"type": "pipeline", "condensers": [None]}}, "condenser", "a list of condensers"),
        ({"critic": {"kind": ["AskingCritic"]}}, "critic", "is none of"),
        ({"draft_editor_model": " replay//etc/passwd"}, "draft_editor_model", "is a recording, which is a file"),
    ],
)
async def test_what_is_not_known_is_refused_with_its_field(
    server: Server, options: dict[str, Any], place: str, problem: str
) -> None:
    for path in ("/api/conversations", "/api/settings"):
        response = await server.post(path, json={"agent_options": options})
        assert response.status_code == 422
        found = response.json()["detail"][0]
        assert found["loc"] == ["body", "agent_options", place]
        assert problem in found["msg"]


async def test_a_misspelled_option_of_a_condenser_is_named_with_the_nearest(server: Server) -> None:
    options = {"condenser": {"type": "llm", "max_sze": 30}}
    response = await server.post("/api/settings", json={"agent_options": options})
    found = response.json()["detail"][0]
    assert (response.status_code, found["loc"]) == (422, ["body", "agent_options", "condenser", "max_sze"])
    assert "did you mean 'max_size'?" in found["msg"]
