from __future__ import annotations

import pytest

from agent_core.errors import LLMAuthenticationError
from agent_core.llm.llm import LLM, CallContext
from server.session.titles import TitleWriter, default_title, title_from_message
from tests.unit.server.scripted_llm import Model, using


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


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("A boat trip", "A boat trip"),
        ('"A boat trip."', "A boat trip"),
        ("\n\n**A boat trip**\nmore words", "A boat trip"),
        ("x" * 80, "x" * 50),
        ("", None),
        ("\n \n", None),
    ],
)
async def test_the_models_title_is_cleaned_and_cut(answer: str, title: str | None) -> None:
    model = Model(answer)
    assert await TitleWriter(enabled=True).write(using(model), "Let us sail " + "far " * 5000) == title
    (request,) = model.requests
    assert len(str(request.messages)) < 4000


async def test_a_model_that_fails_is_asked_once_and_gives_no_title() -> None:
    model = Model(error=LLMAuthenticationError("no"))
    assert await TitleWriter(enabled=True).write(using(model), "hello") is None
    assert len(model.requests) == 1


async def test_the_demo_and_a_server_that_wants_no_titles_are_never_asked() -> None:
    model = Model("title")
    assert await TitleWriter(enabled=False).write(using(model), "hello") is None
    assert await TitleWriter(enabled=True).write(LLM().using(model), "hello") is None
    assert not model.requests


async def test_a_title_costs_the_conversation_under_an_id_of_its_own() -> None:
    heard: list[str] = []
    llm = using(Model("A boat trip"))
    context = CallContext(on_response=lambda response, usage_id: heard.append(usage_id))
    await TitleWriter(enabled=True).write(llm, "hello", context)
    assert heard == ["title"]
    assert llm.metrics.calls == 0
