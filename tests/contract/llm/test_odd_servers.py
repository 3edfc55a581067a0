"""Servers that keep to the protocol in their own way, or not at all."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import subprocess
import sys
from base64 import b64encode
from contextlib import aclosing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.errors import (
    LLMBadRequestError,
    LLMContentPolicyError,
    LLMError,
    LLMInternalError,
    LLMTimeoutError,
    LLMUnavailableError,
)
from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.llm import LLM, LLMResponse
from agent_core.llm.transport.connections import HttpConnections, HttpLibrary
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import Turn, raw, say
from tests.listening import Handler, listening

HELLO = [{"role": "user", "content": "Hello"}]
DONE = "data: [DONE]\n\n"


def part(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}


async def ask(turn: Turn, **options: Any) -> LLMResponse:
    settings = {"num_retries": 1, "timeout": 30, **options}
    listener = settings.pop("on_delta", None)
    async with ModelServer([turn]) as server:
        llm = LLM(model="openai/m", base_url=server.url, api_key=SecretStr("sk-key-123"), **settings)
        return await llm.acompletion(HELLO, on_delta=listener)


async def test_halves_of_a_character_in_two_pieces_are_one_character() -> None:
    heard: list[str] = []
    pieces = (
        'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        'data: {"choices":[{"delta":{"content":"\\ude00b"}',
    )
    response = await ask(
        raw(pieces[0], pieces[1] + ',"finish_reason":"stop"}]}\n\n', token_delay=0.05),
        on_delta=lambda delta: heard.append(delta.text if isinstance(delta, TextDelta) else "void"),
    )
    assert response.message.text == "a😀b"
    assert "".join(heard) == "a😀b"


async def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    body = b'{"choices":[{"message":{"content":"a\xffb"},"finish_reason":"stop"}]}'
    assert (await ask(Turn(body=body))).message.text == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    "stream",
    [
        "data: " + json.dumps(part({"content": "hi"}, "stop")) + "\r\rdata: [DONE]\r\r",
        "data: " + json.dumps(part({"content": "hi"}, "stop")).replace(", ", ",\ndata: ") + "\n\n",
        "\N{BYTE ORDER MARK}data: " + json.dumps(part({"content": "hi"}, "stop")) + "\n\n",
    ],
    ids=["carriage returns", "an event of several lines", "a byte order mark"],
)
async def test_all_forms_of_events_are_read(stream: str) -> None:
    assert (await ask(raw(stream))).message.text == "hi"


async def test_an_answer_that_is_complete_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_core.llm.completion.COUNTS_SECONDS", 0.05)
    start = monotonic()
    response = await ask(raw(part({"content": "hi"}), part({}, "stop")).then("hang"))
    assert response.message.text == "hi"
    assert monotonic() - start < 60


async def test_signs_of_life_do_not_make_an_answer_that_is_complete_be_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_core.llm.completion.COUNTS_SECONDS", 0.05)
    alive = [": still here\n\n"] * 300
    turn = raw(part({"content": "hi"}), part({}, "stop"), *alive, token_delay=0.02)
    async with ModelServer([turn]) as server:
        llm = LLM(model="openai/m", base_url=server.url, num_retries=1, timeout=5)
        assert (await llm.acompletion(HELLO)).message.text == "hi"
        async with asyncio.timeout(30):
            await server.stream_dropped.wait()


@pytest.mark.parametrize("name", ["é".encode(), b"\xff\xfe"])
async def test_a_header_that_is_no_text_harms_nothing(name: bytes) -> None:
    async with listening(sends(OK, b"server: " + name + b"\r\n", b"\r\n", HI)) as port:
        assert (await ask_at(port)).message.text == "hi"


async def test_signs_of_life_alone_are_not_waited_for_for_ever() -> None:
    alive = raw(*[": still here\n\n"] * 100, token_delay=0.02)
    with pytest.raises(LLMTimeoutError, match=r"sent nothing for 1\.5 seconds"):
        await ask(alive, timeout=0.5)  # a busy machine is not silent for so long between two of them


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ('event: error\ndata: {"message": "the backend died"}\n\n', LLMInternalError),
        ('event: error\ndata: "the backend died"\n\n', LLMInternalError),
        ('data: {"object": "error", "message": "the backend died", "code": 400}\n\n' + DONE, LLMBadRequestError),
    ],
)
async def test_errors_inside_a_stream_are_told_whatever_their_form(error: str, kind: type[LLMError]) -> None:
    heard: list[object] = []
    with pytest.raises(kind, match="the backend died"):
        await ask(raw(part({"content": "Let me"}), error, token_delay=0.05), on_delta=heard.append)
    assert [type(one) for one in heard] == [TextDelta, TextDiscarded]


async def test_an_answer_that_the_provider_filtered_is_an_error_and_what_was_shown_is_void() -> None:
    heard: list[object] = []
    with pytest.raises(LLMContentPolicyError, match="Rephrase"):
        await ask(say("Well, you", finish_reason="content_filter"), on_delta=heard.append)
    assert isinstance(heard[-1], TextDiscarded)


async def test_a_refusal_is_an_answer() -> None:
    assert (await ask(raw(part({"refusal": "I will not."}, "stop")))).message.text == "I will not."


@pytest.mark.parametrize("cost", ["nan", "inf", "-1", "free"])
async def test_a_cost_that_is_none_is_not_counted(cost: str) -> None:
    response = await ask(say("hi", headers={"x-litellm-response-cost": cost}))
    assert response.cost is None
    more = {"usage": {"prompt_tokens": 5, "completion_tokens": -2, "cost": -0.5}}
    response = await ask(raw(part({"content": "hi"}, "stop", **more)))
    assert (response.cost, response.usage.prompt_tokens, response.usage.completion_tokens) == (None, 5, 0)


async def test_counts_beyond_all_measure_are_not_counted() -> None:
    text = '{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1e400}}'
    assert (await ask(Turn(body=text))).usage.prompt_tokens < 100


@pytest.mark.parametrize("calls", [5, "no", {"a": 1}, [None, 7], [{"index": 0, "id": 5, "function": {"name": 7}}]])
async def test_calls_of_the_wrong_type_do_no_harm(calls: Any) -> None:
    response = await ask(raw(part({"content": "hi", "tool_calls": calls}, "stop")))
    assert response.message.text == "hi"


@pytest.mark.parametrize("arguments", [{"a": 10**30}, {"a": "\ud83d"}, [1], True])
async def test_arguments_that_are_no_text_are_taken_as_the_json_that_they_are(arguments: Any) -> None:
    message = {"tool_calls": [{"index": 0, "function": {"name": "ls", "arguments": arguments}}]}
    response = await ask(Turn(body=json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})))
    call = (response.message.tool_calls or [])[0]
    assert isinstance(json.loads(call.arguments), type(arguments))


async def test_calls_that_all_have_the_number_zero_are_kept_apart() -> None:
    names = [("ls", '{"a":1}'), ("ls", '{"a":2}'), ("cat", '{"b":3}')]
    pieces = [part({"tool_calls": [{"index": 0, "function": {"name": n, "arguments": a}}]}) for n, a in names]
    response = await ask(raw(*pieces, part({}, "tool_calls")))
    assert [(one.name, one.arguments) for one in response.message.tool_calls or ()] == names


async def test_of_several_choices_the_first_is_taken() -> None:
    several = {"choices": [{"index": 1, "delta": {"content": "B"}}, {"index": 0, "delta": {"content": "A"}}]}
    assert (await ask(raw(several, part({}, "stop")))).message.text == "A"


async def test_a_redirection_is_told_and_not_followed() -> None:
    moved = Turn(status=308, headers={"location": "https://elsewhere.invalid/v1/chat/completions"})
    with pytest.raises(LLMError, match=r"points to https://elsewhere\.invalid/v1"):
        await ask(moved)


def sends(*pieces: bytes, until_hung_up: bytes = b"") -> Handler:
    """Answers with these bytes, and then with `until_hung_up` for as long as somebody takes it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        while until_hung_up:
            writer.write(until_hung_up)
            await writer.drain()

    return answer


async def ask_at(port: int, scheme: str = "http") -> LLMResponse:
    llm = LLM(model="openai/m", base_url=f"{scheme}://127.0.0.1:{port}/v1", num_retries=1, timeout=20)
    return await llm.acompletion(HELLO)


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
HI = ("data: " + json.dumps(part({"content": "hi"}, "stop")) + "\n\n").encode()


async def test_an_answer_without_a_length_of_an_old_protocol_is_read_to_its_end() -> None:
    async with listening(sends(OK.replace(b"1.1", b"1.0"), b"\r\n", HI)) as port:
        assert (await ask_at(port)).message.text == "hi"


async def test_an_answer_may_be_packed() -> None:
    assert (await ask(Turn(body=gzip.compress(HI), headers={"content-encoding": "gzip"}))).message.text == "hi"


@pytest.mark.parametrize(
    ("encoding", "body", "words"),
    [
        ("gzip", gzip.compress(bytes(66 * 2**20), 1), "more than 64 MiB"),
        ("gzip, gzip", gzip.compress(gzip.compress(bytes(2**28), 1)), "packed as 'gzip, gzip'"),
        ("br", b"x", "packed as 'br'"),
        ("gzip", HI, "cannot be unpacked"),
    ],
    ids=["once", "twice", "otherwise", "not at all"],
)
@pytest.mark.parametrize("status", [200, 400])
async def test_an_answer_that_grows_when_it_is_unpacked_is_given_up(
    encoding: str, body: bytes, words: str, status: int
) -> None:
    began = monotonic()
    with pytest.raises(LLMError) as caught:
        await ask(Turn(body=body, status=status, headers={"content-encoding": encoding}))
    assert (words if status == 200 else "400") in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert monotonic() - began < 40  # unpacked as often as it says it would take longer, and the memory of the host


@pytest.mark.parametrize(
    ("start", "more", "words"),
    [
        (OK + b"\r\n" + b'data: "', b"x" * 65536, "more than 64 MiB"),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1000, "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"x" * 65536, "cannot be reached"),
        (b"", b"x" * 65536, "cannot be reached"),
    ],
    ids=["a line", "headers", "a header", "a first line"],
)
async def test_what_never_ends_is_given_up(start: bytes, more: bytes, words: str) -> None:
    async with listening(sends(start, until_hung_up=more)) as port:
        with pytest.raises(LLMError, match=words) as caught:
            await ask_at(port)
    assert len(str(caught.value)) < 1000


@pytest.fixture
async def encrypted(tmp_path: Path) -> ssl.SSLContext:
    """What a server here shows: the file ``certificate``, for which nobody but it vouches."""
    whose = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    names = (*whose, "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate"))
    make = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *names)
    await asyncio.to_thread(subprocess.run, make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    return context


async def test_a_certificate_that_nobody_vouches_for_is_named(encrypted: ssl.SSLContext) -> None:
    async with listening(sends(OK, b"\r\n", HI), encrypted=encrypted) as port:
        with pytest.raises(LLMUnavailableError, match="self-signed certificate"):
            await ask_at(port, "https")


@pytest.mark.parametrize(
    ("name", "value"), [("SSL_CERT_FILE", "certificate"), ("SSL_VERIFY", "certificate"), ("SSL_VERIFY", "False")]
)
async def test_the_environment_says_whom_to_believe(
    encrypted: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, str(tmp_path / value) if value == "certificate" else value)
    connections = HttpConnections(HttpLibrary())
    async with listening(sends(OK, b"\r\n", HI), encrypted=encrypted) as port, aclosing(connections):
        url = f"https://127.0.0.1:{port}/v1/chat/completions"
        answer = await connections.send("POST", url, headers={}, content=b"{}", limit_seconds=5, connect_seconds=5)
        async with aclosing(answer):
            assert answer.status == 200


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_the_proxy_of_the_environment_is_asked_for_what_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK + b"\r\n" + HI)

    async with listening(proxy) as port:
        monkeypatch.setenv(variable, f"http://me:secret@127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", "other.invalid")
        llm = LLM(model="openai/m", base_url="http://model.invalid/v1", num_retries=1, timeout=5)
        assert (await llm.acompletion(HELLO)).message.text == "hi"
        head = asked[0].decode()
        assert head.startswith("POST http://model.invalid/v1/chat/completions HTTP/1.1\r\n")
        assert f"Proxy-Authorization: Basic {b64encode(b'me:secret').decode()}\r\n" in head
        other = LLM(model="openai/m", base_url="http://other.invalid/v1", num_retries=1, timeout=5)
        with pytest.raises(LLMUnavailableError, match="cannot be reached"):
            await other.acompletion(HELLO)
    assert len(asked) == 1


def test_a_compatible_server_is_asked_without_litellm() -> None:
    program = f"""
import asyncio, sys
from agent_core.llm.llm import LLM
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import say
async def main():
    async with ModelServer([say("hi")]) as server:
        llm = LLM(model="openai/m", base_url=server.url)
        await llm.warm_up()
        print((await llm.acompletion({HELLO!r})).message.text)
        print(*sorted({{"litellm", "aiohttp", "httpx"}} & {{*sys.modules}}))
asyncio.run(main())
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["hi", "aiohttp"]
