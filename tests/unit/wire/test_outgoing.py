"""Our own events in the public JSON, compared whole."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

import pytest

from agent_core.events.branches import FilesRestored, Rewind
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    Condensation,
    CondensationRequest,
    ConversationError,
    ForeignEvent,
    LoopDetected,
    RecallAction,
    RecalledKnowledge,
    RecallObservation,
    SkillLeftOut,
    ToolServerFailed,
)
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    MetricsSnapshot,
    ObservationEvent,
    SystemPromptEvent,
    TokenUsage,
    UserRejectObservation,
)
from agent_core.events.messages import ImageContent, Message, MessageToolCall, TextContent
from agent_core.events.schema import Action, Observation, UnknownAction, UnknownObservation
from agent_core.events.serialization import AnyEvent
from agent_core.tools.apply_patch import ApplyPatchAction, ApplyPatchObservation
from agent_core.tools.builtin import (
    CondensationRequestAction,
    CondensationRequestObservation,
    FinishAction,
    FinishObservation,
    ThinkAction,
    ThinkObservation,
)
from agent_core.tools.file_editor import FileEditorAction, FileEditorObservation, PlanningFileEditorAction
from agent_core.tools.gemini_files import EditAction, ReadFileAction, WriteFileAction, WriteFileObservation
from agent_core.tools.llm_edit import LLMEditAction, LLMEditObservation
from agent_core.tools.task_tracker import TaskItem, TaskTrackerAction, TaskTrackerObservation
from agent_core.tools.terminal import NamedTerminalAction, TerminalAction, TerminalObservation
from server.wire.envelope import to_record, to_wire, wire_time
from server.wire.fields import ACTIONS, OBSERVATIONS
from server.wire.frames import to_json

TIME = datetime(2025, 11, 15, 9, 43, 21, 123456, tzinfo=UTC)
TEXT = "2025-11-15T09:43:21.123456Z"


class WireSearchAction(Action):
    """A tool that the protocol does not know."""

    query: str
    limits: dict[str, int]


def head(event_id: int, message: str, source: str = "agent", **more: Any) -> dict[str, Any]:
    return {"id": event_id, "timestamp": TEXT, "source": source, "message": message, **more}


def llm_metrics(cost: float, *, budget: float | None, model: str, prompt_tokens: int) -> dict[str, Any]:
    return {
        "accumulated_cost": cost,
        "max_budget_per_task": budget,
        "accumulated_token_usage": {
            "model": model,
            "prompt_tokens": prompt_tokens,
            "completion_tokens": 0,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "context_window": 0,
            "per_turn_token": 0,
            "response_id": "",
        },
        "costs": [],
        "response_latencies": [],
        "token_usages": [],
    }


def action(name: str, args: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"action": name, "args": args, **more}


def observation(name: str, content: str, extras: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"observation": name, "content": content, "extras": extras, **more}


def tool_event(act: Action | None, tool: str, **fields: Any) -> ActionEvent:
    return ActionEvent(id=7, timestamp=TIME, action=act, tool_name=tool, **fields)


def decided(decision: Literal["confirmed", "rejected"], action: ActionEvent) -> ActionDecision:
    return ActionDecision(id=9, timestamp=TIME, cause=7, decision=decision, action=action)


WAITING_FINISH = tool_event(FinishAction(message="Done."), "finish", awaits_confirmation=True)


def result_event(result: Observation, tool: str = "terminal", **fields: Any) -> ObservationEvent:
    return ObservationEvent(
        **{
            "id": 8,
            "timestamp": TIME,
            "source": "agent",
            "cause": 7,
            "observation": result,
            "tool_name": tool,
            **fields,
        }
    )


RUN_ARGS = {
    "command": "ls",
    "is_input": False,
    "thought": "",
    "blocking": False,
    "is_static": False,
    "cwd": None,
    "hidden": False,
    "confirmation_state": "confirmed",
    "security_risk": -1,
}
EDIT_ARGS = {
    "path": "/a",
    "command": "str_replace",
    "file_text": None,
    "old_str": "a",
    "new_str": "b",
    "insert_line": None,
    "content": "",
    "start": 1,
    "end": -1,
    "thought": "",
    "security_risk": 1,
    "impl_source": "oh_aci",
}
READ_ARGS = {
    "path": "/a",
    "start": 0,
    "end": -1,
    "thought": "look",
    "security_risk": -1,
    "impl_source": "oh_aci",
    "view_range": [1, 2],
}
RECALL_EXTRAS = {
    "recall_type": "workspace_context",
    "repo_name": "r",
    "repo_directory": "",
    "repo_branch": "",
    "repo_instructions": "",
    "runtime_hosts": {},
    "additional_agent_instructions": "",
    "date": "",
    "custom_secrets_descriptions": {},
    "conversation_instructions": "",
    "working_dir": "/workspace",
    "microagent_knowledge": [{"name": "n", "trigger": "t", "content": "c"}],
}

CASES: list[tuple[str, AnyEvent, dict[str, Any] | None]] = [
    (
        "a system prompt with its dynamic part",
        SystemPromptEvent(
            id=1,
            timestamp=TIME,
            system_prompt=TextContent(text="be good"),
            dynamic_context=TextContent(text="today"),
            tools=[{"type": "function"}],
            agent_class="CodeActAgent",
            version="1.0",
        ),
        head(1, "be good\n\ntoday")
        | action(
            "system",
            {
                "content": "be good\n\ntoday",
                "tools": [{"type": "function"}],
                "openhands_version": "1.0",
                "agent_class": "CodeActAgent",
            },
        ),
    ),
    (
        "a user's message",
        MessageEvent(id=5, timestamp=TIME, source="user", llm_message=Message.user("hi")),
        head(5, "hi", "user")
        | action(
            "message",
            {"content": "hi", "file_urls": [], "image_urls": [], "wait_for_response": False, "security_risk": -1},
        ),
    ),
    (
        "a user's message with an image and a file",
        MessageEvent(
            id=5,
            timestamp=TIME,
            source="user",
            llm_message=Message.user("hi", image_urls=["data:image/png;base64,AA"]),
            file_urls=["/workspace/f"],
        ),
        head(5, "hi", "user")
        | action(
            "message",
            {
                "content": "hi",
                "file_urls": ["/workspace/f"],
                "image_urls": ["data:image/png;base64,AA"],
                "wait_for_response": False,
                "security_risk": -1,
            },
        ),
    ),
    (
        "an agent's message that waits",
        MessageEvent(
            id=6, timestamp=TIME, source="agent", llm_message=Message.assistant("Which?"), wait_for_response=True
        ),
        head(6, "Which?")
        | action(
            "message",
            {
                "content": "Which?",
                "file_urls": None,
                "image_urls": None,
                "wait_for_response": True,
                "security_risk": -1,
            },
        ),
    ),
    (
        "a nudge of the environment is not the user's business",
        MessageEvent(id=6, timestamp=TIME, source="environment", llm_message=Message.user("go on")),
        None,
    ),
    (
        "a patch is shown as an edit of its files",
        tool_event(
            ApplyPatchAction(patch="*** Begin Patch\n*** Delete File: a\n*** Add File: b\n*** End Patch"), "apply_patch"
        ),
        head(7, "")
        | action(
            "edit",
            EDIT_ARGS
            | {
                "path": "a, b",
                "command": "",
                "old_str": None,
                "new_str": None,
                "content": "*** Begin Patch\n*** Delete File: a\n*** Add File: b\n*** End Patch",
                "security_risk": -1,
            },
        ),
    ),
    (
        "lines that are read in the way of Gemini",
        tool_event(ReadFileAction(file_path="/a", offset=4, limit=10), "read_file", thought=[TextContent(text="look")]),
        head(7, "Reading file: /a") | action("read", READ_ARGS | {"view_range": [5, 14]}),
    ),
    (
        "an edit in the way of Gemini",
        tool_event(EditAction(file_path="/a", old_string="a", new_string="b"), "edit", security_risk="MEDIUM"),
        head(7, "") | action("edit", EDIT_ARGS),
    ),
    (
        "what a patch has changed",
        result_event(
            ApplyPatchObservation.from_text("Done!\nM a", paths=["/workspace/a"], diff="-x\n+y"), "apply_patch"
        ),
        head(8, "I edited the file /workspace/a.", cause=7)
        | observation(
            "edit",
            "Done!\nM a",
            {
                "path": "/workspace/a",
                "prev_exist": True,
                "old_content": None,
                "new_content": None,
                "impl_source": "oh_aci",
                "diff": "-x\n+y",
                "_diff_cache": None,
            },
        ),
    ),
    (
        "the plan is edited like any file",
        tool_event(
            PlanningFileEditorAction(command="str_replace", path="/a", old_str="a", new_str="b"),
            "planning_file_editor",
            security_risk="MEDIUM",
        ),
        head(7, "") | action("edit", EDIT_ARGS),
    ),
    (
        "a list of tasks; one without an id has its number",
        tool_event(
            TaskTrackerAction(
                command="plan", task_list=[TaskItem(title="a", status="done", notes="n"), TaskItem(title="b", id="x")]
            ),
            "task_tracker",
            thought=[TextContent(text="so")],
        ),
        head(7, "Managing 2 task items.")
        | action(
            "task_tracking",
            {
                "command": "plan",
                "task_list": [
                    {"id": "1", "title": "a", "status": "done", "notes": "n"},
                    {"id": "x", "title": "b", "status": "todo", "notes": ""},
                ],
                "thought": "so",
            },
        ),
    ),
    (
        "the list of tasks as it is",
        result_event(
            TaskTrackerObservation.from_text("# Task List", command="view", task_list=[TaskItem(title="b")]),
            "task_tracker",
        ),
        head(8, "# Task List", cause=7)
        | observation(
            "task_tracking",
            "# Task List",
            {"command": "view", "task_list": [{"id": "1", "title": "b", "status": "todo", "notes": ""}]},
        ),
    ),
    (
        "a command of the model",
        tool_event(
            TerminalAction(command="ls", timeout=120),
            "terminal",
            thought=[TextContent(text="look around")],
            tool_call_id="call_1",
            tool_call=MessageToolCall(id="call_1", name="terminal", arguments='{"command":"ls"}'),
            llm_response_id="r1",
            calls_in_response=2,
            security_risk="HIGH",
            metrics=MetricsSnapshot(
                accumulated_cost=0.5, usage=TokenUsage(model="m", prompt_tokens=3, reasoning_tokens=1)
            ),
        ),
        head(7, "Running command: ls")
        | {
            "action": "run",
            "tool_call_metadata": {
                "function_name": "terminal",
                "tool_call_id": "call_1",
                "model_response": {
                    "id": "r1",
                    "created": 1763199801,
                    "model": "m",
                    "object": "chat.completion",
                    "choices": [],
                },
                "total_calls_in_response": 2,
            },
            "llm_metrics": llm_metrics(0.5, budget=None, model="m", prompt_tokens=3),
            "args": RUN_ARGS | {"thought": "look around", "blocking": True, "security_risk": 2},
            "timeout": 120.0,
        },
    ),
    (
        "a command of the user",
        tool_event(TerminalAction(command="ls"), "terminal", source="user", hidden=True),
        head(7, "Running command: ls", "user") | action("run", RUN_ARGS | {"hidden": True}),
    ),
    (
        "a command that awaits confirmation",
        tool_event(TerminalAction(command="ls"), "terminal", awaits_confirmation=True),
        head(7, "Running command: ls") | action("run", RUN_ARGS | {"confirmation_state": "awaiting_confirmation"}),
    ),
    (
        "the same command, confirmed",
        ActionDecision(
            id=9,
            timestamp=TIME,
            cause=7,
            decision="confirmed",
            action=tool_event(
                TerminalAction(command="ls"),
                "terminal",
                thought=[TextContent(text="look")],
                awaits_confirmation=True,
            ),
        ),
        head(9, "Running command: ls") | action("run", RUN_ARGS),
    ),
    (
        "an edit",
        tool_event(
            FileEditorAction(command="str_replace", path="/a", old_str="a", new_str="b"),
            "file_editor",
            security_risk="MEDIUM",
        ),
        head(7, "") | action("edit", EDIT_ARGS),
    ),
    (
        "an edit that was rejected has the field that clients look for",
        ActionDecision(
            id=9,
            timestamp=TIME,
            cause=7,
            decision="rejected",
            action=tool_event(
                FileEditorAction(command="str_replace", path="/a", old_str="a", new_str="b"),
                "file_editor",
                security_risk="MEDIUM",
                awaits_confirmation=True,
            ),
        ),
        head(9, "") | action("edit", EDIT_ARGS | {"confirmation_state": "rejected"}),
    ),
    (
        "a finish that waits for what is asked about beside it is shown when it is done",
        WAITING_FINISH,
        None,
    ),
    (
        "as it is then",
        decided("confirmed", WAITING_FINISH),
        head(9, "All done! What's next on the agenda?")
        | action("finish", {"final_thought": "Done.", "outputs": {}, "thought": "", "confirmation_state": "confirmed"}),
    ),
    (
        "and never when it was refused",
        decided("rejected", WAITING_FINISH),
        None,
    ),
    (
        "a file that the user writes",
        tool_event(WriteFileAction(file_path="/a", content="x"), "write_file", source="user"),
        head(7, "Writing file: /a", source="user")
        | action("write", {"path": "/a", "content": "x", "start": 0, "end": -1, "thought": "", "security_risk": -1}),
    ),
    (
        "a drafted edit",
        tool_event(LLMEditAction(path="/a", content="x", start=2, end=3), "edit_file", security_risk="MEDIUM"),
        head(7, "")
        | action(
            "edit",
            EDIT_ARGS
            | {
                "command": "",
                "old_str": None,
                "new_str": None,
                "content": "x",
                "start": 2,
                "end": 3,
                "impl_source": "llm_based_edit",
            },
        ),
    ),
    (
        "looking at a file",
        tool_event(
            FileEditorAction(command="view", path="/a", view_range=[1, 2]),
            "file_editor",
            thought=[TextContent(text="look")],
        ),
        head(7, "Reading file: /a") | action("read", READ_ARGS),
    ),
    (
        "a thought, with the text before it",
        tool_event(ThinkAction(thought="hm"), "think", thought=[TextContent(text="well")]),
        head(7, "I am thinking...: well\nhm") | action("think", {"thought": "well\nhm"}),
    ),
    (
        "the end",
        tool_event(FinishAction(message="Done."), "finish"),
        head(7, "All done! What's next on the agenda?")
        | action("finish", {"final_thought": "Done.", "outputs": {}, "thought": ""}),
    ),
    (
        "any other tool, as an MCP call",
        tool_event(WireSearchAction(query="x", limits={"n": 1}), "search", awaits_confirmation=True),
        head(
            7,
            "I am interacting with the MCP server with name:\n```\nsearch\n```\nand arguments:\n```\n"
            "{'query': 'x', 'limits': {'n': 1}}\n```",
        )
        | action(
            "call_tool_mcp",
            {
                "name": "search",
                "arguments": {"query": "x", "limits": {"n": 1}},
                "thought": "",
                "security_risk": -1,
                "confirmation_state": "awaiting_confirmation",
            },
        ),
    ),
    (
        "a tool that this process does not have",
        tool_event(UnknownAction(original_kind="GoneAction", data={"a": [1]}), "gone"),
        head(
            7,
            "I am interacting with the MCP server with name:\n```\ngone\n```\nand arguments:\n```\n{'a': [1]}\n```",
        )
        | action("call_tool_mcp", {"name": "gone", "arguments": {"a": [1]}, "thought": "", "security_risk": -1}),
    ),
    ("a call that could not be validated says nothing", tool_event(None, "terminal"), None),
    (
        "unless the model said something with it",
        tool_event(None, "terminal", thought=[TextContent(text="I try")]),
        head(7, "I try")
        | action(
            "message",
            {
                "content": "I try",
                "file_urls": None,
                "image_urls": None,
                "wait_for_response": False,
                "security_risk": -1,
                "thought": "I try",  # what a client keeps of an action once that is answered
            },
        ),
    ),
    (
        "a command's output",
        result_event(
            TerminalObservation.from_text(
                "a.txt",
                command="ls",
                exit_code=0,
                working_dir="/workspace",
                pid=4,
                username="u",
                hostname="h",
                python="/usr/bin/python3",
            )
        ),
        head(8, "Command `ls` executed with exit code 0.", cause=7)
        | observation(
            "run",
            "a.txt",
            {
                "command": "ls",
                "metadata": {
                    "exit_code": 0,
                    "pid": 4,
                    "username": "u",
                    "hostname": "h",
                    "working_dir": "/workspace",
                    "py_interpreter_path": "/usr/bin/python3",
                    "prefix": "",
                    "suffix": "\n[The command completed with exit code 0.]\n[Current working directory: /workspace]\n"
                    "[Python interpreter: /usr/bin/python3]\n[Command finished with exit code 0]",
                },
                "hidden": False,
            },
            success=True,
        ),
    ),
    (
        "a confirmed command's output answers the confirmed action",
        result_event(TerminalObservation(command="ls"), source="user", hidden=True, reissued_as=9),
        head(8, "Command `ls` executed with exit code -1.", "user", cause=9)
        | observation(
            "run",
            "",
            {
                "command": "ls",
                "metadata": {
                    "exit_code": -1,
                    "pid": -1,
                    "username": None,
                    "hostname": None,
                    "working_dir": None,
                    "py_interpreter_path": None,
                    "prefix": "",
                    "suffix": "",
                },
                "hidden": True,
            },
            success=False,
        ),
    ),
    (
        "an edit's result",
        result_event(
            FileEditorObservation.from_text(
                "ok",
                command="str_replace",
                path="/a",
                prev_exist=True,
                old_content="a",
                new_content="b",
                diff="-a\n+b",
            ),
            "file_editor",
        ),
        head(8, "I edited the file /a.", cause=7)
        | observation(
            "edit",
            "ok",
            {
                "path": "/a",
                "prev_exist": True,
                "old_content": "a",
                "new_content": "b",
                "impl_source": "oh_aci",
                "diff": "-a\n+b",
                "_diff_cache": None,
            },
        ),
    ),
    (
        "a file's content that could not be had, in the word that clients look for",
        result_event(
            FileEditorObservation.from_text("no such file", is_error=True, command="view", path="/a"), "file_editor"
        ),
        head(8, "I read the file /a.", cause=7)
        | observation("read", "ERROR:\nno such file", {"path": "/a", "impl_source": "oh_aci"}),
    ),
    (
        "an image that was looked at",
        result_event(
            FileEditorObservation(
                content=[TextContent(text="The image /a."), ImageContent(image_urls=["data:image/png;base64,AA=="])],
                command="view",
                path="/a",
            ),
            "file_editor",
        ),
        head(8, "I read the file /a.", cause=7)
        | observation(
            "read",
            "The image /a.",
            {"path": "/a", "impl_source": "oh_aci", "image_urls": ["data:image/png;base64,AA=="]},
        ),
    ),
    (
        "a drafted edit's result, which was written with an error",
        result_event(
            LLMEditObservation.from_text(
                "Error: no", is_error=True, command="str_replace", path="/a", prev_exist=True, diff="-a\n+b"
            ),
            "edit_file",
        ),
        head(8, "I edited the file /a.", cause=7)
        | observation(
            "edit",
            "ERROR:\nError: no",
            {
                "path": "/a",
                "prev_exist": True,
                "old_content": None,
                "new_content": None,
                "impl_source": "llm_based_edit",
                "diff": "-a\n+b",
                "_diff_cache": None,
            },
        ),
    ),
    (
        "a file that the user wrote",
        result_event(
            WriteFileObservation.from_text("Wrote /a.", command="create", path="/a", diff="+x"),
            "write_file",
            source="user",
        ),
        head(8, "I wrote to the file /a.", cause=7, source="user") | observation("write", "Wrote /a.", {"path": "/a"}),
    ),
    (
        "a file that the user could not write",
        result_event(WriteFileObservation.from_text("no", is_error=True, path="/a"), "write_file", source="user"),
        head(8, "no", cause=7, source="user") | observation("error", "no", {"error_id": ""}),
    ),
    (
        "a thought's acknowledgement",
        result_event(ThinkObservation.from_text("Your thought has been logged."), "think"),
        head(8, "Your thought has been logged.", cause=7) | observation("think", "Your thought has been logged.", {}),
    ),
    (
        "the agent's own wish for a condensation",
        tool_event(CondensationRequestAction(), "request_condensation"),
        head(7, "Requesting a condensation of the conversation history.") | action("condensation_request", {}),
    ),
    ("which is no second one", CondensationRequest(id=8, timestamp=TIME, cause=7), None),
    (
        "and is answered by nothing",
        result_event(CondensationRequestObservation.from_text("Done."), "request_condensation"),
        None,
    ),
    ("a finish is answered by nothing", result_event(FinishObservation.from_text("Done."), "finish"), None),
    (
        "any other tool's result",
        result_event(Observation.from_text("found"), "search"),
        head(8, "found", cause=7) | observation("mcp", "found", {"name": "search", "arguments": {}}),
    ),
    (
        "any other tool's failure",
        result_event(UnknownObservation.from_text("nö", is_error=True, original_kind="X"), "search"),
        head(8, '{"content": [{"type": "text", "text": "nö"}], "isError": true}', cause=7)
        | observation(
            "mcp",
            '{"content": [{"type": "text", "text": "nö"}], "isError": true}',
            {"name": "search", "arguments": {}},
        ),
    ),
    (
        "an error",
        AgentErrorEvent(id=8, timestamp=TIME, cause=7, error="bad", error_id="AGENT_ERROR$BAD_ACTION"),
        head(8, "bad", cause=7) | observation("error", "bad", {"error_id": "AGENT_ERROR$BAD_ACTION"}),
    ),
    (
        "an error that answers nothing",
        AgentErrorEvent(id=8, timestamp=TIME, error="bad"),
        head(8, "bad") | observation("error", "bad", {"error_id": ""}),
    ),
    (
        "a rejection is the agent's, under the action's new id",
        UserRejectObservation(id=8, timestamp=TIME, source="user", cause=7, tool_name="terminal", reissued_as=9),
        head(8, "Action has been rejected by the user! It was not executed.", cause=9)
        | observation("user_rejected", "Action has been rejected by the user! It was not executed.", {}),
    ),
    (
        "a rejection with a reason",
        UserRejectObservation(
            id=8, timestamp=TIME, cause=7, tool_name="terminal", rejection_reason="No.", rejection_source="hook"
        ),
        head(8, "Action has been rejected by a hook! No.", cause=7)
        | observation("user_rejected", "Action has been rejected by a hook! No.", {}),
    ),
    (
        "a state",
        AgentStateChanged(id=3, timestamp=TIME, agent_state=AgentState.ERROR, reason="STATUS$ERROR", detail="x"),
        head(3, "")
        | observation("agent_state_changed", "", {"agent_state": "error", "reason": "STATUS$ERROR", "detail": "x"}),
    ),
    (
        "an error whose reason is in words",
        AgentStateChanged(id=3, timestamp=TIME, agent_state=AgentState.ERROR, reason="It broke.", detail="It broke."),
        head(3, "") | observation("agent_state_changed", "", {"agent_state": "error", "reason": "It broke."}),
    ),
    (
        "a state that is no error, whatever is known of it",
        AgentStateChanged(id=3, timestamp=TIME, agent_state=AgentState.RATE_LIMITED, detail="429"),
        head(3, "") | observation("agent_state_changed", "", {"agent_state": "rate_limited", "reason": ""}),
    ),
    (
        "a user's wish",
        ChangeAgentState(id=3, timestamp=TIME, source="user", agent_state=AgentState.STOPPED),
        head(3, "Agent state changed to stopped", "user")
        | action("change_agent_state", {"agent_state": "stopped", "thought": ""}),
    ),
    (
        "a question to the memory has no cause on the wire",
        RecallAction(id=3, timestamp=TIME, recall_type="knowledge", query="hi", cause=2),
        head(3, "Retrieving content for: hi", "user")
        | action("recall", {"recall_type": "knowledge", "query": "hi", "thought": ""}),
    ),
    (
        "what the memory knows",
        RecallObservation(
            id=4,
            timestamp=TIME,
            cause=3,
            recall_type="workspace_context",
            repo_name="r",
            working_dir="/workspace",
            microagent_knowledge=[RecalledKnowledge(name="n", trigger="t", content="c")],
        ),
        head(4, "Added workspace context", cause=3) | observation("recall", "Added workspace context", RECALL_EXTRAS),
    ),
    (
        "a memory that knows nothing is silent",
        RecallObservation(id=4, timestamp=TIME, cause=3, recall_type="knowledge"),
        None,
    ),
    (
        "a condensation",
        Condensation(id=4, timestamp=TIME, forgotten_event_ids=[1, 2], summary="s", summary_offset=4),
        head(4, "Summary: s")
        | action(
            "condensation",
            {
                "forgotten_event_ids": [1, 2],
                "forgotten_events_start_id": None,
                "forgotten_events_end_id": None,
                "summary": "s",
                "summary_offset": 4,
            },
        ),
    ),
    (
        "a wish for one",
        CondensationRequest(id=4, timestamp=TIME),
        head(4, "Requesting a condensation of the conversation history.") | action("condensation_request", {}),
    ),
    (
        "an error outside any action is told by the state",
        ConversationError(id=4, timestamp=TIME, code="c", detail="d"),
        None,
    ),
]

ADDITIONS: list[tuple[str, AnyEvent, dict[str, Any]]] = [
    (
        "going back to the very first event",
        Rewind(id=9, timestamp=TIME, source="user", to=0),
        action("rewind", {"to": 0, "note": "", "thought": ""})
        | {"message": "The conversation was taken back to an earlier point (event 0)."},
    ),
    (
        "going back to before it",
        Rewind(id=9, timestamp=TIME, source="user", to=-1),
        action("rewind", {"to": None, "note": "", "thought": ""})
        | {"message": "The conversation was taken back to its beginning."},
    ),
    (
        "where a fork begins",
        Rewind(id=9, timestamp=TIME, source="user", to=3, forked_from="c0"),
        action("rewind", {"to": 3, "note": "", "thought": "", "forked_from": "c0"})
        | {"message": "The conversation branches off here."},
    ),
    (
        "what became of the files",
        FilesRestored(id=9, timestamp=TIME, source="agent", cause=3, note="They are as they were.", files_of=2),
        observation("rewind", "They are as they were.", {"files_of": 2}, cause=3),
    ),
    (
        "a loop",
        LoopDetected(id=9, timestamp=TIME, start=1, pattern="the same again"),
        observation("loop_detection", "The agent got stuck in a loop: the same again.", {}),
    ),
    (
        "a server of tools that cannot be used is an error of no action",
        ToolServerFailed(id=9, timestamp=TIME, server="s", detail="it ended"),
        observation("error", "it ended", {"error_id": ""}),
    ),
    (
        "a broken file of a skill is an error of no action, with its place",
        SkillLeftOut(id=9, timestamp=TIME, path="/w/a.md", line=3, detail="no YAML"),
        observation("error", "no YAML", {"error_id": "", "path": "/w/a.md", "line": 3}),
    ),
    (
        "a server of tools that wants a sign-in says which",
        ToolServerFailed(id=9, timestamp=TIME, server="s", detail="sign in", sign_in="a1"),
        observation("error", "sign in", {"error_id": "", "sign_in": "a1"}),
    ),
    (
        "a command in a terminal with a name",
        tool_event(NamedTerminalAction(command="ls", terminal="two"), "terminal"),
        action("run", RUN_ARGS | {"terminal": "two"}),
    ),
    (
        "a look at a list of tasks",
        tool_event(TaskTrackerAction(command="view"), "task_tracker"),
        action("task_tracking", {"command": "view", "task_list": [], "thought": ""}),
    ),
]

ORDER = [
    "id",
    "timestamp",
    "source",
    "message",
    "cause",
    "action",
    "observation",
    "tool_call_metadata",
    "llm_metrics",
    "args",
    "timeout",
    "content",
    "extras",
    "success",
]


@pytest.mark.parametrize(("event", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_event_has_its_public_form(event: AnyEvent, expected: dict[str, Any] | None) -> None:
    assert to_wire(event, live=True) == expected


@pytest.mark.parametrize(("event", "expected"), [case[1:] for case in ADDITIONS], ids=[case[0] for case in ADDITIONS])
def test_what_is_beside_the_protocol_has_its_own_fields(event: AnyEvent, expected: dict[str, Any]) -> None:
    record = to_record(event)
    place = {key: record.pop(key) for key in ("id", "timestamp")}
    assert place == {"id": event.id, "timestamp": TEXT}
    assert {key: record.get(key) for key in expected} == expected


def test_the_clients_name_for_what_it_sent_stands_behind_all_that_is_the_protocols() -> None:
    event = MessageEvent(id=3, timestamp=TIME, source="user", llm_message=Message.user("hi"), client_key="k-1")
    for frame in (to_wire(event, live=True), to_record(event)):
        assert frame is not None
        assert list(frame)[-1] == "idempotency_key"
        assert frame["idempotency_key"] == "k-1"


@pytest.mark.parametrize(("told", "shown"), [(0, 1), (1, 1), (3, 3)])
def test_an_action_says_how_many_calls_its_answer_had(told: int, shown: int) -> None:
    call = MessageToolCall(id="c", name="think", arguments="{}")
    event = tool_event(ThinkAction(thought="hm"), "think", tool_call=call, calls_in_response=told)
    assert to_record(event)["tool_call_metadata"]["total_calls_in_response"] == shown


@pytest.mark.parametrize("event", [case[1] for case in CASES if case[2]], ids=[case[0] for case in CASES if case[2]])
def test_keys_stand_in_the_order_of_the_protocol(event: AnyEvent) -> None:
    frame = to_wire(event, live=True)
    assert frame is not None
    assert list(frame) == [key for key in ORDER if key in frame]
    if "action" in frame:
        expected = list(ACTIONS[frame["action"]].model_validate(_public(frame)).model_dump())
        assert [key for key in frame["args"] if key in expected] == expected
    else:
        model = OBSERVATIONS[frame["observation"]]
        assert json.dumps(model.model_validate(frame["extras"]).model_dump(by_alias=True)) == json.dumps(
            frame["extras"]
        )


def _public(frame: dict[str, Any]) -> dict[str, Any]:
    """The args without what is added at times: where a type without the field is in question, and beside a call."""
    args = dict(frame["args"])
    if frame["action"] != "run":
        args.pop("confirmation_state", None)
    if frame["action"] == "message":
        args.pop("thought", None)
    return args


@pytest.mark.parametrize(
    ("event", "live", "history"),
    [
        (AgentStateChanged(agent_state=AgentState.RUNNING), "agent", "environment"),
        (result_event(TerminalObservation(), source="environment"), "agent", "environment"),
        (RecallObservation(cause=1, recall_type="workspace_context"), "agent", "environment"),
        (AgentErrorEvent(source="environment", error="e"), "agent", "environment"),
        (AgentErrorEvent(source="hook", error="e"), "agent", "environment"),
        (ChangeAgentState(agent_state=AgentState.RUNNING), None, "environment"),
        (ChangeAgentState(source="user", agent_state=AgentState.RUNNING), "user", "user"),
        (tool_event(TerminalAction(command="setup"), "terminal", source="environment"), None, "environment"),
        (result_event(ThinkObservation(), source="environment"), None, "environment"),
        (LoopDetected(start=1, pattern="the same again"), None, "environment"),
        (ToolServerFailed(server="s", detail="it ended"), "agent", "environment"),
        (SkillLeftOut(path="a.md", detail="no YAML"), "agent", "environment"),
        (MessageEvent(source="environment", llm_message=Message.user("a nudge")), None, None),
        (MessageEvent(source="agent", llm_message=Message.assistant(" \n")), None, None),
        (ForeignEvent(source="user", name="null", is_action=True), None, None),
        (ForeignEvent(source="user", name="null", is_action=False, payload={"content": ""}), None, None),
        (RecallAction(recall_type="knowledge"), "user", None),
        (tool_event(ThinkAction(thought=""), "think"), "agent", "agent"),
    ],
)
def test_who_is_said_to_have_done_it(event: AnyEvent, live: str | None, history: str | None) -> None:
    frames = [to_wire(event, live=True), to_wire(event, live=False)]
    assert [frame and frame["source"] for frame in frames] == [live, history]


def test_read_back_from_the_log_an_event_that_clients_are_never_sent_is_a_null() -> None:
    event = result_event(FinishObservation()).stored_as(5)
    assert to_wire(event, live=True) is None
    record = to_record(event)
    assert (record["id"], record["observation"], record["message"]) == (5, "null", "No observation")


def test_metrics_say_the_limit_and_have_a_model_before_the_first_call() -> None:
    metrics = MetricsSnapshot(max_budget=2.5, usage=TokenUsage())
    frame = to_wire(tool_event(ThinkAction(thought="hm"), "think", metrics=metrics), live=True)
    assert frame is not None
    assert frame["llm_metrics"] == llm_metrics(0.0, budget=2.5, model="default", prompt_tokens=0)


def test_an_event_without_an_id_has_no_id_on_the_wire() -> None:
    frame = to_wire(CondensationRequest(), live=True)
    assert frame is not None
    assert "id" not in frame


def test_times_are_utc_whatever_zone_they_come_in() -> None:
    elsewhere = datetime(2025, 11, 15, 10, 43, 21, tzinfo=timezone(timedelta(hours=1)))
    assert wire_time(elsewhere) == "2025-11-15T09:43:21.000000Z"


def test_json_is_made_of_what_javascript_cannot_read_too() -> None:
    value = {"big": 2**70, "nan": float("nan"), "half": "\ud800", "text": "ä", "inside": [{"nan": [float("nan")]}]}
    read = json.loads(to_json(value))
    assert read == {"big": 2**70, "nan": None, "half": "\ud800", "text": "ä", "inside": [{"nan": [None]}]}
    assert to_json({"text": "ä", "inf": float("inf")}) == '{"text":"ä","inf":null}'.encode()
