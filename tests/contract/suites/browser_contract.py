"""The conformance suite of the browser tools: what they do alike in every provider's sandboxes.

A test module inherits from this class and gives it a fixture ``web`` (`BrowserKit`), one for the module: a browser
takes a while to start.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from agent_core.testing.sandbox_contract import output
from agent_core.tools.browser import (
    BrowserClickAction,
    BrowserGetContentAction,
    BrowserGetStateAction,
    BrowserGetStorageAction,
    BrowserGoBackAction,
    BrowserNavigateAction,
    BrowserScrollAction,
    BrowserSetStorageAction,
    BrowserStartRecordingAction,
    BrowserStopRecordingAction,
    BrowserTypeAction,
)
from agent_core.tools.browser_code import BrowserCodeAction, BrowserCodeExecutor
from tests.contract.suites.browser_kit import BrowserKit, number

_JPEG = b"\xff\xd8\xff"


class BrowserContract:
    """Pages, forms, tabs, dialogs, files, and what goes wrong."""

    async def test_a_page_is_opened_and_shown_with_numbers_for_its_elements(self, web: BrowserKit) -> None:
        told = await web.done(BrowserNavigateAction(url=web.site))
        assert f"Opened {web.site}/" in told
        state = await web.look()
        assert f"URL: {web.site}/\nTitle: Harbour" in state
        assert 'heading "The harbour" [level=1]' in state
        assert number(state, 'link "The form"') != number(state, 'link "Boats"')

    async def test_elements_in_frames_have_numbers_too(self, web: BrowserKit) -> None:
        await web.go("/")
        await web.click('button "Low"')
        assert 'button "High"' in await web.look()

    async def test_a_form_is_filled_chosen_ticked_and_sent(self, web: BrowserKit) -> None:
        await web.go("/form")
        await web.fill('textbox "Name"', "Ann Lee")
        await web.fill("combobox", "Row")
        await web.click('checkbox "Ready"')
        await web.fill('textbox "Notes"', "two\nlines")
        state = await web.look()
        assert 'option "Row" [selected]' in state
        assert 'checkbox "Ready" [checked]' in state
        assert 'textbox "Name": Ann Lee' in state
        await web.click('button "Send"')
        content = await web.done(BrowserGetContentAction())
        assert content == "name=Ann+Lee&kind=r&ready=yes&notes=two%0D%0Alines"

    async def test_a_newline_at_the_end_of_a_text_sends_it(self, web: BrowserKit) -> None:
        await web.go("/form")
        await web.fill('textbox "Name"', "Bo\n")
        assert "name=Bo&" in await web.done(BrowserGetContentAction())

    async def test_files_are_chosen_by_their_paths_in_the_workspace(self, web: BrowserKit) -> None:
        await output(web.sandbox, "mkdir -p papers; echo 1 > papers/one.txt; echo 2 > two.txt")
        state = await web.go("/form")
        paper = number(state, 'button "Paper"')
        await web.done(BrowserTypeAction(index=paper, text=f"papers/one.txt\n{web.sandbox.working_dir}/two.txt"))
        assert "one.txt+two.txt" in await web.done(BrowserGetContentAction())
        missing = await web.do(BrowserTypeAction(index=paper, text="nowhere.txt"))
        assert missing.is_error
        assert "There is no file" in missing.text

    async def test_a_page_that_can_be_written_in_takes_text(self, web: BrowserKit) -> None:
        await web.go("/form")
        await web.fill('textbox "Log"', "Calm sea.")
        assert 'textbox "Log"' in await web.look()
        assert "Calm sea." in await web.done(BrowserGetContentAction())

    async def test_dialogs_are_answered_and_told(self, web: BrowserKit) -> None:
        await web.go("/dialogs")
        assert "dialog (alert): 'Fog'" in await web.click('button "Alert"')
        told = await web.click('button "Ask"')
        assert "'Sail?'; OK was pressed" in told
        assert "'Where to?'. It was given 'North'" in told
        assert "Title: true/North" in await web.look()

    async def test_scrolling_and_going_back(self, web: BrowserKit) -> None:
        await web.go("/boats")
        await web.go("/")
        assert "window shows 640 to 1360" in await web.done(BrowserScrollAction())
        assert "window shows 0 to 720" in await web.done(BrowserScrollAction(direction="up"))
        await web.click('button "Far below"')
        assert "Title: Bottom" in await web.look()
        assert "/boats" in await web.done(BrowserGoBackAction())
        assert "Title: Boats" in await web.look()

    async def test_a_long_page_is_read_piece_by_piece(self, web: BrowserKit) -> None:
        await web.go("/long")
        first = await web.done(BrowserGetContentAction())
        found = re.search(r"go on with start_from_char=(\d+)\. The whole text is in (\S+)\.\]", first)
        assert found is not None, first[-300:]
        assert found.group(1) == "50000"
        assert "Line 3999 of the long page." in await output(web.sandbox, f"tail -n 1 {found.group(2)}")
        second = await web.done(BrowserGetContentAction(start_from_char=50_000))
        text = first[:50_000] + second[:50_000]
        assert all(f"Line {place} of" in text for place in range(2500))
        beyond = await web.do(BrowserGetContentAction(start_from_char=10**9))
        assert beyond.is_error
        assert "start_from_char is 1000000000, but the page has" in beyond.text
        state = await web.look()
        assert len(state) < 51_000
        assert "more lines; the whole tree is in" in state

    async def test_the_links_of_a_page_are_listed_when_wished(self, web: BrowserKit) -> None:
        await web.go("/")
        assert f"The form <{web.site}/form>" in await web.done(BrowserGetContentAction(extract_links=True))
        assert f"<{web.site}/form>" not in await web.done(BrowserGetContentAction())

    async def test_a_screenshot_is_given_kept_and_marked(self, web: BrowserKit) -> None:
        await web.go("/")
        seen = await web.do(BrowserGetStateAction(include_screenshot=True))
        for picture in (seen.screenshot, seen.set_of_marks):
            assert base64.b64decode(picture.removeprefix("data:image/jpeg;base64,")).startswith(_JPEG)
        assert seen.screenshot != seen.set_of_marks
        assert "/.browser_screenshots/" in seen.screenshot_path
        assert await output(web.sandbox, f"head -c 3 {seen.screenshot_path} | od -An -tx1") == "ff d8 ff"
        assert await output(web.sandbox, f"cat $(dirname {seen.screenshot_path})/.gitignore") == "*"
        parts = seen.to_llm_content
        assert [part.type for part in parts] == ["text", "image"]
        plain = await web.do(BrowserGetStateAction())
        assert (plain.screenshot, plain.set_of_marks) == ("", "")

    async def test_lines_of_code_are_carried_out_in_order_and_the_page_is_told(self, web: BrowserKit) -> None:
        seen = await web.code(f"goto('{web.site}/form')")
        assert seen.text.startswith(f"[Current URL: {web.site}/form]\n[Focused element bid: ]\n[Screenshot saved to: /")
        name, kind = number(seen.text, 'textbox "Name"'), number(seen.text, "combobox")
        seen = await web.code(f"fill('{name}', 'Bo')", f"select_option('{kind}', 'Row')", f"focus('{name}')")
        assert f"[Focused element bid: {name}]" in seen.text
        assert 'option "Row" [selected]' in seen.text
        assert f'[{name}] textbox "Name" [focused]: Bo' in seen.text
        seen = await web.code(f"clear('{name}')", f"press('{name}', 'A')", f"press('{name}', 'Enter')")
        assert f"[Current URL: {web.site}/sent?name=A&kind=r&notes=]" in seen.text
        assert f"{web.site}/form" in (await web.code("go_back()")).url
        assert f"{web.site}/sent" in (await web.code("go_forward()", "noop(10)")).url

    async def test_lines_of_code_use_the_mouse_in_every_way(self, web: BrowserKit) -> None:
        await output(web.sandbox, "echo 1 > one.txt")
        keys = (await web.code(f"goto('{web.site}/keys')")).text
        load, target = number(keys, 'button "Load"'), number(keys, 'button "Target"')
        for call, title in (("hover", "hover"), ("dblclick", "double"), ("click", "right")):
            options = ", button='right'" if call == "click" else ""
            seen = await web.code(f"{call}('{target}'{options})")
            assert seen.open_pages[seen.active_page_index].title == title
        seen = await web.code(f"upload_file('{load}', 'one.txt')")
        assert seen.open_pages[seen.active_page_index].title == "one.txt"
        assert "asks for a file" not in seen.text
        field = number(seen.text, 'textbox "Field"')
        assert 'textbox "Field" [focused]: Añ' in (await web.code(f"press('{field}', 'A')\npress('{field}', 'ñ')")).text
        seen = await web.code(f"goto('{web.site}/drag')")
        crate, quay = number(seen.text, 'button "Crate"'), number(seen.text, 'button "Quay"')
        assert 'button "Got crate"' in (await web.code(f"drag_and_drop('{crate}', '{quay}')")).text
        reef = number(seen.text, 'button "Reef"')  # out of sight
        assert 'button "Far crate"' in (await web.code(f"drag_and_drop('{crate}', '{reef}')")).text
        paper = number((await web.code(f"goto('{web.site}/form')")).text, 'button "Paper"')
        assert "one.txt" in (await web.code(f"upload_file('{paper}', 'one.txt')")).text
        assert "one.txt" not in (await web.code(f"upload_file('{paper}', [])")).text

    async def test_of_lines_of_code_those_after_a_failure_are_left_out(self, web: BrowserKit) -> None:
        lines = f"goto('{web.site}/boats')\nclick('99999')\ngoto('{web.site}/form')"
        seen = await web.do(BrowserCodeAction(code=lines), BrowserCodeExecutor(visible_only=True))
        assert seen.is_error
        assert "[The action failed: There is no element 99999" in seen.text
        assert "the part that the window shows" in seen.text
        assert seen.url == f"{web.site}/boats"
        assert seen.last_action == lines

    async def test_a_number_that_the_page_does_not_have_is_an_error_that_says_so(self, web: BrowserKit) -> None:
        before = number(await web.go("/"), 'link "The form"')
        await web.done(BrowserNavigateAction(url=f"{web.site}/boats"))
        for index in (before, 99_999, 300_001):
            seen = await web.do(BrowserClickAction(index=index))
            assert seen.is_error
            assert f"There is no element {index} on the page as it is now" in seen.text

    async def test_text_of_a_page_cannot_pass_for_an_element(self, web: BrowserKit) -> None:
        state = await web.go("/spoof")
        button = number(state, 'button "Say')
        assert button != 99
        assert len(re.findall(r"^ *\[\d+\] button", state, re.MULTILINE)) == 1
        assert f"Clicked element {button}" in await web.done(BrowserClickAction(index=button))

    async def test_addresses_that_cannot_be_opened_are_told_with_the_reason(self, web: BrowserKit) -> None:
        closed = await web.do(BrowserNavigateAction(url="http://127.0.0.1:9"))
        assert closed.is_error
        assert "cannot be opened: nothing listens there" in closed.text or "browsers refuse that port" in closed.text
        lost = await web.done(BrowserNavigateAction(url=f"{web.site}/nowhere"))
        assert "error HTTP 404" in lost
        odd = await web.do(BrowserNavigateAction(url="http://"))
        assert odd.is_error

    async def test_a_download_is_saved_in_the_workspace(self, web: BrowserKit) -> None:
        await web.go("/boats")
        seen = await web.do(BrowserNavigateAction(url=f"{web.site}/paper.csv"))
        assert not seen.is_error, seen.text
        assert seen.downloads == [f"{web.sandbox.working_dir}/file_1.csv"]
        assert "Downloaded paper.csv to " in seen.text
        assert await output(web.sandbox, "cat file_1.csv") == "a,b\n1,2"
        link = number(await web.go("/papers"), 'link "Paper"')
        seen = await web.do(BrowserClickAction(index=link, new_tab=True))
        assert (seen.status, seen.downloads) == ("completed", [f"{web.sandbox.working_dir}/file_2.csv"])

    async def test_cookies_and_storage_are_read_and_replaced(self, web: BrowserKit) -> None:
        await web.go("/store")
        stored = await web.done(BrowserGetStorageAction())
        assert '"berth"' in stored
        assert '"blue"' in stored
        cookie = {"name": "berth", "value": "9", "domain": "127.0.0.1", "path": "/", "expires": -1}
        more = {"httpOnly": False, "secure": False, "sameSite": "Lax"}
        origin = {"origin": web.site, "localStorage": [{"name": "flag", "value": "red"}]}
        state: dict[str, Any] = {"cookies": [{**cookie, **more}], "origins": [origin]}
        await web.done(BrowserSetStorageAction(storage_state=state))
        await web.done(BrowserNavigateAction(url=f"{web.site}/stored"))
        assert await web.done(BrowserGetContentAction()) == "berth=9 red"
        wrong = await web.do(BrowserSetStorageAction(storage_state={"cookies": 3}))
        assert wrong.is_error
        assert "storage_state cannot be used" in wrong.text
        assert "Set 0 cookies" in await web.done(BrowserSetStorageAction(storage_state={"cookies": None}))

    async def test_cookies_of_other_programs_and_the_storage_of_a_session_are_taken(self, web: BrowserKit) -> None:
        await web.go("/boats")
        cookies = [
            {"name": name, "value": "1", "domain": "127.0.0.1", "path": "/", "sameSite": same_site}
            for name, same_site in (("a", "lax"), ("b", "unspecified"), ("c", 1))
        ]
        origins = [
            {"origin": origin, "sessionStorage": [{"name": "step", "value": "two"}]}
            for origin in (web.site, "http://elsewhere.example")
        ]
        told = await web.done(BrowserSetStorageAction(storage_state={"cookies": cookies, "origins": origins}))
        assert told.startswith("Set 3 cookies")
        assert told.endswith("so this was left out: http://elsewhere.example.")
        stored = json.loads(await web.done(BrowserGetStorageAction()))
        assert [cookie["name"] for cookie in stored["cookies"]] == ["a", "b", "c"]
        (here,) = stored["origins"]
        assert (here["origin"], here["sessionStorage"]) == (web.site, [{"name": "step", "value": "two"}])
        await web.done(BrowserSetStorageAction(storage_state={}))
        assert json.loads(await web.done(BrowserGetStorageAction())) == {"cookies": [], "origins": []}
        homeless = {"cookies": [{"name": "a", "value": "1"}], "origins": []}
        wrong = await web.do(BrowserSetStorageAction(storage_state=homeless))
        assert "domain" in wrong.text

    async def test_a_recording_is_saved(self, web: BrowserKit) -> None:
        await web.done(BrowserStartRecordingAction())
        await web.go("/boats")
        told = await web.done(BrowserStopRecordingAction())
        found = re.search(r"The recording is in (\S+);", told)
        assert found is not None
        assert await output(web.sandbox, f"head -c 2 {found.group(1)}") == "PK"
        assert (await web.do(BrowserStopRecordingAction())).is_error
