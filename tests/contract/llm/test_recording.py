"""Exchanges recorded from a real server, and replayed without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from agent_core.errors import LLMAuthenticationError, LLMBadRequestError, LLMUnavailableError
from agent_core.llm.llm import LLM, CallContext, RetryNotice
from agent_core.llm.transport.recordings import first_difference
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import Call, calls, fail, raw, say
from tests.contract.llm.workshop import Workshop, finish_text

KEY = "sk-very-secret-123"
TOOLS = [{"type": "function", "function": {"name": "terminal", "parameters": {"type": "object", "properties": {}}}}]


def recorder(server: ModelServer, path: Path, **options: Any) -> LLM:
    return LLM(
        model="openai/scripted",
        base_url=server.url,
        api_key=SecretStr(KEY),
        retry_min_wait=0,
        retry_max_wait=0,
        record_to=str(path),
        **options,
    )


def replayer(path: Path, **options: Any) -> LLM:
    return LLM(model=f"replay/{path}", retry_min_wait=0, retry_max_wait=0, **options)


def hello(text: str = "Hello") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


async def test_what_was_recorded_comes_again_without_the_server(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "recording.jsonl"
    several = (Call("terminal", {"command": "ls"}, id="a"), Call("terminal", {"command": "pwd"}, id="b"))
    async with ModelServer([calls(*several, text="Look:", reasoning="Hm"), fail(401, f"bad key {KEY}")]) as server:
        llm = recorder(server, path)
        first = await llm.acompletion(hello(), TOOLS)
        with pytest.raises(LLMAuthenticationError) as refused:
            await llm.acompletion(hello("And now?"), TOOLS)
    again = replayer(path)
    second = await again.acompletion(hello(), TOOLS)
    assert second.message == first.message
    assert second.usage.prompt_tokens == first.usage.prompt_tokens
    assert second.finish_reason == "tool_calls"
    with pytest.raises(LLMAuthenticationError) as refused_again:
        await again.acompletion(hello("And now?"), TOOLS)
    assert str(refused_again.value) == str(refused.value)
    assert KEY not in path.read_text()


async def test_secrets_in_the_messages_are_masked(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    async with ModelServer([say(f"your key is {KEY}")]) as server:
        await recorder(server, path).acompletion(hello(f"what is {KEY}?"))
    assert KEY not in path.read_text()
    assert "<secret-hidden>" in path.read_text()


async def test_an_attempt_and_its_retries_are_replayed_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    async with ModelServer([fail(503), say("half").then("cut"), say("whole")]) as server:
        await recorder(server, path).acompletion(hello())
    notices: list[RetryNotice] = []
    response = await replayer(path).acompletion(hello(), on_retry=notices.append)
    assert response.message.text == "whole"
    assert [type(notice.error).__name__ for notice in notices] == ["LLMUnavailableError", "LLMInternalError"]
    assert isinstance(notices[0].error, LLMUnavailableError)
    later = await replayer(path).acompletion(hello())
    assert later.message.text == "whole"
    notices.clear()
    other = CallContext(prompt_cache_key="another")
    await replayer(path).acompletion(hello(), on_retry=notices.append, context=other)
    assert len(notices) == 2


async def test_a_request_that_differs_is_refused_and_the_place_is_named(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    async with ModelServer(lambda _: say("ok")) as server:
        llm = recorder(server, path)
        await llm.acompletion(hello("How is the weather in Rome?"))
        asked = hello("How is the weather in Rome?")
        await llm.acompletion([*asked, {"role": "assistant", "content": "ok"}, *hello("?")])
    with pytest.raises(LLMBadRequestError) as caught:
        await replayer(path).acompletion(hello("How is the weather in Riga?"))
    assert "exchange 1, differs at messages[0].content (from character 23: recorded" in str(caught.value)
    with pytest.raises(LLMBadRequestError, match=r"differs at parameters\.temperature \(only asked now\)"):
        await replayer(path, temperature=0.5).acompletion(hello("How is the weather in Rome?"))


async def test_a_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LLMBadRequestError, match="cannot be replayed"):
        await replayer(tmp_path / "none.jsonl").acompletion(hello())
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text('{"hello": 1}\n')
    with pytest.raises(LLMBadRequestError, match="line 1 is no exchange of version 1"):
        await replayer(foreign).acompletion(hello())
    foreign.write_text("not json, and longer than before\n")
    with pytest.raises(LLMBadRequestError, match="line 1 is not JSON"):
        await replayer(foreign).acompletion(hello())


async def test_a_cancelled_or_hanging_exchange_leaves_no_half_record(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    async with ModelServer([say("one two").then("hang"), say("ok")]) as server:
        await recorder(server, path, timeout=0.3).acompletion(hello())
    (line,) = path.read_text().splitlines()
    assert [piece.get("text") for piece in json.loads(line)["chunks"] if "text" in piece] == ["ok"]


async def test_a_whole_tour_can_be_recorded_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "tour.jsonl"
    root = tmp_path / "root"
    root.mkdir()
    shop = Workshop(root, LLM(litellm_extra_body={"pace": 0}, record_to=str(path)))
    shop.say("hi")
    end = await shop.run()
    results = [message.text for message in shop.messages if message.role == "tool"]
    again = Workshop(root, replayer(path))
    again.say("hi")
    again.overrides = list(results)
    assert finish_text(await again.run()) == finish_text(end)


@pytest.mark.parametrize("key", ['sk-"quoted"\\key-123', "sk-plain-key-1234567"])
async def test_a_key_is_not_recorded_in_pieces_or_escaped_either(tmp_path: Path, key: str) -> None:
    path = tmp_path / "recording.jsonl"
    cut = [{"content": f"it is {key[:7]}"}, {"content": f"{key[7:]}, I"}, {"content": " think"}]
    pieces = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in cut]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    async with ModelServer([raw(*pieces, end), fail(400, f"bad {key}")]) as server:
        llm = recorder(server, path, num_retries=1).model_copy(update={"api_key": SecretStr(key)})
        await llm.acompletion(hello(f"What is {key}?"))
        with pytest.raises(LLMBadRequestError):
            await llm.acompletion(hello())
    text = path.read_text()
    said = "".join(piece.get("text", "") for piece in json.loads(text.splitlines()[0])["chunks"])
    assert said == "it is <secret_hidden>, I think"
    assert key not in text
    assert json.dumps(key)[1:-1] not in text
    assert path.stat().st_mode & 0o077 == 0


async def test_a_recording_that_cannot_be_written_is_refused_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with ModelServer([say("never")]) as server:
        llm = recorder(server, tmp_path / "file" / "recording.jsonl")
        await llm.warm_up()
        with pytest.raises(LLMBadRequestError, match="`record_to`"):
            await llm.acompletion(hello())
        assert server.request_count == 0


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
)


@given(JSON_VALUES)
@settings(max_examples=40)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert first_difference(value, json.loads(json.dumps(value))) is None


@pytest.mark.parametrize(
    ("recorded", "asked", "place"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, "a[1] (recorded 2, asked 3)"),
        ({"a": 1}, {}, "a (only recorded)"),
        ({}, {"a": 1}, "a (only asked now)"),
        ({"a": [1]}, {"a": [1, 2]}, "a (recorded 1 items, asked 2)"),
        ({"a": 1}, {"a": True}, "a (recorded 1, asked True)"),
        ({"a": {"b": "same"}}, {"a": {"b": "sane"}}, "a.b (from character 2: recorded 'same', asked 'sane')"),
    ],
)
def test_the_first_difference_is_named_with_its_place(recorded: Any, asked: Any, place: str) -> None:
    assert first_difference(recorded, asked) == place


async def test_half_characters_are_recorded_as_question_marks_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    async with ModelServer([say("ok")]) as server:
        await recorder(server, path).acompletion(hello("broken \ud83d here"))
    assert (await replayer(path).acompletion(hello("broken \ud83d here"))).message.text == "ok"
