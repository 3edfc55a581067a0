"""Actions of the tools for files, as the reads, writes and edits that they amount to."""

from __future__ import annotations

from typing import Any

from agent_core.events.llm_events import ActionEvent
from agent_core.tools.apply_patch import ApplyPatchAction
from agent_core.tools.file_editor import FileEditorAction
from agent_core.tools.gemini_files import EditAction, ListDirectoryAction, ReadFileAction, WriteFileAction
from agent_core.tools.llm_edit import LLMEditAction
from server.wire.forms import RISK_NUMBERS, ActionForm

GeminiFileAction = ReadFileAction | WriteFileAction | EditAction | ListDirectoryAction


def read_by(source: str) -> str:
    """`impl_source` of a read: the agent reads by a command of its editor, the user by the protocol's own default."""
    return "default" if source == "user" else "oh_aci"


def edit_or_read_form(action: FileEditorAction, event: ActionEvent, thought: str) -> ActionForm:
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


def whole_file_form(action: GeminiFileAction, event: ActionEvent, thought: str) -> ActionForm:
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
    return edit_or_read_form(same, event, thought)


def draft_form(action: LLMEditAction, event: ActionEvent, thought: str) -> ActionForm:
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


def patch_form(action: ApplyPatchAction, event: ActionEvent, thought: str) -> ActionForm:
    """A change of several files, as an edit of all of them."""
    # The protocol has no type for changes of several files; its clients show an edit's path and diff.
    edit = FileEditorAction(command="str_replace", path=", ".join(action.paths))
    form = edit_or_read_form(edit, event, thought)
    return form._replace(args={**form.args, "command": "", "content": action.patch})
