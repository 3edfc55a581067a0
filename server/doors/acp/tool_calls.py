"""Actions of an agent and their results as the tool calls that an editor shows: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from acp import schema, start_tool_call, text_block, tool_content, tool_diff_content, update_tool_call

from drydock_client import Action, Observation
from server.doors.acp.prompts import blocks_of, fenced

ToolCallContent = schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent

MAX_TITLE: Final = 200
MAX_TEXT: Final = 60_000
MAX_DIFF: Final = 500_000
LIVE_TAIL: Final = 4_096
"""Characters of a running command's output that are shown."""

NO_CALLS: Final = frozenset(
    {
        *("message", "system", "recall", "change_agent_state", "condensation", "condensation_request"),
        *("loop_recovery", "rewind", "null", "think", "finish", "reject", "task_tracking", "client_tool_result"),
    }
)

_TITLES: Final = {
    "run": ("`{}`", "command"),
    "run_ipython": ("Python: `{}`", "code"),
    "read": ("Read {}", "path"),
    "edit": ("Edit {}", "path"),
    "write": ("Edit {}", "path"),
    "browse": ("Open {}", "url"),
    "browse_interactive": ("Browse: {}", "browser_actions"),
}
_KINDS: Final[Mapping[str, schema.ToolKind]] = {
    "run": "execute",
    "run_ipython": "execute",
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "browse": "fetch",
    "browse_interactive": "fetch",
}
_KINDS_BY_NAME: Final[Mapping[str, schema.ToolKind]] = {
    "grep": "search",
    "glob": "search",
    "list_directory": "search",
    "editor_list_files": "search",
    "editor_read_file": "read",
    "editor_write_file": "edit",
    "editor_copy_in": "read",
    "editor_copy_out": "edit",
    "fetch": "fetch",
}
_OF_THE_PROTOCOL: Final = frozenset({"thought", "security_risk", "confirmation_state", "hidden", "impl_source"})


def is_call(action: Action) -> bool:
    """Whether it is something that a tool does, and that is to be seen."""
    return action.action not in NO_CALLS and action.args.get("hidden") is not True


def awaits_confirmation(action: Action) -> bool:
    """Whether somebody has to allow it first."""
    return action.args.get("confirmation_state") == "awaiting_confirmation"


def call_started(action: Action, call_id: str) -> schema.ToolCallStart:
    """A call as it begins, or as it waits to be allowed."""
    return start_tool_call(
        call_id,
        title_of(action),
        kind=kind_of(action),
        status="pending" if awaits_confirmation(action) else "in_progress",
        content=proposal_of(action),
        locations=locations_of(action),
        raw_input={name: value for name, value in action.args.items() if name not in _OF_THE_PROTOCOL},
    )


def call_decided(action: Action, call_id: str) -> schema.ToolCallProgress:
    """A call that was allowed or refused."""
    is_refused = action.args.get("confirmation_state") == "rejected"
    return update_tool_call(call_id, status="failed" if is_refused else "in_progress")


def call_output(call_id: str, text: str) -> schema.ToolCallProgress:
    """The output of a running call so far."""
    return update_tool_call(call_id, status="in_progress", content=[_text(fenced(text[-LIVE_TAIL:]))])


def call_ended(observation: Observation, call_id: str) -> schema.ToolCallProgress:
    """A call with its result."""
    code = _exit_code(observation)
    output = None if code is None else {"exit_code": code}
    return update_tool_call(call_id, status=_status(observation), content=_result(observation), raw_output=output)


def title_of(action: Action) -> str:
    """A line that says what is done."""
    args = action.args
    if action.action in _TITLES:
        form, name = _TITLES[action.action]
        title = form.format(_line(args.get(name)))
    elif action.action == "delegate":
        title = f"Ask {_line(args.get('agent')) or 'another agent'}"
    elif action.action == "call_tool_mcp":
        title = " ".join(filter(None, (_line(args.get("name")), _path_argument(action))))
    else:
        title = _line(action.message)
    return title if title.strip("` ") else action.action


def kind_of(action: Action) -> schema.ToolKind:
    """What kind of thing it is."""
    if action.action == "call_tool_mcp":
        return _KINDS_BY_NAME.get(str(action.args.get("name")), "other")
    return _KINDS.get(action.action, "other")


def locations_of(action: Action) -> list[schema.ToolCallLocation] | None:
    """The file that it is about, as its tool names it."""
    path = action.args.get("path") if action.action in ("read", "edit", "write") else _path_argument(action)
    if not isinstance(path, str) or not path.startswith("/"):
        return None
    lines = action.args.get("view_range")
    line = lines[0] if isinstance(lines, list) and lines else action.args.get("insert_line")
    return [schema.ToolCallLocation(path=path, line=line if isinstance(line, int) and line > 0 else None)]


def proposal_of(action: Action) -> list[ToolCallContent] | None:
    """What would be done, where a title does not say it: the change of a file, a command of several lines."""
    args = action.args
    match action.action:
        case "edit" | "write":
            return _proposed_change(args)
        case "run" if "\n" in str(args.get("command", "")).strip():
            return [_text(fenced(str(args["command"]), "sh"))]
        case "run_ipython":
            return [_text(fenced(str(args.get("code", "")), "python"))]
        case "call_tool_mcp" if args.get("name") == "editor_write_file":
            arguments = args.get("arguments") or {}
            return [tool_diff_content(str(arguments.get("path", "")), str(arguments.get("content", ""))[:MAX_DIFF])]
    return None


def _status(observation: Observation) -> schema.ToolCallStatus:
    extras = observation.extras
    match observation.observation:
        case "error" | "user_rejected":
            return "failed"
        case "run":
            code = _exit_code(observation)
            return "failed" if isinstance(code, int) and code > 0 else "completed"
        case "read" | "edit" | "write":
            return "failed" if observation.content.startswith("ERROR:\n") else "completed"
        case "browse":
            return "failed" if extras.get("error") is True else "completed"
        case "mcp":
            return "failed" if _mcp_result(observation.content)[1] else "completed"
    return "completed"


def _result(observation: Observation) -> list[ToolCallContent]:
    extras = observation.extras
    match observation.observation:
        case "edit" | "write" if not observation.content.startswith("ERROR:\n"):
            return _change(observation)
        case "run":
            return [_text(fenced(_cut(observation.content)))] if observation.content else []
        case "mcp":
            return [_text(_cut(text)) for text in _mcp_result(observation.content)[0] if text]
        case "read" | "run_ipython":
            return [_text(fenced(_cut(observation.content))), *_images(extras.get("image_urls"))]
        case "browse":
            screenshot = extras.get("screenshot")
            return [_text(_cut(observation.content)), *_images([screenshot] if screenshot else None)]
    return [_text(_cut(observation.content))] if observation.content else []


def _proposed_change(args: Mapping[str, Any]) -> list[ToolCallContent] | None:
    path = str(args.get("path", ""))
    old, new = args.get("old_str"), args.get("new_str")
    if args.get("command") == "create" and isinstance(args.get("file_text"), str):
        return _diff(path, None, args["file_text"])
    if isinstance(old, str):
        return _diff(path, old, new if isinstance(new, str) else "")
    if isinstance(new, str):
        return _diff(path, "", new)
    content = args.get("content")
    return [_text(fenced(_cut(content)))] if isinstance(content, str) and content else None


def _change(observation: Observation) -> list[ToolCallContent]:
    extras = observation.extras
    old, new = extras.get("old_content"), extras.get("new_content")
    if isinstance(new, str):
        shown = _diff(str(extras.get("path", "")), old if isinstance(old, str) else None, new)
        if shown is not None:
            return shown
    diff = extras.get("diff")
    if isinstance(diff, str) and diff:
        return [_text(fenced(_cut(diff), "diff"))]
    return [_text(_cut(observation.content))] if observation.content else []


def _diff(path: str, old: str | None, new: str) -> list[ToolCallContent] | None:
    return [tool_diff_content(path, new, old)] if len(old or "") + len(new) <= MAX_DIFF else None


def _mcp_result(content: str) -> tuple[list[str], bool]:
    try:
        result = orjson.loads(content)
    except ValueError:
        return [content], False
    if not isinstance(result, dict) or not isinstance(result.get("content"), list):
        return [content], isinstance(result, dict) and result.get("isError") is True
    texts = [one["text"] for one in result["content"] if isinstance(one, dict) and isinstance(one.get("text"), str)]
    return texts, result.get("isError") is True


def _exit_code(observation: Observation) -> Any:
    metadata = observation.extras.get("metadata")
    return metadata.get("exit_code") if isinstance(metadata, dict) else None


def _images(urls: object) -> list[ToolCallContent]:
    strings = [url for url in urls if isinstance(url, str)] if isinstance(urls, list) else []
    return [tool_content(block) for block in blocks_of("", strings)]


def _path_argument(action: Action) -> str | None:
    arguments = action.args.get("arguments")
    path = arguments.get("path") if isinstance(arguments, dict) else None
    return _line(path) if isinstance(path, str) else None


def _text(text: str) -> schema.ContentToolCallContent:
    return tool_content(text_block(text))


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n… {len(text) - MAX_TEXT} characters are left out here …\n{text[-half:]}"


def _line(value: object) -> str:
    lines = str(value or "").strip().splitlines() or [""]
    line = lines[0] if len(lines) == 1 else f"{lines[0]} …"
    return line if len(line) <= MAX_TITLE else f"{line[:MAX_TITLE]}…"
