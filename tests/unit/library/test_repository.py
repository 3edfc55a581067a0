from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.errors import SandboxError, SandboxLostError
from agent_core.events.store import InMemoryEventStore
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice, Transient
from agent_core.session.repository import GitSetup, Repository, folder_of, set_up
from tests.answering_sandbox import AnsweringSandbox, Asked, Reply

REPOSITORY = Repository("ann/boat", "https://git.example/ann/boat.git", token=SecretStr("tok-12345678"))


@dataclass
class Sandbox(AnsweringSandbox):
    """Answers with what it was given, after some progress, or fails with it."""

    given: dict[str, Any] | Exception

    async def request(self, op: str, args: Mapping[str, Any], **options: Any) -> Reply:
        on_output = options.get("on_output")
        if on_output is not None and not isinstance(self.given, Exception):
            on_output('{"progress": "Receiving objects:  42%"}')
            on_output("nonsense")
        return await super().request(op, args, **options)

    def answer(self, asked: Asked) -> dict[str, Any]:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


async def logged(setup: GitSetup, answer: dict[str, Any] | Exception) -> tuple[list[Any], list[tuple[str, str]]]:
    stream = await EventStream.open("c", InMemoryEventStore())
    told: list[tuple[str, str]] = []

    def tell(notice: Transient) -> None:
        assert isinstance(notice, StatusNotice)
        told.append((notice.status_id, notice.message))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream, "publish", tell)
        await set_up(setup, Sandbox(answer), stream)
    return [event async for event in stream.history()], told


async def test_progress_is_told_and_success_leaves_no_event() -> None:
    events, told = await logged(GitSetup(REPOSITORY), {"cloned": True})
    assert events == []
    assert told == [
        ("STATUS$SETTING_UP_WORKSPACE", "Setting up workspace: cloning ann/boat..."),
        ("STATUS$SETTING_UP_WORKSPACE", "Cloning ann/boat: Receiving objects:  42%"),
        ("STATUS$SETTING_UP_WORKSPACE", "Cloning ann/boat: ..."),
    ]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": "it took long", "code": "too_slow"}, "it took long"),
        ({"error": "x", "code": "no_git"}, "git is not installed"),
        (SandboxError("The disk is on fire.", code="busy"), "The disk is on fire"),
    ],
)
async def test_a_failure_is_for_the_user_and_for_the_agent(answer: Any, words: str) -> None:
    (shown, nudge), _ = await logged(GitSetup(REPOSITORY), answer)
    assert shown.name == "error"
    assert words in shown.payload["content"]
    assert (nudge.source, nudge.llm_message.text) == ("environment", shown.payload["content"])
    assert "tok-12345678" not in str((shown, nudge))


async def test_a_sandbox_that_is_gone_is_no_failure_of_git() -> None:
    with pytest.raises(SandboxLostError):
        await logged(GitSetup(REPOSITORY), SandboxLostError("It is gone."))


async def test_a_name_that_cannot_be_set_is_said_but_not_where_there_is_no_git() -> None:
    setup = GitSetup(None, "Ann", "ann@example.com")
    assert (await logged(setup, {"error": "no git here", "code": "no_git"}))[0] == []
    (shown, _), _ = await logged(setup, {"error": "read-only", "code": "failed"})
    assert "The name for commits could not be set: read-only" in shown.payload["content"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("ann/boat", "boat"),
        ("boat.git/", "boat"),
        ("a/b/c.js", "c.js"),
        ("https://git.example/ann/boat.git", "boat"),
        ("", ""),
        ("..", ""),
        ("ann/..", ""),
        ("../../etc", ""),
        ("ann/bo at", ""),
        ("ann/$(id)", ""),
        ("/", ""),
        (".git", ""),
    ],
)
def test_the_folder_of_a_repository_is_the_last_word_of_its_name(name: str, folder: str) -> None:
    assert folder_of(name) == folder
