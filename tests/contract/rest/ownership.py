"""The matrix as data: each route with whose things it is about, and what is sent to it.

A route that is not in `ROUTES` fails `test_matrix`: whoever adds one says here what kind it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

Kind = Literal["thing", "own", "server", "admin", "account", "stranger", "public"]
"""``thing``: somebody's, named in the path; ``own``: the asker's own, whatever is sent; ``server``: the same for every
user; ``admin``: for administrators; ``account``: the asker's own account; ``stranger``: for who is not signed in yet;
``public``: for anybody.
"""


class Entry(NamedTuple):
    """`sent` are further arguments of the client's request; `tells`: its owner gets another answer than others."""

    kind: Kind
    sent: Mapping[str, Any] = MappingProxyType({})
    tells: bool = True


def thing(*, tells: bool = True, **sent: Any) -> Entry:
    return Entry("thing", sent, tells)


C = "/api/conversations/{conversation_id}"
PROGRAM = {"agent": {"llm": {"model": "openai/x"}}}
UNLIKE_ITS_OWNERS = {"tells": False}
"""Its owner's thing is in no state in which there is another answer, or this generation of the protocol has none."""

ROUTES: Mapping[str, Entry] = {
    **{f"{method} {path}": Entry("server") for method in ("GET", "HEAD") for path in ("/openapi.json", "/docs")},
    **dict.fromkeys(("GET /alive", "GET /health", "GET /ready", "GET /server_info"), Entry("public")),
    **{f"{method} {path}": Entry("public") for method in ("GET", "HEAD") for path in ("/errors", "/errors/{code}")},
    **{
        f"{method} /oauth/{name}": Entry("public") for method in ("GET", "HEAD") for name in ("callback", "client.json")
    },
    "GET /metrics": Entry("admin"),
    **{f"GET /api/options/{what}": Entry("server") for what in ("models", "agents", "security-analyzers")},
    "GET /api/options/config": Entry("own"),
    "GET /api/docker-hosts": Entry("admin"),
    "PATCH /api/docker-hosts/{name}": Entry("admin", {"json": {"draining": True}}),
    "GET /api/settings": Entry("own"),
    "POST /api/settings": Entry("own", {"json": {"language": "de"}}),
    "POST /api/reset-settings": Entry("server"),
    "GET /api/secrets": Entry("own"),
    "POST /api/secrets": Entry("own", {"json": {"name": "OWN", "value": "own-value"}}),
    "PUT /api/secrets/{secret_id}": thing(json={"name": "BOBS_KEY", "description": "Taken"}),
    "DELETE /api/secrets/{secret_id}": thing(),
    "GET /api/skills": Entry("own"),
    "GET /api/skills/{skill_name}": thing(),
    "PATCH /api/skills/{skill_name}": thing(json={"enabled": False}),
    "DELETE /api/skills/{skill_name}": thing(),
    "PUT /api/skills/{skill_name}": thing(json={"content": "# Mine\n\nOwn."}, **UNLIKE_ITS_OWNERS),
    "GET /api/plugins": Entry("own"),
    "POST /api/plugins": Entry("own", {"json": {"source": "x"}}),
    "GET /api/plugins/{plugin_name}": thing(),
    "POST /api/plugins/{plugin_name}/update": thing(json={}),
    "PATCH /api/plugins/{plugin_name}": thing(json={"enabled": False}),
    "DELETE /api/plugins/{plugin_name}": thing(),
    "POST /api/add-git-providers": Entry("own", {"json": {"provider_tokens": {}}}),
    "POST /api/unset-provider-tokens": Entry("own"),
    **{f"GET /api/user/{what}": Entry("own") for what in ("info", "installations", "repositories", "suggested-tasks")},
    "GET /api/user/search/repositories": Entry("own", {"params": {"query": "x"}}),
    "GET /api/user/search/branches": Entry("own", {"params": {"repository": "o/n", "query": "x"}}),
    "GET /api/user/repository/branches": Entry("own", {"params": {"repository": "o/n"}}),
    "GET /api/user/repository/{repository:path}/microagents": Entry("own"),
    "GET /api/user/repository/{repository:path}/microagents/content": Entry("own", {"params": {"file_path": "x"}}),
    "POST /api/conversations": Entry("own", {"json": {}}),
    "POST /api/conversations/import": Entry("own", {"json": {}}),
    "POST /api/conversations/import/archive": Entry("own", {"content": b"no archive"}),
    "GET /api/conversations": Entry("own", {"params": {"limit": 100, "include_sub_conversations": True}}),
    "GET /api/microagent-management/conversations": Entry("own", {"params": {"selected_repository": "o/n"}}),
    f"GET {C}": thing(),
    f"PATCH {C}": thing(json={"title": "Taken"}),
    f"DELETE {C}": thing(),
    **{
        f"GET {C}/{what}": thing() for what in ("archive", "events", "trajectory", "log", "llm-profile", "client-tools")
    },
    **{f"GET {C}/{what}": thing() for what in ("tools", "list-files", "files", "zip-directory", "workspace", "config")},
    **{f"GET {C}/git/{what}": thing() for what in ("changes", "status", "log")},
    **{f"GET {C}/{what}": thing() for what in ("ports", "web-hosts", "microagents", "vscode-url", "log/live")},
    f"GET {C}/git/diff": thing(params={"path": "x"}),
    f"GET {C}/select-file": thing(params={"file": "x"}),
    f"GET {C}/download": thing(params={"path": "x"}),
    f"GET {C}/remember-prompt": thing(params={"event_id": 0}),
    f"GET {C}/shares": thing(),
    f"POST {C}/shares": thing(json={}),
    f"DELETE {C}/shares/{{share_id}}": thing(),
    **{f"{method} /api/shared": Entry("own") for method in ("GET", "POST")},
    f"POST {C}/start": thing(json={"providers_set": []}),
    f"POST {C}/stop": thing(),
    f"POST {C}/rewind": thing(json={"event_id": 0}),
    f"POST {C}/fork": thing(json={}),
    f"POST {C}/events": thing(json={"action": "message", "args": {"content": "Hello"}}),
    f"POST {C}/message": thing(json={"message": "Hello"}),
    f"POST {C}/log": thing(json={"event": {"kind": "PauseEvent", "source": "user"}}),
    f"PUT {C}/program": thing(json=PROGRAM),
    f"POST {C}/sandbox": thing(json={"op": "workspace.facts"}),
    f"PUT {C}/client-tools": thing(json={"client_tools": []}),
    f"POST {C}/tool-calls/{{call_id}}": thing(json={"content": "x"}),
    f"POST {C}/upload-files": thing(files={"files": ("x.txt", b"x")}),
    f"POST {C}/submit-feedback": thing(json={"polarity": "positive"}),
    f"POST {C}/exp-config": thing(json={"config": {"a": 1}}),
    f"PUT {C}/llm-profile": thing(json={"llm_profile": None}),
    **{f"{method} {C}/security/{{path:path}}": thing() for method in ("GET", "POST", "PUT", "DELETE")},
    "GET /api/feedback": Entry("own"),
    "GET /api/notes": Entry("own"),
    "POST /api/notes": Entry("own", {"json": {"title": "Own", "content": "Own."}}),
    "GET /api/notes/{note_id}": thing(),
    "PATCH /api/notes/{note_id}": thing(json={"title": "Taken", "version": 1}),
    "DELETE /api/notes/{note_id}": thing(),
    "GET /api/v1/web-client/config": Entry("server"),
    "GET /api/v1/sandboxes": Entry("own", {"params": {"id": "{conversation_id}"}}),
    "GET /api/v1/app-conversations": Entry("own", {"params": {"ids": "{conversation_id}"}}),
    "GET /api/v1/app-conversations/start-tasks": Entry("own", {"params": {"ids": "{conversation_id}"}}),
    "GET /api/v1/app-conversations/start-tasks/search": Entry("own"),
    "GET /v1/models": Entry("own"),
    "GET /v1/models/{model}": Entry("own"),
    "POST /v1/chat/completions": Entry("own", {"json": {"model": "drydock", "messages": []}}),
    **{
        f"{method} /v1/{{path:path}}": Entry("server")
        for method in ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT")
    },
    "GET /api/webhooks": Entry("own"),
    "POST /api/webhooks": Entry("own", {"json": {"url": "https://hooks.example.com/own"}}),
    "GET /api/webhooks/{webhook_id}": thing(),
    "PATCH /api/webhooks/{webhook_id}": thing(json={"active": False}),
    "POST /api/webhooks/{webhook_id}/replay": thing(
        json={"conversation_id": "{conversation_id}", "after_event_id": -1}
    ),
    "DELETE /api/webhooks/{webhook_id}": thing(),
    "GET /api/llm-profiles": Entry("own"),
    "GET /api/llm-profiles/{name}": thing(),
    "POST /api/llm-profiles/{name}/test": thing(),
    "DELETE /api/llm-profiles/{name}": thing(),
    "PUT /api/llm-profiles/{name}": thing(json={"model": "openai/own"}, **UNLIKE_ITS_OWNERS),
    "GET /api/mcp-sign-ins": Entry("own"),
    "POST /api/mcp-sign-ins/{sign_in_id}": thing(json={}),
    "DELETE /api/mcp-sign-ins/{sign_in_id}": thing(**UNLIKE_ITS_OWNERS),
    **{f"POST /api/auth/{what}": Entry("stranger", {"json": {}}) for what in ("sign-in", "link", "link/use")},
    "POST /api/auth/sign-out": Entry("account"),
    "GET /api/auth/me": Entry("account"),
    "POST /api/auth/password": Entry("account", {"json": {"current": "x", "password": "x"}}),
    "GET /api/auth/tokens": Entry("account"),
    "POST /api/auth/tokens": Entry("account", {"json": {"name": "x", "scopes": ["read"]}}),
    "DELETE /api/auth/tokens/{token_id}": thing(),
    "GET /api/auth/sign-ins": Entry("account"),
    "DELETE /api/auth/sign-ins/{sign_in_id}": thing(),
    "GET /api/admin/audit": Entry("admin"),
    "GET /api/admin/users": Entry("admin"),
    "POST /api/admin/users": Entry("admin", {"json": {"name": "x"}}),
    "PATCH /api/admin/users/{name}": Entry("admin", {"json": {}}),
    "POST /api/admin/users/{name}/reset": Entry("admin"),
    "POST /api/admin/invitations": Entry("admin", {"json": {}}),
    "* /mcp/mcp": Entry("own", {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}),
    "* /mcp/mcp/": Entry("own", {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}),
}

LAST = (f"POST {C}/stop",)
"""What the owner's own requests end with, before what they delete."""
