"""What clients send, checked and turned into our events."""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

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
from agent_core.tools.file_editor import FileEditorAction, FileEditorTool
from agent_core.tools.gemini_files import WriteFileAction, WriteFileTool
from agent_core.tools.ipython import IPythonAction, IPythonTool
from agent_core.tools.llm_edit import LLMBasedFileEditTool, LLMEditAction
from agent_core.tools.task_tracker import TaskTrackerAction, TaskTrackerTool
from agent_core.tools.terminal import FreshTerminalAction, TerminalAction, TerminalTool
from server.wire import fields as args_of
from server.wire.errors import WireError, problem_of
from server.wire.fields import OBSERVATIONS, ClientToolResultArgs, Fields, ImageBlock, NoFields, ResultArgs, TextBlock
from server.wire.forms import RISK_NUMBERS
from server.wire.json_data import MAX_CHARS, aside, check_json, has_many_values, json_type

MAX_TIMEOUT_SECONDS: Final = 24 * 3600.0
MAX_TEXT_CHARS: Final = 1_000_000
CLIENT_KEY: Final = "idempotency_key"
MAX_KEY_CHARS: Final = 255


def client_key(data: Mapping[str, Any]) -> str | None:
    """`idempotency_key`, an addition: the client's name for what it sends.

    Raises:
        WireError: it is no such name.
    """
    key = data.get(CLIENT_KEY)
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not all("!" <= char <= "~" for char in key):
        raise WireError(f"{CLIENT_KEY} is no key; send 1 to {MAX_KEY_CHARS} visible ASCII characters, or leave it out")
    return key


def hard_timeout(data: Mapping[str, Any]) -> float | None:
    """`timeout`: the action's hard limit in seconds.

    Raises:
        WireError: it is no number of seconds, or too many.
    """
    value = data.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WireError(f"timeout is {json_type(value)}; send seconds as a number, or leave it out")
    if not 0 < value <= MAX_TIMEOUT_SECONDS:
        raise WireError(f"timeout is {value:g}; send more than 0 and at most {MAX_TIMEOUT_SECONDS:g} seconds")
    return float(value)


EDIT_COMMANDS: Final = ("view", "create", "str_replace", "insert", "undo_edit")

_RISKS: Final[dict[int, SecurityRisk]] = {number: risk for risk, number in RISK_NUMBERS.items()}
_RENAMED_ARGS: Final = {"images_urls": "image_urls", "is_confirmed": "confirmation_state"}
_IMAGE: Final = re.compile(r"data:image/[a-z0-9.+-]+;base64,.|https?://[^/]", re.IGNORECASE)
_DROPPED_ARGS: Final = frozenset({"timestamp", "keep_prompt", "task_completed", "translated_ipython_code"})


def from_wire(data: object, *, max_chars: int = MAX_CHARS) -> AnyEvent:
    """The event that a client's message stands for: without an id, source ``user``.

    Every public type is accepted. What has a meaning inside becomes the typed event; the rest is kept as it is, with
    its defaults filled in, and echoed. An `idempotency_key` (an addition) becomes its `client_key`; other keys at the
    top that the protocol does not read are ignored.

    Raises:
        WireError: it cannot be taken; whatever the data is, nothing else is raised.
    """
    check_json(data, max_chars=max_chars)
    if not isinstance(data, dict):
        raise WireError(f"the message is {json_type(data)}; send a JSON object with `action` and `args`")
    if data.get("id") not in (None, -1):
        raise WireError("id is set, but the server numbers the events; leave it out")
    if "action" in data and "observation" in data:
        raise WireError("the message has both `action` and `observation`; send one of them")
    key = client_key(data)
    if "observation" in data:
        event = _observation(data)
    elif "action" in data:
        event = _action(data)
    else:
        raise WireError("the message has no `action`; send for example `message` with args.content")
    return event if key is None else event.model_copy(update={"client_key": key})


async def taken_from_wire(data: object, *, max_chars: int = MAX_CHARS) -> AnyEvent:
    """The same as `from_wire`, without holding anybody up with what has many values.

    Raises:
        WireError: as there.
    """
    if has_many_values(data):
        return await aside(from_wire, data, max_chars=max_chars)
    return from_wire(data, max_chars=max_chars)


def _action(data: dict[str, Any]) -> AnyEvent:
    known = {**args_of.ACTIONS, **args_of.ADDITIONS}
    name = _type_name(data, "action", known)
    timeout = hard_timeout(data)
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


def _checked(model: type[Fields], value: dict[str, Any], *, name: str, where: str) -> Any:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise WireError(problem_of(error, name=name, where=where)) from error


def _message(args: args_of.MessageArgs, timeout: float | None) -> AnyEvent:
    if not (args.content.strip() or args.image_urls or args.file_urls):
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


def _recall(args: args_of.RecallArgs, timeout: float | None) -> AnyEvent:
    return RecallAction(source="user", recall_type=args.recall_type, query=args.query)


def _condensation_request(args: NoFields, timeout: float | None) -> AnyEvent:
    return CondensationRequest(source="user")


def _rewind(args: args_of.RewindArgs, timeout: float | None) -> AnyEvent:
    return Rewind(to=-1 if args.to is None else args.to)


def _client_tool_result(args: ClientToolResultArgs, timeout: float | None) -> AnyEvent:
    return result_event(args.call_id, args)


def _loop_recovery(args: args_of.LoopRecoveryArgs, timeout: float | None) -> AnyEvent:
    return LoopRecovery(option=args.option)


def user_browsing(args: args_of.BrowseArgs | args_of.BrowseInteractiveArgs, timeout: float | None) -> ActionEvent:
    """What a user does with the browser of the agent, which is shown both.

    Raises:
        WireError: the code is none.
    """
    try:
        action: BrowserAction = (
            BrowserNavigateAction(url=args.url)
            if isinstance(args, args_of.BrowseArgs)
            else BrowserCodeAction(code=args.browser_actions)
        )
    except ValidationError as error:
        field = "url" if isinstance(args, args_of.BrowseArgs) else "browser_actions"
        text = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise WireError(f"args.{field}: {text.removeprefix('Value error, ')}") from error
    return ActionEvent(
        source="user",
        thought=[TextContent(text=args.thought)] if args.thought else [],
        action=action,
        tool_name=BrowserTool.tool_name,
        security_risk=_RISKS[args.security_risk],
        hard_timeout=timeout,
    )


def user_cell(args: args_of.RunIPythonArgs, timeout: float | None) -> ActionEvent:
    """A cell that a user runs in the agent's kernel, which is shown both; it needs nobody's confirmation."""
    action = IPythonAction(code=args.code, include_extra=args.include_extra, kernel_init_code=args.kernel_init_code)
    return ActionEvent(
        source="user",
        thought=[TextContent(text=args.thought)] if args.thought else [],
        action=action,
        tool_name=IPythonTool.tool_name,
        security_risk=_RISKS[args.security_risk],
        hard_timeout=timeout,
    )


def result_event(call_id: int, args: ResultArgs) -> ClientToolResult:
    """The event that an answer stands for.

    Raises:
        WireError: it is too large, or holds an image that is none.
    """
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
    return _tool_call(TerminalTool.tool_name, action, args, timeout, hidden=args.hidden)


def _read(args: args_of.ReadArgs, timeout: float | None) -> AnyEvent:
    view_range = args.view_range
    if view_range is None and (args.start, args.end) != (0, -1):
        # `start` counts from 0, `end` is the line after the last one.
        view_range = [args.start + 1, args.end]
    return _edit_file(args, timeout, command="view", path=args.path, view_range=view_range)


def _write(args: args_of.WriteArgs, timeout: float | None) -> AnyEvent:
    if (args.start, args.end) != (0, -1):
        raise WireError("args.start and args.end are not supported for 'write'; use `edit` to change a part of a file")
    action = _validated(WriteFileAction, "write", {"file_path": args.path, "content": args.content})
    return _tool_call(WriteFileTool.tool_name, action, args, timeout)


def _edit(args: args_of.EditArgs, timeout: float | None) -> AnyEvent:
    if args.impl_source == "llm_based_edit" and not args.command:
        draft = LLMEditAction(path=args.path, content=args.content, start=args.start, end=args.end)
        return _tool_call(LLMBasedFileEditTool.tool_name, draft, args, timeout)
    if args.command not in EDIT_COMMANDS:
        commands = ", ".join(EDIT_COMMANDS)
        raise WireError(f"args.command {args.command[:80]!r} is not supported for 'edit'; send one of {commands}")
    texts = {"file_text": args.file_text, "old_str": args.old_str, "new_str": args.new_str}
    return _edit_file(args, timeout, command=args.command, path=args.path, insert_line=args.insert_line, **texts)


def _think(args: args_of.ThinkArgs, timeout: float | None) -> AnyEvent:
    return ActionEvent(source="user", action=ThinkAction(thought=args.thought), tool_name=ThinkTool.tool_name)


def _task_tracking(args: args_of.TaskTrackingArgs, timeout: float | None) -> AnyEvent:
    try:
        action = TaskTrackerAction.model_validate(args.model_dump(exclude={"thought"}))
    except ValidationError as error:
        raise WireError(problem_of(error, name="task_tracking", where="args")) from error
    thought = [TextContent(text=args.thought)] if args.thought else []
    return ActionEvent(source="user", thought=thought, action=action, tool_name=TaskTrackerTool.tool_name)


def _edit_file(
    args: args_of.ReadArgs | args_of.WriteArgs | args_of.EditArgs, timeout: float | None, **arguments: Any
) -> AnyEvent:
    action = _validated(FileEditorAction, arguments["command"], arguments)
    return _tool_call(FileEditorTool.tool_name, action, args, timeout)


def _validated(kind: type[Action], name: str, arguments: dict[str, Any]) -> Action:
    try:
        return kind.model_validate(arguments)
    except ValidationError as error:
        raise WireError(problem_of(error, name=name, where="args")) from error


def _tool_call(
    tool_name: str,
    action: Action,
    args: args_of.RunArgs | args_of.ReadArgs | args_of.WriteArgs | args_of.EditArgs,
    timeout: float | None,
    *,
    hidden: bool = False,
) -> AnyEvent:
    """A user's own action: it needs nobody's confirmation."""
    return ActionEvent(
        source="user",
        thought=[TextContent(text=args.thought)] if args.thought else [],
        action=action,
        tool_name=tool_name,
        security_risk=_RISKS[args.security_risk],
        hidden=hidden,
        hard_timeout=timeout,
    )


_TRANSLATIONS: Final[dict[str, Callable[[Any, float | None], AnyEvent]]] = {
    "message": _message,
    "change_agent_state": _change_agent_state,
    "recall": _recall,
    "rewind": _rewind,
    "loop_recovery": _loop_recovery,
    "client_tool_result": _client_tool_result,
    "condensation_request": _condensation_request,
    "run": _run,
    "read": _read,
    "write": _write,
    "edit": _edit,
    "think": _think,
    "run_ipython": user_cell,
    "browse": user_browsing,
    "browse_interactive": user_browsing,
    "task_tracking": _task_tracking,
}

_NOT_EXECUTABLE: Final = frozenset({"call_tool_mcp", "delegate"})
"""Types that a client would wait in vain for an answer to."""
