"""What conversations choose of their sandboxes: it reaches the sandbox, stays, or is refused before anything starts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_core.runtime.sandbox import ExtraDeps, SandboxSpec
from agent_core.testing.fake_sandbox import FakeProvider
from server.settings.mcp_config import HIDDEN
from tests.contract.rest.conftest import MakeServer, Server, facts, kill, shell

IMAGES = {"sandbox_images": "a:*", "sandbox_image": "own:1"}


def provider(**values: Any) -> FakeProvider:
    return FakeProvider(handlers={"shell.run": shell, "workspace.facts": facts, "shell.kill": kill}, **values)


async def spec_of(server: Server, conversation_id: str) -> SandboxSpec:
    """With what its sandbox was made, once it runs."""
    await server.until_running(conversation_id)
    return next(one.spec for one in server.provider.sandboxes.values() if one.spec.conversation_id == conversation_id)


def variables(spec: SandboxSpec) -> dict[str, str]:
    """Those that somebody chose."""
    return {name: value for name, value in spec.environment.items() if not name.startswith("APP_PORT_")}


async def store(server: Server, **body: Any) -> None:
    response = await server.post("/api/settings", json=body)
    assert response.status_code == 200, response.text


async def test_what_a_request_chooses_reaches_its_sandbox_and_no_other(make_server: MakeServer) -> None:
    chosen = {"image": "a:1", "network": "none", "memory_mb": 128, "cpus": 0.5, "processes": 32, "disk_mb": 64}
    async with make_server(**IMAGES) as server:
        spec = await spec_of(server, await server.create(sandbox={**chosen, "start_seconds": 9}))
        other = await spec_of(server, await server.create())
    limits = spec.limits
    assert (spec.image, spec.network, limits.memory, limits.cpus) == ("a:1", "none", 128 * 1024**2, 0.5)
    assert (limits.processes, limits.disk, limits.start_seconds) == (32, 64 * 1024**2, 9.0)
    assert (other.image, other.network, other.limits.memory) == ("own:1", "full", 4096 * 1024**2)


async def test_what_the_user_has_set_reaches_the_sandboxes_of_their_conversations(make_server: MakeServer) -> None:
    async with make_server(**IMAGES, sandbox_memory_max_mb=8192, sandbox_cpus_max=8) as server:
        await store(server, sandbox_base_container_image="a:base", remote_runtime_resource_factor=2)
        spec = await spec_of(server, await server.create())
        assert (spec.image, spec.limits.memory, spec.limits.cpus) == ("a:base", 8192 * 1024**2, 4.0)
        await store(server, sandbox_runtime_container_image="a:runtime")
        assert (await spec_of(server, await server.create())).image == "a:runtime"
        assert (await spec_of(server, await server.create(sandbox={"image": "a:2"}))).image == "a:2"


@pytest.mark.parametrize(
    ("sandbox", "words"),
    [
        ({"image": "b:1"}, ("sandbox.image", "own:1, drydock/sandbox:*, a:*", "sandbox_images")),
        ({"network": "host-access"}, ("sandbox.network", "none, internal, full", "sandbox_network_max")),
        ({"memory_mb": 4097}, ("sandbox.memory_mb", "4096 MiB", "sandbox_memory_max_mb")),
        ({"cpus": 2.5}, ("sandbox.cpus", "2 processors", "sandbox_cpus_max")),
        ({"processes": 513}, ("sandbox.processes", "512", "sandbox_processes_max")),
        ({"disk_mb": 10241}, ("sandbox.disk_mb", "10240 MiB", "sandbox_disk_max_mb")),
        ({"start_seconds": 61}, ("sandbox.start_seconds", "60 s", "sandbox_start_max_seconds")),
    ],
)
async def test_more_than_the_server_grants_is_a_400_and_nothing_is_begun(
    make_server: MakeServer, sandbox: dict[str, Any], words: tuple[str, ...]
) -> None:
    async with make_server(**IMAGES) as server:
        response = await server.post("/api/conversations", json={"sandbox": sandbox, "initial_user_msg": "Go"})
        assert response.status_code == 400
        for word in words:
            assert word in response.json()["message"]
        assert (await server.get("/api/conversations")).json()["results"] == []
        assert server.provider.sandboxes == {}


@pytest.mark.parametrize(
    "sandbox",
    [
        {"image": "a b"},
        {"network": "everything"},
        {"memory_mb": 1},
        {"memory_mb": "1"},
        {"cpus": 0},
        {"cpus": True},
        {"processes": -1},
        {"disk_mb": 10**12},
        {"start_seconds": 0},
        {"memory": 128},
        [],
        "a:1",
    ],
)
async def test_a_choice_that_is_none_is_a_422_with_its_place(server: Server, sandbox: Any) -> None:
    response = await server.post("/api/conversations", json={"sandbox": sandbox})
    assert response.status_code == 422
    assert "sandbox" in response.json()["message"]


async def test_settings_that_the_server_does_not_grant_are_not_stored(make_server: MakeServer) -> None:
    async with make_server(**IMAGES) as server:
        await store(server, language="de", remote_runtime_resource_factor=1, sandbox_api_key="")
        for field, wrong, word in (
            ("sandbox_base_container_image", "b:1", "sandbox_images"),
            ("sandbox_runtime_container_image", "b:1", "sandbox_images"),
            ("remote_runtime_resource_factor", 2, "sandbox_memory_max_mb"),
            ("sandbox_api_key", "key", "leave it empty"),
        ):
            response = await server.post("/api/settings", json={"language": "fr", field: wrong})
            assert response.status_code == 422
            assert field in response.text
            assert word in response.text
        assert (await server.get("/api/settings")).json()["language"] == "de"


async def test_what_was_granted_once_and_is_not_any_more_is_told_before_a_conversation_begins(
    make_server: MakeServer,
) -> None:
    async with make_server(**IMAGES) as server:
        await store(server, sandbox_base_container_image="a:1")
    async with make_server(sandbox_image="own:1") as server:
        response = await server.post("/api/conversations", json={})
        assert response.status_code == 400
        assert response.json()["message"].startswith("sandbox_base_container_image: the image a:1 is not one")
        await store(server, language="de")  # other settings can be changed all the same
        await store(server, sandbox_base_container_image=None)
        assert (await spec_of(server, await server.create())).image == "own:1"


async def test_what_a_provider_cannot_hold_is_refused_and_not_ignored(make_server: MakeServer) -> None:
    lacking = provider(missing={"image": "there are no images here", "memory_mb": "memory cannot be limited here"})
    async with make_server(lacking, **IMAGES, sandbox_memory_max_mb=8192, sandbox_cpus_max=8) as server:
        for body, field in (
            ({"image": "a:1"}, "sandbox.image"),
            ({"memory_mb": 128}, "sandbox.memory_mb"),
        ):
            response = await server.post("/api/conversations", json={"sandbox": body})
            assert response.status_code == 400
            assert response.json()["message"].startswith(f"{field}: ")
            assert response.json()["message"].endswith("here; leave it out")
        for setting, value in (("sandbox_base_container_image", "a:1"), ("remote_runtime_resource_factor", 2)):
            response = await server.post("/api/settings", json={setting: value})
            assert response.status_code == 422
            assert setting in response.json()["error"]
        assert (await spec_of(server, await server.create(sandbox={"cpus": 1}))).limits.cpus == 1


async def test_a_conversation_keeps_its_choice_over_a_restart_a_fork_and_another_default(
    make_server: MakeServer,
) -> None:
    async with make_server(**IMAGES) as server:
        chosen = await server.create(sandbox={"image": "a:1", "memory_mb": 128})
        usual = await server.create()
        await server.until_running(chosen)
        response = await server.post(f"/api/conversations/{chosen}/fork", json={"copy_files": False})
        forked = response.json()["conversation_id"]
    other = {**IMAGES, "sandbox_image": "own:2"}
    async with make_server(provider(), **other, sandbox_memory_mb=256) as server:
        for conversation_id in (chosen, usual, forked):
            response = await server.post(f"/api/conversations/{conversation_id}/start", json={})
            assert response.status_code == 200, response.text
        for conversation_id, image, memory in ((chosen, "a:1", 128), (usual, "own:1", 256), (forked, "a:1", 128)):
            spec = await spec_of(server, conversation_id)
            assert (spec.image, spec.limits.memory) == (image, memory * 1024**2)
        assert (await spec_of(server, await server.create())).image == "own:2"
    async with make_server(provider(), sandbox_image="own:2") as server:  # which lets nobody choose an image any more
        for conversation_id, image in ((chosen, "own:2"), (usual, "own:1"), (forked, "own:2")):
            response = await server.post(f"/api/conversations/{conversation_id}/start", json={})
            assert response.status_code == 200, response.text
            assert (await spec_of(server, conversation_id)).image == image


async def test_two_that_begin_at_once_get_what_each_has_chosen(make_server: MakeServer) -> None:
    async with make_server(**IMAGES) as server:
        first, second = await asyncio.gather(
            server.create(sandbox={"image": "a:1", "network": "none"}),
            server.create(sandbox={"image": "a:2", "network": "internal"}),
        )
        specs = [await spec_of(server, one) for one in (first, second)]
        assert [(one.image, one.network) for one in specs] == [("a:1", "none"), ("a:2", "internal")]


async def test_commands_of_server_and_user_reach_the_sandbox_and_stay_with_the_conversation(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_server(**IMAGES, runtime_extra_deps="one", runtime_extra_deps_seconds=7) as server:
        assert (await spec_of(server, await server.create())).extra_deps == ExtraDeps("one", 7.0)
        await store(server, runtime_extra_deps=" two ")
        both = await server.create()
        assert (await spec_of(server, both)).extra_deps == ExtraDeps("one\ntwo", 7.0)
        await store(server, sandbox_runtime_container_image="a:whole")
        assert (await spec_of(server, await server.create())).extra_deps is None
    async with make_server(provider()) as server:
        assert (await server.post(f"/api/conversations/{both}/start", json={})).status_code == 200
        assert (await spec_of(server, both)).extra_deps == ExtraDeps("one\ntwo", 600.0)
    lacking = provider(missing={"extra_deps": "there are no images here"})
    async with make_server(lacking, **IMAGES, runtime_extra_deps="one") as server:
        await store(server, sandbox_runtime_container_image=None, runtime_extra_deps=None)
        response = await server.post("/api/conversations", json={})
        assert response.status_code == 400
        assert response.json()["message"] == "runtime_extra_deps: there are no images here; leave it out"
        response = await server.post("/api/settings", json={"runtime_extra_deps": "two"})
        assert response.status_code == 422
    assert "no conversation can begin here with the setting runtime_extra_deps: there are no images here" in caplog.text


async def test_variables_of_the_user_go_before_those_of_the_server(make_server: MakeServer) -> None:
    async with make_server(runtime_startup_env_vars={"A": "server", "B": "server"}) as server:
        assert variables(await spec_of(server, await server.create())) == {"A": "server", "B": "server"}
        await store(server, runtime_startup_env_vars={"B": "own", "C": ""})
        assert variables(await spec_of(server, await server.create())) == {"A": "server", "B": "own", "C": ""}
        await store(server, runtime_startup_env_vars=None)
        assert variables(await spec_of(server, await server.create())) == {"A": "server", "B": "server"}


async def test_a_variable_that_looks_like_a_secret_is_shown_nowhere_and_comes_back_as_it_is(
    make_server: MakeServer,
) -> None:
    own, servers = "do-not-tell-own", "do-not-tell-servers"
    async with make_server(runtime_startup_env_vars={"REGISTRY_TOKEN": servers}) as server:
        await store(server, runtime_startup_env_vars={"API_KEY": own, "COLOUR": "blue"})
        shown = (await server.get("/api/settings")).json()["runtime_startup_env_vars"]
        assert shown == {"API_KEY": HIDDEN, "COLOUR": "blue"}
        await store(server, runtime_startup_env_vars={**shown, "COLOUR": "red"})
        conversation_id = await server.create()
        spec = await spec_of(server, conversation_id)
        assert variables(spec) == {"REGISTRY_TOKEN": servers, "API_KEY": own, "COLOUR": "red"}
        event = {"action": "message", "args": {"content": f"{own} and {servers}"}}
        assert (await server.post(f"/api/conversations/{conversation_id}/events", json=event)).status_code == 200
        events = str(await server.events(conversation_id))
        assert "do-not-tell" not in events
        assert "<secret_hidden> and <secret_hidden>" in events
        response = await server.post("/api/settings", json={"runtime_startup_env_vars": {"OTHER_KEY": HIDDEN}})
        assert response.status_code == 422
        assert "runtime_startup_env_vars.OTHER_KEY" in response.text


@pytest.mark.parametrize(
    "variables", [{"1A": "x"}, {"": "x"}, {"A=B": "x"}, {"A": 1}, {"A": "\0"}, {"A": "x" * 70_000}, [], "A=1"]
)
async def test_variables_that_can_be_none_are_refused_without_their_values(server: Server, variables: Any) -> None:
    response = await server.post("/api/settings", json={"runtime_startup_env_vars": variables})
    assert response.status_code == 422
    assert "runtime_startup_env_vars" in response.text
    assert "xxx" not in response.text


async def test_where_users_may_not_set_up_sandboxes_their_variables_are_refused(make_server: MakeServer) -> None:
    async with make_server(users_set_up_sandboxes=False) as server:
        response = await server.post("/api/settings", json={"runtime_startup_env_vars": {"A": "1"}})
        assert response.status_code == 422
        assert "users_set_up_sandboxes" in response.text
        response = await server.post("/api/settings", json={"runtime_extra_deps": "true"})
        assert response.status_code == 422
        assert "users_set_up_sandboxes" in response.text


async def test_where_users_may_not_set_up_sandboxes_any_more_what_they_had_ends_with_the_next_start(
    make_server: MakeServer,
) -> None:
    async with make_server(**IMAGES, runtime_extra_deps="one") as server:
        await store(server, runtime_extra_deps="two", runtime_startup_env_vars={"A": "1"})
        both = await server.create()
        assert (await spec_of(server, both)).extra_deps == ExtraDeps("one\ntwo", 600.0)
        await store(server, sandbox_runtime_container_image="a:whole")
        whole = await server.create()
        await server.until_running(whole)
    for commands, expected in (("three", ExtraDeps("three", 600.0)), ("", None)):
        async with make_server(
            provider(), **IMAGES, runtime_extra_deps=commands, users_set_up_sandboxes=False
        ) as server:
            for conversation_id, wanted in ((both, expected), (whole, None)):
                assert (await server.post(f"/api/conversations/{conversation_id}/start", json={})).status_code == 200
                spec = await spec_of(server, conversation_id)
                assert (spec.extra_deps, variables(spec)) == (wanted, {})
