"""The form of an event on its way to the public JSON: what its type decides; `envelope` adds the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agent_core.events.risk import SecurityRisk
from agent_core.tools.task_tracker import TaskItem

RECALL_QUERY_CHARS: Final = 50
FINISHED: Final = "All done! What's next on the agenda?"

EventFields = Mapping[str, Any]


def _text(make: Callable[[EventFields], str] | None, fields: EventFields) -> str:
    if make is None:
        return ""
    try:
        return make(fields)
    except (KeyError, TypeError, AttributeError):
        return ""  # an event kept from elsewhere, with fields of its own; its line is the one thing we can do without


def _reject(args: EventFields) -> str:
    reason = args["outputs"].get("reason")
    return "Task is rejected by the agent." + (f" Reason: {reason}" if reason else "")


def _condensation(args: EventFields) -> str:
    if args["summary"]:
        return f"Summary: {args['summary']}"
    forgotten = args["forgotten_event_ids"]
    if forgotten is None:
        first, last = args["forgotten_events_start_id"], args["forgotten_events_end_id"]
        return f"Condenser is dropping the events: [{first}..{last}]."
    return f"Condenser is dropping the events: {forgotten}."


def _task_tracking(args: EventFields) -> str:
    count = len(args["task_list"])
    if count == 0:
        return "Clearing the task list."
    return f"Managing {count} task item{'' if count == 1 else 's'}."


def _call_tool_mcp(args: EventFields) -> str:
    return (
        f"I am interacting with the MCP server with name:\n```\n{args['name']}\n```\n"
        f"and arguments:\n```\n{args['arguments']}\n```"
    )


def _rewind(args: EventFields) -> str:
    if args.get("forked_from"):
        return "The conversation branches off here."
    place = "its beginning" if args["to"] is None else f"an earlier point (event {args['to']})"
    return f"The conversation was taken back to {place}. {args['note']}".rstrip()


_ACTION_TEXTS: Final[dict[str, Callable[[EventFields], str]]] = {
    "message": lambda args: args["content"],
    "system": lambda args: args["content"],
    "run": lambda args: f"Running command: {args['command']}",
    "run_ipython": lambda args: f"Running Python code interactively: {args['code']}",
    "read": lambda args: f"Reading file: {args['path']}",
    "write": lambda args: f"Writing file: {args['path']}",
    "browse": lambda args: f"I am browsing the URL: {args['url']}",
    "browse_interactive": lambda args: f"I am interacting with the browser:\n```\n{args['browser_actions']}\n```",
    "think": lambda args: f"I am thinking...: {args['thought']}",
    "finish": lambda args: args["thought"] or FINISHED,
    "reject": _reject,
    "delegate": lambda args: f"I'm asking {args['agent']} for help with this task.",
    "recall": lambda args: f"Retrieving content for: {args['query'][:RECALL_QUERY_CHARS]}",
    "change_agent_state": lambda args: f"Agent state changed to {args['agent_state']}",
    "condensation": _condensation,
    "condensation_request": lambda args: "Requesting a condensation of the conversation history.",
    "call_tool_mcp": _call_tool_mcp,
    "task_tracking": _task_tracking,
    "null": lambda args: "No action",
    "rewind": _rewind,
}

_CONTENT_IS_TEXT: Final = frozenset(
    {"success", "error", "user_rejected", "condense", "think", "mcp", "task_tracking", "rewind"}
)

_OBSERVATION_TEXTS: Final[dict[str, Callable[[EventFields], str]]] = {
    "run": lambda extras: f"Command `{extras['command']}` executed with exit code {extras['metadata']['exit_code']}.",
    "run_ipython": lambda extras: "Code executed in IPython cell.",
    "read": lambda extras: f"I read the file {extras['path']}.",
    "write": lambda extras: f"I wrote to the file {extras['path']}.",
    "edit": lambda extras: f"I edited the file {extras['path']}.",
    "browse": lambda extras: f"Visited {extras['url']}",
    "recall": lambda extras: (
        f"Added {'workspace context' if extras['recall_type'] == 'workspace_context' else 'microagent knowledge'}"
    ),
    "download": lambda extras: f"Downloaded the file at location: {extras['file_path']}",
    "null": lambda extras: "No observation",
}


RISK_NUMBERS: Final[dict[SecurityRisk, int]] = {
    SecurityRisk.UNKNOWN: -1,
    SecurityRisk.LOW: 0,
    SecurityRisk.MEDIUM: 1,
    SecurityRisk.HIGH: 2,
}


class ActionForm(NamedTuple):
    """A public action: its type and args, in the protocol's order; `timeout` in seconds."""

    name: str
    args: dict[str, Any]
    timeout: float | None = None

    @property
    def message(self) -> str:
        return _text(_ACTION_TEXTS.get(self.name), self.args)


class ObservationForm(NamedTuple):
    """A public observation: its type, content and extras, in the protocol's order."""

    name: str
    content: str
    extras: dict[str, Any]

    @property
    def message(self) -> str:
        if self.name in _CONTENT_IS_TEXT:
            return self.content
        return _text(_OBSERVATION_TEXTS.get(self.name), self.extras)

    @property
    def success(self) -> bool | None:
        if self.name == "run":
            return bool(self.extras.get("metadata", {}).get("exit_code") == 0)
        return True if self.name == "run_ipython" else None


EventForm = ActionForm | ObservationForm


def task_list_form(tasks: Sequence[TaskItem]) -> list[dict[str, str]]:
    """Tasks as the protocol lists them; one without an id of its own has its number."""
    return [
        {"id": task.id or str(number), "title": task.title, "status": task.status, "notes": task.notes}
        for number, task in enumerate(tasks, 1)
    ]
