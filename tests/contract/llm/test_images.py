"""Images at web addresses, for models that take them only within the request (agent-core 9.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_core.events.messages import ImageContent, Message, TextContent
from agent_core.llm import images
from agent_core.llm.client import shared_client
from agent_core.llm.images import MAX_BYTES, has_public_address, inlined
from agent_core.llm.llm import LLM
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import say
from tests.listening import listening

PICTURE = b"\x89PNG picture"
INLINE = "data:image/png;base64,iVBORyBwaWN0dXJl"


class Pictures:
    """A web server; `asked` are the paths that were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.asked.append(path)
        body, kind, status = PICTURE, "image/png", "200 OK"
        if path == "/page":
            kind = "text/html"
        if path == "/gone":
            status = "404 Not Found"
        if path == "/away":
            status = "302 Found"
        if path == "/huge":
            body = b"x" * (MAX_BYTES + 1)
        writer.write(f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n".encode())
        writer.write(b"location: http://127.0.0.1/elsewhere\r\nconnection: close\r\n\r\n" + body)
        writer.close()


@pytest.fixture
async def pictures() -> AsyncIterator[tuple[Pictures, str]]:
    images._kept.clear()
    site = Pictures()
    async with listening(site.answer) as port:
        yield site, f"http://127.0.0.1:{port}"


def shown(*urls: str) -> list[dict[str, Any]]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [
        {"role": "user", "content": [{"type": "text", "text": "See"}, *parts]},
        {"role": "assistant", "content": "?"},
    ]


async def everybody(host: str) -> bool:
    return True


async def test_an_image_is_fetched_once_and_sent_along(pictures: tuple[Pictures, str]) -> None:
    site, url = pictures
    http = await shared_client().http(5)
    asked = shown(f"{url}/one.png", INLINE)
    for _ in range(2):
        found = await inlined(asked, http, is_public=everybody)
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
    ],
)
async def test_what_is_no_image_is_told_in_words(pictures: tuple[Pictures, str], path: str, cause: str) -> None:
    _, url = pictures
    found = await inlined(shown(url + path), await shared_client().http(5), is_public=everybody)
    told = f"[The image at {url}{path} could not be fetched: {cause}]"
    assert found[0]["content"][1] == {"type": "text", "text": told}


LOCAL = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "localhost", "no-such-host.invalid")
PUBLIC = ("1.1.1.1", "2606:4700:4700::1111")


@pytest.mark.parametrize(("host", "is_public"), [*((one, False) for one in LOCAL), *((one, True) for one in PUBLIC)])
async def test_only_addresses_of_the_public_internet_are_asked(host: str, is_public: bool) -> None:
    assert await has_public_address(host) is is_public


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
