"""What a person sees while something is in the way: a queue, a full disk, a sandbox or a server that is away.

Each is said where it is, with what to do, as long as it lasts and no longer; what was written meanwhile is not lost.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, say
from tests.e2e.conftest import OpenPage, answering, ask, environment_of, free_port, run, until_phase
from tests.integration.server.conftest import ServerProcess
from tests.small_disk import fill, small_disk

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
]

RESERVE_MB = 32
LIMITS = {"DRYDOCK_MAX_CONCURRENT_CONVERSATIONS": "1", "DRYDOCK_DISK_RESERVE_MB": str(RESERVE_MB)}
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
NOTHING = (1, resource.RLIM_INFINITY)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    """One for all tests, in which one conversation of a user works at a time; one that is to hold its place does."""
    with small_disk(tmp_path_factory.mktemp("bad") / "disk", 256) as disk:
        async with ModelServer(answering(answer)) as model:
            options = ("--port", str(free_port()), "--sandbox", "unconfined")
            made = ServerProcess(disk / "data", *options, environment={**environment_of(model), **LIMITS})
            try:
                await made.start()
                yield made
            finally:
                await made.close()


def answer(request: ModelRequest) -> Turn:
    """What the user says last decides it."""
    if b"Sleep." in request.content and b"was lost" not in request.content:
        return run("sleep 600")
    return say("Heard.", delay=600 if b"Hold the place." in request.content else 0)


async def sleeping(server: ServerProcess, visit: OpenPage) -> tuple[str, Page]:
    """A conversation in which a command runs for long, and its page."""
    async with server.client() as client:
        made = (await client.post("/api/conversations", json={"initial_user_msg": "Sleep."})).json()["conversation_id"]
    page = (await visit(f"{server.url}/conversations/{made}")).page
    await expect(page.get_by_test_id("command-card")).to_contain_text("sleep 600")
    return made, page


def kill_sandboxes(server: ServerProcess) -> None:
    """Kill whatever works in this server's sandboxes, as when memory runs out."""
    for folder in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if folder.readlink().is_relative_to(server.data_dir / "sandboxes"):
                os.kill(int(folder.parent.name), signal.SIGKILL)


async def texts(page: Page) -> list[str]:
    return await page.locator('[data-testid="user-message"] .user-text').all_inner_texts()


async def test_a_place_in_line_is_told_with_its_reason_and_goes(server: ServerProcess, visit: OpenPage) -> None:
    asked = ("Hold the place.", "first", "second", "third")
    async with server.client() as client:
        made = [(await client.post("/api/conversations", json={"initial_user_msg": text})).json() for text in asked]
        holding, _, _, waiting = (one["conversation_id"] for one in made)
        page = (await visit(f"{server.url}/conversations/{waiting}")).page
        await expect(page.get_by_test_id("status-text")).to_have_text("Third in line")
        await expect(page.get_by_test_id("waiting")).to_contain_text("1 of your conversations is at work")
        await ask(page, "and this")
        await client.delete(f"/api/conversations/{holding}")
    await until_phase(page, "ready")
    await expect(page.get_by_test_id("waiting")).to_have_count(0)
    assert await texts(page) == ["third", "and this"]


async def test_a_storage_that_fails_is_told_as_long_as_it_does_and_what_was_written_follows(
    server: ServerProcess, visit: OpenPage
) -> None:
    page = (await visit(server.url)).page
    await ask(page, "one")
    await until_phase(page, "ready")
    home = (await visit(server.url)).page
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, NOTHING)
    try:
        await ask(page, "two")
        await expect(page.get_by_test_id("outage")).to_contain_text("cannot store anything")
        await expect(page.get_by_test_id("pending-message")).to_contain_text("Waiting to be sent")
        await expect(page.get_by_test_id("notice")).to_have_count(0)
        await ask(home, "new")
        await expect(home.get_by_test_id("create-error")).to_contain_text("could not be stored")
        await expect(home.get_by_test_id("create-error")).to_contain_text("tried again by itself")
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, UNLIMITED)
    await expect(page.get_by_test_id("outage")).to_have_count(0)
    await expect(page.get_by_test_id("pending-message")).to_have_count(0)
    await until_phase(page, "ready")
    assert await texts(page) == ["one", "two"]
    await until_phase(home, "ready")
    assert await texts(home) == ["new"]


async def test_a_server_that_was_away_makes_what_was_asked_for_meanwhile(
    server: ServerProcess, visit: OpenPage
) -> None:
    home = (await visit(server.url)).page
    await expect(home.get_by_test_id("composer-input")).to_be_visible()
    await server.kill()
    await ask(home, "while you were away")
    await expect(home.get_by_test_id("create-error")).to_contain_text("cannot be reached")
    await server.start()
    await until_phase(home, "ready")
    assert await texts(home) == ["while you were away"]


async def test_a_frozen_sandbox_is_told_until_there_is_room_also_after_a_reload(
    server: ServerProcess, visit: OpenPage
) -> None:
    made, page = await sleeping(server, visit)
    filling = fill(server.data_dir.parent, (RESERVE_MB - 10) * 1024**2)
    for _ in range(2):
        await expect(page.get_by_test_id("status-text")).to_have_text("Frozen until there is room on the server's disk")
        await expect(page.get_by_test_id("frozen")).to_contain_text("then they go on by themselves")
        await page.reload()
    filling.unlink()
    await expect(page.get_by_test_id("frozen")).to_have_count(0)
    await expect(page.get_by_test_id("status-text")).to_have_text("Working")
    async with server.client() as client:
        await client.delete(f"/api/conversations/{made}")


async def test_a_sandbox_that_is_lost_is_told_until_there_is_another(server: ServerProcess, visit: OpenPage) -> None:
    _, page = await sleeping(server, visit)
    kill_sandboxes(server)
    await until_phase(page, "ready")
    await expect(page.get_by_test_id("command-card")).to_contain_text("was lost while this ran")


async def test_what_the_browser_could_not_fetch_is_asked_for_again(server: ServerProcess, visit: OpenPage) -> None:
    """As when the network of its machine changes just then: it gives up what is under way, and asks nothing again."""
    seen = await visit("about:blank")
    failures = 0

    async def fail_once(route: Route) -> None:
        nonlocal failures
        failures += 1
        if failures == 1:
            await route.abort("internetdisconnected")
        else:
            await route.continue_()

    await seen.page.route("**/assets/index-*.js", fail_once)
    await seen.page.goto(server.url)
    await expect(seen.page.get_by_test_id("composer-input")).to_be_visible()
    assert failures == 2
