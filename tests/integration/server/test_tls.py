"""A server with a certificate of its own: clients, commands, who speaks plain HTTP, and what a renewal changes."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from drydock_client import Action, DrydockClient, Following, UnreachableError
from server.http import tls_listener
from server.http.tls_listener import TlsListener
from tests.certificates import Authority
from tests.integration.server.conftest import MakeProcess, ServerProcess, clean_environment
from tests.integration.server.forks import ROOT

WAIT_SECONDS = 60.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def server(make_process: MakeProcess, authority: Authority) -> ServerProcess:
    certificate, key = authority.vouch("first", "127.0.0.1")
    named = {"DRYDOCK_TLS_CERTIFICATE": str(certificate), "DRYDOCK_TLS_KEY": str(key)}
    return await make_process("--sandbox", "unconfined", environment=named)


async def test_clients_and_commands_talk_to_a_server_with_a_certificate(
    server: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    async with DrydockClient(server.url, ca_file=authority.file) as client:
        conversation = await client.create_conversation()
        async with client.follow(conversation.id) as followed:
            await said_and_heard(client, followed, "over TLS")
    async with DrydockClient(server.url) as client:
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            await client.create_conversation()
        assert "DRYDOCK_CA_FILE" in str(caught.value)
    command = [sys.executable, "-m", "server", "conversations", "list", "--url", server.url, "-q"]
    environment = {**os.environ, "DRYDOCK_CA_FILE": str(authority.file)}
    listed = await asyncio.to_thread(
        subprocess.run, command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert listed.stdout.split() == [conversation.id], listed.stderr


async def test_the_protocols_are_modern_and_a_refusal_over_tls_can_be_read(
    server: ServerProcess, authority: Authority
) -> None:
    port = urlsplit(server.url).port
    trust = ssl.create_default_context(cafile=str(authority.file))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        trust.minimum_version = ssl.TLSVersion.TLSv1
        trust.maximum_version = ssl.TLSVersion.TLSv1_1
    trust.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    trust = ssl.create_default_context(cafile=str(authority.file))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 70_000)
    assert (await reader.read(4096)).startswith(b"HTTP/1.1 431 ")
    writer.close()


async def test_who_speaks_plain_http_is_told_so_and_no_traceback_is_written(server: ServerProcess) -> None:
    port = urlsplit(server.url).port
    for request in (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"POST / HTTP/1.0\r\n\r\n" + b"x" * 100_000, b"?"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert answer.endswith(b"write https:// in the address.\n")
        writer.close()
    for rubbish in (b"", b"\x16\x03\x01\x00\x05rubbish of a handshake" * 20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(rubbish)
        writer.write_eof()
        assert b"HTTP" not in await reader.read()
        writer.close()
    async with server.client() as client:
        described = (await client.get("/oauth/client.json")).json()
        assert described["client_id"].startswith("https://127.0.0.1:")
    assert "Traceback" not in server.printed()


async def test_a_renewed_certificate_is_served_to_new_connections_and_open_ones_go_on(
    server: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    async with DrydockClient(server.url, ca_file=authority.file) as client:
        conversation = await client.create_conversation()
        async with client.follow(conversation.id, live=True) as followed:
            await anext(followed)
            before = await serial_of(server, authority)
            for new, old in zip(authority.vouch("second", "127.0.0.1"), ("first.pem", "first.key"), strict=True):
                new.rename(tmp_path / old)
            async with asyncio.timeout(WAIT_SECONDS):
                while await serial_of(server, authority) == before:  # noqa: ASYNC110 - seen only by asking
                    await asyncio.sleep(0.2)
            await said_and_heard(client, followed, "over TLS, still")
    assert "a new certificate is in use" in server.printed()
    async with server.client() as plain:
        assert "drydock_certificate_ends_timestamp_seconds 1" in (await plain.get("/metrics")).text


async def said_and_heard(client: DrydockClient, followed: Following, text: str) -> None:
    await client.send(followed.conversation_id, text)
    async with asyncio.timeout(WAIT_SECONDS):
        async for event in followed:
            if isinstance(event, Action) and event.source == "user" and event.args.get("content") == text:
                return


async def serial_of(server: ServerProcess, authority: Authority) -> str:
    trust = ssl.create_default_context(cafile=str(authority.file))
    _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port, ssl=trust)
    found = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    return str(found)


def test_a_certificate_that_cannot_be_used_stops_the_start_in_words(tmp_path: Path) -> None:
    # In a process of its own: a start sets up the log and the rights of new files for all that follows.
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    ended = subprocess.run(
        [*command, "--sandbox", "unconfined"],
        cwd=ROOT,
        env={**clean_environment(), "DRYDOCK_TLS_CERTIFICATE": str(tmp_path / "nowhere.pem")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "drydock: tls_certificate: " in ended.stderr


@pytest.fixture
async def listener(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TlsListener]:
    import socket

    monkeypatch.setattr(tls_listener, "HANDSHAKE_SECONDS", 0.3)
    monkeypatch.setattr(tls_listener, "MAX_SHAKING", 3)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.vouch("one", "127.0.0.1"))
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    made = TlsListener(asyncio.get_running_loop(), asyncio.Protocol, listening, context)
    yield made
    made.close()
    await made.wait_closed()
    listening.close()


async def test_who_says_nothing_is_let_go_and_holds_up_the_others_no_longer_than_that(
    listener: TlsListener, authority: Authority
) -> None:
    port = listener.sockets[0].getsockname()[1]
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    trust = ssl.create_default_context(cafile=str(authority.file))
    async with asyncio.timeout(WAIT_SECONDS):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        assert [await reader.read() for reader, _ in silent] == [b""] * 5
    for _, one in [*silent, (None, writer)]:
        one.close()
