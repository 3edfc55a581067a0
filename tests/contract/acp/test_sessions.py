"""Sessions of an editor: new, loaded, listed and gone, through the protocol's own client library."""

from __future__ import annotations

from typing import Any

import pytest
from acp import RequestError, image_block, resource_block, resource_link_block, text_block
from acp.helpers import embedded_text_resource

from agent_core.testing.model_turns import call, finish, say
from drydock_client import DrydockClient
from server.doors.acp import editor_files
from tests.contract.acp.conftest import TOKEN, Desk, connection_to, introduced

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_a_loaded_session_shows_its_history_and_goes_on(bare_desk: Desk) -> None:
    turns = iter([call("terminal", {"command": "ls"}, text="I look."), finish("Nothing."), say("And again.")])
    bare_desk.answer = lambda request: next(turns)
    async with connection_to(bare_desk):
        await introduced(bare_desk)
        session = await bare_desk.new()
        assert await bare_desk.prompt(session.session_id, "What is there?") == "end_turn"
    seen, bare_desk.editor.updates = bare_desk.editor.updates, []
    async with connection_to(bare_desk):
        await introduced(bare_desk)
        folder = str(bare_desk.folder)
        await bare_desk.limited(bare_desk.conn.load_session(session_id=session.session_id, cwd=folder, mcp_servers=[]))
        editor = bare_desk.editor
        assert editor.said("user_message_chunk") == "What is there?"
        assert editor.said() == "I look.Nothing."
        ids = [update.tool_call_id for _, update in seen if update.session_update == "tool_call"]
        assert [one.tool_call_id for one in editor.of("tool_call")] == ids
        assert editor.of("tool_call_update")[-1].status == "completed"
        assert await bare_desk.prompt(session.session_id, "And now?") == "end_turn"
        assert editor.said() == "I look.Nothing.And again."
        listed = await bare_desk.limited(bare_desk.conn.list_sessions(cwd=folder))
        assert [(one.session_id, one.cwd) for one in listed.sessions] == [(session.session_id, folder)]


async def test_what_others_say_in_the_conversation_is_shown_too(desk: Desk) -> None:
    session = await desk.new()
    async with DrydockClient(desk.url, TOKEN) as client:
        await client.send(session.session_id, "From the page.")
    await desk.editor.until(lambda: desk.editor.said() == "Hello.")
    assert desk.editor.said("user_message_chunk") == "From the page."


async def test_images_links_and_embedded_files_reach_the_model(desk: Desk) -> None:
    session = await desk.new()
    prompt: list[Any] = [
        text_block("Compare"),
        resource_link_block("a.py", "file:///project/a.py"),
        resource_block(embedded_text_resource("file:///project/b.py", "print('```')")),
        image_block(PIXEL, "image/png"),
    ]
    answer = await desk.limited(desk.conn.prompt(session_id=session.session_id, prompt=prompt))
    assert answer.stop_reason == "end_turn"
    said = str(desk.model.last_request.messages)
    assert "Compare <file:///project/a.py>" in said
    assert "print(" in said
    assert "file:///project/b.py" in said
    assert f"data:image/png;base64,{PIXEL}" in said


async def test_the_editors_files_are_tools_of_the_agent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor_files, "MAX_CHARS", 13)
    (desk.folder / "a.py").write_text("saved")
    path, outside = str(desk.folder / "a.py"), str(desk.folder.parent / "secret")
    desk.editor.files[path] = "not saved yet, and more than is read at once"
    turns = iter(
        [
            call("editor_list_files", {}),
            call("editor_read_file", {"path": "a.py"}),
            call("editor_read_file", {"path": outside}),
            call("editor_write_file", {"path": path, "content": "better"}),
            call("editor_copy_out", {"path": "none.py", "to": "b.py"}),
            finish("Done."),
        ]
    )
    desk.answer = lambda request: next(turns)
    session = await desk.new()
    assert await desk.prompt(session.session_id, "Mend a.py.") == "end_turn"
    assert desk.editor.files == {path: "better"}
    said = str(desk.model.last_request.messages)
    assert "not saved yet\\n[Cut after 13 characters" in said
    assert "is outside of the user's folder" in said
    assert str(desk.folder) in said
    assert [one.kind for one in desk.editor.of("tool_call")] == ["search", "read", "read", "edit", "edit"]
    ends = [one.status for one in desk.editor.of("tool_call_update") if one.status != "in_progress"]
    assert ends == ["completed", "completed", "failed", "completed", "failed"]


async def test_a_conversation_from_elsewhere_gets_the_editors_tools_and_keeps_its_own(desk: Desk) -> None:
    own = {"name": "doorbell", "description": "Ring.", "parameters": {"type": "object", "properties": {}}}
    async with DrydockClient(desk.url, TOKEN) as client:
        made = await client.create_conversation(options={"client_tools": [own]})
        folder = str(desk.folder)
        for _ in range(2):
            await desk.limited(desk.conn.load_session(session_id=made.id, cwd=folder, mcp_servers=[]))
        names = [tool["name"] for tool in await client.client_tools(made.id)]
    assert names == [
        "doorbell",
        *("editor_list_files", "editor_read_file", "editor_copy_in", "editor_write_file", "editor_copy_out"),
    ]


async def test_a_plan_is_shown_as_it_changes(desk: Desk) -> None:
    tasks = [{"title": "Look", "status": "done", "notes": ""}, {"title": "Mend", "status": "in_progress", "notes": ""}]
    turns = iter([call("task_tracker", {"command": "plan", "task_list": tasks}), finish("Done.")])
    desk.answer = lambda request: next(turns)
    session = await desk.new()
    assert await desk.prompt(session.session_id, "Plan.") == "end_turn"
    (plan,) = desk.editor.of("plan")
    assert [(one.content, one.status) for one in plan.entries] == [("Look", "completed"), ("Mend", "in_progress")]


async def test_a_closed_session_can_be_resumed_and_an_unknown_one_cannot(desk: Desk) -> None:
    first = await desk.new()
    await desk.conn.close_session(session_id=first.session_id)
    with pytest.raises(RequestError, match="is not open; call session/new or session/load"):
        await desk.prompt(first.session_id, "Hello?")
    await desk.limited(desk.conn.resume_session(session_id=first.session_id, cwd=str(desk.folder), mcp_servers=[]))
    assert await desk.prompt(first.session_id, "Hello?") == "end_turn"
    with pytest.raises(RequestError, match="sessionId: there is no conversation 'unknown'"):
        await desk.limited(desk.conn.load_session(session_id="unknown", cwd=str(desk.folder), mcp_servers=[]))


async def test_commands_of_the_editors_user_are_carried_out_at_once(desk: Desk) -> None:
    session = await desk.new()
    await desk.editor.until(lambda: bool(desk.editor.of("available_commands_update")))
    names = [one.name for one in desk.editor.of("available_commands_update")[0].available_commands]
    assert names == ["changes", "diff", "fetch", "send", "title"]
    assert await desk.prompt(session.session_id, "/title Better") == "end_turn"
    assert desk.editor.said() == "The title is now “Better”."
    assert await desk.prompt(session.session_id, "/fetch") == "end_turn"
    assert "path of the file" in desk.editor.said()
    assert not desk.model.requests
    await desk.editor.until(lambda: bool(desk.editor.of("session_info_update")))
    assert desk.editor.of("session_info_update")[-1].title == "Better"
