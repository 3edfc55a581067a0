"""Several users on the page: by an invitation in, to a conversation, and out again."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.e2e.conftest import MakeModel, OpenPage, StartServer, ask, done, until_phase

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
]

PASSWORD = "four unusual words"


async def test_an_invited_user_signs_in_works_and_signs_out(
    start_server: StartServer, visit: OpenPage, scripted: MakeModel
) -> None:
    server = await start_server("--sandbox", "unconfined", model=await scripted([done()]), DRYDOCK_USERS="accounts")
    await server.until_printed("prints another one")
    first = re.search(r"http\S+/welcome#link=\S+", server.printed())
    assert first is not None
    url, server.url = server.url, ""  # nobody but those below is let in, so there is nothing to look after
    anns = (await visit(first[0])).page
    await anns.get_by_test_id("welcome-name").fill("ann")
    await anns.get_by_test_id("welcome-password").fill(PASSWORD)
    await anns.get_by_test_id("login-submit").click()
    await expect(anns.get_by_test_id("composer-input")).to_be_visible()
    await anns.goto(f"{url}/settings")
    await anns.get_by_test_id("person-name").fill("bob")
    await anns.get_by_test_id("add-person").click()
    link = await anns.get_by_test_id("person-link").locator("code").inner_text()

    seen = await visit(link)
    page = seen.page
    await page.get_by_test_id("welcome-password").fill(PASSWORD)
    await page.get_by_test_id("login-submit").click()
    await ask(page, "Build me a boat")
    await until_phase(page, "finished")
    await expect(page.get_by_test_id("conversation-item")).to_have_count(1)
    await anns.goto(url)
    await expect(anns.get_by_test_id("composer-input")).to_be_visible()
    await expect(anns.get_by_test_id("conversation-item")).to_have_count(0)

    await page.get_by_test_id("header-menu").click()
    await page.get_by_test_id("header-share").click()
    await page.get_by_test_id("share-make").click()
    guests = (await visit(await page.get_by_test_id("share-address").input_value())).page
    await until_phase(guests, "finished")
    composer = guests.get_by_test_id("composer-input")
    await expect(composer).to_have_attribute("placeholder", "Shared with you for reading")
    await expect(guests.get_by_test_id("sidebar")).to_have_count(0)
    await page.get_by_test_id("share-take-back").click()
    await expect(page.get_by_test_id("share-entry")).to_have_count(0)
    await page.get_by_test_id("share-user").fill("ann")
    await page.get_by_test_id("share-make").click()
    theirs = await page.get_by_test_id("share-address").input_value()
    await expect(guests.get_by_test_id("login-name")).to_be_visible()
    await anns.goto(theirs)
    await until_phase(anns, "finished")

    await page.goto(f"{url}/settings")
    await page.get_by_test_id("account-sign-out").click()
    await page.get_by_test_id("login-name").fill("bob")
    await page.get_by_test_id("login-password").fill(PASSWORD)
    await page.get_by_test_id("login-submit").click()
    await page.get_by_test_id("conversation-item").click()
    await expect(page.get_by_test_id("composer-input")).to_be_visible()

    await anns.goto(f"{url}/settings")
    await anns.locator('[data-name="bob"]').get_by_test_id("person-disable").click()
    await expect(page.get_by_test_id("login-name")).to_be_visible()
    assert seen.problems == []
