"""Recorded conversations on the page: saved as a file, and opened from one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.e2e.conftest import ROOT, OpenPage, StartServer

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

RECORDING = ROOT / "tests" / "contract" / "rest" / "first_generation.json"


async def test_a_recording_is_opened_shown_and_saved_the_same_again(
    start_server: StartServer, visit: OpenPage, tmp_path: Path
) -> None:
    server = await start_server("--sandbox", "unconfined")
    seen = await visit(server.url)
    page = seen.page
    await page.get_by_test_id("recording-file").set_input_files(
        files={"name": "broken.json", "mimeType": "application/json", "buffer": b'[{"source": "agent"}]'}
    )
    await expect(page.get_by_test_id("toast")).to_contain_text(
        "“broken.json” could not be opened. trajectory: event 0:"
    )
    await page.get_by_test_id("recording-file").set_input_files(RECORDING)
    await expect(page.get_by_test_id("conversation-title")).to_have_text("Count the lines of notes.txt")
    await expect(page.get_by_test_id("user-message")).to_contain_text("Count the lines of notes.txt")
    await expect(page.get_by_test_id("command-card")).to_contain_text("wc -l notes.txt")
    await expect(page.get_by_test_id("finish-card")).to_contain_text("It has 3 lines.")
    await page.get_by_test_id("header-menu").click()
    async with page.expect_download() as saving:
        await page.get_by_test_id("header-export").click()
    saved = await saving.value
    assert saved.suggested_filename.startswith("trajectory-")
    await saved.save_as(tmp_path / "saved.json")
    events = json.loads((tmp_path / "saved.json").read_text("utf-8"))
    recorded = json.loads(RECORDING.read_text("utf-8"))
    assert events[: len(recorded)] == [{**event, "timestamp": event["timestamp"] + "Z"} for event in recorded]
    assert seen.problems == []
    assert seen.foreign == []
