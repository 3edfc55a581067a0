"""``drydock acp`` as a process, as editors start it: what goes over its standard streams, and how it ends."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from acp import RequestError

from agent_core.testing.model_turns import say
from drydock_client import Action, DrydockClient
from tests.contract.acp.conftest import LIMIT, ROOT, TOKEN, Desk, environment, introduced, process_at


class Raw:
    """Talks to the process line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._in, self._out = process, process.stdin, process.stdout

    def write(self, line: bytes) -> None:
        self._in.write(line + b"\n")

    async def read(self) -> dict[str, Any]:
        async with asyncio.timeout(LIMIT):
            line = await self._out.readline()
        message = json.loads(line)
        assert isinstance(message, dict)
        return message

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}).encode())
        while True:
            message = await self.read()
            if message.get("id") == method:
                return message

    async def end(self) -> int:
        self._in.close()
        async with asyncio.timeout(LIMIT):
            return await self.process.wait()


@asynccontextmanager
async def raw(*arguments: str, **values: str) -> AsyncIterator[Raw]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "server", "acp", *arguments),
        cwd=ROOT,
        env=environment(**values),
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield Raw(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_an_editor_starts_it_talks_to_it_and_ends_it(bare_desk: Desk) -> None:
    bare_desk.answer = lambda request: say("one two three", token_delay=0.1)
    async with process_at(bare_desk, DRYDOCK_API_KEY=TOKEN) as process:
        facts = await introduced(bare_desk)
        assert facts.protocol_version == 1
        assert facts.agent_info is not None
        assert facts.agent_info.name == "drydock"
        assert facts.agent_capabilities is not None
        assert facts.agent_capabilities.load_session
        session = await bare_desk.new()
        assert await bare_desk.prompt(session.session_id, "Count.") == "end_turn"
        assert bare_desk.editor.said() == "one two three"
    assert process.returncode == 0


async def test_a_key_that_is_missing_is_asked_for_and_named(bare_desk: Desk) -> None:
    async with process_at(bare_desk):
        facts = await introduced(bare_desk)
        assert facts.auth_methods is not None
        (method,) = facts.auth_methods
        for work in (bare_desk.new(), bare_desk.conn.authenticate(method_id=method.id)):
            with pytest.raises(
                RequestError, match=r"Authentication required: .*--key-file or DRYDOCK_API_KEY"
            ) as caught:
                await bare_desk.limited(work)
            assert caught.value.code == -32000


async def test_garbage_is_answered_and_nothing_else_is_on_standard_output(bare_desk: Desk) -> None:
    key_file = bare_desk.folder / "key"
    key_file.write_text(f"{TOKEN}\n")
    async with raw("--url", bare_desk.url, "--key-file", str(key_file)) as agent:
        hostile = (b"\xff\xfe", b"{", b"[]", b"3", b'"x"', b"null", b"[" * 100_000, b"{}", b'{"id":{},"method":"a"}')
        for line in (*hostile, b'{"id":true,"method":"a"}', b'{"id":1,"method":[]}', b'{"id":7,"error":3}'):
            agent.write(line)
            answer = await agent.read()
            assert answer["error"]["code"] in (-32700, -32600), line
            assert answer["error"]["message"]
        agent.write(b'{"jsonrpc":"2.0","id":99,"result":{}}')  # an answer to no question is dropped
        agent.write(b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"none"}}')
        agent.write(b'{"jsonrpc":"2.0","method":"session/cancel","params":5}')
        agent.write(b'{"jsonrpc":"2.0","method":"never/heard/of"}')
        for method, params, code, named in (
            ("never/heard/of", {}, -32601, "no such method"),
            ("initialize", {}, -32602, "protocolVersion"),
            ("session/new", {"cwd": "here", "mcpServers": []}, -32602, "cwd: 'here' is no absolute path"),
            ("session/new", {"cwd": 5}, -32602, "cwd: "),
            ("session/prompt", {"sessionId": "none", "prompt": []}, -32002, "sessionId: 'none' is not open"),
            ("session/prompt", {"sessionId": "none", "prompt": [{"type": "smell"}]}, -32602, "prompt.0"),
            ("authenticate", {"methodId": "magic"}, -32602, "methodId: there is no 'magic'"),
        ):
            error = (await agent.ask(method, **params))["error"]
            assert (error["code"], named in error["message"]) == (code, True), error
        servers = [{"type": "http", "name": "x", "url": "http://h/mcp", "headers": [{"name": "X-A", "value": "b"}]}]
        error = (await agent.ask("session/new", cwd="/", mcpServers=servers))["error"]
        assert "mcpServers.0.headers.0" in error["message"]
        made = (await agent.ask("session/new", cwd="/", mcpServers=[]))["result"]["sessionId"]
        for block, named in (
            ({"type": "text", "text": "a\u0000b"}, "prompt.0.text: has NUL"),
            ({"type": "audio", "data": "", "mimeType": "audio/wav"}, "prompt.0.type: is audio"),
            ({"type": "text", "text": " "}, "prompt: says nothing"),
        ):
            error = (await agent.ask("session/prompt", sessionId=made, prompt=[block]))["error"]
            assert named in error["message"]
        assert (await agent.ask("session/delete", sessionId=made))["result"] == {}
        assert (await agent.ask("session/list"))["result"] == {"sessions": []}
        assert await agent.end() == 0


async def test_without_a_server_it_says_how_to_start_one() -> None:
    async with raw("--url", "http://127.0.0.1:1") as agent:
        assert (await agent.ask("initialize", protocolVersion=7))["result"]["protocolVersion"] == 1
        error = (await agent.ask("session/new", cwd="/", mcpServers=[]))["error"]
        assert "drydock serve" in error["message"]
        assert "http://127.0.0.1:1" in error["message"]
        assert await agent.end() == 0


async def test_another_server_at_the_address_is_told_with_the_option_that_names_one(bare_desk: Desk) -> None:
    async with raw("--url", bare_desk.model.url) as agent:
        error = (await agent.ask("session/new", cwd="/", mcpServers=[]))["error"]
        assert error["message"].startswith(f"{bare_desk.model.url} answers, but not as a Drydock server does. ")
        assert "--url or DRYDOCK_URL" in error["message"]
        assert await agent.end() == 0


async def test_an_editor_that_goes_away_leaves_its_agent_at_work(bare_desk: Desk) -> None:
    bare_desk.answer = lambda request: say("one two three", token_delay=0.2)
    async with raw("--url", bare_desk.url, DRYDOCK_API_KEY=TOKEN) as agent:
        made = (await agent.ask("session/new", cwd="/", mcpServers=[]))["result"]["sessionId"]
        prompt = {"sessionId": made, "prompt": [{"type": "text", "text": "Count."}]}
        agent.write(json.dumps({"jsonrpc": "2.0", "id": 5, "method": "session/prompt", "params": prompt}).encode())
        while "agent_message_chunk" not in str(await agent.read()):
            pass
        assert await agent.end() == 0
    async with DrydockClient(bare_desk.url, TOKEN) as client:
        assert (await client.wait(made, limit_seconds=LIMIT)).state == "awaiting_user_input"
        events = [event async for event in client.events(made) if isinstance(event, Action)]
    assert [one.args["content"] for one in events if one.action == "message"] == ["Count.", "one two three"]
