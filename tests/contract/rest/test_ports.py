"""The list of ports and the addresses of their previews, and that previews stand before everything else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from agent_core.runtime.sandbox import Progress, Sandbox, SandboxSpec
from agent_core.testing.fake_sandbox import FakeAnswer, FakeHandler, FakeProvider, FakeRequest, FakeRunnerError
from server.session.sandboxes import app_ports
from tests.contract.rest.conftest import MakeServer, Server, facts, shell
from tests.waiting import ticks

FOUND: list[Any] = [
    {"port": 8000, "addresses": ["127.0.0.1"], "pid": 7, "process": "python3", "command": "python3 -m http.server"},
    {"port": 9000, "addresses": None, "pid": "x", "process": None, "command": 3},
    {"port": 0},
    {"port": True},
    "nonsense",
]


async def listing(call: FakeRequest) -> FakeAnswer:
    return {"ports": FOUND}


async def running(server: Server) -> str:
    conversation_id = await server.create()
    await server.until_running(conversation_id)
    (sandbox,) = server.provider.sandboxes.values()
    sandbox.runner.handlers["ports.list"] = listing
    return conversation_id


async def test_ports_are_listed_with_addresses_that_lead_to_their_own_origin(server: Server) -> None:
    conversation_id = await running(server)
    found = (await server.get(f"/api/conversations/{conversation_id}/ports")).json()
    assert (found["running"], found["mode"]) == (True, "origin")
    first, second = found["ports"]
    assert {**first, "url": ""} == {**FOUND[0], "url": ""}
    assert {**second, "url": ""} == {
        "port": 9000,
        "addresses": [],
        "pid": None,
        "process": None,
        "command": None,
        "url": "",
    }
    address = urlsplit(first["url"])
    assert address.netloc.startswith("8000-")
    assert address.netloc.endswith(".localhost:3000")
    hosts = (await server.get(f"/api/conversations/{conversation_id}/web-hosts")).json()["hosts"]
    assert list(hosts.values()) == [*app_ports(conversation_id), 8000, 9000]
    assert urlsplit(list(hosts)[2]).netloc == address.netloc
    response = await server.client.get(first["url"])
    assert response.status_code == 303
    assert response.headers["location"] == "/"


@pytest.mark.parametrize(
    ("preview_domain", "host", "mode", "found"),
    [
        ("p.example.com", "drydock.example.com", "origin", ".p.example.com/?drydock_ticket="),
        ("localhost", "drydock.example.com", "path", "drydock.example.com/preview/"),
        ("none", "localhost:3000", "path", "localhost:3000/preview/"),
    ],
)
async def test_previews_are_where_the_preview_domain_says_and_the_page_may_show_them(
    make_server: MakeServer, preview_domain: str, host: str, mode: str, found: str
) -> None:
    async with make_server(preview_domain=preview_domain, allowed_hosts=["drydock.example.com"]) as server:
        place = f"/api/conversations/{await running(server)}"
        ports = (await server.get(f"{place}/ports", headers={"host": host})).json()
        assert ports["mode"] == mode
        assert found in ports["ports"][0]["url"]
        opened = await server.client.get(ports["ports"][0]["url"])
        if mode == "origin":
            assert (opened.status_code, opened.headers["location"]) == (303, "/")
        else:
            assert "sandbox" in opened.headers["content-security-policy"]
        policy = (await server.get("/", headers={"host": host})).headers["content-security-policy"]
        assert ("*.p.example.com" in policy) is (mode == "origin")


async def test_ports_are_listed_in_pages_and_what_is_polled_has_a_tag(server: Server) -> None:
    path = f"/api/conversations/{await running(server)}"
    first = await server.get(f"{path}/ports?limit=1")
    assert [one["port"] for one in first.json()["ports"]] == [8000]
    second = await server.get(first.links["next"]["url"])
    assert [one["port"] for one in second.json()["ports"]] == [9000]
    assert "link" not in second.headers
    for name in ("ports", "web-hosts"):
        assert (await server.get(f"{path}/{name}")).headers["etag"]
    # Clients show what they are told as long as it stays the same.
    assert (await server.get(f"{path}/web-hosts")).text == (await server.get(f"{path}/web-hosts")).text


async def test_other_hosts_get_addresses_under_a_path(make_server: MakeServer) -> None:
    async with make_server(allowed_hosts=("drydock.example",)) as server:
        conversation_id = await running(server)
        headers = {"host": "drydock.example"}
        found = (await server.get(f"/api/conversations/{conversation_id}/ports", headers=headers)).json()
        assert found["mode"] == "path"
        assert found["ports"][0]["url"].startswith("http://drydock.example/preview/")
        response = await server.client.get(found["ports"][0]["url"])
        assert response.headers["content-security-policy"].startswith("sandbox")


async def test_without_a_sandbox_there_are_none_and_a_failure_is_told(server: Server) -> None:
    conversation_id = await running(server)
    (sandbox,) = server.provider.sandboxes.values()

    async def fail(call: FakeRequest) -> FakeAnswer:
        raise FakeRunnerError("internal", "the table is gone")

    sandbox.runner.handlers["ports.list"] = fail
    path = f"/api/conversations/{conversation_id}"
    response = await server.get(f"{path}/ports")
    coded = {"code": "internal", "docs": "/errors/internal"}
    assert (response.status_code, response.json()) == (500, {"error": "the table is gone", **coded})
    response = await server.get(f"{path}/web-hosts")
    assert (response.status_code, response.json()) == (500, {"hosts": None, "error": "the table is gone"})
    await server.post(f"{path}/stop")
    assert (await server.get(f"{path}/ports")).json() == {"running": False, "mode": "origin", "ports": []}
    assert (await server.get(f"{path}/web-hosts")).json() == {"hosts": {}}
    assert (await server.get("/api/conversations/unknown/ports")).status_code == 404


@pytest.mark.parametrize("path", ["/api/conversations", "/health", "/", "/socket.io/?EIO=4&transport=polling"])
async def test_no_route_answers_under_the_name_of_a_preview(server: Server, path: str) -> None:
    response = await server.get(path, headers={"host": f"8000-{'a' * 26}.localhost:3000"})
    assert response.status_code == 403
    assert "preview" in response.text


async def test_two_ports_have_addresses_before_anything_listens_and_stay_the_conversations(
    make_server: MakeServer, tmp_path: Path
) -> None:
    async def nothing(call: FakeRequest) -> FakeAnswer:
        return {"ports": []}

    async with make_server() as server:
        conversation_id = await running(server)
        (sandbox,) = server.provider.sandboxes.values()
        sandbox.runner.handlers["ports.list"] = nothing
        hosts = (await server.get(f"/api/conversations/{conversation_id}/web-hosts")).json()["hosts"]
        first, second = hosts.values()
        assert sandbox.spec.environment == {"APP_PORT_1": str(first), "APP_PORT_2": str(second)}
        assert first != second
        other = await server.create()
        assert app_ports(other) != (first, second)
    async with make_server() as server:
        await server.post(f"/api/conversations/{conversation_id}/start", json={})
        await server.until_running(conversation_id)
        hosts = (await server.get(f"/api/conversations/{conversation_id}/web-hosts")).json()["hosts"]
        assert tuple(hosts.values())[:2] == (first, second)


async def test_who_asks_while_the_sandbox_comes_up_is_answered_when_it_is_there(make_server: MakeServer) -> None:
    up = asyncio.Event()

    class Slow(FakeProvider):
        def create(self, spec: SandboxSpec) -> Sandbox:
            sandbox = super().create(spec)
            start = sandbox.start

            async def started(progress: Progress) -> None:
                await up.wait()
                await start(progress)

            sandbox.start = started  # type: ignore[method-assign]
            return sandbox

    handlers: dict[str, FakeHandler] = {"shell.run": shell, "workspace.facts": facts, "ports.list": listing}
    async with make_server(Slow(handlers=handlers)) as server:
        conversation_id = await server.create()
        asked = [
            asyncio.create_task(server.get(f"/api/conversations/{conversation_id}/{path}"))
            for path in ("web-hosts", "vscode-url")
        ]
        await ticks(50)
        assert not any(task.done() for task in asked)
        up.set()
        hosts, editor = [(await task).json() for task in asked]
        assert list(hosts["hosts"].values())[:2] == list(app_ports(conversation_id))
        assert editor["vscode_url"].endswith("/workspace")


async def test_the_agent_is_told_that_its_user_can_open_ports(server: Server) -> None:
    conversation_id = await server.create(initial_user_msg="hello")

    async def told() -> bool:
        return any(event.get("observation") == "recall" for event in await server.events(conversation_id))

    await server.until(told)
    (recall,) = [event for event in await server.events(conversation_id) if event.get("observation") == "recall"]
    told_of = recall["extras"]["additional_agent_instructions"]
    assert "under Ports" in told_of
    first, second = app_ports(conversation_id)
    assert f"$APP_PORT_1 ({first}) and $APP_PORT_2 ({second})" in told_of
