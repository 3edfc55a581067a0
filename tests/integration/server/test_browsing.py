"""A browser in a server's conversation: the agent's and the user's are one, and everybody sees its pictures."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from tests.integration.server.conftest import Follower, MakeProcess, create, following

pytestmark = [pytest.mark.bubblewrap, pytest.mark.browser]

SITE = "localhost:8123"
SERVE = (
    "mkdir -p site && cd site && echo '<title>Quay</title><a href=/boat.html>Boat</a>' > index.html &&"
    " echo '<title>Boat</title><p>Afloat.</p>' > boat.html &&"
    f" (python3 -m http.server 8123 >/dev/null 2>&1 &) ; until curl -s {SITE} >/dev/null; do :; done"
)
PICTURE = "data:image/jpeg;base64,"


def tool_result(request: ModelRequest) -> str:
    return next((str(one["content"]) for one in reversed(request.messages) if one["role"] == "tool"), "")


def answer(request: ModelRequest) -> Turn:
    """Looks at the page that the user has opened, clicks what it finds there, and is done."""
    if not request.json.get("tools"):
        return say("A title")
    shown = tool_result(request)
    if not shown:
        return call("browser", {"code": "noop(0)", "security_risk": "LOW"})
    found = re.search(r'\[(\d+)\] link "Boat"', shown)
    if found is not None:
        return call("browser", {"code": f"click('{found.group(1)}')", "security_risk": "LOW"})
    return finish("Afloat." if "Afloat." in shown else shown)


def pages(follower: Follower) -> list[dict[str, Any]]:
    return [frame for frame in follower.frames if frame.get("observation") == "browse"]


async def test_the_user_opens_a_page_and_the_agent_goes_on_from_there(make_process: MakeProcess) -> None:
    async with ModelServer(answer) as model:
        environment = {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "key-123456"}
        server = await make_process("--sandbox", "local", environment=environment)
        conversation_id = await create(server)
        async with following(server, conversation_id) as follower:
            await follower.run(SERVE)
            await follower.until(lambda: follower.count(observation="run") == 1)
            await follower.send({"action": "browse", "args": {"url": SITE}})
            await follower.until(lambda: len(pages(follower)) == 1)
            await follower.send({"action": "message", "args": {"content": "What is the boat doing?"}})
            await follower.until(lambda: follower.count(action="finish") == 1)
        seen = [(page["source"], page["extras"]) for page in pages(follower)]
        assert [source for source, _ in seen] == ["user", "agent", "agent"]
        assert [extras["url"] for _, extras in seen] == [
            f"http://{SITE}/",
            f"http://{SITE}/",
            f"http://{SITE}/boat.html",
        ]
        assert all(extras["screenshot"].startswith("data:image/png;base64,/9j/") for _, extras in seen)
        assert all(extras["set_of_marks"].startswith(PICTURE) for _, extras in seen)
        done = next(frame for frame in follower.frames if frame.get("action") == "finish")
        assert done["args"]["final_thought"] == "Afloat."
        asked = [frame for frame in follower.frames if frame.get("action") in {"browse", "browse_interactive"}]
        assert [frame["action"] for frame in asked] == ["browse", "browse_interactive", "browse_interactive"]
        assert PICTURE in str(model.last_request.json["messages"])
        async with server.client() as client:
            exported = (await client.get(f"/api/conversations/{conversation_id}/trajectory")).json()["trajectory"]
        kept = [event["extras"] for event in exported if event.get("observation") == "browse"]
        assert len(kept) == 3
        assert all("screenshot" not in extras and "set_of_marks" not in extras for extras in kept)
