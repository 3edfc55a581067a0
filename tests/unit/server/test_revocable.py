"""What is answered while its user is disabled: at once, or to its end only where it has one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from server.auth.identity import IDENTITY, Identity
from server.http.revocable import Revocable


class Watched:
    """Whom it watches, as `Accounts` does."""

    def __init__(self) -> None:
        self.ends: list[Callable[[], None]] = []

    def watch(self, identity: Identity, end: Callable[[], None]) -> Callable[[], None]:
        self.ends.append(end)
        return lambda: self.ends.remove(end)


async def receive() -> Message:
    return {"type": "http.disconnect"}


@pytest.mark.parametrize("ends_at", ["before", "between", "behind"])
async def test_a_stream_breaks_off_and_a_whole_answer_is_given(ends_at: str) -> None:
    watched, sent = Watched(), list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        if ends_at == "before":
            watched.ends[0]()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if ends_at == "between":
            watched.ends[0]()
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        if ends_at == "behind":
            watched.ends[0]()
        await asyncio.sleep(60)

    scope = {"type": "http", IDENTITY: Identity("ann")}
    async with asyncio.timeout(10):
        await Revocable(streaming, watched.watch)(scope, receive, send)
    assert [message.get("body") for message in sent] == [None, b"a"]
    assert watched.ends == []
    sent.clear()

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        watched.ends[0]()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"all"})

    await Revocable(whole, watched.watch)(scope, receive, send)
    assert sent[-1]["body"] == b"all"
    assert watched.ends == []


async def test_an_error_of_the_application_is_its_own() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise TimeoutError("its own")

    async def send(message: Message) -> None: ...

    watched = Watched()
    with pytest.raises(TimeoutError, match="its own"):
        await Revocable(failing, watched.watch)({"type": "http", IDENTITY: Identity("ann")}, receive, send)
    assert watched.ends == []
