"""The conformance suite of the browser tools with pages and servers that mean no good, or know no better.

Used like `tests.contract.suites.browser_contract`.
"""

from __future__ import annotations

import asyncio
import re

from agent_core.testing.sandbox_contract import output
from agent_core.tools.browser import (
    BrowserClickAction,
    BrowserGetContentAction,
    BrowserListTabsAction,
    BrowserNavigateAction,
    BrowserToolExecutor,
    BrowserTypeAction,
)
from tests.contract.suites.browser_kit import BrowserKit, number


class HostilePagesContract:
    """Whatever they do costs a call or a tab, never the browser, and is told in words."""

    async def test_each_way_not_to_answer_is_told_in_words(self, web: BrowserKit) -> None:
        for path, why in (
            ("/round", "it leads from one address to the next without an end"),
            ("/nothing", "it has nothing to show"),
            ("/noise", "what is there speaks no HTTP"),
        ):
            seen = await web.do(BrowserNavigateAction(url=web.site + path))
            assert seen.is_error
            assert why in seen.text
        private = (await web.do(BrowserNavigateAction(url=f"{web.site}/private"))).text
        assert "HTTP 401" in private or "it wants a user name and a password" in private  # as Chromium was built
        own = await web.do(BrowserNavigateAction(url="chrome://settings"))
        assert "hat page of the browser itself cannot be opened here" in own.text
        assert "Title: Boats" in await web.go("/boats")

    async def test_a_file_of_the_sandbox_can_be_looked_at_but_not_by_those_with_allowed_domains(
        self, web: BrowserKit
    ) -> None:
        await output(web.sandbox, "echo '<title>Own</title><p>A file.</p>' > own.html")
        url = f"file://{web.sandbox.working_dir}/own.html"
        await web.done(BrowserNavigateAction(url=url))
        assert "A file." in await web.done(BrowserGetContentAction())
        narrow = BrowserToolExecutor(allowed_domains=["127.0.0.1"])
        assert (await web.do(BrowserNavigateAction(url=url), narrow)).is_error
        await web.done(BrowserNavigateAction(url=f"{web.site}/boats"))

    async def test_elements_in_shadow_trees_and_in_frames_of_frames_can_be_used(self, web: BrowserKit) -> None:
        await web.go("/shadow")
        await web.fill('textbox "Deep"', "sea")
        await web.click('button "Inside"')
        assert "Title: Reached" in await web.look()
        await web.click('button "Inner"')
        state = await web.look()
        assert "Title: Innermost" in state
        assert 'textbox "Deep": sea' in state

    async def test_pages_that_let_nobody_go_are_left(self, web: BrowserKit) -> None:
        await web.go("/clingy")
        await web.click('button "Touch"')
        assert "Title: Boats" in await web.go("/boats")
        await web.go("/ticking")
        await web.click('button "Tick"')
        shown = 0
        async with asyncio.timeout(60):
            while shown < 12:
                told = (await web.do(BrowserListTabsAction())).text
                shown += sum(int(count) for count in re.findall(r"'tick'; it was closed\. \((\d+) times\)", told))
        told = await web.done(BrowserNavigateAction(url=f"{web.site}/boats"))
        assert "kept showing dialogs; its tab was closed" in told
        assert "Title: Boats" in await web.look()

    async def test_links_for_other_programs_empty_pages_and_no_addresses_are_told_in_words(
        self, web: BrowserKit
    ) -> None:
        await web.go("/outward")
        told = await web.click('link "Call"')
        assert "It leads to tel:+123, which is for another program" in told
        await asyncio.sleep(0.5)  # until Chromium's own window would be there
        await web.click('button "Next"')
        assert "Title: Still here" in await web.look()
        wrong = await web.do(BrowserTypeAction(index=number(await web.look(), "radio"), text="One"))
        assert wrong.is_error
        assert "takes no text, it is a radio: click it" in wrong.text
        await web.click('button "Wipe"')
        assert (await web.look()).endswith("(the page is empty)")
        nowhere = await web.do(BrowserNavigateAction(url="http://[::1"))
        assert "'http://[::1' is no address" in nowhere.text

    async def test_pages_that_are_too_much_are_told_in_bounds(self, web: BrowserKit) -> None:
        state = await web.go("/crowded")
        assert "more than the 30000 of which a tree is made" in state
        assert await web.done(BrowserGetContentAction()) == "So many."
        assert "T" * 200 in (titled := await web.go("/titled"))
        assert len(titled) < 1000

    async def test_downloads_are_saved_byte_for_byte_under_harmless_names(self, web: BrowserKit) -> None:
        await web.go("/made")
        seen = await web.do(BrowserClickAction(index=number(await web.look(), 'link "Save"')))
        (made,) = seen.downloads
        assert await output(web.sandbox, f"od -An -tx1 {made}") == "00 ff 0a"
        seen = await web.do(BrowserNavigateAction(url=f"{web.site}/evil"))
        (evil,) = seen.downloads
        assert evil.startswith(f"{web.sandbox.working_dir}/file_")
        assert await output(web.sandbox, f"wc -c < {evil}") == "1024000"

    async def test_a_page_whose_renderer_crashes_costs_its_tab_only(self, web: BrowserKit) -> None:
        await web.go("/boats")
        await web.done(BrowserNavigateAction(url=f"{web.site}/form", new_tab=True))
        crashed = await web.do(BrowserNavigateAction(url="chrome://crash"))
        assert crashed.is_error
        assert "crashed; the tab was closed" in crashed.text
        assert "Title: Boats" in await web.look()

    async def test_a_page_that_loads_itself_again_and_again_is_left(self, web: BrowserKit) -> None:
        await web.done(BrowserNavigateAction(url=f"{web.site}/restless"))
        told = await web.done(BrowserNavigateAction(url=f"{web.site}/boats"))
        assert f"Opened {web.site}/boats" in told
        assert "Title: Boats" in await web.look()

    async def test_scripts_of_a_page_cannot_hide_it(self, web: BrowserKit) -> None:
        assert 'button "Seen"' in await web.go("/deceitful")
