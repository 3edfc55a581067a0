"""Tools that others bring, in a real server that is killed in between: those of a client, and MCP programs."""

from __future__ import annotations

import json

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from tests.integration.server.conftest import MakeProcess, create, following

ASK_DB = {"name": "ask_db", "description": "Asks the client's database.", "parameters": {"type": "object"}}
PROGRAM = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    here = json.dumps({"place": os.getcwd(), "key": os.environ.get("KEY"), "sandbox": os.path.isdir("/workspace")})
    result = {
        "initialize": {"protocolVersion": asked.get("params", {}).get("protocolVersion"), "capabilities": {"tools": {}},
                       "serverInfo": {"name": "here", "version": "1"}},
        "tools/list": {"tools": [{"name": "here", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": here}]},
    }.get(asked["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.bubblewrap
async def test_a_clients_call_is_offered_again_after_a_kill_and_mcp_programs_run_in_the_sandbox(
    make_process: MakeProcess,
) -> None:
    turns = [call("ask_db", {}), call("here", {}), finish("Done.")]
    async with ModelServer(turns) as model:
        server = await make_process("--sandbox", "local", environment={"DRYDOCK_GENERATE_TITLES": "false"})
        async with server.client() as client:
            here = {"name": "here", "command": "python3", "args": ["-c", PROGRAM], "env": {"KEY": "a-key-of-its-own"}}
            settings = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "k"}
            await client.post("/api/settings", json={**settings, "mcp_config": {"stdio_servers": [here]}})
        conversation_id = await create(server, initial_user_msg="Ask.", client_tools=[ASK_DB])
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: bool(follower.calls))
            (asked,) = follower.calls
            assert (asked["name"], asked["is_over"]) == ("ask_db", False)
            await server.kill()
        await server.start()
        async with following(server, conversation_id) as again:
            await again.until(lambda: bool(again.calls))
            assert again.calls[0]["call_id"] == asked["call_id"]
            answer = {"call_id": asked["call_id"], "content": "7 rows"}
            await again.send({"action": "client_tool_result", "args": answer})
            await again.until(lambda: again.count(action="finish") == 1)
            results = [frame for frame in again.frames if frame.get("observation") == "mcp"]
    assert [frame["extras"]["name"] for frame in results] == ["ask_db", "here"]
    assert json.loads(results[0]["content"])["content"][0]["text"] == "7 rows"
    said = json.loads(json.loads(results[1]["content"])["content"][0]["text"])
    assert said == {"place": "/workspace", "key": "<secret_hidden>", "sandbox": True}
