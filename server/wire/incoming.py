"""Clients' messages, checked and turned into events of the log."""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from agent_core.events.branches import Rewind
from agent_core.events.control import (
    AgentState,
    ChangeAgentState,
    ClientToolResult,
    CondensationRequest,
    ForeignEvent,
    LoopRecovery,
    RecallAction,
)
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.messages import ImageContent, Message, TextContent
from agent_core.events.risk import SecurityRisk
from agent_core.events.schema import Action
from agent_core.events.serialization import AnyEvent
from agent_core.mcp.tool import IMAGE_TYPES, MAX_IMAGE_BYTES, MAX_IMAGES
from agent_core.tools.browser import BrowserAction, BrowserNavigateAction
from agent_core.tools.browser_code import BrowserCodeAction, BrowserTool
from agent_core.tools.builtin import ThinkAction, ThinkTool
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.file_editor import FileEditorAction, FileEditorTool
from agent_core.tools.file_reader import FileReaderAction, FileReaderTool
from agent_core.tools.gemini_files import WriteFileAction, WriteFileTool
from agent_core.tools.ipython import IPythonAction, IPythonTool
from agent_core.tools.llm_edit import LLMBasedFileEditTool, LLMEditAction
from agent_core.tools.task_tracker import TaskTrackerAction, TaskTrackerTool
from agent_core.tools.terminal import FreshTerminalAction, TerminalAction, TerminalTool
from server.wire import fields as args_of
from server.wire.errors import WireError, problem_of
from server.wire.fields import OBSERVATIONS, Fields, ImageBlock, ResultArgs, TextBlock
from server.wire.forms import RISK_NUMBERS
from server.wire.json_data import MAX_CHARS, check_json, has_many_values, in_thread, json_type

MAX_TIMEOUT_SECONDS: Final = 24 * 3600.0
MAX_TEXT_CHARS: Final = 1_000_000
CLIENT_KEY: Final = "idempotency_key"
MAX_KEY_CHARS: Final = 255
_Model = TypeVar("_Model", bound=BaseModel)

EDIT_COMMANDS: Final = ("view", "create", "str_replace", "insert", "undo_edit")

_RISKS: Final[dict[int, SecurityRisk]] = {number: risk for risk, number in RISK_NUMBERS.items()}
_RENAMED_ARGS: Final = {"images_urls": "image_urls", "is_confirmed": "confirmation_state"}
_IMAGE: Final = re.compile(r"data:image/[a-z0-9.+-]+;base64,.|https?://[^/]", re.IGNORECASE)
_DROPPED_ARGS: Final = frozenset({"timestamp", "keep_prompt", "task_completed", "translated_ipython_code"})


def from_wire(data: object, *, max_chars: int = MAX_CHARS) -> AnyEvent:
    """The event of a client's message: without an id, source ``user``; raises `WireError`.

    What has a meaning inside becomes the typed event; every other public type is kept with its defaults, and echoed. An
    `idempotency_key` (an addition) becomes its `client_key`; other unknown keys at the top are ignored.
    """
    check_json(data, max_chars=max_chars)
    if not isinstance(data, dict):
        raise WireError(f"the message is {json_type(data)}; send a JSON object with `action` and `args`")
    if data.get("id") not in (None, -1):
        raise WireError("id is set, but the server numbers the events; leave it out")
    if "action" in data and "observation" in data:
        raise WireError("the message has both `action` and `observation`; send one of them")
    key = _client_key(data)
    if "observation" in data:
        event = _observation(data)
    elif "action" in data:
        event = _action(data)
    else:
        raise WireError("the message has no `action`; send for example `message` with args.content")
    return event if key is None else event.model_copy(update={"client_key": key})


async def taken_from_wire(data: object, *, max_chars: int = MAX_CHARS) -> AnyEvent:
    """`from_wire` without holding anybody up with what has many values."""
    if has_many_values(data):
        return await in_thread(from_wire, data, max_chars=max_chars)
    return from_wire(data, max_chars=max_chars)


def _client_key(data: Mapping[str, Any]) -> str | None:
    key = data.get(CLIENT_KEY)
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not all("!" <= char <= "~" for char in key):
        raise WireError(f"{CLIENT_KEY} is no key; send 1 to {MAX_KEY_CHARS} visible ASCII characters, or leave it out")
    return key


def _hard_timeout(data: Mapping[str, Any]) -> float | None:
    value = data.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WireError(f"timeout is {json_type(value)}; send seconds as a number, or leave it out")
    if not 0 < value <= MAX_TIMEOUT_SECONDS:
        raise WireError(f"timeout is {value:g}; send more than 0 and at most {MAX_TIMEOUT_SECONDS:g} seconds")
    return float(value)


def _action(data: dict[str, Any]) -> AnyEvent:
    known = {**args_of.ACTIONS, **args_of.ADDITIONS}
    name = _type_name(data, "action", known)
    timeout = _hard_timeout(data)
    args = _checked(known[name], modern_args(_object(data, "args")), name=name, where="args")
    translate = _TRANSLATIONS.get(name)
    if translate is not None:
        return translate(args, timeout)
    if name in _NOT_EXECUTABLE:
        raise WireError(f"action: {name!r} cannot be executed for a user by this server; use `run`, `edit` or `read`")
    payload: dict[str, Any] = {"args": args.model_dump(by_alias=True)}
    if timeout is not None:
        payload["timeout"] = timeout
    return ForeignEvent(source="user", name=name, is_action=True, payload=payload)


def _observation(data: dict[str, Any]) -> AnyEvent:
    name = _type_name(data, "observation", OBSERVATIONS)
    if name == "agent_state_changed":
        raise WireError("observation: only the server says the agent's state; send the action `change_agent_state`")
    content = data.get("content", "" if name == "null" else None)
    if not isinstance(content, str):
        raise WireError(f"content: {name!r} needs a text, not {json_type(content)}")
    extras = _checked(OBSERVATIONS[name], _object(data, "extras"), name=name, where="extras")
    payload = {"content": content, "extras": extras.model_dump(by_alias=True)}
    cause = data.get("cause")
    if cause is not None and (not isinstance(cause, int) or isinstance(cause, bool) or cause < 0):
        raise WireError("cause: is not the id of an event; send the id of an action, or leave it out")
    return ForeignEvent(source="user", cause=cause, name=name, is_action=False, payload=payload)


def _type_name(data: dict[str, Any], key: str, known: dict[str, type[Fields]]) -> str:
    name = data[key]
    if not isinstance(name, str):
        raise WireError(f"{key} is {json_type(name)}; send the name of one: {', '.join(sorted(known))}")
    if name not in known:
        raise WireError(f"{key} {name[:80]!r} is unknown; send one of {', '.join(sorted(known))}")
    return name


def _object(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise WireError(f"{key} is {json_type(value)}; send a JSON object")
    return value


def modern_args(args: dict[str, Any]) -> dict[str, Any]:
    """Args with the old names replaced and what the protocol drops left out."""
    modern = {key: value for key, value in args.items() if key not in _RENAMED_ARGS and key not in _DROPPED_ARGS}
    for old, new in _RENAMED_ARGS.items():
        if old in args:
            modern.setdefault(new, args[old])
    risk = modern.get("security_risk")
    if "security_risk" in modern and (isinstance(risk, bool) or not isinstance(risk, int) or risk not in _RISKS):
        del modern["security_risk"]
    return modern


def _checked(model: type[_Model], value: dict[str, Any], *, name: str, where: str = "args") -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise WireError(problem_of(error, name=name, where=where)) from error


def _message(args: args_of.MessageArgs, timeout: float | None) -> AnyEvent:
    if not (args.content.strip() or args.image_urls or any(path.strip() for path in args.file_urls or ())):
        raise WireError("args.content is empty; write something, or add an image or a file")
    for place, url in enumerate(args.image_urls or ()):
        if _IMAGE.match(url) is None:  # no model takes it, and it would stay in all that the model is told
            known = "data:image/png;base64,… or an http(s) address"
            raise WireError(f"args.image_urls.{place} is no image; send its data URL, such as {known}")
    return MessageEvent(
        source="user",
        llm_message=Message.user(args.content, image_urls=args.image_urls),
        file_urls=args.file_urls,
        wait_for_response=args.wait_for_response,
    )


def _change_agent_state(args: args_of.ChangeAgentStateArgs, timeout: float | None) -> AnyEvent:
    try:
        state = AgentState(args.agent_state)
    except ValueError as error:
        known = ", ".join(AgentState)
        raise WireError(f"args.agent_state {args.agent_state[:80]!r} is unknown; send one of {known}") from error
    return ChangeAgentState(source="user", agent_state=state, remember=args.remember)


def result_event(call_id: int, args: ResultArgs) -> ClientToolResult:
    """The event of a client's answer to a call; `WireError` when it is too large or holds an image that is none."""
    blocks = [TextBlock(type="text", text=args.content)] if isinstance(args.content, str) else args.content
    size = sum(len(block.text) for block in blocks if isinstance(block, TextBlock))
    if size > MAX_TEXT_CHARS:
        raise WireError(f"args.content has {size} characters of text; at most {MAX_TEXT_CHARS} are taken")
    if sum(isinstance(block, ImageBlock) for block in blocks) > MAX_IMAGES:
        raise WireError(f"args.content has more than {MAX_IMAGES} images; leave some out")
    content: list[TextContent | ImageContent] = [_part(place, block) for place, block in enumerate(blocks)]
    return ClientToolResult(cause=call_id, content=content, is_error=args.is_error)


def _part(place: int, block: TextBlock | ImageBlock) -> TextContent | ImageContent:
    if isinstance(block, TextBlock):
        return TextContent(text=block.text)
    if block.mimeType not in IMAGE_TYPES:
        known = ", ".join(sorted(IMAGE_TYPES))
        raise WireError(f"args.content.{place}.mimeType: is none of {known}")
    try:
        size = len(b64decode(block.data, validate=True))
    except (binascii.Error, ValueError):
        raise WireError(f"args.content.{place}.data: is not base64") from None
    if size > MAX_IMAGE_BYTES:
        raise WireError(f"args.content.{place}.data: has {size} bytes; an image may have {MAX_IMAGE_BYTES}")
    return ImageContent(image_urls=[f"data:{block.mimeType};base64,{block.data}"])


def _users_action(
    tool: type[ToolDefinition[Any, Any]], action: Action, args: Any, timeout: float | None, *, hidden: bool = False
) -> AnyEvent:
    """What a user does with a tool of the agent, which is shown both; it needs nobody's confirmation."""
    return ActionEvent(
        source="user",
        thought=[TextContent(text=args.thought)] if args.thought else [],
        action=action,
        tool_name=tool.tool_name,
        security_risk=_RISKS[args.security_risk],
        hidden=hidden,
        hard_timeout=timeout,
    )


def _cell(args: args_of.RunIPythonArgs, timeout: float | None) -> AnyEvent:
    action = IPythonAction(code=args.code, include_extra=args.include_extra, kernel_init_code=args.kernel_init_code)
    return _users_action(IPythonTool, action, args, timeout)


def _browse(args: args_of.BrowseArgs | args_of.BrowseInteractiveArgs, timeout: float | None) -> AnyEvent:
    is_address = isinstance(args, args_of.BrowseArgs)
    try:
        action: BrowserAction = (
            BrowserNavigateAction(url=args.url)
            if isinstance(args, args_of.BrowseArgs)
            else BrowserCodeAction(code=args.browser_actions)
        )
    except ValidationError as error:
        text = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        field = "url" if is_address else "browser_actions"
        raise WireError(f"args.{field}: {text.removeprefix('Value error, ')}") from error
    return _users_action(BrowserTool, action, args, timeout)


_KEYS: Final = frozenset({"C-c", "C-d", "C-z", "C-\\"})
"""No command is called so: a user who sends one of these means the key, whether it says so or not."""


def _run(args: args_of.RunArgs, timeout: float | None) -> AnyEvent:
    if args.is_static and args.is_input:
        raise WireError("args.is_static and args.is_input contradict: a shell of its own runs nothing to give input to")
    if args.cwd is not None and not args.is_static:
        raise WireError("args.cwd is for is_static only: the shell keeps its directory; put `cd …` into the command")
    action = (
        FreshTerminalAction(command=args.command, cwd=args.cwd)
        if args.is_static
        else TerminalAction(command=args.command, is_input=args.is_input or args.command in _KEYS)
    )
    return _users_action(TerminalTool, action, args, timeout, hidden=args.hidden)


def _read(args: args_of.ReadArgs, timeout: float | None) -> AnyEvent:
    if args.impl_source == "default":
        start, end = args.start, args.end
        if args.view_range is not None:
            if len(args.view_range) != 2:
                raise WireError(
                    "args.view_range: send two numbers, of the first line and of the last; lines count from 1"
                )
            start, end = args.view_range[0] - 1, args.view_range[1]
        exact = {"path": args.path, "start": start, "end": end}
        return _users_action(FileReaderTool, _checked(FileReaderAction, exact, name="read"), args, timeout)
    view_range = args.view_range
    if view_range is None and (args.start, args.end) != (0, -1):
        # `start` counts from 0, `end` is the line after the last one.
        view_range = [args.start + 1, args.end]
    view = {"command": "view", "path": args.path, "view_range": view_range}
    return _users_action(FileEditorTool, _checked(FileEditorAction, view, name="view"), args, timeout)


def _write(args: args_of.WriteArgs, timeout: float | None) -> AnyEvent:
    if (args.start, args.end) != (0, -1):
        raise WireError("args.start and args.end are not supported for 'write'; use `edit` to change a part of a file")
    action = _checked(WriteFileAction, {"file_path": args.path, "content": args.content}, name="write")
    return _users_action(WriteFileTool, action, args, timeout)


def _edit(args: args_of.EditArgs, timeout: float | None) -> AnyEvent:
    if args.impl_source == "llm_based_edit" and not args.command:
        draft = LLMEditAction(path=args.path, content=args.content, start=args.start, end=args.end)
        return _users_action(LLMBasedFileEditTool, draft, args, timeout)
    if args.command not in EDIT_COMMANDS:
        commands = ", ".join(EDIT_COMMANDS)
        raise WireError(f"args.command {args.command[:80]!r} is not supported for 'edit'; send one of {commands}")
    names = ("command", "path", "file_text", "old_str", "new_str", "insert_line")
    action = _checked(FileEditorAction, {name: getattr(args, name) for name in names}, name=args.command)
    return _users_action(FileEditorTool, action, args, timeout)


def _task_tracking(args: args_of.TaskTrackingArgs, timeout: float | None) -> AnyEvent:
    action = _checked(TaskTrackerAction, args.model_dump(exclude={"thought"}), name="task_tracking")
    thought = [TextContent(text=args.thought)] if args.thought else []
    return ActionEvent(source="user", thought=thought, action=action, tool_name=TaskTrackerTool.tool_name)


_TRANSLATIONS: Final[dict[str, Callable[[Any, float | None], AnyEvent]]] = {
    "message": _message,
    "change_agent_state": _change_agent_state,
    "recall": lambda args, _: RecallAction(source="user", recall_type=args.recall_type, query=args.query),
    "rewind": lambda args, _: Rewind(to=-1 if args.to is None else args.to),
    "loop_recovery": lambda args, _: LoopRecovery(option=args.option),
    "client_tool_result": lambda args, _: result_event(args.call_id, args),
    "condensation_request": lambda _args, _: CondensationRequest(source="user"),
    "run": _run,
    "read": _read,
    "write": _write,
    "edit": _edit,
    "think": lambda args, _: ActionEvent(
        source="user", action=ThinkAction(thought=args.thought), tool_name=ThinkTool.tool_name
    ),
    "run_ipython": _cell,
    "browse": _browse,
    "browse_interactive": _browse,
    "task_tracking": _task_tracking,
}

_NOT_EXECUTABLE: Final = frozenset({"call_tool_mcp", "delegate"})
"""Types that a client would wait in vain for an answer to."""
