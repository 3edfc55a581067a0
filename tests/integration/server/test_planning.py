"""Planning on a server: its agent, its list of tasks, and both after a kill -9."""

from __future__ import annotations

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from tests.integration.server.conftest import Follower, MakeProcess, create, following

pytestmark = pytest.mark.bubblewrap

TASKS = [{"title": "Look", "status": "done"}, {"title": "Write"}]
SHOWN = [
    {"id": "1", "title": "Look", "status": "done", "notes": ""},
    {"id": "2", "title": "Write", "status": "todo", "notes": ""},
]


def finished(follower: Follower, times: int = 1) -> bool:
    states = [frame["extras"]["agent_state"] for frame in follower.frames if "agent_state" in frame.get("extras", {})]
    return states.count("finished") >= times


async def test_an_agent_plans_on_a_server_and_a_task_list_outlives_it(make_process: MakeProcess) -> None:
    script = [
        call("task_tracker", {"command": "plan", "task_list": TASKS}),
        finish("planned"),
        call("task_tracker", {"command": "view"}),
        finish("seen"),
        call("grep", {"pattern": "objective"}),
        finish("written"),
    ]

    def answer(request: ModelRequest) -> Turn:
        return script.pop(0) if request.json.get("tools") else Turn(text="A title")  # which is asked for besides

    async with ModelServer(answer) as model:
        environment = {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "key-123456"}
        server = await make_process("--sandbox", "local", environment=environment)
        conversation_id = await create(server, initial_user_msg="Plan it.")
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: finished(follower))
        await server.kill()
        await server.start()
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: finished(follower))
            await follower.send({"action": "message", "args": {"content": "Where are you?"}})
            await follower.until(lambda: finished(follower, 2))
        names = ("action", "observation")
        tracked = [frame for frame in follower.frames if "task_tracking" in [frame.get(name) for name in names]]
        assert [(frame.get("action"), frame["message"]) for frame in tracked[:1]] == [
            ("task_tracking", "Managing 2 task items.")
        ]
        results = [frame["extras"] for frame in tracked if "observation" in frame]
        assert results == [{"command": name, "task_list": SHOWN} for name in ("plan", "view")]

        async with server.client() as client:
            stored = {"agent": "PlanningAgent", "llm_model": "openai/scripted", "llm_base_url": model.url}
            assert (await client.post("/api/settings", json=stored)).status_code == 200
        conversation_id = await create(server, initial_user_msg="Plan it.")
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: finished(follower))
        system = next(frame for frame in follower.frames if frame.get("action") == "system")
        assert system["args"]["agent_class"] == "PlanningAgent"
        searched = next(frame for frame in follower.frames if frame.get("observation") == "mcp")["content"]
        assert "Found 1 file(s) containing pattern 'objective' in '/workspace':" in searched
        assert searched.endswith("/PLAN.md")
