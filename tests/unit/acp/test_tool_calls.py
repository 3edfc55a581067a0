"""Actions and observations as the tool calls that editors show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drydock_client import Action, Observation
from drydock_client.events import read_event
from server.doors.acp import tool_calls
from server.doors.acp.tool_calls import call_ended, call_output, call_started, is_call

ENVELOPE = {"id": 7, "timestamp": "2026-01-01T00:00:00.000000Z", "source": "agent", "message": "Something."}


def action(kind: str, /, **args: Any) -> Action:
    found = read_event({**ENVELOPE, "action": kind, "args": args})
    assert isinstance(found, Action)
    return found


def observation(name: str, content: str = "", **extras: Any) -> Observation:
    found = read_event({**ENVELOPE, "id": 8, "cause": 7, "observation": name, "content": content, "extras": extras})
    assert isinstance(found, Observation)
    return found


@pytest.mark.parametrize(
    ("name", "args", "kind", "title"),
    [
        ("run", {"command": "ls -l"}, "execute", "`ls -l`"),
        ("run", {"command": "a\nb"}, "execute", "`a …`"),
        ("run", {"command": ""}, "execute", "run"),
        ("run", {"command": "x" * 500}, "execute", f"`{'x' * 200}…`"),
        ("run_ipython", {"code": "1 + 1"}, "execute", "Python: `1 + 1`"),
        ("read", {"path": "/a.py"}, "read", "Read /a.py"),
        ("edit", {"path": "/a.py"}, "edit", "Edit /a.py"),
        ("write", {"path": "/a.py"}, "edit", "Edit /a.py"),
        ("browse", {"url": "http://x"}, "fetch", "Open http://x"),
        ("browse_interactive", {"browser_actions": "click(1)"}, "fetch", "Browse: click(1)"),
        ("delegate", {"agent": "explorer"}, "other", "Ask explorer"),
        ("call_tool_mcp", {"name": "grep", "arguments": {"pattern": "x"}}, "search", "grep"),
        ("call_tool_mcp", {"name": "tickets", "arguments": 5}, "other", "tickets"),
        ("call_tool_mcp", {"name": "editor_read_file", "arguments": {"path": "/a"}}, "read", "editor_read_file /a"),
        ("of_a_newer_server", {}, "other", "Something."),
    ],
)
def test_every_action_has_a_kind_and_a_title(name: str, args: dict[str, Any], kind: str, title: str) -> None:
    begun = call_started(action(name, **args), "call-7")
    assert (begun.kind, begun.title, begun.status) == (kind, title, "in_progress")


def test_what_waits_to_be_allowed_is_pending() -> None:
    assert (
        call_started(action("run", command="ls", confirmation_state="awaiting_confirmation"), "c").status == "pending"
    )


def test_what_is_hidden_or_said_is_no_call() -> None:
    assert not is_call(action("run", command="ls", hidden=True))
    assert not is_call(action("message", content="Hi"))
    assert is_call(action("run", command="ls"))


def test_the_input_is_shown_without_what_only_the_protocol_needs() -> None:
    begun = call_started(
        action("run", command="ls", thought="Hm.", security_risk=1, confirmation_state="confirmed"), "c"
    )
    assert begun.raw_input == {"command": "ls"}


@pytest.mark.parametrize(
    ("args", "old", "new"),
    [
        ({"command": "create", "file_text": "new"}, None, "new"),
        ({"command": "str_replace", "old_str": "a", "new_str": "b"}, "a", "b"),
        ({"command": "str_replace", "old_str": "a", "new_str": None}, "a", ""),
        ({"command": "insert", "new_str": "b", "insert_line": 3}, "", "b"),
    ],
)
def test_a_change_is_shown_before_it_is_made(args: dict[str, Any], old: str | None, new: str) -> None:
    begun = call_started(action("edit", path="/a.py", **args), "c")
    assert begun.content is not None
    (change,) = begun.content
    assert (change.type, getattr(change, "old_text", 0), getattr(change, "new_text", 0)) == ("diff", old, new)
    assert begun.locations is not None
    assert (begun.locations[0].path, begun.locations[0].line) == ("/a.py", args.get("insert_line"))


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (observation("run", "x", metadata={"exit_code": 0}), "completed"),
        (observation("run", "x", metadata={"exit_code": 2}), "failed"),
        (observation("run", "still at it", metadata={"exit_code": -1}), "completed"),
        (observation("run", "x"), "completed"),
        (observation("edit", "ERROR:\nno such text"), "failed"),
        (observation("read", "text"), "completed"),
        (observation("browse", "page", error=True), "failed"),
        (observation("error", "not run"), "failed"),
        (observation("user_rejected", "no"), "failed"),
        (observation("mcp", json.dumps({"content": [{"type": "text", "text": "bad"}], "isError": True})), "failed"),
        (observation("mcp", json.dumps({"content": "odd"})), "completed"),
        (observation("mcp", "no JSON"), "completed"),
        (observation("of_a_newer_server", "x"), "completed"),
    ],
)
def test_a_result_says_whether_it_went_well(result: Observation, status: str) -> None:
    ended = call_ended(result, "call-7")
    assert ended.status == status
    assert ended.content, "there is something to read"


def test_a_changed_file_is_shown_as_it_was_and_as_it_is() -> None:
    ended = call_ended(observation("edit", "ok", path="/a", old_content="1", new_content="2", diff="-1\n+2"), "c")
    assert ended.content is not None
    assert [(one.type, getattr(one, "old_text", 0), getattr(one, "new_text", 0)) for one in ended.content] == [
        ("diff", "1", "2")
    ]


def test_a_change_that_is_too_long_or_of_several_files_is_shown_as_a_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    patch = observation("edit", "ok", path="/a, /b", old_content=None, new_content=None, diff="-1\n+2")
    monkeypatch.setattr(tool_calls, "MAX_DIFF", 3)
    long = observation("edit", "ok", path="/a", old_content="11", new_content="22", diff="-1\n+2")
    for result in (patch, long):
        content: Any = call_ended(result, "c").content
        assert [one.content.text for one in content] == ["```diff\n-1\n+2\n```"]


def test_pictures_are_pictures() -> None:
    shown = observation("read", "x", image_urls=["data:image/png;base64,QUJD"])
    page = observation("browse", "x", screenshot="data:image/png;base64,/9j/4AAQ")
    for result, data, kind in ((shown, "QUJD", "image/png"), (page, "/9j/4AAQ", "image/jpeg")):
        content = call_ended(result, "c").content
        assert content is not None
        block: Any = content[1]
        assert (block.content.type, block.content.data, block.content.mime_type) == ("image", data, kind)


def test_running_output_is_its_end_and_a_long_result_its_two_ends() -> None:
    content: Any = call_output("c", "a" * 10_000 + "b").content
    assert content[0].content.text.endswith("ab\n```")
    assert len(content[0].content.text) < 5_000
    result: Any = call_ended(observation("run", "a" * 50_000 + "b" * 50_000), "c").content
    assert "40000 characters are left out here" in result[0].content.text


def test_a_fence_is_longer_than_those_in_the_text() -> None:
    content: Any = call_output("c", "```\ncode\n```").content
    assert content[0].content.text == "````\n```\ncode\n```\n````"
