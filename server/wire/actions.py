"""Internal events that are actions on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agent_core.agent.client_tool import ClientToolAction
from agent_core.events.branches import Rewind
from agent_core.events.control import (
    ChangeAgentState,
    Condensation,
    CondensationRequest,
    LoopRecovery,
    RecallAction,
)
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
from agent_core.tools.gemini_files import EditAction, ListDirectoryAction, ReadFileAction, WriteFileAction
from agent_core.tools.ipython import IPythonAction
from agent_core.tools.llm_edit import LLMEditAction
from agent_core.tools.task_tracker import TaskTrackerAction
from agent_core.tools.terminal import FreshTerminalAction, NamedTerminalAction, TerminalAction
from server.wire.fields import Confirmation
from server.wire.forms import RISK_NUMBERS, ActionForm, read_by, task_list_form

_Translation = Callable[[Any, ActionEvent, str], ActionForm]


def system_form(event: SystemPromptEvent) -> ActionForm:
    """What the agent was told, and its tools."""
    context = event.dynamic_context.text if event.dynamic_context is not None else ""
    content = f"{event.system_prompt.text}\n\n{context}" if context else event.system_prompt.text
    args = {
        "content": content,
        "tools": event.tools,
        "openhands_version": event.version,
        "agent_class": event.agent_class,
    }
    return ActionForm("system", args)


def message_form(event: MessageEvent) -> ActionForm | None:
    """A chat message, unless the agent says nothing in it. What the environment tells it is not the user's business."""
    if event.source not in ("user", "agent") or (event.source == "agent" and event.is_blank):
        return None
    parts = event.llm_message.content
    images = [url for part in parts if isinstance(part, ImageContent) for url in part.image_urls]
    return _message(
        event.llm_message.text,
        # The protocol's users send empty lists, its agents null.
        image_urls=images if images or event.source == "user" else None,
        file_urls=[] if event.file_urls is None and event.source == "user" else event.file_urls,
        wait_for_response=event.wait_for_response,
    )


def tool_call_form(event: ActionEvent) -> ActionForm | None:
    """A tool call in the form of its public type; a type that clients do not know is shown as an MCP call.

    A `finish` that waits, since other calls of its answer are asked about, is shown when it is done: clients draw the
    question below the newest event, and never below this one.
    """
    if event.awaits_confirmation and isinstance(event.action, FinishAction):
        return None
    return _tool_call(event, event.thought_text, "awaiting_confirmation" if event.awaits_confirmation else None)


def decision_form(event: ActionDecision) -> ActionForm | None:
    """The decided action once more: without its thought, with what was decided.

    A `finish` that was refused is not shown: its words would be the agent's last ones.
    """
    if event.decision == "rejected" and isinstance(event.action.action, FinishAction):
        return None
    return _tool_call(event.action, "", event.decision)


def recall_form(event: RecallAction) -> ActionForm:
    """A question to the memory."""
    return ActionForm("recall", {"recall_type": event.recall_type, "query": event.query, "thought": ""})


def change_agent_state_form(event: ChangeAgentState) -> ActionForm:
    """A wish for another state."""
    remember = {"remember": True} if event.remember else {}
    return ActionForm("change_agent_state", {"agent_state": event.agent_state.value, "thought": "", **remember})


def condensation_form(event: Condensation) -> ActionForm:
    """Events that the agent no longer sees."""
    args = {
        "forgotten_event_ids": event.forgotten_event_ids,
        "forgotten_events_start_id": None,
        "forgotten_events_end_id": None,
        "summary": event.summary,
        "summary_offset": event.summary_offset,
    }
    return ActionForm("condensation", args)


def condensation_request_form(event: CondensationRequest) -> ActionForm | None:
    """A wish for a condensation; one that the agent has expressed by a call was sent as that call."""
    return None if event.cause is not None else ActionForm("condensation_request", {})


def rewind_form(event: Rewind) -> ActionForm:
    """The conversation was taken back: an addition to the protocol."""
    to = event.to if event.to >= 0 else None
    forked = {"forked_from": event.forked_from} if event.forked_from else {}
    return ActionForm("rewind", {"to": to, "note": event.note, "thought": "", **forked})


def loop_recovery_form(event: LoopRecovery) -> ActionForm:
    """What becomes of an agent that was found in a loop."""
    return ActionForm("loop_recovery", {"option": event.option})


def _message(
    text: str, *, image_urls: list[str] | None, file_urls: list[str] | None, wait_for_response: bool
) -> ActionForm:
    args = {
        "content": text,
        "file_urls": file_urls,
        "image_urls": image_urls,
        "wait_for_response": wait_for_response,
        "security_risk": -1,
    }
    return ActionForm("message", args)


def _tool_call(event: ActionEvent, thought: str, confirmation: Confirmation | None) -> ActionForm | None:
    if event.action is None:
        if not thought:
            return None
        form = _message(thought, image_urls=None, file_urls=None, wait_for_response=False)
        # The error that answers the call takes the place of its event; of that, clients keep the thought alone.
        form.args["thought"] = thought
        return form
    usual: _Translation = _browser_call if isinstance(event.action, BrowserAction) else _any_tool
    translate = _TOOL_FORMS.get(type(event.action), usual)
    form = translate(event.action, event, thought)
    if confirmation is not None:
        # Where the protocol's type has no such field the client looks for it all the same.
        form.args["confirmation_state"] = confirmation
    return form


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


def _think(action: ThinkAction, event: ActionEvent, thought: str) -> ActionForm:
    return ActionForm("think", {"thought": f"{thought}\n{action.thought}" if thought else action.thought})


def _finish(action: FinishAction, event: ActionEvent, thought: str) -> ActionForm:
    return ActionForm("finish", {"final_thought": action.message, "outputs": {}, "thought": thought})


def _condensation_request(action: CondensationRequestAction, event: ActionEvent, thought: str) -> ActionForm:
    return ActionForm("condensation_request", {})


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


def _agent_delegate(action: AgentDelegateAction, event: ActionEvent, thought: str) -> ActionForm:
    return _delegation(action.agent, action.inputs, thought)


def _delegation(agent: str, inputs: dict[str, Any], thought: str) -> ActionForm:
    return ActionForm("delegate", {"agent": agent, "inputs": inputs, "thought": thought})


def _any_tool(action: Action, event: ActionEvent, thought: str) -> ActionForm:
    args = {
        "name": event.tool_name,
        "arguments": _arguments(action),
        "thought": thought,
        "security_risk": RISK_NUMBERS[event.security_risk],
    }
    return ActionForm("call_tool_mcp", args, event.hard_timeout)


def _arguments(action: Action) -> dict[str, Any]:
    if isinstance(action, UnknownAction | MCPToolAction | ClientToolAction):
        return action.data
    return action.model_dump(mode="json", exclude={"kind"})


GeminiFileAction = ReadFileAction | WriteFileAction | EditAction | ListDirectoryAction


def _edit_or_read(action: FileEditorAction, event: ActionEvent, thought: str) -> ActionForm:
    """A command of the editor: what only looks is a read, all else an edit."""
    risk = RISK_NUMBERS[event.security_risk]
    if action.command == "view":
        args: dict[str, Any] = {
            "path": action.path,
            "start": 0,
            "end": -1,
            "thought": thought,
            "security_risk": risk,
            "impl_source": read_by(event.source),
            "view_range": action.view_range,
        }
        return ActionForm("read", args, event.hard_timeout)
    args = {
        "path": action.path,
        "command": action.command,
        "file_text": action.file_text,
        "old_str": action.old_str,
        "new_str": action.new_str,
        "insert_line": action.insert_line,
        "content": "",
        "start": 1,
        "end": -1,
        "thought": thought,
        "security_risk": risk,
        "impl_source": "oh_aci",
    }
    return ActionForm("edit", args, event.hard_timeout)


def _whole_file(action: GeminiFileAction, event: ActionEvent, thought: str) -> ActionForm:
    """One of the Gemini file tools, as the edit that it amounts to."""
    match action:
        case WriteFileAction() if event.source == "user":  # as the user has sent it
            args = {"path": action.file_path, "content": action.content, "start": 0, "end": -1, "thought": thought}
            return ActionForm("write", {**args, "security_risk": RISK_NUMBERS[event.security_risk]}, event.hard_timeout)
        case ReadFileAction():
            lines = [action.offset + 1, action.offset + action.limit]
            same = FileEditorAction(command="view", path=action.file_path, view_range=lines)
        case WriteFileAction():
            same = FileEditorAction(command="create", path=action.file_path, file_text=action.content)
        case EditAction():
            texts = {"old_str": action.old_string, "new_str": action.new_string}
            same = FileEditorAction(command="str_replace", path=action.file_path, **texts)
        case ListDirectoryAction():
            same = FileEditorAction(command="view", path=action.dir_path)
    return _edit_or_read(same, event, thought)


def _draft(action: LLMEditAction, event: ActionEvent, thought: str) -> ActionForm:
    """An edit that is drafted by the model, and whose lines are counted."""
    args = {
        "path": action.path,
        "command": "",
        "file_text": None,
        "old_str": None,
        "new_str": None,
        "insert_line": None,
        "content": action.content,
        "start": action.start,
        "end": action.end,
        "thought": thought,
        "security_risk": RISK_NUMBERS[event.security_risk],
        "impl_source": "llm_based_edit",
    }
    return ActionForm("edit", args, event.hard_timeout)


def _patch(action: ApplyPatchAction, event: ActionEvent, thought: str) -> ActionForm:
    """A change of several files, as an edit of all of them."""
    # The protocol has no type for changes of several files; its clients show an edit's path and diff.
    edit = FileEditorAction(command="str_replace", path=", ".join(action.paths))
    form = _edit_or_read(edit, event, thought)
    return form._replace(args={**form.args, "command": "", "content": action.patch})


def _browser_call(action: BrowserAction, event: ActionEvent, thought: str) -> ActionForm:
    """A call of a browser tool: an address to open is a `browse`, everything else code."""
    more = {"thought": thought, "security_risk": RISK_NUMBERS[event.security_risk], "return_axtree": False}
    if isinstance(action, BrowserNavigateAction):
        return ActionForm("browse", {"url": action.url, **more}, event.hard_timeout)
    code = action.code if isinstance(action, BrowserCodeAction) else as_code(action.calls())
    args = {"browser_actions": code, "browsergym_send_msg_to_user": "", **more}
    return ActionForm("browse_interactive", args, event.hard_timeout)


def _cell(action: IPythonAction, event: ActionEvent, thought: str) -> ActionForm:
    """A cell that is run."""
    args = {
        "code": action.code,
        "thought": thought,
        "include_extra": action.include_extra,
        "confirmation_state": "confirmed",
        "security_risk": RISK_NUMBERS[event.security_risk],
        "kernel_init_code": action.kernel_init_code,
    }
    return ActionForm("run_ipython", args, event.hard_timeout)


_TOOL_FORMS: Final[dict[type[Action], _Translation]] = {
    TerminalAction: _run,
    NamedTerminalAction: _run,
    FreshTerminalAction: _run,
    IPythonAction: _cell,
    FileEditorAction: _edit_or_read,
    PlanningFileEditorAction: _edit_or_read,
    LLMEditAction: _draft,
    ApplyPatchAction: _patch,
    ReadFileAction: _whole_file,
    WriteFileAction: _whole_file,
    EditAction: _whole_file,
    ListDirectoryAction: _whole_file,
    ThinkAction: _think,
    FinishAction: _finish,
    CondensationRequestAction: _condensation_request,
    TaskTrackerAction: _task_tracking,
    DelegateAction: _delegate,
    TaskAction: _task,
    AgentDelegateAction: _agent_delegate,
}
