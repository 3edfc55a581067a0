"""Editing on a server: drafts that a model writes out, before and after a kill -9, and how clients see edits."""

from __future__ import annotations

import base64

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from agent_core.testing.sandbox_contract import eventually
from tests.integration.server.conftest import Follower, MakeProcess, create, following
from tests.unit.runner.test_pictures import png

pytestmark = pytest.mark.bubblewrap

DRAFT = {"path": "/workspace/a.py", "content": "x = 2", "start": 1, "end": 1, "security_risk": "LOW"}
MAKE = f"printf 'x = 1\\ny = 1\\n' > a.py; echo {base64.b64encode(png()).decode()} | base64 -d > a.png"


def finished(follower: Follower) -> bool:
    return any(frame.get("extras", {}).get("agent_state") == "finished" for frame in follower.frames)


async def test_a_drafted_edit_outlives_a_kill_while_the_model_writes_it_out_and_is_made_once(
    make_process: MakeProcess,
) -> None:
    script = [call("terminal", {"command": MAKE, "security_risk": "LOW"}), call("edit_file", DRAFT), finish("done")]
    drafts = [say("").then("hang"), say("<updated_code>\nx = 2\n</updated_code>")]

    def answer(request: ModelRequest) -> Turn:
        if request.json.get("tools"):
            return script.pop(0)
        if "<draft>" not in request.content.decode():
            return Turn(text="A title")
        assert request.json["model"] == "drafter"
        return drafts.pop(0)

    async with ModelServer(answer) as model:
        environment = {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "key-123456"}
        server = await make_process("--sandbox", "local", environment=environment)
        drafter = {"enable_llm_editor": True, "draft_editor_model": "openai/drafter"}
        options = {**drafter, "enable_browsing": False, "enable_jupyter": False}
        conversation_id = await create(server, initial_user_msg="Edit it.", agent_options=options)
        async with following(server, conversation_id) as follower:
            await eventually(lambda: len(drafts) == 1, limit=60)
            assert not finished(follower)
        await server.kill()
        await server.start()
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: finished(follower))
            await follower.send({"action": "read", "args": {"path": "/workspace/a.png"}})
            for content in ("first", "second"):
                await follower.send({"action": "write", "args": {"path": "notes/b", "content": content}})
            await follower.send({"action": "write", "args": {"path": "a.py/b", "content": "x"}})
            await follower.send({"action": "read", "args": {"path": "/workspace/notes/b", "impl_source": "oh_aci"}})
            await follower.send({"action": "run", "args": {"command": "cd notes && printf 'a\\0' > bytes"}})
            await follower.until(lambda: follower.count(observation="run") == 2)
            for given in ({"path": "b"}, {"path": "../a.py", "start": 1, "end": 2}, {"path": "."}, {"path": "bytes"}):
                await follower.send({"action": "read", "args": given})
            await follower.send({"action": "run", "args": {"command": "cd .."}})
            await follower.until(lambda: follower.count(observation="read") == 4)
            whole = {"command": "pwd; seq 20000; kept=1", "is_static": True, "cwd": "/workspace/notes", "hidden": True}
            for given in (whole, {"command": "echo ${kept-none}; pwd; seq 20000"}):
                await follower.send({"action": "run", "args": given})
            await follower.until(lambda: follower.count(observation="run") == 5)
        runs = [frame for frame in follower.frames if frame.get("observation") == "run"]
        static = next(frame for frame in runs if frame["extras"]["hidden"])
        assert static["content"] == "/workspace/notes\n" + "".join(f"{number}\n" for number in range(1, 20001))
        kept = next(frame for frame in runs if frame["content"].startswith("none"))
        assert kept["content"].startswith("none\n/workspace\n1\n")
        assert len(kept["content"]) <= 30_000
        started = next(frame for frame in follower.frames if frame.get("args", {}).get("is_static"))
        assert (started["args"]["cwd"], started["args"]["hidden"]) == ("/workspace/notes", True)
        asked = next(frame for frame in follower.frames if frame.get("action") == "edit")
        assert (asked["args"]["impl_source"], asked["args"]["content"]) == ("llm_based_edit", "x = 2")
        (seen,) = [frame for frame in follower.frames if frame.get("observation") == "edit"]
        assert seen["extras"]["impl_source"] == "llm_based_edit"
        assert (seen["extras"]["old_content"], seen["extras"]["new_content"]) == ("x = 1\ny = 1\n", "x = 2\ny = 1\n")
        assert "-x = 1\n+x = 2\n" in seen["extras"]["diff"]
        assert follower.count(action="write", source="user") == 3
        assert follower.count(observation="write", source="user") == 2
        refused, folder, binary = [frame["content"] for frame in follower.frames if frame.get("observation") == "error"]
        assert "not a directory" in refused
        assert folder == "/workspace/notes/. is a directory, not a file"
        assert binary.startswith("ERROR_BINARY_FILE: /workspace/notes/bytes ")
        image, viewed, *exact = [frame for frame in follower.frames if frame.get("observation") == "read"]
        assert image["content"] == f"data:image/png;base64,{base64.b64encode(png()).decode()}"
        assert image["extras"] == {"path": "/workspace/a.png", "impl_source": "default"}
        assert viewed["content"].endswith("     1\tsecond\n")
        assert [(frame["content"], frame["extras"]["path"]) for frame in exact] == [
            ("second", "/workspace/notes/b"),
            ("y = 1\n", "/workspace/notes/../a.py"),
        ]
