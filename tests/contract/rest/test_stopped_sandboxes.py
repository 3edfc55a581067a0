"""What is asked of a conversation whose sandbox is stopped: the documented answers, and nothing is started for them."""

from __future__ import annotations

from typing import Any

from agent_core.runtime.sandbox import SandboxStatus
from tests.contract.rest.conftest import Server

NO_RUNTIME = {"error": "Runtime not yet initialized"}
NO_REPOSITORY = {"error": "Not a git repository as far as can be seen: the conversation is not running"}
ASKED: dict[str, tuple[int, Any]] = {
    "config": (200, None),
    "vscode-url": (200, {"vscode_url": None}),
    "web-hosts": (200, {"hosts": {}}),
    "ports": (200, None),
    "client-tools": (200, {"client_tools": []}),
    "trajectory": (200, None),
    "events": (200, None),
    "microagents": (404, {"error": "Agent session not found for this conversation"}),
    "list-files": (404, NO_RUNTIME),
    "list-files?path=src": (404, NO_RUNTIME),
    "files": (404, NO_RUNTIME),
    "select-file?file=a.txt": (404, NO_RUNTIME),
    "download?path=a.txt": (404, NO_RUNTIME),
    "zip-directory": (404, NO_RUNTIME),
    "workspace": (404, NO_RUNTIME),
    "git/changes": (404, NO_REPOSITORY),
    "git/status": (404, NO_REPOSITORY),
    "git/diff?path=a.txt": (404, NO_REPOSITORY),
    "git/log": (404, NO_REPOSITORY),
    "remember-prompt?event_id=0": (404, None),
    "security/policy": (404, None),
}


async def test_nothing_that_is_asked_starts_a_sandbox(server: Server) -> None:
    conversation_id = await server.create()
    await server.until_running(conversation_id)
    place = f"/api/conversations/{conversation_id}"
    assert (await server.post(f"{place}/stop")).status_code == 200
    (sandbox,) = server.provider.sandboxes.values()
    starts = sandbox.starts
    for path, (status, body) in ASKED.items():
        response = await server.get(f"{place}/{path}")
        assert response.status_code == status, (path, response.text)
        assert body is None or response.json() == body, path
        assert (await server.info(conversation_id))["status"] == "STOPPED", path
    response = await server.post(f"{place}/upload-files", files=[("files", ("a.txt", b"x"))])
    assert (response.status_code, response.json()) == (404, NO_RUNTIME)
    assert (sandbox.starts, sandbox.status) == (starts, SandboxStatus.STOPPED)
    assert (await server.info(conversation_id))["status"] == "STOPPED"
    told = (await server.get(f"{place}/remember-prompt?event_id=0")).json()
    assert told["message"] == "the conversation does not run; start it first"
