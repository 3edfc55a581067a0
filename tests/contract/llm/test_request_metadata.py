"""What a request tells its provider of the conversation: nothing unless that is configured, and then what is chosen."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from agent_core.errors import LLMUnavailableError
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, CallContext
from agent_core.llm.profiles import FallbackStrategy
from agent_core.llm.registry import ProfileStore
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import fail, say
from agent_core.version import VERSION

CONTEXT = CallContext(session_id="conv-1", agent="CodeActAgent", user_id="u-7", tags=("repository:ours/shop",))


def model(server: ModelServer, **options: Any) -> LLM:
    own = {"model": "openai/scripted", "base_url": server.url, "api_key": SecretStr("sk-of-the-test")}
    return LLM.model_validate({**own, "num_retries": 1, **options})


async def told(context: CallContext = CONTEXT, **options: Any) -> dict[str, Any]:
    """The body of a request of a model with these options."""
    async with ModelServer([say("ok")]) as server:
        await model(server, **options).acompletion([Message.user("Hello")], context=context)
        body: dict[str, Any] = server.last_request.json
    return body


async def test_nothing_is_told_where_no_metadata_is_configured() -> None:
    assert "metadata" not in await told()
    assert "metadata" not in await told(litellm_extra_body={"min_p": 0.1})


async def test_what_is_known_of_the_conversation_joins_the_metadata_that_is_configured() -> None:
    body = await told(litellm_extra_body={"min_p": 0.1, "metadata": {"team": "blue", "tags": ["eu", "eu"]}})
    assert body["min_p"] == 0.1
    assert body["metadata"] == {
        "team": "blue",
        "session_id": "conv-1",
        "trace_user_id": "u-7",
        "trace_version": VERSION,
        "tags": [
            *("eu", "model:openai/scripted", "agent:CodeActAgent", "usage_id:default"),
            *(f"drydock_version:{VERSION}", "repository:ours/shop"),
        ],
    }


async def test_an_empty_object_is_enough_and_what_is_not_known_is_left_out() -> None:
    body = await told(CallContext(session_id="conv-1"), litellm_extra_body={"metadata": {}})
    tags = ["model:openai/scripted", "usage_id:default", f"drydock_version:{VERSION}"]
    assert body["metadata"] == {"session_id": "conv-1", "trace_version": VERSION, "tags": tags}


async def test_only_the_chosen_facts_are_told_and_configured_ones_count_before_them() -> None:
    chosen: dict[str, Any] = {"request_metadata": ["session_id", "trace_version"]}
    body = await told(litellm_extra_body={"metadata": {"trace_version": "mine"}}, **chosen)
    assert body["metadata"] == {"session_id": "conv-1", "trace_version": "mine"}
    assert (await told(litellm_extra_body={"metadata": {"a": "b"}}, request_metadata=[]))["metadata"] == {"a": "b"}


async def test_metadata_of_a_form_of_its_own_stays_as_it_is() -> None:
    assert (await told(litellm_extra_body={"metadata": "team-blue"}))["metadata"] == "team-blue"


def test_an_unknown_fact_is_refused() -> None:
    with pytest.raises(ValidationError, match="session_id"):
        LLM.model_validate({"request_metadata": ["session"]})


async def test_the_responses_api_is_told_too() -> None:
    context = CallContext(session_id="conv-1")
    async with ModelServer([say("ok")]) as server:
        llm = model(server, litellm_extra_body={"metadata": {}}, request_metadata=["session_id"])
        await llm.aresponses([Message.user("Hello")], context=context)
        assert server.last_request.path.endswith("/responses")
        assert server.last_request.json["metadata"] == {"session_id": "conv-1"}


async def test_a_fallback_is_told_only_if_it_is_configured_itself(tmp_path: Any) -> None:
    async with ModelServer([fail(503), say("ok"), fail(503), fail(503)]) as server:
        store = ProfileStore(tmp_path)
        store.save("plain", model(server, model="openai/plain", retry_min_wait=0), include_secrets=True)
        strategy = FallbackStrategy(fallback_llms=["plain"], profile_store_dir=str(tmp_path))
        first = model(server, litellm_extra_body={"metadata": {}}, fallback_strategy=strategy, retry_min_wait=0)
        await first.acompletion([Message.user("Hello")], context=CONTEXT)
        assert ["metadata" in request.json for request in server.requests] == [True, False]
        with pytest.raises(LLMUnavailableError):
            await first.acompletion([Message.user("Hello")], context=CONTEXT)
