"""Tools that answer with far too much, and kinds of processes without an end, cost the server and others little.

``FLOODS=1 pytest --log-cli-level=INFO tests/integration/server/test_floods.py``; they take minutes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from tests.integration.server.conftest import Follower, MakeProcess, create, following
from tests.integration.server.test_host import LIMITS, SERVER_GROWS, measured, resident

logger = logging.getLogger(__name__)

IS_WHOLE = bool(os.environ.get("FLOODS"))
SIZE = 10**9
STEP_SECONDS = 15.0

PROGRAM = """
import json, os, sys
SIZE = int(sys.argv[1])
def say(piece):
    for _ in range(SIZE // len(piece)):
        os.write(1, piece)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    name = asked.get("params", {}).get("name", "")
    if asked["method"] == "tools/call":
        if name == "one_line":
            say(b"x" * 65536)
        if name == "lines":
            say((b"x" * 99 + b"\\n") * 600)
        if name == "messages":
            say((json.dumps({"jsonrpc": "2.0", "method": "notifications/message",
                             "params": {"level": "info", "data": "x" * 99}}) + "\\n").encode() * 300)
        if name == "errors":
            for _ in range(SIZE // 65536):
                os.write(2, b"x" * 65536)
    text = "x" * (15_000_000 if name == "large" else 1)
    result = {
        "initialize": {"protocolVersion": asked.get("params", {}).get("protocolVersion"), "capabilities": {"tools": {}},
                       "serverInfo": {"name": "flood", "version": "1"}},
        "tools/list": {"tools": [{"name": one, "inputSchema": {"type": "object"}}
                                 for one in ("one_line", "lines", "messages", "errors", "large")]},
        "tools/call": {"content": [{"type": "text", "text": text}]},
    }.get(asked["method"], {})
    os.write(1, (json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + "\\n").encode())
"""
TOOLS = ("large", "errors", "messages", "lines", "one_line")
CELLS = {
    "lines": f"for _ in range({SIZE} // 100_000): print('x' * 99 + '\\n', end='') or print(('x' * 99 + '\\n') * 999)",
    "one line": f"import sys\nfor _ in range({SIZE} // 100_000): sys.stdout.write('x' * 100_000)",
    "result": f"'x' * ({SIZE} // 10)",
    "pictures": f"from IPython.display import Image, display\nfor _ in range(50): display(Image(bytes({SIZE} // 100)))",
    "displays": f"from IPython.display import display\nfor n in range({SIZE} // 100_000): display(n)",
    "standard error": f"import os\nfor _ in range({SIZE} // 100_000): os.write(2, b'x' * 100_000)",
}
PAGES = {
    "much text": f"document.write('<p>' + 'x '.repeat({SIZE // 100}) + '</p>')",
    "many elements": f"for (let n = 0; n < {SIZE // 10000}; n++) document.body.append(document.createElement('a'))",
    "a long address": "location.hash = 'x'.repeat(1e6)",
    "no end": "for (;;);",
    "dialogs": "for (let n = 0; n < 1000; n++) alert('x'.repeat(1e5))",
    "windows": "for (let n = 0; n < 300; n++) window.open('about:blank')",
    "the console": f"for (let n = 0; n < {SIZE // 10000}; n++) console.log('x'.repeat(1000))",
    "memory": "let kept = []; for (;;) kept.push(new Uint8Array(1e7).fill(1))",
}


def answer(request: ModelRequest) -> Turn:
    """Calls one tool after the other."""
    if not request.json.get("tools"):
        return say("A title")
    done = sum(one["role"] == "tool" for one in request.messages)
    return call(TOOLS[done], {}) if done < len(TOOLS) else finish("Done.")


@pytest.mark.bubblewrap
@pytest.mark.timeout(900)
@pytest.mark.skipif(not IS_WHOLE, reason="FLOODS=1 asks for it: it takes most of a minute, also at a small size")
async def test_programs_of_tools_that_write_too_much_cost_the_server_little(make_process: MakeProcess) -> None:
    async with ModelServer(answer) as model:
        server = await make_process("--sandbox", "local", environment=LIMITS)
        async with server.client() as client:
            flood = {"name": "flood", "command": "python3", "args": ["-c", PROGRAM, str(SIZE)]}
            settings = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "k"}
            await client.post("/api/settings", json={**settings, "mcp_config": {"stdio_servers": [flood]}})
        one, two = await create(server), await create(server)
        async with following(server, one) as greedy, following(server, two) as other:
            await other.run("echo begun")
            await other.until(lambda: other.count(observation="run") == 1)
            before = resident(server.pid)
            async with measured(server, other) as delays:
                await greedy.send({"action": "message", "args": {"content": "Go."}})
                async with asyncio.timeout(800):
                    while greedy.count(action="finish") == 0:  # noqa: ASYNC110 - `until` is more impatient
                        await asyncio.sleep(0.1)
            said = [frame for frame in greedy.frames if frame.get("observation") in ("mcp", "error")]
            grown = resident(server.pid) - before
            logger.info("tools: %s; server %+d KiB; %s", delays, grown, [str(one.get("content"))[:200] for one in said])
            assert len(said) == len(TOOLS)
            assert grown < SERVER_GROWS
            assert max(delays.steps, default=0) < STEP_SECONDS


@pytest.mark.bubblewrap
@pytest.mark.timeout(900)
@pytest.mark.skipif(not IS_WHOLE, reason="FLOODS=1 asks for it: the kernel's start takes longer than all else")
async def test_cells_that_print_too_much_cost_the_server_little(make_process: MakeProcess) -> None:
    await _floods(make_process, "run_ipython", [(name, {"code": code}) for name, code in CELLS.items()])


@pytest.mark.bubblewrap
@pytest.mark.browser
@pytest.mark.timeout(900)
@pytest.mark.skipif(not IS_WHOLE, reason="FLOODS=1 asks for it")
async def test_pages_that_are_too_much_cost_the_server_little(make_process: MakeProcess, tmp_path: Path) -> None:
    calls = []
    for number, (name, script) in enumerate(PAGES.items()):
        page = f"<title>{name}</title><body><script>{script}</script>"
        calls.append((name, {"url": f"localhost:8123/{number}.html", "page": page}))
    files = {f"{number}.html": args.pop("page") for number, (_, args) in enumerate(calls)}
    begin = (
        "mkdir -p site && cd site && python3 - <<'END'\\nimport json\\n"
        f"for name, page in json.loads({json.dumps(json.dumps(files))}).items(): open(name, 'w').write(page)\\nEND\\n"
        "(python3 -m http.server 8123 >/dev/null 2>&1 &) ; until curl -s localhost:8123 >/dev/null; do :; done"
    ).replace("\\n", "\n")
    await _floods(make_process, "browse", calls, begin=begin, more={"DRYDOCK_SANDBOX_MEMORY_MB": "1024"})


async def _floods(
    make_process: MakeProcess,
    action: str,
    calls: list[tuple[str, dict[str, Any]]],
    *,
    begin: str = "true",
    more: dict[str, str] | None = None,
) -> None:
    limits = {**LIMITS, "DRYDOCK_SANDBOX_MEMORY_MB": "512", "DRYDOCK_SANDBOX_PROCESSES": "300", **(more or {})}
    server = await make_process("--sandbox", "local", environment=limits)
    one, two = await create(server), await create(server)
    async with following(server, one) as greedy, following(server, two) as other:
        for follower, command in ((greedy, begin), (other, "echo begun")):
            await follower.run(command)
            await follower.until(lambda follower=follower: follower.count(observation="run") == 1)  # type: ignore[misc]
        before = resident(server.pid)
        for name, arguments in calls:
            before_it = len(_answers(greedy, action))
            async with measured(server, other) as delays:
                await greedy.send({"action": action, "args": arguments})
                async with asyncio.timeout(400):
                    while len(_answers(greedy, action)) == before_it:  # noqa: ASYNC110 - `until` is more impatient
                        await asyncio.sleep(0.1)
            last = str(_answers(greedy, action)[-1].get("content"))[:150]
            grown = resident(server.pid) - before
            logger.info("%s, %s: %s; server %+d KiB; %s", action, name, delays, grown, last)
            assert grown < SERVER_GROWS, name
            assert max(delays.steps, default=0) < STEP_SECONDS, name


def _answers(follower: Follower, action: str) -> list[dict[str, Any]]:
    return [frame for frame in follower.frames if frame.get("observation") in (action, "error")]
