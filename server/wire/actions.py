"""The forms of events that are actions on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agent_core.agent.client_tool import ClientToolAction
from agent_core.events.branches import Rewind
from agent_core.events.control import (
    ChangeAgentState,
    Condensation,
    CondensationRequest,
    InterruptEvent,
    LoopRecovery,
    PauseEvent,
    RecallAction,
)
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionDecision, ActionEvent, MessageEvent, SystemPromptEvent
from agent_core.events.messages import ImageContent
from agent_core.events.schema import Action, UnknownAction
from agent_core.mcp.tool import MCPToolAction
from agent_core.tools.apply_patch import ApplyPatchAction
from agent_core.tools.browser import BrowserAction, BrowserNavigateAction, as_code
from agent_core.tools.browser_code import BrowserCodeAction
from agent_core.tools.builtin import CondensationRequestAction, FinishAction, ThinkAction
from agent_core.tools.delegate import AgentDelegateAction, DelegateAction, TaskAction
from agent_core.tools.file_editor import FileEditorAction, PlanningFileEditorAction
from agent_core.tools.file_reader import FileReaderAction
from agent_core.tools.gemini_files import EditAction, ListDirectoryAction, ReadFileAction, WriteFileAction
from agent_core.tools.ipython import IPythonAction
from agent_core.tools.llm_edit import LLMEditAction
from agent_core.tools.task_tracker import TaskTrackerAction
from agent_core.tools.terminal import FreshTerminalAction, NamedTerminalAction, TerminalAction
from server.wire.fields import ConfirmationStatus
from server.wire.forms import RISK_NUMBERS, ActionForm, task_list_form

_Translation = Callable[[Any, ActionEvent, str], ActionForm]

_EDIT_DEFAULTS: Final[dict[str, Any]] = {
    "command": "",
    "file_text": None,
    "old_str": None,
    "new_str": None,
    "insert_line": None,
    "content": "",
    "start": 1,
    "end": -1,
}
_EDIT_FIELDS: Final = ("command", "file_text", "old_str", "new_str", "insert_line")


def _system(event: SystemPromptEvent) -> ActionForm:
    context = event.dynamic_context.text if event.dynamic_context is not None else ""
    content = f"{event.system_prompt.text}\n\n{context}" if context else event.system_prompt.text
    args = {"content": content, "tools": event.tools}
    return ActionForm("system", {**args, "openhands_version": event.version, "agent_class": event.agent_class})


def _message(event: MessageEvent) -> ActionForm | None:
    """A chat message, unless the agent says nothing in it. What the environment tells it is not the user's business."""
    is_users = event.source == "user"
    if event.source not in ("user", "agent") or (event.source == "agent" and event.is_blank):
        return None
    parts = event.llm_message.content
    images = [url for part in parts if isinstance(part, ImageContent) for url in part.image_urls]
    return _chat_message(
        event.llm_message.text,
        # The protocol's users send empty lists, its agents null.
        image_urls=images if images or is_users else None,
        file_urls=[] if event.file_urls is None and is_users else event.file_urls,
        wait_for_response=event.wait_for_response,
    )


def _chat_message(
    text: str,
    *,
    image_urls: list[str] | None = None,
    file_urls: list[str] | None = None,
    wait_for_response: bool = False,
) -> ActionForm:
    args = {"content": text, "file_urls": file_urls, "image_urls": image_urls}
    return ActionForm("message", {**args, "wait_for_response": wait_for_response, "security_risk": -1})


def _call(event: ActionEvent) -> ActionForm | None:
    """A tool call in the form of its public type; a type that clients do not know is shown as an MCP call.

    A `finish` that waits, since other calls of its answer are asked about, is shown when it is done: clients draw the
    question below the newest event, and never below this one.
    """
    if event.awaits_confirmation and isinstance(event.action, FinishAction):
        return None
    return _tool_call(event, event.thought_text, "awaiting_confirmation" if event.awaits_confirmation else None)


def _decision(event: ActionDecision) -> ActionForm | None:
    """The decided action again, without its thought; a refused `finish`, which would have the last word, is not."""
    if event.decision == "rejected" and isinstance(event.action.action, FinishAction):
        return None
    return _tool_call(event.action, "", event.decision)


def _tool_call(event: ActionEvent, thought: str, confirmation: ConfirmationStatus | None) -> ActionForm | None:
    if event.action is None:
        if not thought:
            return None
        form = _chat_message(thought)
        # The error that answers the call takes the place of its event; of that, clients keep the thought alone.
        form.args["thought"] = thought
        return form
    usual: _Translation = _browser_call if isinstance(event.action, BrowserAction) else _any_tool
    form = _TOOL_FORMS.get(type(event.action), usual)(event.action, event, thought)
    if confirmation is not None:
        # Where the protocol's type has no such field the client looks for it all the same.
        form.args["confirmation_state"] = confirmation
    return form


def _change_agent_state(event: ChangeAgentState) -> ActionForm:
    remember = {"remember": True} if event.remember else {}
    return ActionForm("change_agent_state", {"agent_state": event.agent_state.value, "thought": "", **remember})


def _condensation(event: Condensation) -> ActionForm:
    args = {
        "forgotten_event_ids": event.forgotten_event_ids,
        "forgotten_events_start_id": None,
        "forgotten_events_end_id": None,
        "summary": event.summary,
        "summary_offset": event.summary_offset,
    }
    return ActionForm("condensation", args)


def _rewind(event: Rewind) -> ActionForm:
    to = event.to if event.to >= 0 else None
    forked = {"forked_from": event.forked_from} if event.forked_from else {}
    return ActionForm("rewind", {"to": to, "note": event.note, "thought": "", **forked})


ACTION_FORMS: Final[dict[type[Event], Callable[[Any], ActionForm | None]]] = {
    SystemPromptEvent: _system,
    MessageEvent: _message,
    ActionEvent: _call,
    ActionDecision: _decision,
    RecallAction: lambda event: ActionForm(
        "recall", {"recall_type": event.recall_type, "query": event.query, "thought": ""}
    ),
    ChangeAgentState: _change_agent_state,
    PauseEvent: _change_agent_state,
    InterruptEvent: _change_agent_state,
    Condensation: _condensation,
    # One that the agent has expressed by a call was sent as that call.
    CondensationRequest: lambda event: ActionForm("condensation_request", {}) if event.cause is None else None,
    Rewind: _rewind,
    LoopRecovery: lambda event: ActionForm("loop_recovery", {"option": event.option}),
}
"""What makes the form of each type of event; None stands for an event that clients are not sent."""


def _run(action: TerminalAction, event: ActionEvent, thought: str) -> ActionForm:
    timeout = event.hard_timeout if action.timeout is None else action.timeout
    args = {
        "command": action.command,
        "is_input": action.is_input,
        "thought": thought,
        "blocking": timeout is not None,
        "is_static": isinstance(action, FreshTerminalAction),
        "cwd": action.cwd if isinstance(action, FreshTerminalAction) else None,
        "hidden": event.hidden,
        "confirmation_state": "confirmed",
        "security_risk": RISK_NUMBERS[event.security_risk],
    }
    if isinstance(action, NamedTerminalAction):
        args["terminal"] = action.terminal  # an addition to the protocol
    return ActionForm("run", args, timeout)


def _cell(action: IPythonAction, event: ActionEvent, thought: str) -> ActionForm:
    args = {
        "code": action.code,
        "thought": thought,
        "include_extra": action.include_extra,
        "confirmation_state": "confirmed",
        "security_risk": RISK_NUMBERS[event.security_risk],
        "kernel_init_code": action.kernel_init_code,
    }
    return ActionForm("run_ipython", args, event.hard_timeout)


def _browser_call(action: BrowserAction, event: ActionEvent, thought: str) -> ActionForm:
    more = {"thought": thought, "security_risk": RISK_NUMBERS[event.security_risk], "return_axtree": False}
    if isinstance(action, BrowserNavigateAction):
        return ActionForm("browse", {"url": action.url, **more}, event.hard_timeout)
    code = action.code if isinstance(action, BrowserCodeAction) else as_code(action.calls())
    args = {"browser_actions": code, "browsergym_send_msg_to_user": "", **more}
    return ActionForm("browse_interactive", args, event.hard_timeout)


def _editor_call(action: FileEditorAction, event: ActionEvent, thought: str) -> ActionForm:
    if action.command == "view":
        return _read(action.path, action.view_range, event, thought)
    return _edit(action.path, event, thought, **{name: getattr(action, name) for name in _EDIT_FIELDS})


def _read(path: str, view_range: list[int] | None, event: ActionEvent, thought: str, **fields: Any) -> ActionForm:
    args = {
        "path": path,
        "start": 0,
        "end": -1,
        "thought": thought,
        "security_risk": RISK_NUMBERS[event.security_risk],
        "impl_source": "oh_aci",
        "view_range": view_range,
    }
    return ActionForm("read", {**args, **fields}, event.hard_timeout)


def _exact_read(action: FileReaderAction, event: ActionEvent, thought: str) -> ActionForm:
    lines = {"start": action.start, "end": action.end}
    return _read(action.path, None, event, thought, impl_source="default", **lines)


def _edit(path: str, event: ActionEvent, thought: str, **fields: Any) -> ActionForm:
    risk = RISK_NUMBERS[event.security_risk]
    args = {"path": path, **_EDIT_DEFAULTS, "thought": thought, "security_risk": risk, "impl_source": "oh_aci"}
    return ActionForm("edit", {**args, **fields}, event.hard_timeout)


def _gemini_call(
    action: ReadFileAction | WriteFileAction | EditAction | ListDirectoryAction, event: ActionEvent, thought: str
) -> ActionForm:
    match action:
        case WriteFileAction() if event.source == "user":  # as the user has sent it
            args = {"path": action.file_path, "content": action.content, "start": 0, "end": -1, "thought": thought}
            return ActionForm("write", {**args, "security_risk": RISK_NUMBERS[event.security_risk]}, event.hard_timeout)
        case ReadFileAction():
            return _read(action.file_path, [action.offset + 1, action.offset + action.limit], event, thought)
        case WriteFileAction():
            return _edit(action.file_path, event, thought, command="create", file_text=action.content)
        case EditAction():
            texts = {"old_str": action.old_string, "new_str": action.new_string}
            return _edit(action.file_path, event, thought, command="str_replace", **texts)
        case ListDirectoryAction():
            return _read(action.dir_path, None, event, thought)


def _draft(action: LLMEditAction, event: ActionEvent, thought: str) -> ActionForm:
    lines = {"content": action.content, "start": action.start, "end": action.end}
    return _edit(action.path, event, thought, impl_source="llm_based_edit", **lines)


def _patch(action: ApplyPatchAction, event: ActionEvent, thought: str) -> ActionForm:
    # The protocol has no type for changes of several files; its clients show an edit's path and diff.
    return _edit(", ".join(action.paths), event, thought, content=action.patch)


def _think(action: ThinkAction, event: ActionEvent, thought: str) -> ActionForm:
    return ActionForm("think", {"thought": f"{thought}\n{action.thought}" if thought else action.thought})


def _finish(action: FinishAction, event: ActionEvent, thought: str) -> ActionForm:
    return ActionForm("finish", {"final_thought": action.message, "outputs": {}, "thought": thought})


def _task_tracking(action: TaskTrackerAction, event: ActionEvent, thought: str) -> ActionForm:
    args = {"command": action.command, "task_list": task_list_form(action.task_list or []), "thought": thought}
    return ActionForm("task_tracking", args)


def _delegate(action: DelegateAction, event: ActionEvent, thought: str) -> ActionForm:
    """Tasks for several sub-agents are inputs by their ids; a spawn has no task, but says what is to be spawned."""
    if action.command == "spawn":
        ids = action.ids or []
        inputs: dict[str, Any] = {"command": "spawn", "ids": ids, "agent_types": action.agent_types or []}
    else:
        ids, inputs = list(action.tasks or {}), dict(action.tasks or {})
    return _delegation(", ".join(ids), inputs, thought)


def _task(action: TaskAction, event: ActionEvent, thought: str) -> ActionForm:
    inputs = {"task": action.prompt, "description": action.description, "resume": action.resume}
    return _delegation(action.subagent_type, {key: value for key, value in inputs.items() if value}, thought)


def _delegation(agent: str, inputs: dict[str, Any], thought: str) -> ActionForm:
    return ActionForm("delegate", {"agent": agent, "inputs": inputs, "thought": thought})


def _any_tool(action: Action, event: ActionEvent, thought: str) -> ActionForm:
    if isinstance(action, UnknownAction | MCPToolAction | ClientToolAction):
        arguments = action.data
    else:
        arguments = action.model_dump(mode="json", exclude={"kind"})
    args = {
        "name": event.tool_name,
        "arguments": arguments,
        "thought": thought,
        "security_risk": RISK_NUMBERS[event.security_risk],
    }
    return ActionForm("call_tool_mcp", args, event.hard_timeout)


_TOOL_FORMS: Final[dict[type[Action], _Translation]] = {
    TerminalAction: _run,
    NamedTerminalAction: _run,
    FreshTerminalAction: _run,
    IPythonAction: _cell,
    FileEditorAction: _editor_call,
    FileReaderAction: _exact_read,
    PlanningFileEditorAction: _editor_call,
    LLMEditAction: _draft,
    ApplyPatchAction: _patch,
    ReadFileAction: _gemini_call,
    WriteFileAction: _gemini_call,
    EditAction: _gemini_call,
    ListDirectoryAction: _gemini_call,
    ThinkAction: _think,
    FinishAction: _finish,
    CondensationRequestAction: lambda _action, _event, _thought: ActionForm("condensation_request", {}),
    TaskTrackerAction: _task_tracking,
    DelegateAction: _delegate,
    TaskAction: _task,
    AgentDelegateAction: lambda action, _, thought: _delegation(action.agent, action.inputs, thought),
}
