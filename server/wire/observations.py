"""The forms of events that are observations on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from agent_core.agent.client_tool import ClientToolObservation
from agent_core.events.branches import FilesRestored
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    LoopDetected,
    RecallObservation,
    SkillLeftOut,
    ToolServerFailed,
)
from agent_core.events.event import Event
from agent_core.events.llm_events import AgentErrorEvent, ObservationEvent, UserRejectObservation
from agent_core.events.messages import ImageContent
from agent_core.events.schema import Observation
from agent_core.mcp.tool import MCPToolObservation
from agent_core.tools.apply_patch import ApplyPatchObservation
from agent_core.tools.browser import BrowserNavigateTool, BrowserObservation
from agent_core.tools.builtin import CondensationRequestObservation, FinishObservation, ThinkObservation
from agent_core.tools.delegate import AgentDelegateObservation, DelegateObservation, TaskObservation
from agent_core.tools.file_editor import FileEditorObservation, PlanningFileEditorObservation
from agent_core.tools.file_reader import FileReaderObservation
from agent_core.tools.gemini_files import (
    EditObservation,
    ListDirectoryObservation,
    ReadFileObservation,
    WriteFileObservation,
)
from agent_core.tools.ipython import IPythonObservation
from agent_core.tools.llm_edit import LLMEditObservation
from agent_core.tools.task_tracker import TaskTrackerObservation
from agent_core.tools.terminal import TerminalObservation
from server.wire.forms import ObservationForm, task_list_form

_Translation = Callable[[Any, ObservationEvent], ObservationForm]
_PNG: Final = "data:image/png;base64,"
_JPEG: Final = "data:image/jpeg;base64,"
_REJECTED_BY: Final = {"user": "the user", "hook": "a hook"}
_RECALLED: Final = (
    *("recall_type", "repo_name", "repo_directory", "repo_branch", "repo_instructions", "runtime_hosts"),
    *("additional_agent_instructions", "date", "custom_secrets_descriptions", "conversation_instructions"),
    "working_dir",
)
_PLAIN_REASON: Final = UserRejectObservation.model_fields["rejection_reason"].default


def _result(event: ObservationEvent) -> ObservationForm | None:
    """A tool's result in the form of its public type; any other tool's as an MCP result.

    What answers a `finish` or a `condensation_request` says nothing that the action did not say: it is not sent.
    """
    if isinstance(event.observation, FinishObservation | CondensationRequestObservation):
        return None
    translate: _Translation = _RESULT_FORMS.get(type(event.observation), _any_tool)
    return translate(event.observation, event)


def _rejected(event: UserRejectObservation) -> ObservationForm:
    reason = "It was not executed." if event.rejection_reason == _PLAIN_REASON else event.rejection_reason
    text = f"Action has been rejected by {_REJECTED_BY[event.rejection_source]}! {reason}"
    return ObservationForm("user_rejected", text, {})


_WITH_DETAIL = (AgentState.ERROR, AgentState.LOADING)


def _agent_state(event: AgentStateChanged) -> ObservationForm:
    """The agent's state. An error, or what holds it back, is said in words, too: an addition to the protocol."""
    extras = {"agent_state": event.agent_state.value, "reason": event.reason}
    if event.agent_state in _WITH_DETAIL and event.detail and event.detail != event.reason:
        extras["detail"] = event.detail
    return ObservationForm("agent_state_changed", "", extras)


def _recalled(event: RecallObservation) -> ObservationForm | None:
    if event.is_empty:
        return None
    extras = {
        **{name: getattr(event, name) for name in _RECALLED},
        "microagent_knowledge": [
            {"name": known.name, "trigger": known.trigger, "content": known.content}
            for known in event.microagent_knowledge
        ],
    }
    return ObservationForm("recall", ObservationForm("recall", "", extras).message, extras)


OBSERVATION_FORMS: Final[dict[type[Event], Callable[[Any], ObservationForm | None]]] = {
    ObservationEvent: _result,
    UserRejectObservation: _rejected,
    AgentErrorEvent: lambda event: ObservationForm("error", event.error, {"error_id": event.error_id}),
    AgentStateChanged: _agent_state,
    RecallObservation: _recalled,
    FilesRestored: lambda event: ObservationForm("rewind", event.note, {"files_of": event.files_of}),  # an addition
    LoopDetected: lambda event: ObservationForm(
        "loop_detection", f"The agent got stuck in a loop: {event.pattern}.", {}
    ),
    SkillLeftOut: lambda event: ObservationForm(
        "error", event.detail, {"error_id": "", "path": event.path, "line": event.line}
    ),
    ToolServerFailed: lambda event: ObservationForm(  # answers no action
        "error", event.detail, {"error_id": "", **({"sign_in": event.sign_in} if event.sign_in else {})}
    ),
}
"""What makes the form of each type of event; None stands for an event that clients are not sent."""


def _run(observation: TerminalObservation, event: ObservationEvent) -> ObservationForm:
    suffix = observation.suffix
    metadata = {
        "exit_code": observation.exit_code,
        "pid": observation.pid,
        "username": observation.username or None,
        "hostname": observation.hostname or None,
        "working_dir": observation.working_dir or None,
        "py_interpreter_path": observation.python,
        "prefix": observation.prefix,
        "suffix": f"\n{suffix}" if suffix else "",
    }
    extras = {"command": observation.command, "metadata": metadata, "hidden": event.hidden}
    return ObservationForm("run", observation.text, extras)


def _edit_or_read(observation: FileEditorObservation, event: ObservationEvent) -> ObservationForm:
    content = observation.text
    if observation.is_error and not content.startswith("ERROR:\n"):
        # The client tells success from failure by this word.
        content = f"ERROR:\n{content}"
    if observation.command == "view":
        images = [url for part in observation.content if isinstance(part, ImageContent) for url in part.image_urls]
        shown: dict[str, Any] = {"path": observation.path, "impl_source": "oh_aci"}
        if images:
            shown["image_urls"] = images  # an addition to the protocol
        return ObservationForm("read", content, shown)
    extras = {
        "path": observation.path,
        "prev_exist": observation.prev_exist,
        "old_content": observation.old_content,
        "new_content": observation.new_content,
        "impl_source": "llm_based_edit" if isinstance(observation, LLMEditObservation) else "oh_aci",
        "diff": observation.diff,
        "_diff_cache": None,
    }
    return ObservationForm("edit", content, extras)


def _exactly_read(observation: FileReaderObservation, event: ObservationEvent) -> ObservationForm:
    if observation.is_error:
        return ObservationForm("error", observation.text, {"error_id": ""})
    return ObservationForm("read", observation.text, {"path": observation.path, "impl_source": "default"})


def _written(observation: WriteFileObservation, event: ObservationEvent) -> ObservationForm:
    if event.source != "user":
        return _edit_or_read(observation, event)
    if observation.is_error:
        return ObservationForm("error", observation.text, {"error_id": ""})
    return ObservationForm("write", observation.text, {"path": observation.path})


def _patch(observation: ApplyPatchObservation, event: ObservationEvent) -> ObservationForm:
    edit = FileEditorObservation(
        content=observation.content,
        is_error=observation.is_error,
        command="str_replace",
        path=", ".join(observation.paths),
        prev_exist=True,
        diff=observation.diff,
    )
    return _edit_or_read(edit, event)


def _task_tracking(observation: TaskTrackerObservation, event: ObservationEvent) -> ObservationForm:
    extras = {"command": observation.command, "task_list": task_list_form(observation.task_list)}
    return ObservationForm("task_tracking", observation.text, extras)


def _mcp(observation: MCPToolObservation, event: ObservationEvent) -> ObservationForm:
    # The result as the server gave it; the client looks for its isError.
    content = json.dumps(observation.to_result(), ensure_ascii=False)
    return ObservationForm("mcp", content, {"name": observation.name, "arguments": observation.arguments})


def _delegate(observation: DelegateObservation | AgentDelegateObservation, event: ObservationEvent) -> ObservationForm:
    return ObservationForm("delegate", observation.text, {"outputs": dict(observation.outputs)})


def _task(observation: TaskObservation, event: ObservationEvent) -> ObservationForm:
    outputs = {"task_id": observation.task_id, "status": observation.status, "result": observation.result}
    return ObservationForm("delegate", observation.text, {"outputs": outputs if observation.task_id else {}})


def _any_tool(observation: Observation, event: ObservationEvent) -> ObservationForm:
    content = observation.text
    if observation.is_error:
        # The client tells success from failure by a JSON result's isError.
        content = json.dumps({"content": [{"type": "text", "text": content}], "isError": True}, ensure_ascii=False)
    return ObservationForm("mcp", content, {"name": event.tool_name, "arguments": {}})


def _browser(observation: BrowserObservation, event: ObservationEvent) -> ObservationForm:
    opened = event.tool_name == BrowserNavigateTool.tool_name
    extras: dict[str, Any] = {
        "url": observation.url,
        "trigger_by_action": "browse" if opened else "browse_interactive",
        "screenshot": _as_png(observation.screenshot),
        "screenshot_path": observation.screenshot_path or None,
        "set_of_marks": observation.set_of_marks,
        "error": observation.is_error,
        "goal_image_urls": [],
        "open_pages_urls": [page.url for page in observation.open_pages],
        "active_page_index": observation.active_page_index,
        "dom_object": {},
        "axtree_object": {},
        "extra_element_properties": {},
        "last_browser_action": observation.last_action,
        "last_browser_action_error": observation.last_action_error,
        "focused_element_bid": observation.focused_element,
        "filter_visible_only": observation.visible_only,
    }
    return ObservationForm("browse", observation.text, extras)


def _as_png(picture: str) -> str:
    return _PNG + picture.removeprefix(_JPEG) if picture.startswith(_JPEG) else picture


_RESULT_FORMS: Final[dict[type[Observation], _Translation]] = {
    TerminalObservation: _run,
    BrowserObservation: _browser,
    IPythonObservation: lambda observation, _: ObservationForm(
        "run_ipython", observation.text, {"code": observation.code, "image_urls": observation.image_urls}
    ),
    FileEditorObservation: _edit_or_read,
    FileReaderObservation: _exactly_read,
    PlanningFileEditorObservation: _edit_or_read,
    LLMEditObservation: _edit_or_read,
    ApplyPatchObservation: _patch,
    ReadFileObservation: _edit_or_read,
    WriteFileObservation: _written,
    EditObservation: _edit_or_read,
    ListDirectoryObservation: _edit_or_read,
    ThinkObservation: lambda observation, _: ObservationForm("think", observation.text, {}),
    MCPToolObservation: _mcp,
    ClientToolObservation: _mcp,
    TaskTrackerObservation: _task_tracking,
    DelegateObservation: _delegate,
    TaskObservation: _task,
    AgentDelegateObservation: _delegate,
}
