"""Images at web addresses, for models that take them only within the request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_core.destinations import Destinations
from agent_core.events.messages import ImageContent, Message, TextContent
from agent_core.llm import render
from agent_core.llm.llm import LLM
from agent_core.llm.render import MAX_CACHED_CHARS, MAX_IMAGE_BYTES, with_images
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import say
from tests.listening import listening

PICTURE = b"\x89PNG picture"
INLINE = "data:image/png;base64,iVBORyBwaWN0dXJl"


class Pictures:
    """A web server; `asked` are the paths that were asked for, `hosts` whom they were for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hosts: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        self.asked.append(path)
        self.hosts += [line[6:] for line in head.split("\r\n") if line.lower().startswith("host: ")]
        body, kind, status = PICTURE, "image/png", "200 OK"
        if path == "/page":
            kind = "text/html"
        if path == "/gone":
            status = "404 Not Found"
        if path == "/away":
            status = "302 Found"
        if path == "/huge":
            body = b"x" * (MAX_IMAGE_BYTES + 1)
        writer.write(f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n".encode())
        if path == "/packed":
            writer.write(b"content-encoding: gzip\r\n")
        writer.write(b"location: http://127.0.0.1/elsewhere\r\nconnection: close\r\n\r\n" + body)
        writer.close()


@pytest.fixture
async def pictures() -> AsyncIterator[tuple[Pictures, str]]:
    render._images.clear()
    site = Pictures()
    async with listening(site.answer) as port:
        yield site, f"http://127.0.0.1:{port}"


def shown(*urls: str) -> list[dict[str, Any]]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [
        {"role": "user", "content": [{"type": "text", "text": "See"}, *parts]},
        {"role": "assistant", "content": "?"},
    ]


HERE = Destinations(loopback=True)


async def test_an_image_is_fetched_once_and_sent_along(pictures: tuple[Pictures, str]) -> None:
    site, url = pictures
    asked = shown(f"{url}/one.png", INLINE)
    for _ in range(2):
        found = await with_images(asked, HERE)
        assert [part["image_url"]["url"] for part in found[0]["content"][1:]] == [INLINE, INLINE]
        assert found[1] is asked[1]
    assert site.asked == ["/one.png"]
    assert asked == shown(f"{url}/one.png", INLINE), "what was given stays as it is"


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/page", "it is text/html, not an image"),
        ("/gone", "the server answered 404"),
        ("/away", "the server answered 302"),
        ("/huge", "it is larger than 20 MiB"),
        ("/packed", "the server compressed it, which it was asked not to do"),
    ],
)
async def test_what_is_no_image_is_told_in_words(pictures: tuple[Pictures, str], path: str, cause: str) -> None:
    _, url = pictures
    found = await with_images(shown(url + path), HERE)
    told = f"[The image at {url}{path} could not be fetched: {cause}]"
    assert found[0]["content"][1] == {"type": "text", "text": told}


NOT_PUBLIC = (
    *("127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "localhost", "0.0.0.0", "224.0.0.1", "239.1.1.1"),  # noqa: S104
    *("2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
    *("[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[ff02::1]", "[fec0::1]", "192.88.99.1"),
)


@pytest.mark.parametrize("host", NOT_PUBLIC)
async def test_what_only_this_host_can_reach_is_not_asked(pictures: tuple[Pictures, str], host: str) -> None:
    site, url = pictures
    there = url.replace("127.0.0.1", host)
    found = await with_images(shown(f"{there}/one.png"))
    told = f"[The image at {there}/one.png could not be fetched: its address is not one of the public internet]"
    assert found[0]["content"][1] == {"type": "text", "text": told}
    assert site.asked == []


@pytest.mark.parametrize(
    "url", ["http://no-such-host.invalid/x", "http://", "http://[x/y", "http://h:99999/x", "https:///x"]
)
async def test_what_is_no_address_is_told_in_words(url: str) -> None:
    found = await with_images(shown(url), HERE)
    assert found[0]["content"][1]["text"].startswith(f"[The image at {url} could not be fetched: ")


async def test_what_was_looked_up_is_what_is_asked_whatever_the_name_means_next(
    pictures: tuple[Pictures, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that tells the one who checks one address, and the one who connects another."""
    site, url = pictures
    port = int(url.rpartition(":")[2])
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo
    looked_up: list[str] = []

    async def changing(host: str, *args: Any, **options: Any) -> Any:
        if host != "pictures.test":
            return await resolve(host, *args, **options)
        looked_up.append(host)
        return [(2, 1, 6, "", ("127.0.0.1" if len(looked_up) == 1 else "127.0.0.2", port))]

    monkeypatch.setattr(loop, "getaddrinfo", changing)
    found = await with_images(shown(f"http://pictures.test:{port}/one.png"), HERE)
    assert found[0]["content"][1]["image_url"]["url"] == INLINE
    assert (looked_up, site.asked, site.hosts) == (["pictures.test"], ["/one.png"], [f"pictures.test:{port}"])


async def test_over_tls_the_name_is_asked_for_at_the_address_that_was_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    hello = bytearray()

    async def read_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.extend(await reader.read(4096))

    async with listening(read_hello) as port:
        resolve = loop.getaddrinfo

        async def here(host: str, *args: Any, **options: Any) -> Any:
            return await resolve("127.0.0.1" if host == "pictures.test" else host, *args, **options)

        monkeypatch.setattr(loop, "getaddrinfo", here)
        found = await with_images(shown(f"https://pictures.test:{port}/one.png"), HERE)
    assert "could not be fetched" in found[0]["content"][1]["text"]
    assert b"pictures.test" in hello


async def test_what_is_kept_has_a_limit(pictures: tuple[Pictures, str], monkeypatch: pytest.MonkeyPatch) -> None:
    _, url = pictures
    monkeypatch.setattr(render, "MAX_CACHED_CHARS", 2 * len(INLINE))
    await with_images(shown(*(f"{url}/{number}.png" for number in range(3))), HERE)
    assert list(render._images) == [f"{url}/1.png", f"{url}/2.png"]
    assert MAX_CACHED_CHARS >= MAX_IMAGE_BYTES * 4 / 3, "the largest image is kept at least alone"


async def test_only_models_that_need_it_have_images_fetched_and_never_from_this_hosts_networks(
    pictures: tuple[Pictures, str],
) -> None:
    site, url = pictures
    said = Message(role="user", content=[TextContent(text="See"), ImageContent(image_urls=[f"{url}/one.png"])])
    async with ModelServer(lambda request: say("ok")) as server:
        for inline in (None, True):
            llm = LLM(model="openai/x", base_url=server.url, api_key="k", inline_image_urls=inline)
            await llm.acompletion([said])
    first, second = (request.messages[0]["content"] for request in server.requests)
    assert first[1]["image_url"]["url"] == f"{url}/one.png"
    assert "could not be fetched: its address is not one of the public internet" in str(second)
    assert site.asked == []
    assert LLM(model="openai/kimi-k2.5").features.inline_images
