"""Canaries in every place that holds a secret, and a search for each of them in everything that a server puts out."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.responses import Response

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, fail, finish, say
from tests.canaries import canary, found_in, written
from tests.contract.openapi.documents import operations
from tests.contract.webhooks.conftest import Receiver
from tests.integration.server.conftest import WAIT_SECONDS, MakeProcess, ServerProcess, create, following
from tests.integration.server.test_backups import drydock
from tests.integration.server.test_docker import docker
from tests.integration.server.test_traces import collecting
from tests.serving import serving

OF_THE_SERVER = {
    "access_token": canary("access_token", is_plain=True),
    "server_key": canary("server_key"),
    "server_address": canary("server_address"),
    "server_search": canary("server_search"),
    "server_mcp_key": canary("server_mcp_key"),
    "server_mcp_url": canary("server_mcp_url", is_plain=True),
    "server_mcp_argument": canary("server_mcp_argument"),
    "server_mcp_variable": canary("server_mcp_variable"),
    "server_profile": canary("server_profile"),
    "server_profile_header": canary("server_profile_header"),
    "provider_key": canary("provider_key"),
    "proxy": canary("proxy"),
}
OF_THE_USER = {
    "user_key": canary("user_key"),
    "user_address": canary("user_address"),
    "user_search": canary("user_search"),
    "user_profile": canary("user_profile"),
    "user_profile_header": canary("user_profile_header"),
    "user_mcp_key": canary("user_mcp_key"),
    "user_mcp_url": canary("user_mcp_url", is_plain=True),
    "user_mcp_variable": canary("user_mcp_variable"),
    "user_mcp_client": canary("user_mcp_client"),
    "git_token": canary("git_token", is_plain=True),
    "webhook_key": "whsec_" + base64.b64encode(canary("webhook_key").encode()).decode(),
    "webhook_url": canary("webhook_url", is_plain=True),
    "conversation_mcp": canary("conversation_mcp"),
    "custom_secret": canary("custom_secret"),
}
IN_SANDBOXES = {"server_variable": canary("server_variable"), "user_variable": canary("user_variable")}
"""What sandboxes are given by name: it stands in the environment of their processes, and in nothing that they say."""

PLANTED = {**OF_THE_SERVER, **OF_THE_USER, **IN_SANDBOXES}

LOOK = (
    "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; ps aux 2>/dev/null;"
    " find / -xdev \\( -name secret.key -o -name token -o -name drydock.db \\) -exec cat {} + 2>/dev/null;"
    ' printf "$CUSTOM" | base64 -w 7; printf " $CUSTOM" | base64; printf "$CUSTOM" | xxd -p; printf "$CUSTOM" | od -tx1'
)


def environment(model_port: int) -> dict[str, str]:
    """The server's, with a canary in everything that takes a secret."""
    of = OF_THE_SERVER
    servers = {
        "shttp_servers": [
            {"url": f"http://127.0.0.1:9/mcp?token={of['server_mcp_url']}", "api_key": of["server_mcp_key"]}
        ],
        "stdio_servers": [
            {
                "name": "own",
                "command": "false",
                "args": ["--api-key", of["server_mcp_argument"]],
                "env": {"TOKEN": of["server_mcp_variable"]},
            }
        ],
    }
    profile = {
        "model": "openai/scripted",
        "base_url": f"http://127.0.0.1:{model_port}/v1",
        "api_key": of["server_profile"],
        "extra_headers": {"X-Auth": of["server_profile_header"]},
    }
    return {
        "DRYDOCK_TOKEN": of["access_token"],
        "LLM_MODEL": "openai/scripted",
        "LLM_API_KEY": of["server_key"],
        "LLM_BASE_URL": f"http://ann:{quote(of['server_address'], safe='')}@127.0.0.1:{model_port}/v1",
        "DRYDOCK_SEARCH_API_KEY": of["server_search"],
        "DRYDOCK_SEARCH_URL": "http://127.0.0.1:9",
        "DRYDOCK_MCP_CONFIG": json.dumps(servers),
        "DRYDOCK_LLM_PROFILES": json.dumps({"fast": profile}),
        "DRYDOCK_RUNTIME_STARTUP_ENV_VARS": json.dumps({"SERVER_TOKEN": IN_SANDBOXES["server_variable"]}),
        "DRYDOCK_VERIFY_GIT_TOKENS": "false",
        "DRYDOCK_VERIFY_SEARCH_KEY": "false",
        "DRYDOCK_LOG_LEVEL": "info",
        "DRYDOCK_LOG_ALL_EVENTS": "true",
        "ANTHROPIC_API_KEY": of["provider_key"],
        "HTTPS_PROXY": f"http://ann:{quote(of['proxy'], safe='')}@127.0.0.1:9",
        "NO_PROXY": "127.0.0.1,localhost",
    }


async def plant(client: httpx.AsyncClient, model_port: int, receiver: Receiver) -> None:
    """The user's canaries."""
    of = OF_THE_USER
    servers = {
        "shttp_servers": [{"url": f"http://127.0.0.1:9/x?api_key={of['user_mcp_url']}", "api_key": of["user_mcp_key"]}],
        "sse_servers": [
            {
                "url": "http://127.0.0.1:9/sse",
                "oauth": {"client_id": "me", "client_secret": of["user_mcp_client"]},
            }
        ],
        "stdio_servers": [{"name": "p", "command": "false", "env": {"KEY": of["user_mcp_variable"]}}],
    }
    address = f"http://ann:{quote(of['user_address'], safe='')}@127.0.0.1:{model_port}/v1"
    headers = {"X-Auth": of["user_profile_header"]}
    profile = {"model": "openai/x", "base_url": address, "api_key": of["user_profile"], "extra_headers": headers}
    hook = {"url": f"{receiver.url}?token={of['webhook_url']}", "secret": of["webhook_key"]}
    settings = {
        "llm_model": "openai/scripted",
        "llm_base_url": address,
        "llm_api_key": of["user_key"],
        "search_api_key": of["user_search"],
        "mcp_config": servers,
        "runtime_startup_env_vars": {"USER_TOKEN": IN_SANDBOXES["user_variable"]},
    }
    for response in (
        await client.post("/api/settings", json=settings),
        await client.put("/api/llm-profiles/mine", json=profile),
        await client.post("/api/secrets", json={"name": "CUSTOM", "value": of["custom_secret"]}),
        await client.post(
            "/api/add-git-providers",
            json={"provider_tokens": {"github": {"token": of["git_token"], "host": f"http://127.0.0.1:{model_port}"}}},
        ),
    ):
        assert response.status_code in (200, 201), response.text
    made = await client.post("/api/webhooks", json=hook)
    assert made.status_code == 201, made.text


class Model:
    """Does with secrets whatever a model and its server could: runs what shows them, says them, fails with them."""

    def __init__(self) -> None:
        # Each value in some forms, and each form of some: what hides them is tried with all in tests/unit/events.
        told = " and ".join(
            form for number, value in enumerate(PLANTED.values()) for form in list(written(value))[number % 6 :: 6]
        )
        self._turns = iter(
            [
                call("terminal", {"command": LOOK, "security_risk": "LOW"}),
                call(
                    "terminal", {"command": f"echo {OF_THE_USER['user_key'][:9]!r}", "security_risk": "LOW"}, text=told
                ),
                say(told, reasoning=told),
                fail(400, f"no such key: {told}"),
                finish(told),
            ]
        )

    def __call__(self, request: ModelRequest) -> Turn:
        if "tools" not in request.json:
            return say(OF_THE_USER["user_key"])  # a title, the answer to the test of a profile
        return next(self._turns, finish("Done."))


def processes_but(pid: int) -> dict[str, bytes]:
    """Command lines and environments of all processes of this machine, except for one."""
    found = {}
    for entry in Path("/proc").iterdir():
        for what in ("cmdline", "environ"):
            if entry.name.isdigit() and int(entry.name) != pid:
                with suppress(OSError):
                    found[f"{what} of process {entry.name}"] = (entry / what).read_bytes()
    return found


async def everything_read(client: httpx.AsyncClient, conversation_id: str) -> dict[str, bytes]:
    """The answer of every route that reads, and of some that do more."""
    answers = {"/metrics": (await client.get("/metrics")).content}
    known = {"conversation_id": conversation_id, "name": "mine", "webhook_id": "unknown"}
    for one in operations():
        if one.method.upper() != "GET":
            continue
        path = one.path.format_map({part["name"]: known.get(part["name"], "1") for part in one.parameters("path")})
        query = {part["name"]: "1" for part in one.parameters("query") if part.get("required")}
        content = b""
        with suppress(TimeoutError, httpx.HTTPError):
            async with (
                asyncio.timeout(0.3 if path.endswith("/live") else 60),
                client.stream("GET", path, params=query) as response,
            ):
                answers[path] = str(response.headers).encode()
                async for piece in response.aiter_bytes():
                    content += piece
        answers[path] = answers.get(path, b"") + content
    for path, body in (
        ("/api/llm-profiles/mine/test", {}),
        ("/api/llm-profiles/fast/test", {}),
        ("/api/settings", {"llm_base_url": {"a": OF_THE_USER["user_key"]}}),
        ("/api/secrets", {"name": 3, "value": OF_THE_USER["custom_secret"]}),
        ("/v1/chat/completions", {"model": "drydock", "messages": OF_THE_USER["user_key"]}),
        (f"/api/conversations/{conversation_id}/events", {"action": OF_THE_USER["user_key"]}),
    ):
        response = await client.post(path, json=body)
        answers[f"POST {path.rpartition('/')[2]}"] = response.content
    return answers


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()

    async def take(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        receiver.requests.append(({}, body))
        await Response(status_code=204)(scope, receive, send)

    async with serving(take, lifespan="off", abruptly=True) as port:
        receiver.port = port
        yield receiver


async def driven(server: ServerProcess, conversation_id: str) -> dict[str, str]:
    """What a socket is shown until the agent has finished: each event, and each stream of pieces as one text."""
    told = [f"{name} {value}" for name, value in OF_THE_USER.items()]
    async with following(server, conversation_id) as follower, asyncio.timeout(WAIT_SECONDS * 2):
        for state in ("awaiting_user_input", "error", "finished"):
            while state not in {(one.get("extras") or {}).get("agent_state") for one in follower.frames}:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # `Follower.until` takes the agent's error for the end
            if state != "finished":
                await follower.send({"action": "message", "args": {"content": f"Go on with {told}."}})
        pieces: dict[str, str] = {}
        for delta in follower.deltas:
            for name, value in delta.items():
                if isinstance(value, str):
                    pieces[f"pieces of {name}"] = pieces.get(f"pieces of {name}", "") + value
        return {"events of the socket": json.dumps(follower.frames), "pieces": json.dumps(follower.deltas), **pieces}


async def inspected(server: ServerProcess) -> dict[str, bytes]:
    """What the engine says of a server's containers, volumes and networks, and of the containers' processes."""
    label = f"label=drydock.instance={(server.data_dir / 'instance-id').read_text().strip()}"
    found = {}
    for kind, listing in (("container", "-aq"), ("volume", "-q"), ("network", "-q")):
        for one in await docker(kind, "ls", listing, "--filter", label):
            found[f"{kind} {one}"] = " ".join(await docker(kind, "inspect", one)).encode()
            if kind == "container":
                found[f"top of {one}"] = " ".join(await docker("top", one)).encode()
    return found


def dumped_bytes(pid: int) -> str:
    """How much of a process's memory is written to a file when a signal ends it."""
    found = re.search(r"^Max core file size +(\S+) ", Path(f"/proc/{pid}/limits").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


async def aborted(server: ServerProcess) -> str:
    """What the server has printed until a signal ended it that asks for a dump of its memory."""
    assert dumped_bytes(server.pid) == "0"
    os.kill(server.pid, signal.SIGABRT)
    async with asyncio.timeout(WAIT_SECONDS):
        while server.returncode is None:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.02)
    return server.printed()


def files_of(data_dir: Path) -> dict[str, bytes]:
    """Everything that a data folder keeps, and where memory was dumped; but for the key and the token themselves."""
    found = {str(file): file.read_bytes() for file in data_dir.rglob("*") if file.is_file()}
    assert any(name.endswith(".db") for name in found)
    return {name: content for name, content in found.items() if Path(name).name not in ("secret.key", "token")}


ALLOWED = {
    ("access_token", "log"): "whoever starts a server is shown the address that signs a browser in",
    ("user_key", "POST events"): "who sends what cannot be read is told what of it",
}
"""Where a value may be seen, and why."""


@pytest.mark.parametrize(
    ("sandbox", "log_format"),
    [
        pytest.param("local", "text", marks=pytest.mark.bubblewrap),
        pytest.param("docker", "json", marks=pytest.mark.docker),
    ],
)
async def test_no_canary_shows_in_anything_that_a_server_puts_out(
    make_process: MakeProcess, tmp_path: Path, sandbox: str, log_format: str
) -> None:
    async with ModelServer(Model()) as model, receiving() as receiver, collecting() as collector:
        port = int(model.origin.rpartition(":")[2])
        given = environment(port) | {"DRYDOCK_LOG_FORMAT": log_format, "DRYDOCK_WEBHOOK_HOSTS": "127.0.0.1"}
        given |= {"DRYDOCK_OTEL": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        server = await make_process("--sandbox", sandbox, environment=given)
        server.token = OF_THE_SERVER["access_token"]
        async with server.client() as client:
            await plant(client, port, receiver)
            own = {"shttp_servers": [{"url": "http://127.0.0.1:9/y", "api_key": OF_THE_USER["conversation_mcp"]}]}
            conversation_id = await create(server, initial_user_msg="Look around.", mcp_config=own)
            outputs: dict[str, str | bytes] = {**await driven(server, conversation_id)}
            outputs |= await everything_read(client, conversation_id)
            of_sandboxes = processes_but(server.pid) if sandbox == "local" else await inspected(server)
        outputs |= {f"webhook {number}": body for number, (_, body) in enumerate(receiver.requests)}
        outputs |= {"traces": collector.bodies, "log": await aborted(server)}
        status, words = await drydock(
            server.log, "backup", str(tmp_path / "b"), "--without-key", "--data-dir", str(server.data_dir)
        )
        assert status == 0, words
        outputs |= {"backup": (tmp_path / "b").read_bytes(), "words of backup": words, **files_of(server.data_dir)}
    assert receiver.requests
    assert collector.bodies
    planted = PLANTED | {"master_key": (server.data_dir / "secret.key").read_text().strip()}
    seen = {(name, place) for name, place, _ in found_in(outputs, planted)}
    assert seen == ALLOWED.keys()
    shown = {name for name, _, _ in found_in(of_sandboxes, planted)}
    assert shown == IN_SANDBOXES.keys(), "what its user has given it by name, and nothing else"
