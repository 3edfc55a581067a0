"""What a person sees while something is in the way: a queue, a storage that fails, a server that is away.

Each is said where it is, with what to do, as long as it lasts and no longer; what was written meanwhile is not lost.
"""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import say
from tests.e2e.conftest import OpenPage, answering, ask, environment_of, free_port, until_phase
from tests.integration.server.conftest import ServerProcess

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]

UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
NOTHING = (1, resource.RLIM_INFINITY)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    """One for all tests, in which one conversation of a user works at a time; one that is to hold its place does."""
    held = b"Hold the place."
    model = ModelServer(answering(lambda request: say("Heard.", delay=600 if held in request.content else 0)))
    async with model:
        limits = {"DRYDOCK_MAX_CONCURRENT_CONVERSATIONS": "1"}
        options = ("--port", str(free_port()), "--sandbox", "unconfined")
        folder = tmp_path_factory.mktemp("bad") / "data"
        made = ServerProcess(folder, *options, environment={**environment_of(model), **limits})
        try:
            await made.start()
            yield made
        finally:
            await made.close()


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
