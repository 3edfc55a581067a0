"""The tables of the protocol as data: one row per field of each action and observation.

A type is written as in the tables: ``str``, ``str[]``, ``object``, ``object[]``, with ``|null`` where null may be; a
list of values stands for an enumeration. `REQUIRED` stands where a field has no default.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

REQUIRED: Final = "required"
RISKS: Final = [-1, 0, 1, 2]
CONFIRMATIONS: Final = ["confirmed", "rejected", "awaiting_confirmation"]
RECALLS: Final = ["workspace_context", "knowledge"]


class Row(NamedTuple):
    """A field of ``args`` or ``extras``: in which type, how it is called, of which type, and what it is by default."""

    type: str
    field: str
    kind: str | list[Any]
    default: Any = REQUIRED


ACTION_TYPES: Final = [
    *["null", "run", "run_ipython", "browse", "browse_interactive", "read", "write", "edit", "think", "finish"],
    *["reject", "delegate", "recall", "change_agent_state", "message", "system", "condensation"],
    *["condensation_request", "call_tool_mcp", "task_tracking", "loop_recovery"],
]
OBSERVATION_TYPES: Final = [
    *["null", "run", "run_ipython", "browse", "read", "write", "edit", "delegate", "success", "error"],
    *["agent_state_changed", "user_rejected", "condense", "think", "recall", "mcp", "download", "task_tracking"],
    "loop_detection",
]
NEVER_ACTIONS: Final = ("start", "pause", "resume", "stop", "push", "send_pr", "initialize")
NEVER_OBSERVATIONS: Final = ("chat", "message", "browse_interactive", "call_tool_mcp")

ACTION_ROWS: Final = [
    Row("message", "content", "str"),
    Row("message", "file_urls", "str[]|null", None),
    Row("message", "image_urls", "str[]|null", None),
    Row("message", "wait_for_response", "bool", False),
    Row("message", "security_risk", RISKS, -1),
    Row("system", "content", "str"),
    Row("system", "tools", "object[]|null", None),
    Row("system", "openhands_version", "str|null", None),
    Row("system", "agent_class", "str|null", None),
    Row("run", "command", "str"),
    Row("run", "is_input", "bool", False),
    Row("run", "thought", "str", ""),
    Row("run", "blocking", "bool", False),
    Row("run", "is_static", "bool", False),
    Row("run", "cwd", "str|null", None),
    Row("run", "hidden", "bool", False),
    Row("run", "confirmation_state", CONFIRMATIONS, "confirmed"),
    Row("run", "security_risk", RISKS, -1),
    Row("run_ipython", "code", "str"),
    Row("run_ipython", "thought", "str", ""),
    Row("run_ipython", "include_extra", "bool", True),
    Row("run_ipython", "confirmation_state", CONFIRMATIONS, "confirmed"),
    Row("run_ipython", "security_risk", RISKS, -1),
    Row("run_ipython", "kernel_init_code", "str", ""),
    Row("read", "path", "str"),
    Row("read", "start", "int", 0),
    Row("read", "end", "int", -1),
    Row("read", "thought", "str", ""),
    Row("read", "security_risk", RISKS, -1),
    Row("read", "impl_source", ["default", "oh_aci"], "default"),
    Row("read", "view_range", "int[]|null", None),
    Row("write", "path", "str"),
    Row("write", "content", "str"),
    Row("write", "start", "int", 0),
    Row("write", "end", "int", -1),
    Row("write", "thought", "str", ""),
    Row("write", "security_risk", RISKS, -1),
    Row("edit", "path", "str"),
    Row("edit", "command", "str", ""),
    Row("edit", "file_text", "str|null", None),
    Row("edit", "old_str", "str|null", None),
    Row("edit", "new_str", "str|null", None),
    Row("edit", "insert_line", "int|null", None),
    Row("edit", "content", "str", ""),
    Row("edit", "start", "int", 1),
    Row("edit", "end", "int", -1),
    Row("edit", "thought", "str", ""),
    Row("edit", "security_risk", RISKS, -1),
    Row("edit", "impl_source", ["llm_based_edit", "oh_aci"], "oh_aci"),
    Row("browse", "url", "str"),
    Row("browse", "thought", "str", ""),
    Row("browse", "security_risk", RISKS, -1),
    Row("browse", "return_axtree", "bool", False),
    Row("browse_interactive", "browser_actions", "str"),
    Row("browse_interactive", "thought", "str", ""),
    Row("browse_interactive", "browsergym_send_msg_to_user", "str", ""),
    Row("browse_interactive", "security_risk", RISKS, -1),
    Row("browse_interactive", "return_axtree", "bool", False),
    Row("think", "thought", "str", ""),
    Row("finish", "final_thought", "str", ""),
    Row("finish", "outputs", "object", {}),
    Row("finish", "thought", "str", ""),
    Row("reject", "outputs", "object", {}),
    Row("reject", "thought", "str", ""),
    Row("delegate", "agent", "str"),
    Row("delegate", "inputs", "object"),
    Row("delegate", "thought", "str", ""),
    Row("recall", "recall_type", RECALLS),
    Row("recall", "query", "str", ""),
    Row("recall", "thought", "str", ""),
    Row("change_agent_state", "agent_state", "str"),
    Row("change_agent_state", "thought", "str", ""),
    Row("condensation", "forgotten_event_ids", "int[]|null", None),
    Row("condensation", "forgotten_events_start_id", "int|null", None),
    Row("condensation", "forgotten_events_end_id", "int|null", None),
    Row("condensation", "summary", "str|null", None),
    Row("condensation", "summary_offset", "int|null", None),
    Row("call_tool_mcp", "name", "str"),
    Row("call_tool_mcp", "arguments", "object", {}),
    Row("call_tool_mcp", "thought", "str", ""),
    Row("call_tool_mcp", "security_risk", RISKS, -1),
    Row("task_tracking", "command", ["view", "plan"], "view"),
    Row("task_tracking", "task_list", "object[]", []),
    Row("task_tracking", "thought", "str", ""),
    Row("loop_recovery", "option", [1, 2, 3], 1),
]

OBSERVATION_ROWS: Final = [
    Row("run", "command", "str"),
    Row("run", "metadata", "object"),
    Row("run", "hidden", "bool", False),
    Row("run_ipython", "code", "str"),
    Row("run_ipython", "image_urls", "str[]|null", None),
    Row("read", "path", "str"),
    Row("read", "impl_source", ["default", "oh_aci"], "default"),
    Row("write", "path", "str"),
    Row("edit", "path", "str", ""),
    Row("edit", "prev_exist", "bool", False),
    Row("edit", "old_content", "str|null", None),
    Row("edit", "new_content", "str|null", None),
    Row("edit", "impl_source", ["llm_based_edit", "oh_aci"], "llm_based_edit"),
    Row("edit", "diff", "str|null", None),
    Row("edit", "_diff_cache", "str|null", None),
    Row("browse", "url", "str"),
    Row("browse", "trigger_by_action", "str"),
    Row("browse", "screenshot", "str", ""),
    Row("browse", "screenshot_path", "str|null", None),
    Row("browse", "set_of_marks", "str", ""),
    Row("browse", "error", "bool", False),
    Row("browse", "goal_image_urls", "str[]", []),
    Row("browse", "open_pages_urls", "str[]", []),
    Row("browse", "active_page_index", "int", -1),
    Row("browse", "dom_object", "object", {}),
    Row("browse", "axtree_object", "object", {}),
    Row("browse", "extra_element_properties", "object", {}),
    Row("browse", "last_browser_action", "str", ""),
    Row("browse", "last_browser_action_error", "str", ""),
    Row("browse", "focused_element_bid", "str", ""),
    Row("browse", "filter_visible_only", "bool", False),
    Row("delegate", "outputs", "object", {}),
    Row("error", "error_id", "str", ""),
    Row("agent_state_changed", "agent_state", "str"),
    Row("agent_state_changed", "reason", "str", ""),
    Row("recall", "recall_type", RECALLS),
    Row("recall", "repo_name", "str", ""),
    Row("recall", "repo_directory", "str", ""),
    Row("recall", "repo_branch", "str", ""),
    Row("recall", "repo_instructions", "str", ""),
    Row("recall", "runtime_hosts", "object", {}),
    Row("recall", "additional_agent_instructions", "str", ""),
    Row("recall", "date", "str", ""),
    Row("recall", "custom_secrets_descriptions", "object", {}),
    Row("recall", "conversation_instructions", "str", ""),
    Row("recall", "working_dir", "str", ""),
    Row("recall", "microagent_knowledge", "object[]", []),
    Row("mcp", "name", "str", ""),
    Row("mcp", "arguments", "object", {}),
    Row("download", "file_path", "str"),
    Row("task_tracking", "command", "str", ""),
    Row("task_tracking", "task_list", "object[]", []),
]

METADATA_ROWS: Final = [
    Row("metadata", "exit_code", "int", -1),
    Row("metadata", "pid", "int", -1),
    Row("metadata", "username", "str|null", None),
    Row("metadata", "hostname", "str|null", None),
    Row("metadata", "working_dir", "str|null", None),
    Row("metadata", "py_interpreter_path", "str|null", None),
    Row("metadata", "prefix", "str", ""),
    Row("metadata", "suffix", "str", ""),
]
"""``metadata`` of the observation ``run``."""

ACTION_TEXTS: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("message", {"content": "hi"}, "hi"),
    ("system", {"content": "You are"}, "You are"),
    ("run", {"command": "ls -l"}, "Running command: ls -l"),
    ("run_ipython", {"code": "1+1"}, "Running Python code interactively: 1+1"),
    ("read", {"path": "/a"}, "Reading file: /a"),
    ("write", {"path": "/a", "content": "x"}, "Writing file: /a"),
    ("edit", {"path": "/a", "command": "view"}, ""),
    ("browse", {"url": "http://x"}, "I am browsing the URL: http://x"),
    (
        "browse_interactive",
        {"browser_actions": "click('1')"},
        "I am interacting with the browser:\n```\nclick('1')\n```",
    ),
    ("think", {"thought": "hm"}, "I am thinking...: hm"),
    ("finish", {"thought": "Bye"}, "Bye"),
    ("finish", {}, "All done! What's next on the agenda?"),
    ("reject", {}, "Task is rejected by the agent."),
    ("reject", {"outputs": {"reason": "no"}}, "Task is rejected by the agent. Reason: no"),
    ("delegate", {"agent": "Browsing", "inputs": {}}, "I'm asking Browsing for help with this task."),
    ("recall", {"recall_type": "knowledge", "query": "x" * 60}, f"Retrieving content for: {'x' * 50}"),
    ("change_agent_state", {"agent_state": "paused"}, "Agent state changed to paused"),
    ("condensation", {"forgotten_event_ids": [1], "summary": "s", "summary_offset": 0}, "Summary: s"),
    ("condensation", {"forgotten_event_ids": [1, 2]}, "Condenser is dropping the events: [1, 2]."),
    ("condensation_request", {}, "Requesting a condensation of the conversation history."),
    (
        "call_tool_mcp",
        {"name": "t", "arguments": {"a": 1}},
        "I am interacting with the MCP server with name:\n```\nt\n```\nand arguments:\n```\n{'a': 1}\n```",
    ),
    ("task_tracking", {}, "Clearing the task list."),
    ("task_tracking", {"command": "plan", "task_list": [{"id": "1", "title": "t"}]}, "Managing 1 task item."),
    (
        "task_tracking",
        {"command": "view", "task_list": [{"id": "1", "title": "t"}, {"id": "2", "title": "u"}]},
        "Managing 2 task items.",
    ),
    ("loop_recovery", {}, ""),
]

OBSERVATION_TEXTS: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("run", {"command": "ls", "metadata": {"exit_code": 2}}, "Command `ls` executed with exit code 2."),
    ("run_ipython", {"code": "1"}, "Code executed in IPython cell."),
    ("read", {"path": "/a"}, "I read the file /a."),
    ("write", {"path": "/a"}, "I wrote to the file /a."),
    ("edit", {"path": "/a"}, "I edited the file /a."),
    ("browse", {"url": "http://x", "trigger_by_action": "browse"}, "Visited http://x"),
    ("delegate", {}, ""),
    ("success", {}, "CONTENT"),
    ("error", {}, "CONTENT"),
    ("agent_state_changed", {"agent_state": "running"}, ""),
    ("user_rejected", {}, "CONTENT"),
    ("condense", {}, "CONTENT"),
    ("think", {}, "CONTENT"),
    ("recall", {"recall_type": "workspace_context"}, "Added workspace context"),
    ("recall", {"recall_type": "knowledge"}, "Added microagent knowledge"),
    ("mcp", {}, "CONTENT"),
    ("download", {"file_path": "/x"}, "Downloaded the file at location: /x"),
    ("task_tracking", {}, "CONTENT"),
    ("loop_detection", {}, ""),
]
