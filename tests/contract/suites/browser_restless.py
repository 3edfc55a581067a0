"""The conformance suite of the browser tools with pages that are late, hang, do not stay, or are not all words.

What the driver waits for, and how long, is the same with every Chromium and in every sandbox: one kind tries this.

Used like `tests.contract.suites.browser_contract`.
"""

from __future__ import annotations

import asyncio

from agent_core.testing.sandbox_contract import output
from agent_core.tools.browser import (
    BrowserClickAction,
    BrowserGetContentAction,
    BrowserGetStateAction,
    BrowserGoBackAction,
    BrowserListTabsAction,
    BrowserNavigateAction,
    BrowserToolExecutor,
    BrowserTypeAction,
)
from agent_core.tools.browser_code import BrowserCodeAction, BrowserCodeExecutor
from tests.contract.suites.browser_kit import BrowserKit, number

_SECONDS = 60.0


class RestlessPagesContract:
    """Nothing that a page does, or fails to do, costs what the browser has: it is told, and can be gone on from."""

    async def test_a_page_that_has_not_answered_yet_is_waited_for_and_seen_later(self, web: BrowserKit) -> None:
        await web.go("/lazy")
        tab = (await web.tabs()).active
        assert "has not answered yet" in await web.click('link "Gate"')
        assert "has not answered yet" in await web.look()
        waiting = await web.do(BrowserClickAction(index=2))
        assert waiting.is_error
        assert "which has not answered yet: look again later, or navigate." in waiting.text
        await output(web.sandbox, f"python3 -c 'import urllib.request as r; r.urlopen(\"{web.site}/open\")'")
        async with asyncio.timeout(_SECONDS):
            while "Title: Through" not in await web.look():
                pass
        assert (await web.tabs()).active == tab

    async def test_a_page_that_never_answers_is_given_up_for_the_one_before(self, web: BrowserKit) -> None:
        tab = (await web.tabs()).active
        await web.go("/lazy")
        await web.click('link "Nowhere"')
        impatient = BrowserToolExecutor(navigation_timeout_seconds=0.5)
        seen = await web.do(BrowserGetStateAction(), impatient)
        assert "did not answer within 0.5 s: the one before is still there" in seen.text
        await web.done(BrowserClickAction(index=number(seen.text, 'button "Wake"')))
        assert "Title: Awake" in await web.look()
        given_up = await web.do(BrowserNavigateAction(url=f"{web.site}/never"), impatient)
        assert "did not answer within 0.5 s: given up" in given_up.text
        assert "Title: Awake" in await web.look()
        await web.click('link "Nowhere"')
        await web.go("/boats")
        assert "/lazy" in await web.done(BrowserGoBackAction())
        await web.click('link "Nowhere"')
        assert "/boats" not in await web.done(BrowserNavigateAction(url=f"{web.site}/form"))
        assert (await web.tabs()).active == tab

    async def test_a_call_that_is_late_or_stopped_leaves_the_page_as_it_is(self, web: BrowserKit) -> None:
        await web.go("/lazy")
        tab = (await web.tabs()).active
        late = await web.do(
            BrowserNavigateAction(url=f"{web.site}/never"), BrowserToolExecutor(action_timeout_seconds=1)
        )
        assert (late.status, late.last_action_error) == ("timeout", "It was not done within 1 s.")
        assert "Title: Lazy" in await web.look()
        code = f"goto('{web.site}/lazy?stopped')\nnoop(50000)"
        for stopped, path in (
            (BrowserNavigateAction(url=f"{web.site}/never?stopped"), "/never?stopped"),
            (BrowserCodeAction(code=code), "/lazy?stopped"),
        ):
            asked = asyncio.create_task(
                web.do(stopped, BrowserCodeExecutor() if isinstance(stopped, BrowserCodeAction) else None)
            )
            await web.until_asked(path)
            asked.cancel()
            await asyncio.wait([asked])
            assert "Title: Lazy" in await web.look()
        assert (await web.tabs()).active == tab

    async def test_a_page_of_which_nothing_has_come_is_told_as_it_is(self, web: BrowserKit) -> None:
        assert "The page is still loading" in await web.done(BrowserNavigateAction(url=f"{web.site}/begun"))
        assert "The page is still loading" in await web.look()
        assert "The page has no text." in await web.done(BrowserGetContentAction())

    async def test_an_element_of_a_page_that_was_loaded_anew_is_found_again(self, web: BrowserKit) -> None:
        state = await web.go("/lazy")
        await web.done(BrowserNavigateAction(url=f"{web.site}/lazy"))
        await web.done(BrowserClickAction(index=number(state, 'button "Wake"')))
        twin = await web.do(BrowserClickAction(index=number(state, 'button "Twin"')))
        assert "There is no element" in twin.text
        assert "Title: Awake" in await web.look()
        await web.done(BrowserNavigateAction(url=f"{web.site}/lazy?other"))
        elsewhere = await web.do(BrowserClickAction(index=number(state, 'button "Wake"')))
        assert "There is no element" in elsewhere.text

    async def test_a_page_that_never_stays_is_seen_all_the_same(self, web: BrowserKit) -> None:
        await web.done(BrowserNavigateAction(url=f"{web.site}/flashing"))
        async with asyncio.timeout(_SECONDS):
            while 'button "Flash"' not in await web.look():
                pass
        told = await web.do(BrowserGetContentAction())
        assert told.text.startswith("Flash") or "by itself" in told.text or "no text" in told.text
        assert "Title: Boats" in await web.go("/boats")

    async def test_what_is_drawn_or_written_and_listens_for_clicks_has_a_number(self, web: BrowserKit) -> None:
        state = await web.go("/chart")
        assert 'button "not these"' not in state
        for name, title in (
            ('img "buoy"', "Buoy"),
            ('img "Lighthouse"', "Lighthouse"),
            ('img "own"', "Own"),
            ('button "the words"', "Words"),
            ("link", "Boats"),
        ):
            await web.done(BrowserClickAction(index=number(state, name)))
            assert f"Title: {title}" in await web.look()

    async def test_a_folder_is_chosen_whole_and_only_where_one_is_asked_for(self, web: BrowserKit) -> None:
        await output(web.sandbox, "mkdir -p logs/old; echo 1 > logs/a.txt; echo 2 > logs/old/b.txt; echo 3 > c.txt")
        state = await web.go("/folder")
        logs, page = number(state, 'button "Logs"'), number(state, 'button "Page"')
        assert "Chose the folder logs" in await web.done(BrowserTypeAction(index=logs, text="logs"))
        assert "logs/a.txt+logs/old/b.txt" in await web.done(BrowserGetContentAction())
        assert "has no files now" in await web.done(BrowserTypeAction(index=logs, text=""))
        assert "nothing" in await web.done(BrowserGetContentAction())
        load = number(state, 'button "Load"')
        await web.code(f"upload_file('{load}', 'logs')")
        assert "logs/a.txt+logs/old/b.txt" in await web.done(BrowserGetContentAction())
        for index, text, words in (
            (logs, "c.txt", "takes one folder, with all that is in it: give the folder's path."),
            (logs, "logs\nlogs/old", "takes one folder"),
            (page, "logs", f"'{web.sandbox.working_dir}/logs' is a folder, and element {page} takes files only."),
        ):
            refused = await web.do(BrowserTypeAction(index=index, text=text))
            assert refused.is_error
            assert words in refused.text

    async def test_pages_that_are_no_hypertext_are_seen_as_far_as_there_is_anything(self, web: BrowserKit) -> None:
        assert "Drawn" in await web.go("/drawing")
        assert "error on line 1" in await web.go("/broken")
        assert "The page is a file of the type video/mp4: only a screenshot shows" in await web.go("/film")
        endless = await web.go("/endless")
        assert "characters, more than the 5000000 of which a tree is made; its text can be read." in endless
        assert await web.done(BrowserGetContentAction()) == "So much."

    async def test_what_a_field_does_not_take_is_told_with_what_it_would(self, web: BrowserKit) -> None:
        state = await web.go("/fields")
        for name, wrong, words, right in (
            ('textbox "Day"', "31/05/2024", "is for a date and did not take '31/05/2024'; write it like", "2024-05-31"),
            ('textbox "Paint"', "teal", "is for a color and did not take 'teal'; write it like", "#00aa88"),
            ('combobox "Rig"', "Yawl", "its options are: Sloop, Ketch (disabled).", "Sloop"),
        ):
            index = number(state, name)
            refused = await web.do(BrowserTypeAction(index=index, text=wrong))
            assert refused.is_error
            assert words in refused.text
            await web.done(BrowserTypeAction(index=index, text=right))

    async def test_a_page_that_hangs_costs_its_tab_only(self, web: BrowserKit) -> None:
        await web.go("/boats")
        await web.done(BrowserNavigateAction(url=f"{web.site}/busy", new_tab=True))
        button = number(await web.look(), 'button "Hang"')
        seen = await web.do(BrowserClickAction(index=button), BrowserToolExecutor(action_timeout_seconds=1))
        assert seen.status == "timeout"
        assert "was not done within 1 s. The page did not react any more, so its tab was closed" in seen.text
        assert "Title: Boats" in await web.look()

    async def test_a_page_that_hangs_by_itself_is_told_and_left(self, web: BrowserKit) -> None:
        await web.close_others()
        for leave in (False, True):
            button = number(await web.go(f"/busy?{leave}"), 'button "Hang soon"')
            await web.done(BrowserClickAction(index=button))
            await web.until_asked(f"/hangs?{leave}")
            if leave:
                told = await web.done(BrowserNavigateAction(url=f"{web.site}/boats"))
                assert "did not react any more; its tab was closed, and" in told
                assert "Title: Boats" in await web.look()
            else:
                seen = await web.do(BrowserClickAction(index=button))
                assert (seen.status, seen.last_action_error) == (
                    "failed",
                    "The page did not react any more, so its tab was closed.",
                )

    async def test_a_page_that_hangs_does_not_keep_what_is_allowed_from_counting(self, web: BrowserKit) -> None:
        await web.close_others()
        button = number(await web.go("/busy?counting"), 'button "Hang soon"')
        await web.done(BrowserClickAction(index=button))
        await web.until_asked("/hangs?counting")
        narrow = BrowserToolExecutor(allowed_domains=["localhost"])
        for _ in range(2):
            seen = await web.do(BrowserNavigateAction(url=f"{web.site}/boats"), narrow)
            if seen.status != "unavailable":  # its words say that the next call starts it anew
                break
        assert "127.0.0.1" in seen.text
        assert seen.is_error

    async def test_a_browser_that_does_nothing_any_more_is_started_anew(self, web: BrowserKit) -> None:
        await web.go("/boats")
        await output(web.sandbox, "pkill -STOP -f -- '[-]-remote-debugging-pipe'")
        seen = await web.do(BrowserListTabsAction(), BrowserToolExecutor(action_timeout_seconds=1))
        assert seen.status == "timeout"
        assert "The browser did not react any more, so it is started anew with the next call." in seen.text
        assert "Title: Boats" in await web.go("/boats")
