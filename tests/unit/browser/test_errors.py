"""What a model is told when the library cannot do something."""

from __future__ import annotations

import pytest
from playwright.async_api import Error

from runtime_images.runner.browser.browser_driver.errors import in_words, is_gone


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            'Page.goto: net::ERR_CONNECTION_REFUSED at http://h:1/\nCall log:\n  - navigating to "http://h:1/"\n',
            "http://h:1/ cannot be opened: nothing listens there, net::ERR_CONNECTION_REFUSED",
        ),
        (
            "Page.goto: net::ERR_ODD at http://h/",
            "http://h/ cannot be opened: net::ERR_ODD",
        ),
        (
            "Locator.click: Timeout 10000ms exceeded.\nCall log:\n  - waiting for locator('aria-ref=e3')\n"
            "    - locator resolved to <button>x</button>\n  - attempting click action\n"
            "      - <div>cover</div> intercepts pointer events\n    - retrying click action\n"
            "      - <div>cover</div> intercepts pointer events\n",
            "it was not possible within 10 s (<div>cover</div> intercepts pointer events)",
        ),
        ("BrowserContext.set: Error setting:\nError: Cookie is wrong", "Error setting: Error: Cookie is wrong"),
        (
            "Page.evaluate: Execution context was destroyed, most likely because of a navigation.",
            "the page went on to another by itself in the middle of it; look at the page again",
        ),
        ("Locator.fill: Error: Element is not an <input>", "Error: Element is not an <input>"),
    ],
)
def test_an_error_is_told_without_the_librarys_own_matters(message: str, words: str) -> None:
    assert in_words(Error(message)) == words


def test_the_end_of_a_page_is_told_from_other_errors() -> None:
    assert is_gone(Error("Page.title: Target page, context or browser has been closed"))
    assert is_gone(Error("Locator.click: Target crashed"))
    assert not is_gone(Error("Locator.click: Timeout 10000ms exceeded."))
