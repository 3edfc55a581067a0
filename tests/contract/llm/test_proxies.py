"""Models behind a proxy of the environment that opens tunnels (CONNECT): one rule for both ways to a model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_core.destinations import DestinationError, Destinations, DirectClient
from agent_core.llm.transport.connections import HttpConnections, HttpLibrary
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, say
from tests.certificates import Authority
from tests.connect_proxy import connect_proxy, through
from tests.contract.llm.test_providers import anthropic_stream
from tests.listening import listening

PROGRAM = """
import asyncio, json, sys
from pydantic import SecretStr
from agent_core.llm.llm import LLM

async def ask(options):
    llm = LLM(api_key=SecretStr("sk-of-the-test"), num_retries=1, timeout=20, **options)
    try:
        return (await llm.acompletion([{"role": "user", "content": "Hello."}])).message.text
    except Exception as error:
        return f"{type(error).__name__}: {error}"

async def main():
    for options in json.loads(sys.argv[1]):
        print(json.dumps(await ask(options)))

asyncio.run(main())
"""


async def answers(asked: list[dict[str, Any]], **environment: str) -> list[str]:
    """What a program with this environment gets from these models: the environment is read once by all libraries."""
    bare = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, json.dumps(asked)),
        env={**bare, "LITELLM_LOCAL_MODEL_COST_MAP": "True", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    return [json.loads(line) for line in out.splitlines()]


def either_form(request: ModelRequest) -> Turn:
    return anthropic_stream() if request.path.endswith("/messages") else say("hi")


async def test_both_ways_to_a_model_go_through_the_tunnel_or_around_it(tmp_path: Path) -> None:
    """Ours, and litellm's; `NO_PROXY` and this machine are asked directly by both."""
    authority = Authority(tmp_path)
    encrypted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    encrypted.load_cert_chain(*authority.vouch("models", "ours.example", "theirs.example", "127.0.0.1"))
    claude = "anthropic/claude-sonnet-4-5"
    async with ModelServer(either_form) as model:

        async def decrypted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await through(reader, writer, int(model.origin.rpartition(":")[2]))

        async with listening(decrypted, encrypted=encrypted) as port:
            places = {"ours.example:443": port, "theirs.example:443": port}
            async with connect_proxy(places, "secret") as (proxy, at):
                found = await answers(
                    [
                        {"model": "openai/m", "base_url": "https://ours.example/v1"},
                        {"model": claude, "base_url": "https://theirs.example"},
                        {"model": "openai/m", "base_url": "https://blocked.example/v1"},
                        {"model": claude, "base_url": "https://blocked.example"},
                        {"model": "openai/m", "base_url": "https://around.example/v1"},
                        {"model": claude, "base_url": "https://around.example"},
                        {"model": "openai/m", "base_url": f"https://127.0.0.1:{port}/v1"},
                        {"model": claude, "base_url": f"https://127.0.0.1:{port}"},
                    ],
                    HTTPS_PROXY=f"http://me:secret@127.0.0.1:{at}",
                    NO_PROXY="around.example",
                    SSL_CERT_FILE=str(authority.file),
                )
    assert proxy.targets == ["ours.example:443", "theirs.example:443", "blocked.example:443", "blocked.example:443"]
    (ours, theirs), blocked, around, here = found[:2], found[2:4], found[4:6], found[6:]
    assert (ours, theirs) == ("hi", "Let me look.")
    assert f"the proxy 127.0.0.1:{at} of this machine's environment does not let it through: 403" in blocked[0]
    assert "403" in blocked[1]
    assert all("around.example" in one and "not known" in one for one in around)  # nobody but the proxy knows names
    assert here == ["hi", "Let me look."]
    assert "secret" not in " ".join(found)


async def test_what_is_wrong_with_the_proxy_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, Any] = {"headers": {}, "limit_seconds": 10, "connect_seconds": 10}

    async def refusal() -> str:
        connections = HttpConnections(HttpLibrary())
        async with contextlib.aclosing(connections):
            with pytest.raises(connections.library.errors) as refused:
                await connections.send("GET", "https://ours.example/v1/models", **limits)
        return str(refused.value)

    monkeypatch.setenv("NO_PROXY", "")
    async with connect_proxy({}, "secret") as (_, at):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:wrong@127.0.0.1:{at}")
        words = f"the proxy 127.0.0.1:{at} of this machine's environment"
        assert (await refusal()).startswith(f"{words} does not let it through: 407 ")
    assert (await refusal()).startswith(f"{words} cannot be reached: ")


async def test_what_strangers_name_is_asked_directly_at_the_address_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Webhooks and images: a proxy would look names up by itself, and reach what this machine is not to ask."""

    async def hook(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with connect_proxy({}) as (proxy, at), listening(hook) as port:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{at}")
        url = f"http://127.0.0.1:{port}/"
        client = DirectClient(Destinations(loopback=True), 10)
        async with contextlib.aclosing(client), client.stream("POST", url, headers={}) as answer:
            assert answer.status_code == 204
        strict = DirectClient(Destinations(), 10)
        async with contextlib.aclosing(strict):
            with pytest.raises(DestinationError):
                async with strict.stream("GET", url, headers={}):
                    pass
    assert not proxy.targets
