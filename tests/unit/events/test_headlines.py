"""`str` of an event: one readable line, whatever is in it."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core import Action, Event, Observation
from agent_core.events.branches import FilesRestored, Rewind
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ClientToolResult,
    Condensation,
    ConversationError,
    HookExecutionEvent,
    MetricsUpdated,
    PauseEvent,
    RecalledKnowledge,
    RecallObservation,
    ToolServerFailed,
)
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    MetricsSnapshot,
    ObservationEvent,
    SystemPromptEvent,
    TokenUsage,
    UserRejectObservation,
)
from agent_core.events.messages import ImageContent, Message, TextContent
from agent_core.events.plain_text import MAX_LINE_CHARS, first_line, one_line, plain_text
from agent_core.events.risk import SecurityRisk
from agent_core.mcp.tool import MCPToolAction
from agent_core.tools import TerminalAction
from agent_core.tools.file_editor import FileEditorAction, FileEditorObservation
from agent_core.tools.terminal import TerminalObservation

LONGEST = MAX_LINE_CHARS + len("[1234567] environment: ")


class SkyAction(Action):
    """An action whose class says nothing about its line."""

    where: str
    clouds: bool = False
    colours: tuple[str, ...] = ()


def call(action: Action | None, **fields: Any) -> ActionEvent:
    return ActionEvent(id=4, tool_name="terminal", action=action, **fields)


def result(observation: Observation) -> ObservationEvent:
    return ObservationEvent(id=5, source="environment", cause=4, tool_name="terminal", observation=observation)


def said(text: str, pictures: int = 0) -> Message:
    return Message.user(text, image_urls=["https://example.com/a.png"] * pictures)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (MessageEvent(id=2, source="user", llm_message=said("Make\nit  pass.")), "[2] user: Make it pass."),
        (MessageEvent(source="user", llm_message=said("Hello")), "user: Hello"),
        (MessageEvent(source="user", llm_message=said("Look", 2), sender="bob"), "user: (bob) Look [2 images]"),
        (MessageEvent(source="user", llm_message=said("")), "user: (no text)"),
        (call(TerminalAction(command="ls -la\npwd")), "[4] agent: terminal: $ ls -la pwd"),
        (call(TerminalAction(command="C-c", is_input=True)), "[4] agent: terminal: input 'C-c'"),
        (call(None), "[4] agent: terminal: (its arguments could not be read)"),
        (call(SkyAction(where="north")), "[4] agent: terminal: where='north'"),
        (call(SkyAction(where="north", clouds=True)), "[4] agent: terminal: where='north', clouds=True"),
        (call(MCPToolAction(data={"city": "Rome"})), "[4] agent: terminal: city='Rome'"),
        (
            call(FileEditorAction(command="view", path="/a.py", view_range=[3, 9])),
            "[4] agent: terminal: view /a.py lines 3-9",
        ),
        (
            call(FileEditorAction(command="view", path="/a.py", view_range=[3, -1])),
            "[4] agent: terminal: view /a.py lines 3-end",
        ),
        (
            call(TerminalAction(command="rm x"), security_risk=SecurityRisk.HIGH, awaits_confirmation=True),
            "[4] agent: terminal: $ rm x [risk HIGH] [waits for the user]",
        ),
        (result(Observation.from_text("one\n\ntwo\nthree")), "[5] environment: terminal -> one (+2 lines)"),
        (result(Observation.from_text("")), "[5] environment: terminal -> (nothing)"),
        (result(Observation.from_text("no", is_error=True)), "[5] environment: terminal -> failed: no"),
        (
            result(Observation(content=[ImageContent(image_urls=["data:,x"])])),
            "[5] environment: terminal -> (nothing) [1 image]",
        ),
        (
            result(TerminalObservation(content=[TextContent(text="bad\n")], exit_code=2)),
            "[5] environment: terminal -> exit 2: bad",
        ),
        (
            result(FileEditorObservation(path="/a.py", diff="--- /a.py\n+++ /a.py\n@@ -1 +1,2 @@\n-a\n+b\n+c\n")),
            "[5] environment: terminal -> /a.py: +2 -1 lines",
        ),
        (
            UserRejectObservation(id=6, source="user", cause=4, tool_name="terminal", rejection_reason="not that"),
            "[6] user: terminal refused: not that",
        ),
        (AgentErrorEvent(id=7, error="no such tool", tool_name="x"), "[7] agent: x failed: no such tool"),
        (
            AgentStateChanged(id=8, agent_state=AgentState.ERROR, reason="STATUS$ERROR"),
            "[8] environment: the agent is error: STATUS$ERROR",
        ),
        (
            AgentStateChanged(id=8, agent_state=AgentState.AWAITING_USER_INPUT),
            "[8] environment: the agent is awaiting user input",
        ),
        (PauseEvent(id=9), "[9] user: the agent shall be paused"),
        (
            SystemPromptEvent(
                id=0, system_prompt=TextContent(text="You …"), tools=[{"function": {"name": "finish"}}, {"name": "x"}]
            ),
            "[0] agent: system prompt of Agent; 2 tools: finish, x",
        ),
        (
            RecallObservation(
                id=3,
                cause=2,
                recall_type="knowledge",
                microagent_knowledge=[RecalledKnowledge(name="git", trigger="git", content="…")],
            ),
            "[3] environment: recalled: git",
        ),
        (
            Condensation(id=3, forgotten_event_ids=[1, 2], summary="It began."),
            "[3] agent: 2 events are no longer shown to the model, summed up as: It began.",
        ),
        (
            MetricsUpdated(
                id=3,
                metrics=MetricsSnapshot(accumulated_cost=0.5, usage=TokenUsage(prompt_tokens=10, completion_tokens=5)),
            ),
            "[3] environment: 10 tokens read, 5 written, 0.5000 US dollars so far",
        ),
        (
            HookExecutionEvent(
                id=3, hook_event_type="PreToolUse", hook_command="check.sh", success=False, blocked=True, reason="no"
            ),
            "[3] hook: hook PreToolUse blocked: check.sh (no)",
        ),
        (ConversationError(id=3, code="Boom", detail="it broke"), "[3] environment: Boom: it broke"),
        (ToolServerFailed(id=3, server="time", detail="gone"), "[3] environment: MCP server time failed: gone"),
        (
            ClientToolResult(id=3, content=[TextContent(text="42")], cause=2),
            "[3] user: the client's tool answered: 42",
        ),
        (Rewind(id=3, to=1), "[3] user: goes on behind [1]"),
        (FilesRestored(id=4, cause=3, files_of=1), "[4] user: files are those of [1]"),
    ],
)
def test_an_event_is_one_line_with_its_place_and_whose_it_is(event: Event, line: str) -> None:
    assert str(event) == line


def test_every_kind_of_event_has_a_line_of_its_own() -> None:
    without = {kind for kind, cls in Event.kinds.items() if cls.headline is Event.headline and kind != "Event"}
    assert not {kind for kind in without if Event.kinds[kind].__module__.startswith("agent_core.")}


TEXTS = st.text(st.characters(codec="utf-8"), max_size=400) | st.sampled_from(
    ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07x", "\x9b2Jgone", "a\rb", "line\u2028line", "\u202eright", "\x00", "\x1b"]
)


@given(TEXTS)
def test_whatever_is_said_stays_in_one_line_and_moves_no_cursor(text: str) -> None:
    events: list[Event] = [
        MessageEvent(id=1, source="user", llm_message=said(text)),
        call(TerminalAction(command=text)),
        result(Observation.from_text(text)),
        AgentErrorEvent(id=7, error=text),
    ]
    for event in events:
        line = str(event)
        assert len(line) <= LONGEST
        assert not [char for char in line if unicodedata.category(char) in ("Cc", "Zl", "Zp") or char == "\u202e"]


@given(st.text(alphabet="ab \t\n\x1b[m0;", max_size=60))
def test_text_without_escapes_is_left_as_it_is(text: str) -> None:
    plain = plain_text(text)
    assert "\x1b" not in plain
    if "\x1b" not in text:
        assert plain == text


def test_a_long_line_is_cut_at_its_end_and_a_long_text_at_its_first_line() -> None:
    assert one_line("x" * 500, 10) == "xxxxxxxxx…"
    assert first_line("x" * 500 + "\ny", 20).endswith("… (+1 line)")
    assert len(first_line("x" * 500 + "\ny", 20)) == 20
    assert first_line("\n\n \n") == "(nothing)"


def test_a_result_of_many_megabytes_is_summed_up_at_once() -> None:
    assert str(result(Observation.from_text("line\n" * 2_000_000))).startswith("[5] environment: terminal -> line (+")
