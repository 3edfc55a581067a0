from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from server.auth.doorkeeper import RateLimiter
from server.auth.identity import OneTokenAuthenticator
from server.auth.origin import OriginPolicy
from server.errors import coded_page
from server.http.gate import Gate
from server.settings.settings import Settings


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the whole body and answers with its length."""
    length = 0
    more = True
    while more:
        message = await receive()
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


class Answer:
    def __init__(self, messages: list[Message]) -> None:
        self.status: int = messages[0]["status"]
        self.headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in messages[1:])

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    path: str = "/api/conversations",
    *,
    token: str | None = None,
    settings: Settings | None = None,
    headers: dict[str, str] | None = None,
    chunks: tuple[bytes, ...] = (b"",),
    method: str = "GET",
    gate: Gate | None = None,
) -> Answer:
    settings = settings or Settings()
    gate = gate or make_gate(settings, token)
    names = {"host": "localhost:3000", **(headers or {})}
    parts = list(chunks)
    sent: list[Message] = []

    async def receive() -> Message:
        body = parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in names.items()],
        "client": ("127.0.0.1", 5),
    }
    await gate(scope, receive, send)
    return Answer(sent)


def make_gate(settings: Settings, token: str | None = None) -> Gate:
    return Gate(
        application,
        settings=settings,
        authenticator=OneTokenAuthenticator(token),
        origins=OriginPolicy.from_settings(settings),
    )


async def test_a_request_with_the_token_passes_and_others_are_unauthorized() -> None:
    assert (await ask(token="the-token", headers={"x-session-api-key": "the-token"})).status == 200
    refused = await ask(token="the-token")
    assert (refused.status, refused.json()) == (401, {"detail": "Unauthorized", **coded_page("invalid_api_key")})


@pytest.mark.parametrize(
    "path", ["/health", "/alive", "/server_info", "/", "/assets/x.js", "/conversations/abc", "/socket.io/"]
)
async def test_health_page_and_sockets_need_no_token_here(path: str) -> None:
    assert (await ask(path, token="the-token")).status == 200


@pytest.mark.parametrize("path", ["/api/settings", "/api/unknown", "/api", "/openapi.json"])
async def test_the_api_does(path: str) -> None:
    assert (await ask(path, token="the-token")).status == 401


async def test_a_foreign_host_or_origin_is_refused_everywhere() -> None:
    for path in ("/health", "/", "/api/settings", "/socket.io/"):
        refused = await ask(path, headers={"host": "evil.example"})
        assert (refused.status, refused.json()["code"]) == (403, "host_not_allowed")
        refused = await ask(path, headers={"origin": "http://evil.example"})
        told = refused.json()
        assert (refused.status, told["code"], told["docs"]) == (403, "origin_not_allowed", "/errors/origin_not_allowed")
        assert "DRYDOCK_ALLOWED_ORIGINS" in told["message"]  # which clients of the protocol show
        assert told["detail"] == told["message"]


@pytest.mark.parametrize("name", ["host", "origin"])
async def test_a_second_header_does_not_cover_up_the_first(name: str) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    ours = {"host": "localhost:3000", "origin": "http://localhost:3000"}
    headers = [(key.encode(), value.encode()) for key, value in ours.items()]
    headers.insert(0, (name.encode(), b"http://evil.example" if name == "origin" else b"evil.example"))
    scope = {"type": "http", "method": "GET", "path": "/health", "headers": headers, "client": ("127.0.0.1", 5)}
    await make_gate(Settings())(scope, receive, send)
    assert sent[0]["status"] == 403


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read() -> None:
    answer = await ask(settings=Settings(max_request_bytes=1024), headers={"content-length": "1025"}, chunks=())
    assert (answer.status, answer.json()["docs"]) == (413, "/errors/request_too_large")
    assert "max_request_bytes" in answer.json()["message"]
    assert "connection" not in answer.headers, "closed while the client still sends, it would not see the reply"


async def test_a_body_that_grows_too_large_is_refused() -> None:
    answer = await ask(settings=Settings(max_request_bytes=1024), chunks=(b"a" * 1000, b"a" * 25))
    assert (answer.status, answer.json()["code"]) == (413, "request_too_large")
    exact = await ask(settings=Settings(max_request_bytes=1024), chunks=(b"a" * 1000, b"a" * 24))
    assert (exact.status, exact.body) == (200, b"1024")


async def test_too_many_requests_get_429_with_a_time_to_come_back() -> None:
    gate = make_gate(Settings(requests_per_second=1))
    answers = [await ask(gate=gate) for _ in range(6)]
    assert [answer.status for answer in answers[:4]] == [200] * 4
    assert answers[-1].status == 429
    assert answers[-1].json() == {"message": "Too many requests", **coded_page("rate_limit_exceeded")}
    assert answers[-1].headers["retry-after"] == "1"
    assert (await ask("/health", gate=gate)).status == 200
    assert (await ask("/assets/a.js", gate=gate)).status == 200


def test_the_bucket_fills_again_and_forgets_old_clients() -> None:
    limiter = RateLimiter(2)
    assert [limiter.allows("a", 0.0) for _ in range(9)] == [True] * 8 + [False]
    assert not limiter.allows("a", 0.4)
    assert limiter.allows("a", 1.0)
    assert limiter.allows("b", 0.0)
    unlimited = RateLimiter(0)
    assert all(unlimited.allows("a", 0.0) for _ in range(1000))


async def test_every_reply_carries_the_headers_that_protect_the_page() -> None:
    answer = await ask("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "connect-src 'self' ws://localhost:3000 wss://localhost:3000;" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


async def test_a_websocket_of_a_foreign_page_is_refused_before_it_opens() -> None:
    gate = make_gate(Settings())
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "websocket",
        "path": "/socket.io/",
        "headers": [(b"host", b"localhost:3000"), (b"origin", b"http://evil.example")],
    }
    await gate(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_script_of_another_sites_page_gets_nothing_but_a_link_may_lead_here(site: str) -> None:
    for path in ("/api/conversations", "/socket.io/"):
        embedded = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
        assert (await ask(path, headers=embedded)).status == 403
        assert (await ask(path, headers={**embedded, "sec-fetch-mode": "navigate"})).status == 200
    assert (await ask("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"})).status == 200
    for own in ("same-origin", "none"):
        assert (await ask(headers={"sec-fetch-site": own, "sec-fetch-mode": "cors"})).status == 200


async def test_frames_may_show_previews_only() -> None:
    policy = (await ask("/")).headers["content-security-policy"]
    assert "frame-src http://*.localhost:3000 https://*.localhost:3000" in policy
    assert "frame-ancestors 'none'" in policy
    elsewhere = await ask(
        "/", headers={"host": "drydock.example"}, settings=Settings(allowed_hosts=("drydock.example",))
    )
    assert elsewhere.headers["content-security-policy"].endswith("frame-src 'self'")


@pytest.mark.parametrize("path", ["/api/conversations", "/v1/chat/completions"])
async def test_what_the_end_of_the_server_breaks_off_is_no_fault(path: str) -> None:
    settings, begun, sent = Settings(), asyncio.Event(), list[Message]()

    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"host", b"localhost:3000")],
        "client": ("127.0.0.1", 5),
    }
    gate = Gate(
        never,
        settings=settings,
        authenticator=OneTokenAuthenticator(None),
        origins=OriginPolicy.from_settings(settings),
    )
    asking = asyncio.create_task(gate(scope, receive, send))
    async with asyncio.timeout(60):
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    answer = Answer(sent)
    assert answer.status == 503
    assert "look whether this was done" in answer.body.decode()
    assert "detail" in answer.json() or answer.json()["error"]["type"] == "server_error"
