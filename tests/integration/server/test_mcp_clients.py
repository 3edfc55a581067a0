"""A real server and a client of the protocol that others wrote, in another language: both MCP doors."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from tests.integration.server.conftest import MakeProcess
from tests.integration.server.forks import ROOT

CLIENT = Path(__file__).parents[2] / "mcp_servers/client.mjs"
TOKEN = "a-token-of-quite-some-length"
LIMIT = 120.0


async def ask(**order: Any) -> dict[str, Any]:
    """What the client finds."""
    process = await asyncio.create_subprocess_exec(
        *("node", str(CLIENT), json.dumps(order)), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(LIMIT):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.mark.bubblewrap
async def test_a_client_in_another_language_works_through_both_doors(make_process: MakeProcess) -> None:
    turns = [call("terminal", {"command": "echo from $((40 + 2))"}), finish("It says 42.")]
    async with ModelServer(turns) as model:
        environment = {
            "DRYDOCK_GENERATE_TITLES": "false",
            "DRYDOCK_TOKEN": TOKEN,
            "DRYDOCK_LLM_MODEL": "openai/scripted",
            "DRYDOCK_LLM_BASE_URL": model.url,
            "DRYDOCK_LLM_API_KEY": "key",
        }
        server = await make_process("--sandbox", "local", environment=environment)
        door = {
            "command": sys.executable,
            "args": ["-m", "server", "mcp", "--url", server.url],
            "env": {"DRYDOCK_API_KEY": TOKEN, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        }
        calls: list[tuple[str, dict[str, Any]]] = [
            ("start_conversation", {"message": "What is 40 + 2?"}),
            ("wait_for_conversation", {"conversation_id": "$id", "wait_seconds": 60}),
            ("read_conversation", {"conversation_id": "$id"}),
            ("read_conversation", {"conversation_id": "nothing"}),
        ]
        found = await ask(program=door, calls=calls)
        assert found["server"]["name"] == "drydock"
        started, waited, read, refused = found["results"]
        ident = started["structuredContent"]["conversation_id"]
        assert waited["structuredContent"]["answer"] == "It says 42."
        assert waited["structuredContent"]["at_rest"] is True
        results = [one for one in read["structuredContent"]["entries"] if one["kind"] == "run result"]
        assert results[0]["text"].strip() == "from 42"
        assert refused["isError"] is True
        assert found["progress"], "each step is told"
        assert found["resources"] == [f"drydock://conversations/{ident}"]

        headers = {"X-Session-API-Key": TOKEN, "X-OpenHands-ServerConversation-ID": ident}
        pull = {"repo_name": "a/b", "source_branch": "x", "target_branch": "main", "title": "T", "body": "B"}
        found = await ask(url=f"{server.url}/mcp/mcp", headers=headers, calls=[("create_pr", pull)])
        assert {"create_pr", "create_mr", "create_bitbucket_pr"} <= set(found["tools"])
        (result,) = found["results"]
        assert result["isError"] is True
        assert result["content"][0]["text"].startswith("Git provider token required.")
