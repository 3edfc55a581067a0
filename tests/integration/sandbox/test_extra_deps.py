"""What a server or user wants installed in the image: done once, shared, told while it runs, bounded, and undone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from docker.errors import NotFound

from agent_core.errors import SandboxError
from agent_core.runtime.docker.derived import DERIVED_IMAGES
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.sandbox import ExtraDeps
from agent_core.testing.sandbox_contract import LIMITS, SandboxKit, eventually, output

pytestmark = pytest.mark.docker


@pytest.fixture(autouse=True)
def _nothing_stays(docker_kit: SandboxKit, engine: Any) -> Iterator[None]:
    yield
    for name in images(engine, docker_kit):
        engine.remove_image(name, force=True)


def images(engine: Any, kit: SandboxKit) -> set[str]:
    """Those of the test's own instance: other tests make some at the same time."""
    own = {"label": f"drydock.instance={kit.instance}"}
    return {tag for one in engine.images(DERIVED_IMAGES, filters=own) for tag in one["RepoTags"] or ()}


def helpers(engine: Any, kit: SandboxKit) -> list[str]:
    labels = [f"drydock.instance={kit.instance}", "drydock.role=derive"]
    return [one["Id"] for one in engine.containers(all=True, filters={"label": labels})]


def installs(engine: Any, kit: SandboxKit) -> bool:
    """Whether it is at it."""
    for one in helpers(engine, kit):
        with suppress(NotFound):  # removed in this moment
            if engine.inspect_container(one)["State"]["Running"]:
                return True
    return False


def commands(text: str = "", limit: float = 60.0) -> ExtraDeps:
    """Commands that nobody has run before."""
    made = "mkdir -p /opt/own && printf '#!/bin/sh\\necho made' > /usr/local/bin/made && chmod 755 /usr/local/bin/made"
    return ExtraDeps(f"# {secrets.token_hex(8)}\n{made}\n{text}", limit)


async def test_what_is_installed_is_there_in_every_sandbox_that_wants_it_and_made_once(
    docker_kit: SandboxKit, engine: Any
) -> None:
    wanted = commands("chown 12:34 /opt/own; echo working on it; sleep 1.5")
    first, second = (docker_kit.connect(name, extra_deps=wanted) for name in ("first", "second"))
    await asyncio.gather(first.start(), second.start())
    for sandbox in (first, second):
        assert await output(sandbox, "made; id -u; stat -c %u:%g /opt/own") == "made\n1000\n12:34"
    assert await output(first, "touch /usr/local/bin/x 2>&1; echo $?") == (
        "touch: cannot touch '/usr/local/bin/x': Read-only file system\n1"
    )
    assert len(images(engine, docker_kit)) == 1
    assert helpers(engine, docker_kit) == []
    assert "STATUS$BUILDING_RUNTIME" in docker_kit.statuses("second")
    plain = docker_kit.connect("plain")
    await plain.start()
    assert await output(plain, "command -v made || echo none") == "none"


@pytest.mark.parametrize(
    ("text", "limit", "words"),
    [
        ("echo I looked for it; exit 3", 60.0, ("exit code 3", "I looked for it")),
        ("sleep 60", 1.0, ("had not ended after 1 s", "runtime_extra_deps_seconds")),
        ("kill -KILL $$", 60.0, ("ended with exit code 137",)),
        ("no-such-installer", 60.0, ("exit code 127", "no-such-installer")),
        ("head -c 120000000 /dev/zero > /big; sleep 30", 60.0, ("more than 100 MiB",)),
    ],
)
async def test_commands_that_fail_or_take_too_much_are_told_with_their_last_words_and_leave_nothing(
    docker_kit: SandboxKit, engine: Any, text: str, limit: float, words: tuple[str, ...]
) -> None:
    limits = replace(LIMITS, disk=100 * 1024**2)
    with pytest.raises(SandboxError) as caught:
        await docker_kit.connect("failing", extra_deps=commands(text, limit), limits=limits).start()
    assert caught.value.code == "deps_failed"
    for word in (*words, "runtime_extra_deps"):
        assert word in str(caught.value)
    assert images(engine, docker_kit) == set()
    assert helpers(engine, docker_kit) == []
    filters = {"label": f"drydock.instance={docker_kit.instance}"}
    assert engine.containers(all=True, filters=filters) == []
    assert not engine.volumes(filters=filters)["Volumes"]


@pytest.mark.parametrize("was_killed", [False, True])
async def test_a_sandbox_made_from_something_else_is_made_again_with_its_workspace(
    docker_kit: SandboxKit, was_killed: bool
) -> None:
    before = docker_kit.connect("same")
    await before.start()
    await output(before, "echo kept > kept; echo also > ~/also")
    if not was_killed:
        await before.stop()
    await before.close()
    after = docker_kit.connect("same", state=before.sandbox.state, extra_deps=commands())
    await after.start()
    assert await output(after, "cat kept ~/also; made") == "kept\nalso\nmade"


async def test_other_variables_and_limits_count_from_the_next_start_and_disturb_nothing_that_runs(
    docker_kit: SandboxKit, engine: Any
) -> None:
    before = docker_kit.connect("same", environment={"COLOUR": "red"})
    await before.start()
    await output(before, "echo kept > kept")
    changes: dict[str, Any] = {"environment": {"COLOUR": "blue"}, "limits": replace(LIMITS, memory=200 * 1024**2)}
    running = docker_kit.connect("same", state=before.sandbox.state, **changes)
    await running.start()
    assert await output(running, "echo $COLOUR") == "red"
    await running.stop()
    stopped = docker_kit.connect("same", state=before.sandbox.state, **changes)
    await stopped.start()
    assert await output(stopped, "echo $COLOUR; cat kept") == "blue\nkept"
    container = engine.inspect_container(stopped.sandbox.state["container"])
    assert container["HostConfig"]["Memory"] == 200 * 1024**2


async def test_what_a_server_that_was_killed_was_installing_is_removed_by_the_next(
    docker_kit: SandboxKit, engine: Any
) -> None:
    starting = asyncio.create_task(docker_kit.connect("slow", extra_deps=commands("sleep 60")).start())
    await eventually(lambda: installs(engine, docker_kit), limit=30)
    await docker_kit.provider.reap(docker_kit.instance, [])
    with pytest.raises(SandboxError, match="could not be installed"):
        await starting
    assert helpers(engine, docker_kit) == []


async def test_a_provider_that_closes_ends_what_it_installs(docker_kit: SandboxKit, engine: Any) -> None:
    provider = DockerProvider()
    slow = docker_kit.connect("slow", provider=provider, extra_deps=commands("sleep 60"))
    starting = asyncio.create_task(slow.start())
    await eventually(lambda: helpers(engine, docker_kit), limit=30)
    await provider.close()
    await asyncio.wait([starting], timeout=20)
    assert starting.done()
    await eventually(lambda: not helpers(engine, docker_kit), limit=20)
    assert starting.cancelled() or starting.exception() is not None
