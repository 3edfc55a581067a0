from __future__ import annotations

import pytest

from server.session.titles import default_title, title_from_message


def test_a_new_conversation_is_named_after_its_id() -> None:
    assert default_title("0123456789") == "Conversation 01234"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Fix the bug", "Fix the bug"),
        ("  Fix\n the\tbug ", "Fix the bug"),
        ("a" * 30, "a" * 30),
        ("a" * 31, "a" * 30 + "..."),
        ("Please look at the tests which fail", "Please look at the tests which..."),
        (" \n ", None),
        ("", None),
    ],
)
def test_the_first_words_make_a_title(text: str, title: str | None) -> None:
    assert title_from_message(text) == title
