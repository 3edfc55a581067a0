from __future__ import annotations

import gzip
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.app import create_app
from server.errors import ConfigurationError
from server.settings.settings import Settings
from tests.contract.openapi.documents import document
from tests.contract.rest.conftest import MakeServer, Server


@pytest.fixture
async def server(make_server: MakeServer, tmp_path: Path) -> AsyncIterator[Server]:
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>the page</title>")
    (folder / "assets" / "app.js").write_text("let a;")
    (tmp_path / "outside.txt").write_text("kept from you")
    async with make_server(page=folder) as running:
        yield running


@pytest.mark.parametrize("path", ["/", "/conversations/abc", "/settings", "/index.html", "/a/b.c"])
async def test_addresses_of_the_page_give_the_page(server: Server, path: str) -> None:
    response = await server.get(path)
    assert response.status_code == 200
    assert response.text == "<title>the page</title>"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["content-type"] == "text/html; charset=utf-8"


async def test_assets_may_be_kept_and_missing_ones_are_a_404(server: Server) -> None:
    found = await server.get("/assets/app.js")
    assert found.text == "let a;"
    assert found.headers["cache-control"] == "public, max-age=2592000, immutable"
    missing = await server.get("/assets/old.js")
    assert missing.status_code == 404
    assert missing.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/api", "/api/unknown", "/api/conversations/x/y/z"])
async def test_an_unknown_path_of_the_api_is_a_404_in_json(server: Server, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        response = await server.client.request(method, path)
        assert response.status_code == 404
        assert response.json()["detail"]


@pytest.mark.parametrize("path", ["/../outside.txt", "/%2e%2e/outside.txt", "/assets/..%2f..%2foutside.txt"])
async def test_nothing_outside_of_the_folder_is_delivered(server: Server, path: str) -> None:
    assert "kept from you" not in (await server.get(path)).text


async def test_only_reading_the_page_is_possible(server: Server) -> None:
    assert (await server.post("/settings")).status_code == 405
    assert (await server.client.head("/")).status_code == 200


async def test_pages_of_an_allowed_origin_may_call_the_api(make_server: MakeServer) -> None:
    async with make_server(allowed_origins=("https://tools.example",), token="the-right-token-of-24-chars") as server:
        ask = {"origin": "https://tools.example", "access-control-request-method": "GET"}
        preflight = await server.client.options("/api/settings", headers=ask)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://tools.example"
        names = "authorization, x-conversation-id, x-stainless-os, mcp-protocol-version"  # those of OpenAI's and MCP's
        preflight = await server.client.options("/v1/models", headers={**ask, "access-control-request-headers": names})
        assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (200, names)
        foreign = await server.client.options("/api/settings", headers={**ask, "origin": "https://evil.example"})
        assert foreign.status_code == 403
        for path in ("/api/settings", "/health", "/socket.io/?EIO=4&transport=polling"):
            answer = await server.get(path, headers={"origin": "https://tools.example"})
            assert answer.status_code == (401 if path.startswith("/api") else 200)
            assert answer.headers.get_list("access-control-allow-origin") == ["https://tools.example"]
            assert answer.headers["access-control-allow-credentials"] == "true"
        assert "access-control-allow-origin" not in (await server.get("/health")).headers


TYPES = {
    "assets/a.js": "text/javascript",
    "assets/a.mjs": "text/javascript",
    "assets/a.css": "text/css",
    "assets/a.wasm": "application/wasm",
    "assets/a.woff2": "font/woff2",
    "assets/a.svg": "image/svg+xml",
    "locales/en/translation.json": "application/json",
    "site.webmanifest": "application/manifest+json",
    "favicon.ico": "image/",
    "notes": "application/octet-stream",
}


async def test_files_have_their_types_on_every_system(server: Server, tmp_path: Path) -> None:
    for name, kind in TYPES.items():
        file = tmp_path / "page" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("it")
        response = await server.get(f"/{name}")
        assert response.text == "it"
        assert response.headers["content-type"].startswith(kind), name


async def test_a_page_that_is_known_already_is_not_sent_again_and_one_that_changed_is(
    server: Server, tmp_path: Path
) -> None:
    for path in ("/", "/conversations/abc", "/assets/app.js"):
        first = await server.get(path)
        again = await server.get(path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["cache-control"] == first.headers["cache-control"]
    index = tmp_path / "page" / "index.html"
    before, facts = await server.get("/"), index.stat()
    index.unlink()
    index.write_text("<title>THE PAGE</title>")  # as long, and as old: packed builds are all of one date
    os.utime(index, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    after = await server.get("/", headers={"if-none-match": before.headers["etag"]})
    assert (after.status_code, after.text) == (200, "<title>THE PAGE</title>")


async def test_parts_of_files_and_heads_are_to_be_had(server: Server) -> None:
    part = await server.get("/assets/app.js", headers={"range": "bytes=0-2"})
    assert (part.status_code, part.text, part.headers["content-range"]) == (206, "let", "bytes 0-2/6")
    beyond = await server.get("/assets/app.js", headers={"range": "bytes=100-"})
    assert beyond.status_code == 416
    head = await server.client.head("/assets/app.js")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "6")


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("gzip", "gzip"),
        ("br;q=0, gzip;q=0.5", "gzip"),
        ("identity", None),
        ("gzip;q=0.0", None),
    ],
)
async def test_a_compressed_file_beside_it_is_sent_to_whom_takes_it(
    server: Server, tmp_path: Path, accepted: str, encoding: str | None
) -> None:
    assets = tmp_path / "page" / "assets"
    (assets / "app.js.gz").write_bytes(gzip.compress(b"let a;"))
    (assets / "app.js.br").write_bytes(b"packed by brotli")
    async with server.client.stream("GET", "/assets/app.js", headers={"accept-encoding": accepted}) as response:
        raw = b"".join([part async for part in response.aiter_raw()])
    assert response.headers.get("content-encoding") == encoding
    assert response.headers["content-type"].startswith("text/javascript")
    assert response.headers["vary"] == "accept-encoding"
    expected = {"br": b"packed by brotli", "gzip": (assets / "app.js.gz").read_bytes(), None: b"let a;"}
    assert raw == expected[encoding]
    part = await server.get("/assets/app.js", headers={"accept-encoding": accepted, "range": "bytes=0-2"})
    assert part.content == b"let"


async def test_a_compressed_file_that_is_older_than_its_source_does_not_count(server: Server, tmp_path: Path) -> None:
    packed = tmp_path / "page" / "assets" / "app.js.gz"
    packed.write_bytes(gzip.compress(b"old"))
    os.utime(packed, (0, 0))
    assert (await server.get("/assets/app.js", headers={"accept-encoding": "gzip"})).text == "let a;"


async def test_links_out_of_the_folder_and_hidden_files_are_not_delivered(server: Server, tmp_path: Path) -> None:
    page = tmp_path / "page"
    (page / "leak.txt").symlink_to(tmp_path / "outside.txt")
    (page / "folder").symlink_to(tmp_path)
    (page / "circle").symlink_to(page / "circle")
    (page / ".env").write_text("kept from you")
    (page / "assets" / "app.js.gz").symlink_to(tmp_path / "outside.txt")
    for path in (
        "/leak.txt",
        "/folder/outside.txt",
        "/circle",
        "/.env",
        "/%2eenv",
        "//leak.txt",
        "/a%00b",
        "/" + "x" * 5000,
    ):
        response = await server.get(path)
        assert (response.status_code, response.text) == (200, "<title>the page</title>"), path
    assert (await server.get("/assets/app.js")).text == "let a;"


async def test_routes_win_over_files_of_the_page(server: Server, tmp_path: Path) -> None:
    for path in ("/api/options/config", "/health", "/server_info", "/openapi.json"):
        file = tmp_path / "page" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("of the page")
        response = await server.get(path)
        assert response.status_code == 200
        assert response.text != "of the page", path


async def test_an_unknown_path_of_another_door_is_not_the_page(server: Server) -> None:
    for path in ("/v1/unknown", "/mcp/unknown", "/preview/unknown", "/socket.io/x"):
        response = await server.get(path)
        assert 400 <= response.status_code < 500, path
        assert "the page" not in response.text


async def test_our_own_page_runs_no_scripts_within_it(make_server: MakeServer) -> None:
    async with make_server() as server:
        assert "default-src 'self'" in (await server.get("/")).headers["content-security-policy"]


async def test_scripts_within_another_clients_page_run(server: Server) -> None:
    for path in ("/", "/settings", "/assets/app.js"):
        policy = (await server.get(path)).headers["content-security-policy"]
        assert "script-src" not in policy
        assert "default-src" not in policy
        assert "frame-ancestors 'none'" in policy
    assert "default-src 'self'" in (await server.get("/api/options/config")).headers["content-security-policy"]


@pytest.mark.parametrize(("name", "problem"), [("nothing", "is no folder"), ("assets", "has no index.html")])
def test_a_folder_without_a_page_is_an_error_at_the_start(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "assets").mkdir()
    with pytest.raises(ConfigurationError, match=f"^page: .*{name} {problem}; name the folder"):
        create_app(Settings(data_dir=tmp_path / "data", page=tmp_path / name))


async def test_an_address_that_is_asked_with_another_method_says_with_which_it_can_be(server: Server) -> None:
    paths: dict[str, set[str]] = {path: {name.upper() for name in item} for path, item in document()["paths"].items()}
    # Its own name is also an id of a conversation.
    known = {path: names for path, names in paths.items() if path.startswith("/api/") and "/import" not in path}
    assert len(known) > 50
    for path, names in known.items():
        address = re.sub(r"{[^}]*}", "x", path)
        for method in ("GET", "PUT", "OPTIONS"):
            if method not in names:
                response = await server.client.request(method, address)
                assert (response.status_code, set(response.headers["allow"].split(", "))) == (405, names), method + path
    response = await server.client.request("PUT", "/api/settings")
    assert response.json()["detail"] == "There is no PUT /api/settings; ask with GET or POST"
    assert (await server.client.request("PUT", "/api/nothing")).status_code == 404


async def test_the_document_of_the_routes_is_a_page_too(server: Server) -> None:
    response = await server.get("/docs")
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for path, item in document()["paths"].items():
        assert all(f"<code>{method.upper()} {path}</code>" in response.text for method in item)
    assert "<script" not in response.text


async def test_strangers_learn_nothing_from_a_refusal_or_a_tag(server: Server, tmp_path: Path) -> None:
    facts = (tmp_path / "page" / "index.html").stat()
    tag = (await server.get("/")).headers["etag"]
    assert f"{facts.st_ino:x}" not in tag.split('"')[1].split("-")
    assert f"{facts.st_mtime_ns:x}" not in tag
    refused = await server.post("/", headers={"content-length": str(10**12)})
    assert refused.status_code == 413
    assert not re.search(r"\d|max_", refused.text)
    refused = await server.get("/", headers={"host": "h" * 5_000})
    assert refused.status_code == 403
    assert len(refused.text) < 1_500
