"""A provider that is played over real HTTP on loopback: it takes the token, and answers in its documented shapes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.contract.rest.played.world import NoSuchRepoError
from tests.listening import listening


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes
    origin: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def number(self, name: str, default: int) -> int:
        return int(self.query.get(name, default))


@dataclass(frozen=True)
class Told:
    """An answer."""

    data: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[..., Told]


class PlayedProvider:
    """Base of the played ones: `routes` are patterns of methods and paths, `authorization` what it wants to be sent."""

    authorization = ""
    refusal: Told = Told({"message": "Bad credentials"}, 401)
    missing: Told = Told({"message": "Not Found"}, 404)

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.failures: list[Told | None] = []
        """What the next requests are answered with instead; None: the connection is dropped."""
        self.made: list[dict[str, Any]] = []
        """The requests that were made, told alike: title, body, head, base, draft."""
        self.labels: list[str] = []
        self._open = AsyncExitStack()
        self._port = 0
        self._routes = [(re.compile(pattern), handler) for pattern, handler in self.routes()]

    def routes(self) -> Iterator[tuple[str, Handler]]:
        raise NotImplementedError

    async def __aenter__(self) -> PlayedProvider:
        self._port = await self._open.enter_async_context(listening(self._serve))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def host(self) -> str:
        """What a user writes as its host."""
        return self.origin

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.asked]

    def answer(self, asked: Asked) -> Told | None:
        self.asked.append(asked)
        if self.failures:
            return self.failures.pop(0)
        if asked.headers.get("authorization") != self.authorization:
            return self.refusal
        for pattern, handler in self._routes:
            match = pattern.fullmatch(f"{asked.method} {asked.path}")
            if match is not None:
                try:
                    return handler(asked, *(unquote(group) for group in match.groups()))
                except NoSuchRepoError:
                    break
        return self.missing

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, target, _ = first.split(" ")
            split = urlsplit(target)
            query = {key: values[0] for key, values in parse_qs(split.query).items()}
            told = self.answer(Asked(method, split.path, query, headers, body, self.origin))
            if told is None:
                return
            writer.write(_bytes(told))
            await writer.drain()


def _bytes(told: Told) -> bytes:
    body = told.data.encode() if isinstance(told.data, str) else json.dumps(told.data).encode()
    lines = [f"HTTP/1.1 {told.status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in told.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def page(asked: Asked, items: list[Any], size: str, default: int = 30) -> tuple[list[Any], bool]:
    """The page that is asked for, and whether there is another."""
    number, count = asked.number("page", 1), asked.number(size, default)
    return items[(number - 1) * count : number * count], number * count < len(items)


def linked(asked: Asked, items: list[Any], size: str) -> Told:
    """The page that is asked for, with the Link header that says whether there is another."""
    found, has_more = page(asked, items, size)
    number = asked.number("page", 1)
    address = f"{asked.origin}{asked.path}?{size}={asked.number(size, 30)}"
    link = [f'<{address}&page={number + 1}>; rel="next"'] if has_more else []
    link += [f'<{address}&page={number - 1}>; rel="prev"'] if number > 1 else []
    return Told(found, headers={"Link": ", ".join(link)} if link else {})
