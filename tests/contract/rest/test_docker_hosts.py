"""Several machines for sandboxes, as clients see them: which there are, draining, and what conversations say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from agent_core.errors import SandboxUnmadeError
from agent_core.runtime.sandbox import HostView, Sandbox, SandboxSpec
from agent_core.testing.fake_sandbox import FakeBehaviour, FakeProvider
from server.db.repositories.drained_hosts import DrainedHosts
from server.session import sandbox_hosts
from tests.contract.rest.conftest import Server, facts, kill, serving, shell

GIGABYTE = 1024**3


def view(name: str, *, lost: str = "") -> HostView:
    return HostView(
        name=name,
        url=f"unix:///{name}",
        status="lost" if lost else "up",
        reason=lost,
        since=0.0,
        version="20.10",
        processors=4,
        memory=8 * GIGABYTE,
        memory_free=0 if lost else 5 * GIGABYTE,
        sandboxes=3,
        max_sandboxes=28,
        images=("drydock/sandbox:base",) if name == "a" else (),
        is_swept=True,
    )


class HostsProvider(FakeProvider):
    """Fake sandboxes on hosts that are only spoken of; each is made on the first that is not `gone`.

    Hosts that are `going` are lost just when something is to be made there.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.views = {name: view(name) for name in ("a", "b")}
        self.changes: asyncio.Queue[str] = asyncio.Queue()
        self.swept: list[str] = []
        self.going: set[str] = set()
        self.gone: set[str] = set()

    async def place(self, spec: SandboxSpec, waiting: Callable[[str], None]) -> Sandbox:
        made: Any = self.create(spec)
        host = next((name for name in self.views if name not in self.gone), "a")
        made.state = {**made.state, "host": host}
        away = SandboxUnmadeError(f"The Docker host {host!r} cannot be reached: it is off.", code="engine_unavailable")
        made.behaviour = FakeBehaviour(error=away) if host in self.going else self.behaviour
        self.gone |= self.going & {host}
        return made  # type: ignore[no-any-return]

    async def next_change(self) -> HostView:
        return self.views[await self.changes.get()]

    async def sweep(self, host: str, instance_id: str, keep: Collection[str] | None) -> list[str]:
        self.swept.append(host)
        self.views[host] = self.views[host]._replace(is_swept=True)
        return []

    def hosts(self) -> Sequence[HostView]:
        return list(self.views.values())

    def drain(self, host: str, draining: bool) -> None:
        status: Literal["up", "draining"] = "draining" if draining else "up"
        self.views[host] = self.views[host]._replace(status=status)

    def change(self, new: HostView) -> None:
        self.views[new.name] = new
        self.changes.put_nowait(new.name)


def provider() -> HostsProvider:
    return HostsProvider(handlers={"shell.run": shell, "workspace.facts": facts, "shell.kill": kill})


async def statuses(server: Server) -> dict[str, str]:
    shown = (await server.get("/api/docker-hosts")).json()["results"]
    return {one["name"]: one["status"] for one in shown}


async def ready(server: Server) -> None:
    async def is_ready() -> bool:
        return bool(await statuses(server))

    await server.until(is_ready)


async def test_each_host_is_listed_and_measured(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", provider()) as server:
        await ready(server)
        first, second = (await server.get("/api/docker-hosts")).json()["results"]
        assert first == {
            "name": "a",
            "url": "unix:///a",
            "status": "up",
            "reason": None,
            "since": "1970-01-01T00:00:00Z",
            "version": "20.10",
            "processors": 4,
            "memory": 8 * GIGABYTE,
            "memory_free": 5 * GIGABYTE,
            "sandboxes": 3,
            "max_sandboxes": 28,
            "has_image": True,
        }
        assert not second["has_image"]
        metrics = (await server.get("/metrics")).text
        assert 'drydock_docker_host_status{host="a",state="up"} 1.0' in metrics
        assert 'drydock_docker_host_status{host="b",state="lost"} 0.0' in metrics
        assert f'drydock_docker_host_memory_free_bytes{{host="b"}} {float(5 * GIGABYTE)!r}' in metrics


async def test_a_host_that_was_drained_stays_so_over_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", provider()) as server:
        await ready(server)
        answer = await server.client.patch("/api/docker-hosts/b", json={"draining": True})
        assert (answer.status_code, answer.json()["status"]) == (200, "draining")
        unknown = await server.client.patch("/api/docker-hosts/c", json={"draining": True})
        assert (unknown.status_code, unknown.json()["detail"]) == (
            404,
            "There is no Docker host 'c'; docker_hosts in the configuration names them.",
        )
    async with serving(tmp_path / "data", provider()) as server:
        await ready(server)
        assert await statuses(server) == {"a": "up", "b": "draining"}
        await server.client.patch("/api/docker-hosts/b", json={"draining": False})
    async with serving(tmp_path / "data", provider()) as server:
        await ready(server)
        assert await statuses(server) == {"a": "up", "b": "up"}


async def test_what_another_server_was_told_of_a_host_is_done_here_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_hosts, "ASK_SECONDS", 0.05)
    async with serving(tmp_path / "data", provider()) as server:
        await ready(server)
        database = server.app.services.database
        await DrainedHosts(database.engines, database.writer).say("a", True)
        await DrainedHosts(database.engines, database.writer).say("of another configuration", True)

        async def is_drained() -> bool:
            return await statuses(server) == {"a": "draining", "b": "up"}

        await server.until(is_drained)


async def test_a_resting_conversation_says_that_its_host_is_lost_and_that_it_is_back(tmp_path: Path) -> None:
    hosts = provider()
    async with serving(tmp_path / "data", hosts) as server:
        conversation = await server.create(initial_user_msg=None)
        await server.until_running(conversation)

        async def says(status: str) -> bool:
            return bool((await server.info(conversation))["runtime_status"] == status)

        await server.until(lambda: says("STATUS$READY"))
        (sandbox,) = hosts.sandboxes.values()
        hosts.change(view("b", lost="The Docker host 'b' cannot be reached: it is off."))

        async def is_told() -> bool:  # not where its start has yet something to do there, and attaches again
            await sandbox.runner.drop()
            hosts.change(view("a", lost="The Docker host 'a' cannot be reached: it is off."))
            await asyncio.sleep(0.1)
            return await says("STATUS$WAITING_FOR_ENGINE")

        await server.until(is_told)
        warning = (await server.info(conversation))["runtime_warning"]
        assert warning == "Waiting for the Docker host. The Docker host 'a' cannot be reached: it is off."
        hosts.change(view("a"))
        await server.until(lambda: says("STATUS$READY"))
        assert (await server.info(conversation))["runtime_warning"] is None


async def test_a_host_that_is_lost_before_anything_was_made_there_is_left_for_another(tmp_path: Path) -> None:
    hosts = provider()
    hosts.going.add("a")
    async with serving(tmp_path / "data", hosts) as server:
        conversation = await server.create(initial_user_msg=None)
        await server.until_running(conversation)
        record = await server.app.services.database.conversations.get(conversation)
        assert record is not None
        assert record.sandbox == {"provider": "fake", "name": conversation, "host": "b"}


async def test_where_each_host_is_lost_like_that_the_start_ends_and_says_so(tmp_path: Path) -> None:
    hosts = provider()
    hosts.going |= {"a", "b"}
    async with serving(tmp_path / "data", hosts) as server:
        conversation = await server.create(initial_user_msg=None)

        async def has_failed() -> bool:
            info = await server.info(conversation)
            return bool(info["runtime_status"] == "STATUS$ERROR")

        await server.until(has_failed)


async def test_a_host_that_is_back_is_swept_before_anything_else(tmp_path: Path) -> None:
    hosts = provider()
    async with serving(tmp_path / "data", hosts) as server:
        await ready(server)
        hosts.change(view("b")._replace(is_swept=False))

        async def was_swept() -> bool:
            return hosts.swept == ["b"]

        await server.until(was_swept)


async def test_sandboxes_of_lost_hosts_are_no_room(tmp_path: Path) -> None:
    hosts = provider()
    async with serving(tmp_path / "data", hosts) as server:
        await ready(server)
        sandboxes = server.app.services.sandboxes
        assert sandboxes.hosts.most == 56
        hosts.views["b"] = view("b", lost="off")
        assert sandboxes.hosts.most == 28 + 3
