"""A run shows itself on the console: coloured on a terminal, in plain lines elsewhere, and not at all on request."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_core import Conversation
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message, TextContent
from agent_core.events.schema import Observation
from agent_core.library.console import MAX_LINES, ConsoleView
from agent_core.tools import TerminalAction
from tests.unit.library.playing import DONE, Script, agent, conversation, run

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from tests.unit.library.playing import DONE, Script, agent, conversation, run
with conversation(agent(Script(run("make"), DONE)){arguments}) as one:
    one.send_message("Build it.")
    one.run()
print("over")
"""
ROOT = str(Path(__file__).parents[3])


class Narrow(io.TextIOWrapper):
    """A stream of an old terminal, which takes ASCII only."""

    def __init__(self) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="ascii", errors="strict")


def shown(view: ConsoleView, *events: object) -> None:
    for event in events:
        view.on_event(event)  # type: ignore[arg-type] # all are events


def message(text: str, source: str = "agent") -> MessageEvent:
    return MessageEvent(id=1, source=source, llm_message=Message(role="assistant", content=[TextContent(text=text)]))


def call(command: str) -> ActionEvent:
    return ActionEvent(id=2, tool_name="terminal", action=TerminalAction(command=command))


def result(text: str, **fields: bool) -> ObservationEvent:
    return ObservationEvent(id=3, cause=2, tool_name="terminal", observation=Observation.from_text(text, **fields))


def state(agent_state: AgentState, reason: str = "") -> AgentStateChanged:
    return AgentStateChanged(id=4, agent_state=agent_state, reason=reason)


def test_a_run_is_shown_in_lines_by_default_and_what_is_said_whole(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ("", [("finish", '{"message": "First.\\n\\nSecond."}')])
    with conversation(agent(Script(run("make"), answer))) as one:
        one.send_message("Build it.")
        one.run()
    lines = capsys.readouterr().out.splitlines()
    assert "[2] user: Build it." in lines
    assert any(line.endswith("agent: terminal: $ make") for line in lines)
    said = next(index for index, line in enumerate(lines) if line.endswith("agent: First."))
    assert lines[said + 1 : said + 3] == ["", "    Second."]
    assert lines[-1].endswith("environment: the agent is finished")
    assert not [line for line in lines if "shall be" in line or "recall" in line or "tokens read" in line]


def test_nothing_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    with conversation(agent(Script(DONE)), visualizer=None) as one:
        one.send_message("Build it.")
        one.run()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_fork_shows_itself_as_what_it_comes_from(is_shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {} if is_shown else {"visualizer": None}
    with conversation(agent(Script(DONE, DONE)), **arguments) as one:
        one.send_message("Build it.")
        one.run()
        capsys.readouterr()
        with one.fork(workspace=one.workspace, copy_files=False) as fork:
            fork.send_message("Once more.")
            fork.run()
    assert ("Once more." in capsys.readouterr().out) is is_shown


def test_what_the_agent_thinks_aloud_is_told_before_its_call() -> None:
    file = io.StringIO()
    spoken = call("make").model_copy(update={"thought": [TextContent(text="Let me see.\nFirst the build.")]})
    shown(ConsoleView(file), spoken)
    assert file.getvalue() == "[2] agent: Let me see.\n    First the build.\n[2] agent: terminal: $ make\n"


def test_what_a_stream_cannot_write_is_replaced() -> None:
    narrow = Narrow()
    shown(ConsoleView(narrow), message("Größe: 3 €"))
    assert narrow.bytes.getvalue().decode("ascii") == "[1] agent: Gr??e: 3 ?\n"


def test_a_closed_standard_output_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    closed.close()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", closed)
    assert ConsoleView().on_token is None


def coloured(*events: object) -> str:
    file = io.StringIO()
    view = ConsoleView(file, colour=True)
    shown(view, *events)
    view.close()
    return file.getvalue()


def test_a_coloured_view_shows_results_by_their_beginning_and_end() -> None:
    text = coloured(call("seq 100"), result("\n".join(f"line {number}" for number in range(100))))
    assert "line 5" in text
    assert "line 99" in text
    assert "line 50" not in text
    assert f"{100 - MAX_LINES} more lines" in text


def test_a_coloured_view_shows_errors_states_and_questions() -> None:
    text = coloured(
        state(AgentState.RUNNING),
        result("it broke", is_error=True),
        state(AgentState.AWAITING_USER_CONFIRMATION),
        state(AgentState.ERROR, "no money"),
    )
    for told in ("it broke", "run() lets it go on", "the agent failed: no money"):
        assert told in text


@pytest.mark.parametrize("colour", [True, False])
def test_no_text_moves_the_cursor_or_is_taken_for_markup(colour: bool) -> None:
    file = io.StringIO()
    hostile = "[red]x[/red] \x1b[2J\x1b]0;own\x07 \rover \u202egnp &#8238;gnp \udc80"
    view = ConsoleView(file, colour=colour)
    shown(view, message(hostile, "user"), message(hostile), call(hostile), result(hostile))
    view.close()
    text = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue())  # colours are the view's own
    assert not re.search(r"\x1b|\x07|\r|\u202e", text)
    assert "[red]x[/red]" in text


def on_a_terminal(program: str, environment: dict[str, str]) -> str:
    """What the program writes to a terminal of its own."""
    ours, its = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=its, stderr=its, stdin=its, env={**os.environ, **environment}
        )
        os.close(its)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how a terminal ends whose program has gone
                break
            if not piece:
                break
            said += piece
        assert process.wait(60) == 0, said.decode("utf-8", "replace")
    finally:
        os.close(ours)
    return said.decode("utf-8", "replace")


TERMINAL = {"TERM": "xterm-256color", "NO_COLOR": "", "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}


def test_a_terminal_has_colours_and_is_told_what_goes_on_and_is_left_as_it_was() -> None:
    text = on_a_terminal(PROGRAM.format(root=ROOT, arguments=""), TERMINAL)
    assert re.search(r"\x1b\[[\d;]*m", text)
    assert "the agent thinks" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is hidden, and shown again
    assert text.rstrip().endswith("over")


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        ("", {"NO_COLOR": "1"}),
        ("", {"TERM": "dumb"}),
        ("", {"PYTHONIOENCODING": "latin-1"}),
        (", visualizer=None", {}),
    ],
)
def test_a_terminal_that_wants_no_colours_has_none(arguments: str, environment: dict[str, str]) -> None:
    text = on_a_terminal(PROGRAM.format(root=ROOT, arguments=arguments), TERMINAL | environment)
    assert "\x1b" not in text
    assert ("terminal: $ make" in text) is not bool(arguments)


def test_a_view_that_cannot_write_is_told_once_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    closed = io.StringIO()
    closed.close()
    heard: list[object] = []
    with conversation(agent(Script(DONE)), visualizer=ConsoleView(closed), callbacks=[heard.append]) as one:
        one.send_message("Build it.")
        one.run()
        assert one.state.execution_status == "finished"
    assert heard
    assert sum("ConsoleView.on_event failed" in record.message for record in caplog.records) == 1


def test_a_view_is_closed_with_its_conversation_and_hears_texts_if_it_can() -> None:
    class View:
        def __init__(self) -> None:
            self.seen: list[object] = []

        def on_event(self, event: object) -> None:
            self.seen.append("event")

        def on_token(self, delta: object) -> None:
            self.seen.append("token")

        def close(self) -> None:
            self.seen.append("end")

    view = View()
    one: Conversation = conversation(agent(Script(("Hello.", ()))), visualizer=view)
    one.send_message("Hello?")
    one.run()
    one.close()
    one._work.callbacks.thread.shutdown(wait=True)
    assert {"event", "token"} < set(view.seen)
    assert view.seen[-1] == "end"
