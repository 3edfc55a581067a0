"""What is written and told about calls: logs, retries."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.errors import LLMBadRequestError, LLMUnavailableError
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, CallContext
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import fail, say


def model(server: ModelServer, **options: Any) -> LLM:
    own = {"model": "openai/scripted", "base_url": server.url, "api_key": SecretStr("sk-of-the-test")}
    return LLM.model_validate({**own, "retry_min_wait": 0, "retry_max_wait": 0, "timeout": 5, **options})


async def test_each_call_is_written_to_a_file_of_its_own_without_any_key(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "logs"
    async with ModelServer([say("Hello"), fail(503), fail(503, "down for sk-of-the-test")]) as server:
        llm = model(server, log_completions=True, log_completions_folder=str(folder), num_retries=2)
        await llm.acompletion([llm.render(Message.user("my key is sk-of-the-test"))])
        with pytest.raises(LLMUnavailableError):
            await llm.acompletion([llm.render(Message.user("again"))])
    good, bad = sorted(folder.iterdir(), key=lambda path: path.name.endswith("-error.json"))
    assert re.fullmatch(r"openai__scripted-\d+\.\d{3}-[0-9a-f]{4}\.json", good.name)
    assert re.fullmatch(r"openai__scripted-\d+\.\d{3}-[0-9a-f]{4}-error\.json", bad.name)
    entry = json.loads(good.read_text())
    assert entry["messages"] == [{"role": "user", "content": "my key is <secret-hidden>"}]
    assert entry["response"]["content"][0]["text"] == "Hello"
    assert entry["usage"]["prompt_tokens"] == 100
    assert "LLMUnavailableError: " in json.loads(bad.read_text())["error"]
    assert "sk-of-the-test" not in good.read_text() + bad.read_text()


async def test_a_log_that_cannot_be_written_fails_no_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with ModelServer([say("Hello")]) as server:
        llm = model(server, log_completions=True, log_completions_folder=str(tmp_path / "file" / "logs"))
        assert (await llm.acompletion([llm.render(Message.user("Hi"))])).message.text == "Hello"


async def test_a_callback_is_given_what_would_be_written_and_may_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, str] = {}

    def callback(name: str, text: str) -> None:
        given[name] = text
        raise KeyError("sk-of-the-test")

    async with ModelServer([say("Hello"), fail(400, "no")]) as server:
        logs = {"log_completions": True, "log_completions_folder": str(tmp_path / "logs")}
        llm = model(server, **logs, log_completions_callback=callback)
        context = CallContext(prompt_cache_key="c", session_id="s")
        assert (await llm.acompletion([Message.user("sk-of-the-test")], context=context)).message.text == "Hello"
        with pytest.raises(LLMBadRequestError):
            await llm.acompletion([Message.user("Hi")])
    good, bad = given.items()
    entry = json.loads(good[1])
    assert (entry["conversation_id"], entry["session_id"], entry["response_id"][:5]) == ("c", "s", "resp_")
    assert bad[0].endswith("-error.json")
    assert "sk-of-the-test" not in good[1] + caplog.text
    assert not (tmp_path / "logs").exists()
    assert "log_completions_callback" not in llm.model_dump()


async def test_the_listener_of_the_configuration_hears_of_each_retry_and_the_error_of_its_attempt() -> None:
    heard: list[tuple[int, int, type[Exception]]] = []
    async with ModelServer([fail(503), fail(503), fail(503)]) as server:
        llm = model(server, num_retries=3, retry_listener=lambda *told: heard.append((told[0], told[1], type(told[2]))))
        with pytest.raises(LLMUnavailableError) as caught:
            await llm.acompletion([llm.render(Message.user("Hi"))])
    assert heard == [(1, 3, LLMUnavailableError), (2, 3, LLMUnavailableError)]
    assert (caught.value.retry_attempt, caught.value.max_retries) == (3, 3)
    assert "retry_listener" not in llm.model_dump()
