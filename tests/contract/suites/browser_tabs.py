"""The conformance suite of the browser tools about tabs: those that are opened, by a page too, and those that end.

Used like `tests.contract.suites.browser_contract`.
"""

from __future__ import annotations

import asyncio

from agent_core.testing.sandbox_contract import output
from agent_core.tools.browser import (
    BrowserClickAction,
    BrowserCloseTabAction,
    BrowserGetContentAction,
    BrowserGetStateAction,
    BrowserListTabsAction,
    BrowserNavigateAction,
    BrowserSwitchTabAction,
    BrowserToolExecutor,
)
from tests.contract.suites.browser_kit import BrowserKit, number


class TabsContract:
    """Tabs and windows that come and go, pages that never end, and a browser that dies."""

    async def test_tabs_are_opened_listed_switched_and_closed(self, web: BrowserKit) -> None:
        await web.go("/")
        first = (await web.do(BrowserGetStateAction())).open_pages[-1].id
        assert "new tab" in await web.click('link "Boats"')
        seen = await web.do(BrowserListTabsAction())
        second = seen.open_pages[seen.active_page_index]
        assert (second.title, len(second.id)) == ("Boats", 4)
        assert f"* {second.id}: Boats" in seen.text
        assert f"- {first}: Harbour" in seen.text
        elsewhere = number(await web.look(), "paragraph")
        await web.done(BrowserSwitchTabAction(tab_id=first))
        assert (await web.do(BrowserClickAction(index=elsewhere))).is_error, "the number is that of the other tab"
        assert "Title: Harbour" in await web.look()
        await web.done(BrowserCloseTabAction(tab_id=second.id))
        assert [page.id for page in (await web.do(BrowserListTabsAction())).open_pages].count(second.id) == 0
        unknown = await web.do(BrowserSwitchTabAction(tab_id="nope"))
        assert unknown.is_error
        assert f"There is no tab 'nope'; open are: {first}" in unknown.text
        link = number(await web.look(), 'link "The form"')
        assert "new tab" in await web.done(BrowserClickAction(index=link, new_tab=True))
        third = await web.do(BrowserGetStateAction())
        assert "Title: Form" in third.text
        await web.done(BrowserCloseTabAction(tab_id=third.open_pages[third.active_page_index].id))

    async def test_a_site_that_never_answers_is_given_up(self, web: BrowserKit) -> None:
        impatient = BrowserToolExecutor(navigation_timeout_seconds=0.5)
        seen = await web.do(BrowserNavigateAction(url=f"{web.site}/never"), impatient)
        assert seen.status == "failed"
        assert f"{web.site}/never did not answer within 0.5 s" in seen.text

    async def test_a_page_that_never_finishes_can_be_used(self, web: BrowserKit) -> None:
        told = await web.done(BrowserNavigateAction(url=f"{web.site}/unfinished"))
        assert "still loading" in told
        assert 'button "There"' in await web.look()
        content = await web.done(BrowserGetContentAction())
        assert content.startswith("So far.\n")
        assert content.endswith("\nThe page is still loading; what it shows may change.")

    async def test_a_frame_that_never_answers_is_not_taken_for_the_page(self, web: BrowserKit) -> None:
        told = await web.done(BrowserNavigateAction(url=f"{web.site}/waiting"))
        assert "The page is still loading" in told
        assert "asked for another" not in told

    async def test_only_allowed_domains_are_opened(self, web: BrowserKit) -> None:
        narrow = BrowserToolExecutor(allowed_domains=["localhost"])
        for _ in range(2):
            seen = await web.do(BrowserNavigateAction(url=f"{web.site}/boats"), narrow)
            if seen.status != "unavailable":  # as where it is just started anew, on a busy machine
                break
        assert seen.is_error
        assert "not among the allowed domains" in seen.text
        here = f"{web.site.replace('127.0.0.1', 'localhost')}/boats"
        assert not (await web.do(BrowserNavigateAction(url=here), narrow)).is_error
        seen = await web.do(BrowserNavigateAction(url=here.replace("/boats", "/away")), narrow)
        told = seen.text
        async with asyncio.timeout(60):
            while seen.url != "about:blank" or "it was left" not in told:  # it may be on its way still
                seen = await web.do(BrowserGetStateAction(), narrow)
                told += seen.text
        assert "which is not among the allowed domains; it was left" in told
        assert not (await web.do(BrowserNavigateAction(url=f"{web.site}/boats"))).is_error

    async def test_a_call_that_is_cancelled_ends_and_the_next_is_served(self, web: BrowserKit) -> None:
        asked = asyncio.create_task(web.do(BrowserNavigateAction(url=f"{web.site}/never?cancelled")))
        await web.until_asked("/never?cancelled")
        asked.cancel()
        await asyncio.wait([asked])
        assert "Title: Boats" in await web.go("/boats")

    async def test_a_browser_that_died_is_started_anew(self, web: BrowserKit) -> None:
        await web.go("/boats")
        await output(web.sandbox, "pkill -9 -f -- '[-]-remote-debugging-pipe'")
        seen = [await web.do(BrowserListTabsAction()) for _ in range(2)]
        assert not seen[1].is_error, seen[1].text
        assert "started anew" in seen[0].text + seen[1].text
        await output(web.sandbox, "pkill -9 -f '[b]rowser_driver'")
        again = [await web.do(BrowserListTabsAction()) for _ in range(2)]
        assert not again[1].is_error, again[1].text
        assert "ended unexpectedly" in again[0].text or "started anew" in again[0].text
        await web.go("/boats")
        await output(web.sandbox, "pkill -9 -f '[r]un-driver'")  # the library's own process
        lost = [await web.do(BrowserListTabsAction()) for _ in range(2)]
        assert not lost[1].is_error, lost[1].text
        assert "started anew" in lost[0].text + lost[1].text
        assert "Title: Boats" in await web.go("/boats")

    async def test_a_window_that_a_page_opens_is_the_active_tab_until_it_closes(self, web: BrowserKit) -> None:
        await web.close_others()
        await web.go("/windows")
        opener = (await web.tabs()).active
        await web.done(BrowserNavigateAction(url=f"{web.site}/boats", new_tab=True))
        await web.done(BrowserSwitchTabAction(tab_id=opener))
        for button, title in (("Ann", "Hello Ann"), ("Leave", "Hello nobody")):
            assert "new tab" in await web.click('button "Sign in"')
            assert "Title: Who are you" in await web.look()
            await web.click(f'button "{button}"')
            state = await web.look()
            assert f"Title: {title}" in state, "the window closed itself, so it is the page again that opened it"
            assert (await web.tabs()).active == opener

    async def test_a_window_without_an_address_shows_what_is_written_into_it(self, web: BrowserKit) -> None:
        await web.close_others()
        await web.go("/windows")
        assert "new tab" in await web.click('button "Write"')
        assert await web.done(BrowserGetContentAction()) == "By hand."

    async def test_a_window_whose_site_has_not_answered_is_told_of(self, web: BrowserKit) -> None:
        await web.close_others()
        await web.go("/windows")
        assert "The page opened a new tab, which has nothing to show yet." in await web.click('button "Late"')
        await web.click('button "Forget"')

    async def test_a_page_that_opens_windows_without_an_end_is_stopped(self, web: BrowserKit) -> None:
        await web.close_others()
        await web.go("/windows")
        told = await web.click('button "Storm"')
        async with asyncio.timeout(60):
            while "tried to open more than 20 tabs" not in told:  # they come one after the other
                told += await web.done(BrowserListTabsAction())
        assert len((await web.tabs()).ids) <= 20
        await web.close_others()
        assert "Title: Boats" in await web.go("/boats")
