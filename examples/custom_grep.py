"""A tool of one's own: a search that uses the terminal's executor, so both work in the same shell.

    LLM_API_KEY=… LLM_MODEL=… python examples/custom_grep.py [folder]

A tool has three parts: an action (what the model may ask), an observation (what it is told), and an executor (what is
done). A factory that is registered under a name puts them together for each conversation.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import Field, SecretStr

from agent_core import (
    LLM,
    Action,
    Agent,
    Conversation,
    Event,
    ImageContent,
    LLMConvertibleEvent,
    Message,
    Observation,
    TextContent,
    ToolDefinition,
    get_logger,
)
from agent_core.tools import FileEditorTool, Tool, ToolExecutor, register_tool
from agent_core.tools.terminal import TerminalAction, TerminalExecutor, TerminalTool

logger = get_logger(__name__)

MOST_LINES = 100


class SearchAction(Action):
    """What to look for, and where."""

    pattern: str = Field(description="Extended regular expression.")
    path: str = Field(default=".", description="Folder to look in; relative to the workspace.")
    include: str | None = Field(default=None, description="Only files whose names match this, for example '*.py'.")


class SearchObservation(Observation):
    """The lines that were found, and the files that they stand in."""

    lines: list[str] = Field(default_factory=list)
    files: list[str] = Field(default_factory=list)

    @property
    def to_llm_content(self) -> Sequence[TextContent | ImageContent]:
        """A short report; the whole result stays in the log."""
        if not self.lines:
            return [TextContent(text="Nothing was found.")]
        listed = "\n".join(self.files[:20])
        sample = "\n".join(self.lines[:10])
        counts = f"{len(self.lines)} lines in {len(self.files)} files"
        return [TextContent(text=f"{counts}:\n{listed}\n\nFor example:\n{sample}")]


class SearchExecutor(ToolExecutor[SearchAction, SearchObservation]):
    """Searches with the shell of a terminal."""

    def __init__(self, terminal: TerminalExecutor) -> None:
        self._terminal = terminal

    def __call__(self, action: SearchAction, conversation: Any = None) -> SearchObservation:
        """Run grep, and read its lines (``path:number:text``)."""
        only = [f"--include={action.include}"] if action.include else []
        command = shlex.join(["grep", "-rHnE", *only, "--", action.pattern, action.path])
        result = self._terminal(TerminalAction(command=f"{command} 2>/dev/null | head -{MOST_LINES}"))
        lines = [line for line in result.text.splitlines() if line.count(":") >= 2]
        return SearchObservation(lines=lines, files=sorted({line.split(":", 1)[0] for line in lines}))


class SearchTool(ToolDefinition[SearchAction, SearchObservation]):
    """The tool `search`."""

    @classmethod
    def create(cls, conv_state: Any, terminal: TerminalExecutor | None = None) -> Sequence[ToolDefinition]:
        """The tool, in the given terminal or one of its own."""
        return [
            cls(
                description="Search the contents of files for a regular expression.",
                action_type=SearchAction,
                observation_type=SearchObservation,
                executor=SearchExecutor(terminal or TerminalExecutor(working_dir=conv_state.workspace.working_dir)),
            )
        ]


def make_terminal_and_search(conv_state: Any) -> list[ToolDefinition]:
    """Two tools with one shell."""
    terminal = TerminalExecutor(working_dir=conv_state.workspace.working_dir)
    return [*TerminalTool.create(conv_state, executor=terminal), *SearchTool.create(conv_state, terminal=terminal)]


def main(folder: str) -> None:
    """Have an agent search the folder and write down what it found."""
    register_tool("TerminalAndSearch", make_terminal_and_search)
    llm = LLM(
        usage_id="agent",
        model=os.environ.get("LLM_MODEL", "demo/tour"),
        base_url=os.environ.get("LLM_BASE_URL"),
        api_key=SecretStr(os.environ.get("LLM_API_KEY", "none")),
    )
    agent = Agent(llm=llm, tools=[Tool(name=FileEditorTool.name), Tool(name="TerminalAndSearch")])
    messages: list[Message] = []

    def collect(event: Event) -> None:
        if isinstance(event, LLMConvertibleEvent):
            messages.append(event.to_llm_message())

    conversation = Conversation(agent=agent, callbacks=[collect], workspace=folder)
    conversation.send_message("Search all Python files for the word class, and list the files in SUMMARY.txt.")
    conversation.run()
    conversation.send_message("Thank you. Remove SUMMARY.txt again.")
    conversation.run()
    for number, message in enumerate(messages):
        print(f"{number}: {message.role}: {message.text[:200]!r}")
    print(f"cost: {llm.metrics.accumulated_cost}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
