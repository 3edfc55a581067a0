"""What `agent_core` asks of a server for its conversations: their log in its own form, their agent and sandbox."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

from drydock_client.errors import (
    BusyError,
    ClientError,
    FailedError,
    LimitError,
    NotDrydockError,
    UnreachableError,
    refusal,
)
from drydock_client.live import FIRST_DELAY, MAX_DELAY, MAX_FRAME_BYTES
from drydock_client.resources import Calls, conversation_path
from drydock_client.results import Conversation, Sent, listed, parsed

MARGIN_SECONDS: Final = 30.0
"""How much longer than a request to the sandbox may take its answer is waited for."""
SANDBOX_SECONDS: Final = 600.0

PASSING: Final = (UnreachableError, LimitError, BusyError, FailedError)
"""Errors after which the same may succeed later."""


class LogItem(NamedTuple):
    """A stored event (`kind` ``event``, with its `id`), or what happens beside the log.

    ``text`` and ``text_discarded`` are of the model's answer on its way, ``client_call`` is a call for a client.
    """

    kind: str
    data: dict[str, Any]
    id: int = -1


class LogPage(NamedTuple):
    """Events, each with its id, and the id of the newest that is stored."""

    events: list[dict[str, Any]]
    last_id: int


class SandboxReply(NamedTuple):
    """What came of a request to a sandbox; a `failure` has ``kind``, ``message``, ``code`` and ``fix``."""

    result: dict[str, Any]
    blob: bytes | None
    failure: dict[str, Any] | None


class ProgramsApi(Calls):
    """Conversations of programs; events are the JSON that `agent_core.events.serialization` reads."""

    async def create(self, conversation_id: str, program: Mapping[str, Any]) -> Conversation:
        """Make a conversation with this random UUID, once, however often this is called."""
        body = {"conversation_id": conversation_id, "program": dict(program)}
        await self._http.json("POST", "/api/conversations", body=body, key=conversation_id)
        return parsed(Conversation, await self._http.json("GET", conversation_path(conversation_id)))

    async def replace(self, conversation_id: str, program: Mapping[str, Any]) -> None:
        """Have it run with this from its next run on; `ConflictError` while its agent works."""
        await self._http.json("PUT", conversation_path(conversation_id, "program"), body=dict(program))

    async def fork(self, conversation_id: str, new_id: str, options: Mapping[str, Any]) -> None:
        """Make the fork with this random UUID; `options` as of ``POST …/fork``."""
        body = {"conversation_id": new_id, **options}
        path = conversation_path(conversation_id, "fork")
        await self._http.json("POST", path, body=body, key=new_id, limit_seconds=SANDBOX_SECONDS)

    async def tools(self, conversation_id: str) -> list[dict[str, Any]]:
        answer = await self._http.json("GET", conversation_path(conversation_id, "tools"))
        return listed(answer, "tools", "A list of tools")

    async def page(self, conversation_id: str, *, after: int = -1, limit: int = 200) -> LogPage:
        query = {"after": after, "limit": limit}
        answer = await self._http.json("GET", conversation_path(conversation_id, "log"), query=query)
        events = listed(answer, "events", "A page of a log")
        last_id = answer.get("last_id")
        if not isinstance(last_id, int):
            raise NotDrydockError("The server does not say how far the log goes.")
        return LogPage(events, last_id)

    async def add(self, conversation_id: str, event: Mapping[str, Any], *, key: str | None = None) -> Sent:
        path = conversation_path(conversation_id, "log")
        answer = await self._http.json("POST", path, body={"event": dict(event)}, key=key or uuid.uuid4().hex)
        return parsed(Sent, answer)

    async def ask_sandbox(
        self,
        conversation_id: str,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        limit_seconds: float | None = None,
        blob: bytes | None = None,
    ) -> SandboxReply:
        """One request to the sandbox; with a `key` it is carried out once, however often it is asked for."""
        body: dict[str, Any] = {"op": op, "args": dict(args), "key": key, "limit_seconds": limit_seconds}
        if blob is not None:
            body["blob"] = b64encode(blob).decode()
        answer = await self._http.json(
            "POST",
            conversation_path(conversation_id, "sandbox"),
            body=body,
            repeatable=key is not None,
            limit_seconds=(limit_seconds or SANDBOX_SECONDS) + MARGIN_SECONDS,
        )
        if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
            raise NotDrydockError("The server gives no answer of the sandbox.")
        shown = answer.get("blob")
        return SandboxReply(answer["result"], b64decode(shown) if shown is not None else None, answer.get("failure"))

    async def follow(
        self, conversation_id: str, *, after: int = -1, reconnect_seconds: float = 120.0
    ) -> AsyncIterator[LogItem]:
        """What came behind the event `after`, then what happens: each event once, in order, across broken connections.

        Raises `UnreachableError` where the server was away for longer than `reconnect_seconds`, and what a request
        raises that no time mends.
        """
        clock = asyncio.get_running_loop().time
        seen_at: dict[str, str] = {}
        lost_at: float | None = None
        delay = FIRST_DELAY
        while True:
            problem: ClientError = UnreachableError("The server ends each live connection at once.")
            has_begun = False
            try:
                place: dict[str, int | str] = {"after": after, **seen_at}
                async with self._http.stream(conversation_path(conversation_id, "log/live"), place) as answer:
                    async for item in _items(answer.aiter_bytes()):
                        if item.kind == "resync":
                            raise NotDrydockError(
                                f"The log of conversation {conversation_id} is another one than before: the server has"
                                " lost its end, or came back from a backup. Read it anew."
                            )
                        if item.kind == "failed":
                            raise refusal(int(item.data["status"]), item.data)
                        if item.kind or has_begun:  # the first comment comes also where nothing else can
                            lost_at, delay = None, FIRST_DELAY
                        has_begun = True
                        if item.kind in ("text", "text_discarded", "client_call"):
                            yield item
                        elif item.kind == "event" and item.id > after:
                            after = item.id
                            seen_at = {"seen_at": timestamp} if (timestamp := item.data.get("timestamp")) else {}
                            yield item
            except PASSING as error:
                problem = error
            lost_at = clock() if lost_at is None else lost_at
            if clock() - lost_at > reconnect_seconds:
                raise problem
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311 - spreads clients, guards nothing
            delay = min(delay * 2, MAX_DELAY)


async def _items(pieces: AsyncIterator[bytes]) -> AsyncIterator[LogItem]:
    """The server-sent events of an answer; one without a kind tells only that it goes on."""
    rest = b""
    fields: dict[bytes, bytes] = {}
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_FRAME_BYTES:
            raise NotDrydockError("The server sends an event without end.")
        for line in lines:
            if line:
                name, _, value = line.partition(b": ")
                fields[name] = value
            elif b"data" in fields:
                number = fields.get(b"id", b"-1")
                yield LogItem(fields.get(b"event", b"").decode(), json.loads(fields[b"data"]), int(number))
                fields = {}
            else:
                yield LogItem("", {})
                fields = {}
