"""The page where something is in its way: no connection, no storage, a small screen, a text that hides something."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from agent_core.testing.model_turns import say
from tests.e2e.conftest import MakeModel, OpenPage, Play, StartServer, ask, done, overflow, run, until_phase

pytestmark = [
    pytest.mark.browser,
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="module"),
]


OVERRIDE = "\N{RIGHT-TO-LEFT OVERRIDE}"
FORBIDDEN = "get() { throw new DOMException('forbidden', 'SecurityError') }"


async def test_what_was_written_without_a_connection_is_sent_once_and_in_order_after_a_reload(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel
) -> None:
    model = await scripted(lambda request: say("Heard."))
    server = await start_server(model=model)
    seen = await visit(server.url)
    page = seen.page
    await ask(page, "one")
    await until_phase(page, "ready")
    await server.kill()
    await expect(page.get_by_test_id("agent-status")).to_have_attribute("data-connection", "reconnecting")
    for text in ("two", "never", "three"):
        await ask(page, text)
    await expect(page.get_by_test_id("pending-message")).to_have_count(3)
    await page.get_by_test_id("take-back").nth(1).click()
    await expect(page.get_by_test_id("composer-input")).to_have_value("never")
    await expect(page.get_by_test_id("pending-message")).to_have_count(2)
    await server.start()
    await page.reload()
    await expect(page.get_by_test_id("pending-message")).to_have_count(0)
    await expect(page.locator('[data-testid="user-message"] .user-text')).to_have_text(["one", "two", "three"])
    await expect(page.get_by_test_id("composer-input")).to_have_value("never")
    await until_phase(page, "ready")
    await page.reload()
    await until_phase(page, "ready")
    await expect(page.get_by_test_id("user-message")).to_have_count(3)
    assert seen.problems == []


async def test_a_browser_that_stores_nothing_is_enough(play: Play, visit: OpenPage) -> None:
    server = play(lambda request: say("Hello."))
    seen = await visit("about:blank")
    names = ("localStorage", "sessionStorage")
    for name in names:
        await seen.context.add_init_script(f"Object.defineProperty(window, '{name}', {{ {FORBIDDEN} }})")
    page = seen.page
    await page.goto(server.url)
    await page.get_by_test_id("theme-toggle").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "light")
    await ask(page, "hello")
    await until_phase(page, "ready")
    await expect(page.get_by_test_id("agent-message")).to_contain_text("Hello.")
    assert seen.problems == []


async def test_panels_on_a_phone_lie_over_the_conversation_and_give_the_focus_back(play: Play, visit: OpenPage) -> None:
    server = play([run("echo hello > a.txt"), done()])
    seen = await visit(server.url, width=390, height=844)
    page = seen.page
    await ask(page, "go")
    await until_phase(page, "finished")
    opener = page.get_by_test_id("workspace-toggle")
    await opener.click()
    panel = page.get_by_test_id("workspace-panel")
    await expect(panel).to_be_focused()
    await expect(page.locator(".conversation-body")).to_have_attribute("inert", "")
    await page.get_by_test_id("tree-entry").click()
    await expect(page.get_by_test_id("file-view")).to_contain_text("hello")
    assert await overflow(page) == 0
    await page.keyboard.press("Escape")
    await expect(page.get_by_test_id("file-view")).to_have_count(0)
    await page.keyboard.press("Escape")
    await expect(panel).to_have_count(0)
    await expect(opener).to_be_focused()
    await page.get_by_test_id("header-menu").click()
    await page.get_by_test_id("header-ports").click()
    box = await page.get_by_test_id("ports-panel").bounding_box()
    assert box is not None
    assert (box["width"], box["height"]) == (390, 844)
    await page.keyboard.press("Escape")
    await expect(page.get_by_test_id("ports-panel")).to_have_count(0)
    # The on-screen keyboard takes its part of the height; the writing box stays in sight.
    await page.set_viewport_size({"width": 390, "height": 420})
    await expect(page.get_by_test_id("send-button")).to_be_in_viewport(ratio=1)
    assert seen.problems == []


async def test_what_a_command_hides_is_seen_before_it_is_approved_and_reorders_nothing(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel
) -> None:
    model = await scripted([run(f"touch 'photo_{OVERRIDE}gnp.sh'"), done()])
    server = await start_server(model=model)
    async with server.client() as client:
        assert (await client.post("/api/settings", json={"confirmation_mode": True})).status_code == 200
    page = (await visit(server.url, width=360, height=740)).page
    await ask(page, f"{OVERRIDE}go")
    await expect(page.get_by_test_id("approval-bar")).to_contain_text("touch 'photo_U+202Egnp.sh'")
    for answer in ("approve-button", "reject-button", "approve-for-good-button"):
        await expect(page.get_by_test_id(answer)).to_be_in_viewport(ratio=1)
    await page.get_by_test_id("approve-button").click()
    await until_phase(page, "finished")
    await page.get_by_test_id("workspace-toggle").click()
    entry = page.get_by_test_id("tree-entry")
    await expect(entry).to_contain_text("photo_U+202Egnp.sh")
    name, size = entry.locator(".tree-text"), entry.locator(".tree-size")
    left, right = await name.bounding_box(), await size.bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] <= right["x"]
