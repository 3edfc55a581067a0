"""Cells in a server's conversation: the user's and the agent's are of one kernel, and everybody sees its pictures."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from tests.integration.server.conftest import Follower, MakeProcess, create, following

pytestmark = [pytest.mark.bubblewrap]

POINT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = f"data:image/png;base64,{POINT}"
PLOT = f"from IPython.display import Image, display; import base64; display(Image(base64.b64decode('{POINT}')))\nx + 1"


def answer(request: ModelRequest) -> Turn:
    """Goes on from the user's variable, shows a picture, and is done."""
    if not request.json.get("tools"):
        return say("A title")
    shown = next((str(one["content"]) for one in reversed(request.messages) if one["role"] == "tool"), "")
    if "Image object" not in shown:
        return call("execute_ipython_cell", {"code": PLOT, "security_risk": "LOW"})
    return finish("42" if "\n42\n" in shown or "\\n42\\n" in shown else shown)


def cells(follower: Follower, kind: str) -> list[dict[str, Any]]:
    return [frame for frame in follower.frames if frame.get(kind) == "run_ipython"]


async def run_cell(follower: Follower, code: str, **more: Any) -> None:
    await follower.send({"action": "run_ipython", "args": {"code": code}, **more})


async def test_a_user_and_the_agent_share_a_kernel_that_stops_when_told_and_outlives_the_server(
    make_process: MakeProcess,
) -> None:
    async with ModelServer(answer) as model:
        environment = {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "key-123456"}
        server = await make_process("--sandbox", "local", environment=environment)
        conversation_id = await create(server)
        async with following(server, conversation_id) as follower:
            await run_cell(follower, "x = 41")
            await follower.until(lambda: len(cells(follower, "observation")) == 1)
            await follower.send({"action": "message", "args": {"content": "And one more?"}})
            await follower.until(lambda: follower.count(action="finish") == 1)

            results = cells(follower, "observation")
            assert results[0]["content"].startswith("[Code executed successfully with no output]\n[Jupyter current")
            assert [one["extras"]["image_urls"] for one in results] == [None, [PICTURE]]
            assert [one["success"] for one in results] == [True, True]
            done = next(frame for frame in follower.frames if frame.get("action") == "finish")
            assert done["args"]["final_thought"] == "42"
            assert PICTURE in str(model.last_request.json["messages"])

            await run_cell(follower, "import time\nfor second in range(99): print('tick'); time.sleep(1)")
            await follower.until(lambda: "tick" in "".join(str(delta.get("text")) for delta in follower.deltas))
            await follower.send({"action": "change_agent_state", "args": {"agent_state": "stopped"}})
            await follower.until(lambda: follower.count(observation="error") == 1)
            stopped = next(frame for frame in follower.frames if frame.get("observation") == "error")
            assert stopped["content"].startswith("Stopped by the user while it ran. Its output until then:\ntick")
            await run_cell(follower, "print('later'); time.sleep(2); x, 'the kernel is the same'")
            # Live, the end of what was printed is held back as long as it may be the beginning of a secret's base64.
            await follower.until(lambda: any("late" in str(delta.get("text")) for delta in follower.deltas))
        await server.kill()
        await server.start()
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: len(cells(follower, "observation")) == 3)
            assert "(41, 'the kernel is the same')" in cells(follower, "observation")[-1]["content"]
