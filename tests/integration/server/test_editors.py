"""``drydock acp`` with a real server process and real sandboxes: commands, differences, files there and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from tests.contract.acp.conftest import Desk, FakeEditor, introduced, process_at
from tests.integration.server.conftest import MakeProcess

PATH = "/workspace/project/calc.py"


async def test_an_agent_works_on_a_copy_of_the_editors_folder_and_hands_it_back(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "calc.py").write_text("print(6 * 6)\n")
    (folder / "lib" / "ignored.log").write_text("noise")
    (folder / "lib" / "code.py").write_text("")
    (folder / ".gitignore").write_text("*.log\n")
    init = await asyncio.create_subprocess_exec("git", "init", "-q", cwd=folder)
    assert await init.wait() == 0
    turns = iter(
        [
            call("editor_copy_in", {"path": "."}, text="I fetch it."),
            call(
                "terminal",
                {"command": "cd /workspace/project && ls -A . lib; for i in 1 2 3; do echo $i; sleep 0.1; done"},
            ),
            call("file_editor", {"command": "str_replace", "path": PATH, "old_str": "6 * 6", "new_str": "6 * 7"}),
            call("terminal", {"command": "python3 calc.py; false"}),
            call("editor_copy_out", {"path": "project/calc.py", "to": "calc.py"}),
            finish("Mended."),
        ]
    )
    async with ModelServer(lambda request: next(turns)) as model:
        environment = {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "key-123456"}
        environment["DRYDOCK_GENERATE_TITLES"] = "false"
        server = await make_process("--sandbox", "local", environment=environment)
        desk = Desk(server.url, model, lambda request: next(turns), FakeEditor(), folder)
        async with process_at(desk):
            await introduced(desk)
            session = await desk.new()
            assert await desk.prompt(session.session_id, "Mend calc.py.") == "end_turn"
    editor = desk.editor
    assert editor.files == {str(folder / "calc.py"): "print(6 * 7)\n"}
    fetched, listed, edited, run, handed = editor.of("tool_call")
    assert [one.kind for one in (fetched, listed, edited, run, handed)] == [
        "read",
        "execute",
        "edit",
        "execute",
        "edit",
    ]
    ends = {one.tool_call_id: one for one in editor.of("tool_call_update")}
    names = ends[listed.tool_call_id].content[0].content.text
    assert "code.py" in names
    assert "ignored.log" not in names
    shown = [one.content[0].content.text for one in editor.of("tool_call_update") if one.status == "in_progress"]
    assert any("1" in text and "3" not in text for text in shown), "output is shown while the command runs"
    assert edited.locations[0].path == PATH
    (change,) = ends[edited.tool_call_id].content
    assert (change.type, change.path, change.old_text, change.new_text) == (
        "diff",
        PATH,
        "print(6 * 6)\n",
        "print(6 * 7)\n",
    )
    assert (ends[run.tool_call_id].status, ends[run.tool_call_id].raw_output) == ("failed", {"exit_code": 1})
    assert "42" in ends[run.tool_call_id].content[0].content.text
