"""Events as lines for people: what is seen of each, and that nobody's text moves a cursor."""

from __future__ import annotations

from typing import Any

import pytest

from drydock_client import State
from drydock_client.events import Live, read_event, read_frame
from server.cli.event_view import MAX_LINES, EventView

WAITS = "awaiting_confirmation"
WHEN = "2026-11-29T10:00:00.000000Z"


def action(kind: str, source: str = "agent", **args: Any) -> Live:
    return read_event({"id": 1, "timestamp": WHEN, "source": source, "action": kind, "args": args})


def observation(kind: str, content: str = "", **extras: Any) -> Live:
    facts = {"id": 2, "timestamp": WHEN, "source": "agent", "observation": kind, "content": content, "extras": extras}
    return read_event(facts)


def state(name: str, reason: str = "", **extras: Any) -> Live:
    return observation("agent_state_changed", agent_state=name, reason=reason, **extras)


def status(kind: str, message: str) -> Live:
    return read_frame("oh_event", {"status_update": True, "type": kind, "id": "S", "message": message})


def plain(item: Live) -> list[str]:
    return EventView(colour=False).lines(item)


@pytest.mark.parametrize(
    ("item", "lines"),
    [
        (action("message", "user", content="Mend it.\nPlease."), ["you  Mend it.", "  Please."]),
        (action("run", command="ls\npwd", thought="Look."), ["agent  Look.", "$ ls", "  pwd"]),
        (action("run", command="y", is_input=True), ["input y"]),
        (
            action("run", command="rm x", confirmation_state=WAITS, security_risk=2),
            ["asks (high risk)", "$ rm x"],
        ),
        (action("run", command="rm x", confirmation_state="rejected"), ["refused", "$ rm x"]),
        (action("edit", path="/a/b.py"), ["edits /a/b.py"]),
        (action("call_tool_mcp", name="grep", arguments={"pattern": "x"}), ['calls grep {"pattern": "x"}']),
        (action("finish", final_thought="All green."), ["agent  All green."]),
        (action("task_tracking", task_list=[{"title": "One", "status": "done"}, 7]), ["tasks", "  [x] One"]),
        (action("of_a_newer_server"), ["of_a_newer_server"]),
        (action("system", content="You are"), []),
        (action("run", command="ls", hidden=True), []),
        (observation("run", "one\n", metadata={"exit_code": 2}), ["  one", "  exit 2"]),
        (observation("edit", "done", diff="--- a\n+++ b\n@@\n-x\n+y"), ["  @@", "  -x", "  +y"]),
        (observation("error", "no such tool"), ["problem  no such tool"]),
        (state("running"), []),
        (state("finished"), ["the agent is finished"]),
        (
            state("error", "X", detail="Why."),
            ["the agent failed:  Why."],
        ),
        (state("of_tomorrow"), ["the agent is of tomorrow"]),
        (
            status("error", "Bad."),
            ["problem  Bad."],
        ),
        (status("info", "Fine."), []),
        (read_frame("oh_new", {}), []),
    ],
)
def test_what_is_seen_of_an_event(item: Live, lines: list[str]) -> None:
    assert plain(item) == lines


EVIL = "a\x1b[2J\x1b]0;title\x07\x9b31m\rb\u202ec\x00"


@pytest.mark.parametrize(
    "item",
    [
        action("message", "user", content=EVIL, image_urls=["x"]),
        action("run", command=EVIL, thought=EVIL),
        action("run_ipython", code=EVIL),
        action("browse", url=EVIL),
        action("call_tool_mcp", name=EVIL, arguments={EVIL: EVIL}),
        action("delegate", agent=EVIL),
        action("task_tracking", task_list=[{"title": EVIL, "status": EVIL}]),
        action("reject", outputs={EVIL: EVIL}),
        read_event({"id": 1, "timestamp": WHEN, "source": "agent", "action": EVIL, "message": EVIL}),
        observation("run", EVIL),
        observation("edit", EVIL, diff=EVIL),
        observation("error", EVIL),
        State(state=EVIL, reason=EVIL),
        read_frame("oh_event", {"status_update": True, "type": "error", "message": EVIL}),
    ],
    ids=lambda item: type(item).__name__,
)
def test_nothing_that_moves_a_cursor_is_shown(item: Live) -> None:
    lines = plain(item)
    assert lines
    assert not [line for line in lines if not line.isprintable()]
    coloured = "".join(EventView(colour=True, full=True).lines(item))
    for code in ("31", "33", "1;34", "36", "1;32", "1", "2", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured.isprintable()


def test_long_results_are_shortened_unless_they_are_wanted_whole() -> None:
    item = observation("run", "\n".join(str(number) for number in range(100)))
    shown = plain(item)
    assert len(shown) == MAX_LINES + 1
    assert (shown[0], shown[5], shown[-1]) == ("  0", "  … 90 more lines …", "  99")
    assert len(EventView(colour=False, full=True).lines(item)) == 100
    (line,) = plain(observation("run", "x" * 100_000))
    assert len(line) < 5_000
