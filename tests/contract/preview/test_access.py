"""Who may look into a preview, and that nobody gets from it to Drydock."""

from __future__ import annotations

import asyncio

import pytest

from server.auth.preview_addresses import PreviewAddresses
from server.auth.secrets import SecretBox
from server.doors.preview.access import COOKIE_NAMES, Passes, PreviewLinks, PreviewPass
from tests.contract.preview.conftest import CONVERSATION, TOKEN, Site
from tests.listening import Handler

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
GIVEN = PreviewPass(CONVERSATION, 80, "", "http://localhost:1")


async def test_a_link_lets_a_browser_in_by_a_cookie_of_that_host_alone(site: Site) -> None:
    port = await site.answering(HELLO)
    link = site.link(port)
    assert link.startswith(f"http://{site.host_of(port)}/?drydock_ticket=")
    response = await site.ask(link.replace("/?", "/a/b?x=1&").replace("drydock_ticket", "y=%20&drydock_ticket"))
    assert response.status_code == 303
    assert response.headers["location"] == "/a/b?x=1&y=+"
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-drydock_preview=")
    for part in ("Path=/", "HttpOnly", "Secure", "SameSite=None", "Partitioned"):
        assert part in cookie.split("; ")
    assert "domain" not in cookie.lower()
    assert response.headers["referrer-policy"] == "no-referrer"
    assert (await site.get(port)).text == "hello"
    assert site.sandboxes.touched > 0


@pytest.mark.parametrize("path", ["//elsewhere.example/", "/\\elsewhere.example/"])
async def test_a_link_opens_a_path_with_two_slashes_on_its_own_host(site: Site, path: str) -> None:
    port = await site.answering(HELLO)
    _, _, ticket = site.link(port).partition("?")
    head = f"GET {path}?{ticket} HTTP/1.1\r\nHost: {site.host_of(port)}\r\nConnection: close\r\n\r\n"
    answer = await site.raw(head.encode())
    assert answer.startswith(b"HTTP/1.1 303 ")
    assert f"\r\nlocation: /.{path}\r\n".encode() in answer


async def test_a_pass_that_another_host_of_the_domain_has_set_locks_nobody_out(site: Site) -> None:
    port = await site.answering(HELLO)
    sealed = site.links.passes.make("cookie", PreviewPass(CONVERSATION, port, "", f"http://{site.host}"), seconds=60)
    other = site.links.passes.make("cookie", PreviewPass("other", port, "", f"http://{site.host}"), seconds=60)
    url = f"http://{site.host_of(port)}/"
    for theirs in ("drydock_preview=x", f"drydock_preview={other}", "drydock_preview="):
        for mine in COOKIE_NAMES:
            for header in (f"{theirs}; {mine}={sealed}", f"{mine}={sealed}; {theirs}"):
                assert (await site.ask(url, headers={"cookie": header})).text == "hello", header
        assert (await site.ask(url, headers={"cookie": theirs})).status_code == 403


@pytest.mark.parametrize(
    ("behind", "location"),
    [
        ("/", "/"),
        ("/docs/a%20b", "/docs/a%20b"),
        ("/docs?x=1&y=2", "/docs?x=1&y=2"),
        ("//elsewhere.example/", "/elsewhere.example/"),
        ("/%5Celsewhere.example", "/%5Celsewhere.example"),
    ],
)
async def test_a_path_that_a_client_puts_behind_a_link_as_behind_an_origin_is_what_it_opens(
    site: Site, behind: str, location: str
) -> None:
    port = await echoing(site)
    response = await site.ask(f"{site.link(port)}{behind}")
    assert (response.status_code, response.headers["location"]) == (303, location)
    polled = await site.ask(f"{site.link(port)}{behind}", headers={"origin": f"http://{site.host}"})
    assert polled.text.startswith(f"GET {location} HTTP/1.1\r\n")
    under_path = f"{site.link(port, host='drydock.example.com')}{behind}"
    assert (await site.ask(under_path)).text.startswith(f"GET {location} HTTP/1.1\r\n")


async def test_without_a_pass_for_just_this_preview_nothing_is_asked_of_the_sandbox(site: Site) -> None:
    port = await site.answering(HELLO)
    other = await site.answering(HELLO)
    own = await site.enter(other)
    sealed = own["cookie"].split("=", 1)[1]
    another_token = Passes(SecretBox(bytes(32)), "another token").make("cookie", GIVEN, seconds=60)
    for cookie in (
        "",
        own["cookie"],
        f"drydock_preview={sealed}x",
        "drydock_preview=",
        f"drydock_preview={another_token}",
    ):
        for path in ("/", f"/?drydock_ticket={sealed}", "/?drydock_ticket=%ff"):
            headers = {"cookie": cookie} if cookie else {}
            response = await site.ask(f"http://{site.host_of(port)}{path}", headers=headers)
            assert response.status_code == 403, (cookie, path)
            assert "under Ports" in response.text


def test_a_pass_counts_for_its_time_its_kind_and_its_servers_token() -> None:
    now = 1000.0
    passes = Passes(SecretBox(bytes(32)), TOKEN, now=lambda: now)
    sealed = passes.make("ticket", GIVEN, seconds=60)
    assert passes.read("ticket", sealed) == GIVEN
    assert passes.read("cookie", sealed) is None
    assert passes.read("path", sealed) is None
    assert Passes(SecretBox(bytes(32)), "new", now=lambda: now).read("ticket", sealed) is None
    assert Passes(SecretBox(bytes([1] * 32)), TOKEN, now=lambda: now).read("ticket", sealed) is None
    for bad in ("", "x", "é", sealed[:-1], sealed + "A"):
        assert passes.read("ticket", bad) is None
    now = 1060.0
    assert passes.read("ticket", sealed) is None


def test_a_lasting_pass_stays_the_same_for_half_of_its_time() -> None:
    now = 1000.0
    passes = Passes(SecretBox(bytes(32)), TOKEN, now=lambda: now)
    sealed = passes.lasting("ticket", GIVEN)
    assert passes.lasting("ticket", GIVEN) == sealed
    assert passes.lasting("path", GIVEN) != sealed
    assert passes.read("ticket", passes.lasting("ticket", GIVEN._replace(port=81))) == GIVEN._replace(port=81)
    now += 6 * 3600 - 1
    assert passes.lasting("ticket", GIVEN) == sealed
    now += 2
    assert passes.lasting("ticket", GIVEN) != sealed
    assert passes.read("ticket", sealed) == GIVEN
    now += 6 * 3600
    assert passes.read("ticket", sealed) is None
    assert passes.read("ticket", passes.lasting("ticket", GIVEN)) == GIVEN


async def test_a_page_of_another_origin_may_not_use_a_visitors_pass(site: Site) -> None:
    port = await site.answering(HELLO)
    own = f"http://{site.host_of(port)}"
    assert (await site.get(port, headers={"origin": own})).status_code == 200
    for origin in ("http://evil.example", f"http://{site.host}", "null", own.replace("http:", "https:")):
        response = await site.get(port, headers={"origin": origin})
        assert response.status_code == 403, origin


async def test_a_page_that_was_given_a_link_may_poll_it(site: Site) -> None:
    port = await site.answering(HELLO.replace(b"\r\n\r\n", b"\r\nAccess-Control-Allow-Origin: http://x\r\n\r\n"))
    response = await site.ask(site.link(port), headers={"origin": f"http://{site.host}"})
    assert (response.status_code, response.text) == (200, "hello")
    assert response.headers.get_list("access-control-allow-origin") == ["*"]
    assert "set-cookie" not in response.headers


async def test_a_preview_knows_no_route_of_drydock_and_drydock_none_of_it(site: Site) -> None:
    port = await site.answering(HELLO)
    for path in ("/api/conversations", "/socket.io/?EIO=4&transport=polling", "/preview/x/", "/health"):
        assert (await site.get(port, path)).text == "hello"
        response = await site.ask(f"http://{site.host_of(port)}{path}")
        assert response.status_code == 403
    assert (await site.ask(f"http://{site.host}/")).text == "this is Drydock"
    for name in ("0-" + "a" * 26, "99999-" + "a" * 26, "80-" + "a" * 25, "80-" + "A1" * 13, "x.80-" + "a" * 26, "evil"):
        assert (await site.ask(f"http://{name}.{site.host}/")).text == "this is Drydock"  # whose gate refuses the name


async def test_the_sandbox_sees_no_credentials_of_drydock_and_no_address_of_the_browser(site: Site) -> None:
    seen = await echoing(site)
    headers = {
        "x-session-api-key": TOKEN,
        "authorization": f"Bearer {TOKEN}",
        "x-forwarded-for": "10.1.2.3",
        "forwarded": "for=10.1.2.3",
        "x-real-ip": "10.1.2.3",
        "remote-user": "ann-of-the-proxy",
        "referer": f"http://{site.host_of(seen)}/page?q",
        "origin": f"http://{site.host_of(seen)}",
    }
    own = (await site.enter(seen))["cookie"]
    text = (await site.get(seen, headers={**headers, "cookie": f"a=1; {own}; b=2"})).text
    assert TOKEN not in text
    assert "10.1.2.3" not in text
    assert "ann-of-the-proxy" not in text
    assert "drydock" not in text
    lines = text.lower().split("\r\n")
    assert f"host: localhost:{seen}" in lines
    assert "cookie: a=1; b=2" in lines
    assert f"referer: http://localhost:{seen}/page?q" in lines
    assert f"origin: http://localhost:{seen}" in lines
    assert (
        "authorization: bearer of the app"
        in (await site.get(seen, headers={"authorization": "Bearer of the app"})).text.lower()
    )
    assert "cookie" not in (await site.get(seen)).text.lower()


async def test_an_answer_reaches_no_further_than_the_preview(site: Site) -> None:
    fields = [
        b"Set-Cookie: a=1; Domain=localhost; Path=/",
        b"Set-Cookie: __Host-drydock_preview=mine; Secure; Path=/",
        b"Set-Cookie: drydock_preview=mine",
        b"Strict-Transport-Security: max-age=1; includeSubDomains",
        b'Alt-Svc: h2=":1"',
        b'Clear-Site-Data: "cookies"',
        b"X-Frame-Options: DENY",
        b"Connection: X-Mine",
        b"X-Mine: 1",
        b"Keep-Alive: 5",
        b"Date: Thu, 01 Jan 1970 00:00:00 GMT",
        b"Content-Security-Policy: default-src 'self'",
    ]
    port = await site.answering(HELLO.replace(b"\r\n\r\n", b"\r\n" + b"\r\n".join(fields) + b"\r\n\r\n"))
    response = await site.get(port)
    assert response.headers.get_list("set-cookie") == ["a=1; Path=/"]
    assert len(response.headers.get_list("date")) == 1
    for name in ("strict-transport-security", "alt-svc", "clear-site-data", "x-frame-options", "x-mine", "keep-alive"):
        assert name not in response.headers
    policies = response.headers.get_list("content-security-policy")
    assert policies == ["default-src 'self'", f"frame-ancestors 'self' http://{site.host}"]


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        ("http://localhost:{port}/login?next=/", "/login?next=/"),
        ("http://127.0.0.1:{port}", "/"),
        ("http://0.0.0.0:{port}/x", "/x"),
        ("http://localhost:1/x", "http://localhost:1/x"),
        (f"/a?next=http://localhost:{'9' * 5000}/x", f"/a?next=http://localhost:{'9' * 5000}/x"),
        ("https://elsewhere.example/x", "https://elsewhere.example/x"),
        ("https://elsewhere.example/?back=http://localhost:{port}/x",) * 2,
        ("/a?next=http://localhost:{port}/x",) * 2,
        ("http://localhost:{port}?a=1", "/?a=1"),
        ("http://localhost:{port}//elsewhere.example/x", "/.//elsewhere.example/x"),
        ("/a", "/a"),
    ],
)
async def test_redirects_to_the_programs_own_address_stay_in_the_preview(site: Site, location: str, seen: str) -> None:
    port = await site.serve(redirecting(location))
    assert (await site.get(port)).headers["location"] == seen.format(port=port)


@pytest.mark.parametrize(
    ("refresh", "seen"),
    [
        ("0; url=http://localhost:{port}/login", "0; url={prefix}/login"),
        ("3;URL='/login'", "3;URL='{prefix}/login'"),
        ("0; login", "0; login"),
        ("1; url=https://elsewhere.example/x", "1; url=https://elsewhere.example/x"),
        ("5", "5"),
    ],
)
async def test_a_page_that_loads_another_one_later_stays_in_the_preview(site: Site, refresh: str, seen: str) -> None:
    port = await site.serve(redirecting(refresh, field="Refresh"))
    assert (await site.get(port)).headers["refresh"] == seen.format(prefix="")
    link = site.link(port, host="drydock.example.com")
    prefix = link.removeprefix("http://drydock.example.com").removesuffix("/")
    assert (await site.ask(link)).headers["refresh"] == seen.format(prefix=prefix)


async def test_under_a_path_documents_are_sandboxed_and_the_address_is_the_key(site: Site) -> None:
    port = await site.answering(
        HELLO.replace(
            b"\r\n\r\n", b"\r\nSet-Cookie: a=1\r\nService-Worker-Allowed: /\r\nReferrer-Policy: unsafe-url\r\n\r\n"
        )
    )
    link = site.link(port, host="drydock.example.com")
    assert link.startswith("http://drydock.example.com/preview/")
    for origin in ({}, {"origin": "null"}, {"origin": "http://drydock.example.com"}):
        response = await site.ask(link, headers=origin)
        assert response.text == "hello"
        assert response.headers["content-security-policy"].startswith("sandbox allow-scripts")
        assert "allow-same-origin" not in response.headers["content-security-policy"]
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["access-control-allow-origin"] == "*"
        assert "set-cookie" not in response.headers
        assert "service-worker-allowed" not in response.headers
    preflight = {"origin": "null", "access-control-request-method": "PUT", "access-control-request-headers": "x-a"}
    response = await site.ask(link, "OPTIONS", headers=preflight)
    assert response.status_code == 204
    assert response.headers["access-control-allow-headers"] == "x-a"
    for wrong in (link[:-3] + "xy/", "http://drydock.example.com/preview//", "http://drydock.example.com/preview/a"):
        response = await site.ask(wrong)
        assert response.status_code == 403
        assert response.headers["content-security-policy"].startswith("sandbox")
    assert (await site.ask(link, headers={"origin": "http://evil.example"})).status_code == 403
    assert (await site.ask(link, headers={"host": "evil.example"})).text == "this is Drydock"


@pytest.mark.parametrize("base_path", ["", "/drydock"])
async def test_paths_and_redirects_under_a_path_lose_and_get_their_prefix(site: Site, base_path: str) -> None:
    seen = await echoing(site)
    link = site.link(seen, host="drydock.example.com")
    assert (await site.ask(f"{link}a%2Fb/c?d=1")).text.startswith("GET /a%2Fb/c?d=1 HTTP/1.1\r\n")
    assert (await site.ask(link.removesuffix("/"))).text.startswith("GET / HTTP/1.1\r\n")
    port = await site.serve(redirecting("/login"))
    link = site.link(port, host="drydock.example.com")
    location = (await site.ask(link)).headers["location"]
    assert link == f"http://drydock.example.com{location.removesuffix('login')}"
    assert location.startswith(f"{base_path}/preview/")
    # A proxy may have taken the base path off; and a host of its own has no part in it.
    assert (await site.ask(link.replace(f"{base_path}/preview/", "/preview/"))).headers["location"] == location
    assert (await site.get(seen, f"{base_path}/preview/x")).text.startswith(f"GET {base_path}/preview/x HTTP/1.1\r\n")


def test_where_a_preview_is_depends_on_the_domain_and_on_the_pages_address() -> None:
    passes = Passes(SecretBox(bytes(32)), None)
    local = PreviewLinks(PreviewAddresses.from_setting("localhost"), passes)
    for host in ("localhost:3000", "127.0.0.1:3000", "[::1]:3000"):
        assert local.link("http", host, "c", 8000, "").startswith("http://8000-")
        assert ".localhost:3000/?drydock_ticket=" in local.link("http", host, "c", 8000, "")
        assert "*.localhost:3000" in local.addresses.frame_sources(host)
    assert "/preview/" in local.link("http", "192.168.1.5:3000", "c", 8000, "")
    assert local.addresses.frame_sources("192.168.1.5:3000") == "'self'"
    named = PreviewLinks(PreviewAddresses.from_setting("preview.example.com"), passes)
    assert ".preview.example.com/?drydock_ticket=" in named.link("https", "drydock.example.com", "c", 8000, "")
    nowhere = PreviewLinks(PreviewAddresses.from_setting("none"), passes)
    assert "/preview/" in nowhere.link("http", "localhost:3000", "c", 8000, "")


def redirecting(location: str, *, field: str = "Location") -> Handler:
    """A program that sends everybody there; ``{port}`` stands for its own port."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        port = writer.get_extra_info("sockname")[1]
        where = location.format(port=port)
        writer.write(f"HTTP/1.1 302 Found\r\n{field}: {where}\r\nContent-Length: 0\r\n\r\n".encode())

    return handler


async def echoing(site: Site) -> int:
    """A program that answers with the head of the request."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)

    return await site.serve(handler)
