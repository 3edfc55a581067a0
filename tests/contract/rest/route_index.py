"""The route index of the protocol as data: each route with its success and its documented errors.

In paths ``{c}`` is a running conversation, ``{stopped}`` one that does not run, ``{fresh}`` a new one for this row
alone, ``{unknown}`` none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.contract.rest.shapes import AtLeast, Map, Or, Text


class Row(NamedTuple):
    """A request, and what is answered. `sent` are further arguments of the client's request."""

    method: str
    path: str
    status: int
    shape: Any
    sent: Mapping[str, Any] = MappingProxyType({})

    @property
    def name(self) -> str:
        """For the list of tests."""
        path = self.path.replace("/api/", "").replace("{", "").replace("}", "")
        return f"{self.method} {path} {self.status} {next(iter(self.sent.values()), '')}"[:110].strip()


C = "/api/conversations/{c}"
STOPPED = "/api/conversations/{stopped}"
FRESH = "/api/conversations/{fresh}"
UNKNOWN = "/api/conversations/{unknown}"

maybe_text = Or(str, None)
time = Text(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
hex_id = Text("[0-9a-f]{32}")
status = Or("STARTING", "RUNNING", "STOPPED", "ARCHIVED", "ERROR")
problem = AtLeast({"detail": Or(str, [AtLeast({"loc": [Or(str, int)], "msg": str, "type": str})])})
no_conversation = {"detail": "Conversation unknown not found"}

info = {
    "conversation_id": hex_id,
    "title": str,
    "last_updated_at": Or(time, None),
    "status": status,
    "runtime_status": Or(Text(r"STATUS\$[A-Z_]+"), None),
    "runtime_warning": None,
    "waiting": None,
    "selected_repository": maybe_text,
    "selected_branch": maybe_text,
    "git_provider": maybe_text,
    "trigger": maybe_text,
    "num_connections": int,
    "url": Or(Text("/api/conversations/[0-9a-f]{32}"), None),
    "session_api_key": None,
    "created_at": time,
    "pr_number": [int],
    "conversation_version": "V0",
    "sub_conversation_ids": [str],
    "agent_state": maybe_text,
    "accumulated_cost": float,
    "access": "owner",
}
infos = {"results": [info], "next_page_id": maybe_text}
event = AtLeast({"id": int, "source": Or("agent", "user", "environment"), "message": str, "timestamp": time})
repository = {
    "id": str,
    "full_name": str,
    "git_provider": str,
    "is_public": bool,
    "stargazers_count": Or(int, None),
    "link_header": maybe_text,
    "pushed_at": maybe_text,
    "owner_type": Or("user", "organization", None),
    "main_branch": maybe_text,
}
branch = {"name": str, "commit_sha": str, "protected": bool, "last_push_date": maybe_text}
feedback = {"version": "1.0", "email": "", "polarity": "positive", "permissions": "private"}
own_task = {"git_provider": "github", "task_type": "OPEN_ISSUE", "repo": "ann/boat", "issue_number": 3, "title": "t"}

SERVER = [
    Row("GET", "/alive", 200, {"status": "ok"}),
    Row("GET", "/health", 200, "OK"),
    Row(
        "GET",
        "/server_info",
        200,
        {
            "uptime": float,
            "idle_time": float,
            "resources": {
                "cpu_percent": float,
                "memory": {"rss": int, "vms": int, "percent": float},
                "disk": {"total": int, "used": int, "free": int, "percent": float},
                "io": {"read_bytes": int, "write_bytes": int},
            },
        },
    ),
    Row(
        "GET",
        "/api/options/config",
        200,
        AtLeast(
            {
                "APP_MODE": "oss",
                "GITHUB_CLIENT_ID": str,
                "POSTHOG_CLIENT_KEY": "",
                "FEATURE_FLAGS": AtLeast({"ENABLE_BILLING": False, "HIDE_LLM_SETTINGS": False}),
            }
        ),
    ),
    Row("GET", "/api/docker-hosts", 200, {"results": []}),
    Row("PATCH", "/api/docker-hosts/far", 404, problem, {"json": {"draining": True}}),
    Row("GET", "/api/options/models", 200, [Text(r"[^/]+/.+")]),
    Row("GET", "/api/options/agents", 200, [Text(r"[A-Z]\w*")]),
    Row("GET", "/api/options/security-analyzers", 200, [str]),
    Row("GET", "/openapi.json", 200, AtLeast({"openapi": str, "paths": dict})),
    Row(
        "GET",
        "/api/settings",
        200,
        AtLeast({"provider_tokens_set": Map(maybe_text), "llm_api_key_set": bool, "v1_enabled": False}),
    ),
    Row("POST", "/api/settings", 200, {"message": "Settings stored"}, {"json": {"language": "en"}}),
    Row("POST", "/api/settings", 422, problem, {"json": {"condenser_max_size": 3}}),
    Row("POST", "/api/reset-settings", 410, AtLeast({"error": str})),
    Row("GET", "/api/secrets", 200, {"custom_secrets": [{"name": str, "description": maybe_text}]}),
    Row("GET", "/api/v1/sandboxes?id=a&id=b", 200, [None]),
    Row("GET", "/api/v1/sandboxes", 200, [None]),
    Row("GET", "/api/v1/app-conversations?ids=a&ids=b", 200, [None]),
    Row("GET", "/api/v1/app-conversations/start-tasks?ids=a", 200, [None]),
    Row("GET", "/api/v1/app-conversations/start-tasks/search?limit=10", 200, {"items": [], "next_page_id": None}),
    Row(
        "GET",
        "/api/v1/web-client/config",
        200,
        AtLeast(
            {
                "app_mode": "oss",
                "posthog_client_key": None,
                "feature_flags": AtLeast({"enable_billing": False, "hide_llm_settings": False}),
                "providers_configured": [str],
                "maintenance_start_time": None,
                "faulty_models": [str],
                "error_message": None,
                "updated_at": Text(r"\d{4}-\d\d-\d\dT[\d:]+Z"),
            }
        ),
    ),
    Row("POST", "/api/v1/app-conversations", 405, AtLeast({"detail": str, "message": str}), {"json": {}}),
    Row("POST", "/api/authenticate", 404, AtLeast({"detail": str, "message": str})),
    Row("POST", "/api/logout", 404, AtLeast({"detail": str})),
    Row("GET", "/api/billing/credits", 404, AtLeast({"detail": str})),
    Row("GET", "/feedback/conversation/c/batch", 404, AtLeast({"detail": str})),
    Row("POST", "/feedback/conversation", 404, AtLeast({"detail": str})),
    Row("GET", "/integration/jira/workspaces", 404, AtLeast({"detail": str})),
    Row("GET", "/api/security/policy", 404, AtLeast({"detail": str})),
]

made = {"status": "ok", "conversation_id": hex_id, "message": None, "conversation_status": "STARTING"}
not_started = AtLeast({"status": "error", "conversation_id": "unknown"})

CONVERSATIONS = [
    Row("POST", "/api/conversations", 200, made, {"json": {}}),
    Row("POST", "/api/conversations", 200, made, {"json": {"initial_user_msg": "hello", "image_urls": []}}),
    Row("POST", "/api/conversations", 200, made, {"json": {"suggested_task": own_task, "repository": "ann/boat"}}),
    Row("POST", "/api/conversations", 200, made, {"json": {"create_microagent": {"repo": "ann/boat"}}}),
    Row("POST", "/api/conversations", 422, problem, {"json": {"colour": "red"}}),
    Row("POST", "/api/conversations", 422, problem, {"json": {"mcp_config": {"more_servers": []}}}),
    Row("POST", "/api/conversations", 422, problem, {"json": {"conversation_id": "mine"}}),
    Row(
        "POST", "/api/conversations", 400, AtLeast({"status": "error", "message": str}), {"json": {"replay_json": "["}}
    ),
    Row(
        "POST", "/api/conversations", 401, "Unable to access repo ann/nothing", {"json": {"repository": "ann/nothing"}}
    ),
    Row("GET", "/api/conversations", 200, infos),
    Row("GET", "/api/conversations?limit=1&include_sub_conversations=true", 200, infos),
    Row("GET", "/api/conversations?limit=1000&conversation_trigger=microagent_management", 200, infos),
    Row("GET", "/api/conversations?selected_repository=ann/boat&conversation_trigger=suggested_task", 200, infos),
    Row("GET", "/api/conversations?conversation_trigger=boredom", 422, problem),
    Row("GET", "/api/conversations?page_id=nonsense", 400, {"detail": str}),
    Row("GET", C, 200, {**info, "status": "RUNNING", "runtime_status": "STATUS$READY", "url": str}),
    Row("GET", STOPPED, 200, {**info, "status": "STOPPED", "runtime_status": None, "url": None}),
    Row("GET", UNKNOWN, 200, None),
    Row("PATCH", C, 200, True, {"json": {"title": " A title "}}),
    Row("PATCH", C, 422, problem, {"json": {"title": ""}}),
    Row("PATCH", C, 422, problem, {"json": {"title": "x" * 201}}),
    Row("PATCH", C, 422, problem, {"json": {"title": "x", "more": 1}}),
    Row(
        "PATCH",
        UNKNOWN,
        404,
        {"status": "error", "message": "Conversation not found", "msg_id": "CONVERSATION$NOT_FOUND"},
        {"json": {"title": "x"}},
    ),
    Row("DELETE", FRESH, 200, True),
    Row("DELETE", UNKNOWN, 200, False),
    Row("POST", f"{STOPPED}/start", 422, problem, {"json": {"providers_set": ["sourcehut"]}}),
    Row("POST", f"{C}/start", 200, {**made, "conversation_status": "RUNNING"}, {"json": {"providers_set": []}}),
    Row("POST", f"{C}/start", 200, {**made, "conversation_status": "RUNNING"}, {"json": {"providers_set": None}}),
    Row("POST", f"{C}/start", 200, {**made, "conversation_status": "RUNNING"}, {"json": {}}),
    Row("POST", f"{UNKNOWN}/start", 404, not_started, {"json": {}}),
    Row(
        "POST",
        f"{FRESH}/stop",
        200,
        {**made, "message": "Conversation stopped successfully", "conversation_status": Or("STARTING", "RUNNING")},
    ),
    Row(
        "POST",
        f"{STOPPED}/stop",
        200,
        {**made, "message": "Conversation was not running", "conversation_status": "STOPPED"},
    ),
    Row("POST", f"{UNKNOWN}/stop", 404, not_started),
    Row("GET", f"{C}/config", 200, {"runtime_id": None, "session_id": hex_id}),
    Row("GET", f"{C}/vscode-url", 200, {"vscode_url": Text(r"http://[^/]+/api/conversations/[0-9a-f]{32}/workspace")}),
    Row("GET", f"{STOPPED}/vscode-url", 200, {"vscode_url": None}),
    Row("GET", f"{STOPPED}/workspace", 404, {"error": str}),
    Row("GET", f"{UNKNOWN}/workspace", 404, no_conversation),
    Row("GET", f"{C}/web-hosts", 200, {"hosts": Map(int)}),
    Row(
        "GET",
        f"{C}/microagents",
        200,
        {
            "microagents": [
                {
                    "name": str,
                    "type": Or("repo", "knowledge"),
                    "content": str,
                    "triggers": [str],
                    "inputs": [{"name": str, "description": str}],
                    "tools": [str],
                }
            ]
        },
    ),
    Row("GET", f"{STOPPED}/microagents", 404, {"error": "Agent session not found for this conversation"}),
    Row("GET", f"{C}/remember-prompt?event_id=0", 200, {"status": "success", "prompt": str}),
    Row("GET", f"{C}/remember-prompt?event_id=9999", 400, AtLeast({"status": "error", "message": str})),
    Row("GET", f"{C}/remember-prompt", 422, problem),
    Row("GET", f"{C}/trajectory", 200, AtLeast({"trajectory": [event]})),
    Row("GET", f"{C}/events", 200, AtLeast({"events": [event], "has_more": bool})),
    Row("GET", f"{STOPPED}/events?limit=1&reverse=true", 200, AtLeast({"events": [event], "has_more": True})),
    Row("GET", f"{C}/events?limit=101", 400, AtLeast({"detail": "Invalid limit"})),
    Row("GET", f"{C}/events?limit=-1", 400, AtLeast({"detail": "Invalid limit"})),
    Row("POST", f"{C}/events", 200, {"success": True}, {"json": {"action": "message", "args": {"content": "x"}}}),
    Row("POST", f"{C}/message", 200, {"success": True}, {"json": {"message": "x"}}),
    Row("POST", f"{C}/exp-config", 200, False, {"json": {"config": {"a": "b"}}}),
    Row("POST", f"{C}/exp-config", 200, False, {"json": {"config": None}}),
    Row("POST", f"{C}/exp-config", 422, problem, {"json": {"config": {"a": 1}}}),
    Row(
        "POST",
        f"{C}/submit-feedback",
        200,
        {"statusCode": 200, "body": {"message": str, "feedback_id": str, "password": str}},
        {"json": {**feedback, "trajectory": [], "token": ""}},
    ),
    Row("POST", f"{C}/submit-feedback", 422, problem, {"json": {**feedback, "polarity": "so-so"}}),
    Row("GET", f"{C}/security/settings", 200, {"status": "ok"}),
    Row("POST", f"{C}/security/settings", 400, AtLeast({"detail": str}), {"json": {"RISK_SEVERITY": 1}}),
    Row("PUT", f"{C}/security/settings", 400, AtLeast({"detail": str})),
    Row("DELETE", f"{C}/security/settings", 400, AtLeast({"detail": str})),
    Row("GET", f"{STOPPED}/security/settings", 404, AtLeast({"detail": str})),
    Row("GET", "/api/microagent-management/conversations?selected_repository=ann/boat", 200, infos),
    Row("GET", "/api/microagent-management/conversations", 422, problem),
]

git_error = AtLeast({"error": Text("(?i).*not a git repository.*")})

WORKSPACE = [
    Row("GET", f"{C}/git/changes", 200, [{"status": Or("M", "A", "D", "U"), "path": str}]),
    Row("GET", f"{STOPPED}/git/changes", 404, git_error),
    Row("GET", f"{C}/git/diff?path=boat/sail.txt", 200, {"modified": "new\n", "original": "old\n"}),
    Row("GET", f"{C}/list-files", 200, [Text(r"[^/]+/?")]),
    Row("GET", f"{C}/list-files?path=boat", 200, [Text("boat/[^/]+/?")]),
    Row("GET", f"{STOPPED}/list-files", 404, {"error": "Runtime not yet initialized"}),
    Row("GET", f"{C}/select-file?file=boat/sail.txt", 200, {"code": "new\n"}),
    Row("GET", f"{C}/select-file?file=picture.bin", 415, {"error": "Unable to open binary file: picture.bin"}),
    Row("GET", f"{C}/select-file", 422, problem),
    Row(
        "POST",
        f"{C}/upload-files",
        200,
        {"uploaded_files": [Text("/.+/a.txt")], "skipped_files": [{"name": "../b", "reason": str}]},
        {"files": [("files", ("a.txt", b"a")), ("files", ("../b", b"b"))]},
    ),
]

ATTACHED = [
    *(Row("GET", f"{UNKNOWN}/{what}", 404, no_conversation) for what in ("config", "vscode-url", "web-hosts")),
    *(Row("GET", f"{UNKNOWN}/{what}", 404, no_conversation) for what in ("microagents", "trajectory", "events")),
    *(Row("GET", f"{UNKNOWN}/git/{what}", 404, no_conversation) for what in ("changes", "diff?path=a")),
    *(Row("GET", f"{UNKNOWN}/{what}", 404, no_conversation) for what in ("list-files", "zip-directory", "security/x")),
    Row("GET", f"{UNKNOWN}/select-file?file=a", 404, no_conversation),
    Row("GET", f"{UNKNOWN}/remember-prompt?event_id=0", 404, no_conversation),
    Row("POST", f"{UNKNOWN}/upload-files", 404, no_conversation, {"files": [("files", ("a.txt", b"a"))]}),
    Row("POST", f"{UNKNOWN}/events", 404, no_conversation, {"json": {"action": "message", "args": {"content": "x"}}}),
    Row("POST", f"{UNKNOWN}/message", 404, no_conversation, {"json": {"message": "x"}}),
    Row("POST", f"{UNKNOWN}/exp-config", 404, no_conversation, {"json": {"config": {}}}),
    Row("POST", f"{UNKNOWN}/submit-feedback", 404, no_conversation, {"json": feedback}),
]

USER = [
    Row(
        "GET",
        "/api/user/info",
        200,
        {
            "id": str,
            "login": str,
            "avatar_url": str,
            "company": maybe_text,
            "name": maybe_text,
            "email": maybe_text,
        },
    ),
    Row("GET", "/api/user/installations?provider=github", 200, [str]),
    Row("GET", "/api/user/installations?provider=gitlab", 400, str),
    Row("GET", "/api/user/repositories", 200, [repository]),
    Row("GET", "/api/user/repositories?selected_provider=github&page=1&per_page=1&sort=pushed", 200, [repository]),
    Row("GET", "/api/user/search/repositories?query=boat", 200, [repository]),
    Row("GET", "/api/user/search/branches?repository=ann/boat&query=main", 200, [branch]),
    Row(
        "GET",
        "/api/user/repository/branches?repository=ann/boat",
        200,
        {
            "branches": [branch],
            "has_next_page": bool,
            "current_page": 1,
            "per_page": 30,
            "total_count": Or(int, None),
        },
    ),
    Row(
        "GET",
        "/api/user/suggested-tasks",
        200,
        [{"git_provider": str, "task_type": str, "repo": str, "issue_number": int, "title": str}],
    ),
    Row(
        "GET",
        "/api/user/repository/ann/boat/microagents",
        200,
        [{"name": str, "path": str, "created_at": time}],
    ),
    Row(
        "GET",
        "/api/user/repository/ann/boat/microagents/content?file_path=.cursorrules",
        200,
        {"content": str, "path": str, "triggers": [str], "git_provider": maybe_text},
    ),
]

IDS = [
    ("a" * 101, "Conversation ID is too long"),
    ("a%00b", "Conversation ID contains invalid characters"),
    ("a..b", "Conversation ID contains invalid path characters"),
    ("a%5Cb", "Conversation ID contains invalid path characters"),
    ("a%07b", "Conversation ID contains control characters"),
]
CHECKED: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/start", {"json": {}}),
    ("POST", "/stop", {}),
    ("GET", "", {}),
    ("PATCH", "", {"json": {"title": "x"}}),
    ("DELETE", "", {}),
    ("GET", "/remember-prompt?event_id=0", {}),
    ("POST", "/exp-config", {"json": {"config": {}}}),
]
BAD_IDS = [
    Row(method, f"/api/conversations/{given}{rest}", 400, {"detail": detail}, sent)
    for given, detail in IDS
    for method, rest, sent in CHECKED
]

ROWS = [*SERVER, *CONVERSATIONS, *WORKSPACE, *ATTACHED, *USER, *BAD_IDS]
