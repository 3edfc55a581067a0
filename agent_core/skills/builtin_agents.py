"""The kinds of sub-agents that are always there."""

from __future__ import annotations

from typing import Final

from agent_core.skills.agent_definition import AgentDefinition

_REPORT = (
    "You work for another agent, which sees nothing of what you do but your last message. Do what it asks, on your own:"
    " nobody answers questions. When you are done, finish with a report of what you did and found, complete and short;"
    " name files by their paths. If you cannot do it, say why."
)

BUILTIN_AGENTS: Final = (
    AgentDefinition(
        name="general-purpose",
        description="Works on any task on its own: reads and changes files, runs commands.",
        tools=["terminal", "file_editor", "task_tracker"],
        instructions=_REPORT,
        level="built-in",
    ),
    AgentDefinition(
        name="code-explorer",
        description="Finds out how something works or where it is, in the files of the workspace; changes nothing.",
        tools=["terminal", "grep", "glob"],
        instructions=f"{_REPORT} You only look: change no file, install nothing, start no service.",
        level="built-in",
    ),
    AgentDefinition(
        name="bash-runner",
        description="Runs shell commands, such as builds and tests, and reports what came of them.",
        tools=["terminal"],
        instructions=f"{_REPORT} Of long outputs report what matters, in their own words.",
        level="built-in",
    ),
    AgentDefinition(
        name="web-researcher",
        description="Finds things out on web pages with a browser, and says where it found them.",
        tools=["browser_tool_set"],
        instructions=f"{_REPORT} Give the address of each page that a statement rests on.",
        level="built-in",
    ),
)
