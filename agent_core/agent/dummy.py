"""An agent without a model, with which an installation is tried: the same few things each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from agent_core.agent.base import AgentBase
from agent_core.agent.step_form import StepInput, StepOutcome
from agent_core.agent.toolbox import ToolSpecs
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import TextContent
from agent_core.events.schema import Action
from agent_core.tools.file_editor import FileEditorAction, FileEditorTool
from agent_core.tools.finish import FinishAction
from agent_core.tools.spec import Tool
from agent_core.tools.terminal import TerminalAction, TerminalTool

FILE: Final = "/tmp/drydock-dummy.txt"  # noqa: S108 - of the sandbox
_WORDS: Final = "written by the dummy agent"
_ROUND: Final[Sequence[tuple[str, str, Action]]] = (
    (
        "I have no model: I do the same few things each time. First, a command.",
        TerminalTool.tool_name,
        TerminalAction(command=f"echo '{_WORDS}' > {FILE} && uname -sm && pwd"),
    ),
    ("Now I read the file that it has written.", FileEditorTool.tool_name, FileEditorAction(command="view", path=FILE)),
    ("I take it away again.", TerminalTool.tool_name, TerminalAction(command=f"rm {FILE}")),
)


class DummyAgent(AgentBase):
    """Runs a command, looks at a file, and says whether that went well; for each of the user's messages again.

    It asks no model, so it costs nothing and needs no key. Tools that it is not given it does without.
    """

    tools: ToolSpecs = Field(
        default_factory=lambda: [Tool(name=tool.tool_name) for tool in (TerminalTool, FileEditorTool)]
    )

    async def astep(self, step: StepInput) -> StepOutcome:
        done = _since_user(() if step.view is None else step.view.events)
        work = [entry for entry in _ROUND if entry[1] in step.tools]
        place = sum(isinstance(event, ActionEvent) for event in done)
        if place < len(work):
            thought, name, action = work[place]
            return StepOutcome([ActionEvent(thought=[TextContent(text=thought)], tool_name=name, action=action)])
        return StepOutcome([ActionEvent(tool_name="finish", action=FinishAction(message=_report(done)))])


def _since_user(events: Sequence[Event]) -> Sequence[Event]:
    """What has happened since the user spoke last."""
    places = [n for n, event in enumerate(events) if isinstance(event, MessageEvent) and event.source == "user"]
    return events[places[-1] + 1 :] if places else events


def _report(done: Sequence[Event]) -> str:
    failed = [event.error for event in done if isinstance(event, AgentErrorEvent)]
    results = [event.observation for event in done if isinstance(event, ObservationEvent)]
    failed += [result.text for result in results if result.is_error]
    if failed:
        return "This did not work:\n" + "\n".join(failed)
    return f"All of it worked: {len(results)} calls were made and answered."
