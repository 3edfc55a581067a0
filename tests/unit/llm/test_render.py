from __future__ import annotations

import json
from typing import Any

from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.llm.llm import LLM
from agent_core.llm.render import MAX_TOOL_TEXT, TEXT_SLACK, cut_middle, hoist_images, mark_cache
from agent_core.llm.router import RandomRouter

PLAIN = LLM(model="openai/local", base_url="http://localhost/v1")
CLAUDE = LLM(model="anthropic/claude-sonnet-4-5")
IMAGE = "data:image/png;base64,AAAA"


def test_text_is_one_string() -> None:
    message = Message(role="user", content=[TextContent(text="one"), TextContent(text="two")])
    assert PLAIN.render(message) == {"role": "user", "content": "one\ntwo"}


def test_images_go_along_with_the_text() -> None:
    assert PLAIN.render(Message.user("look", image_urls=[IMAGE])) == {
        "role": "user",
        "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": IMAGE}}],
    }


def test_images_are_left_out_for_a_model_that_sees_nothing() -> None:
    message = Message.user("look", image_urls=[IMAGE])
    assert LLM(model="openai/gpt-3.5-turbo").render(message) == {"role": "user", "content": "look"}
    blind = PLAIN.model_copy(update={"disable_vision": True})
    assert blind.render(message) == {"role": "user", "content": "look"}


def test_an_assistants_calls_are_rendered_and_blank_text_beside_them_is_left_out() -> None:
    calls = [MessageToolCall(id="a", name="terminal", arguments='{"command": "ls"}')]
    wire_calls = [{"id": "a", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}]
    silent = Message(role="assistant", content=[TextContent(text=" ")], tool_calls=calls)
    assert PLAIN.render(silent) == {"role": "assistant", "tool_calls": wire_calls}
    speaking = Message(role="assistant", content=[TextContent(text="Look:")], tool_calls=calls)
    assert PLAIN.render(speaking) == {"role": "assistant", "tool_calls": wire_calls, "content": "Look:"}


def test_a_result_names_its_call_and_is_cut_where_it_is_too_long() -> None:
    message = Message(role="tool", content=[TextContent(text="x" * 60_000)] * 2, tool_call_id="a", name="terminal")
    wire = PLAIN.render(message)
    assert (wire["role"], wire["tool_call_id"], wire["name"]) == ("tool", "a", "terminal")
    assert len(wire["content"]) == MAX_TOOL_TEXT + 1 == 50_001  # with the line end between both
    assert wire["content"].index("left out") < PLAIN.max_message_chars
    assert wire["content"].count("left out") == 2


def test_each_text_of_a_result_is_as_long_as_configured_or_a_little_longer() -> None:
    def shown(length: int) -> int:
        message = Message(role="tool", content=[TextContent(text="x" * length)], tool_call_id="a")
        return len(LLM(model="openai/local", max_message_chars=1000).render(message)["content"])

    assert [shown(1000), shown(1000 + TEXT_SLACK), shown(1001 + TEXT_SLACK)] == [1000, 1000 + TEXT_SLACK, 1000]
    user = Message.user("x" * 2000)
    assert LLM(model="openai/local", max_message_chars=1000).render(user)["content"] == "x" * 2000


def test_reasoning_goes_back_only_to_models_that_want_it() -> None:
    message = Message(role="assistant", content=[TextContent(text="Yes")], reasoning_content="because")
    assert "reasoning_content" not in PLAIN.render(message)
    assert LLM(model="deepseek/deepseek-reasoner").render(message)["reasoning_content"] == "because"


def test_thinking_blocks_go_back_unchanged_to_the_model_that_signed_them() -> None:
    blocks = [{"type": "thinking", "thinking": "Hm", "signature": "s"}]
    message = Message(role="assistant", content=[TextContent(text="Yes")], thinking_blocks=blocks)
    assert CLAUDE.render(message)["thinking_blocks"] == blocks
    assert "thinking_blocks" not in PLAIN.render(message)


def test_only_the_marked_part_of_a_system_prompt_is_marked_and_only_for_models_that_want_it() -> None:
    message = Message(role="system", content=[TextContent(text="static", cache_prompt=True), TextContent(text="today")])
    assert PLAIN.render(message) == {"role": "system", "content": "static\ntoday"}
    content = CLAUDE.render(message)["content"]
    assert [("cache_control" in part) for part in content] == [True, False]
    off = CLAUDE.model_copy(update={"caching_prompt": False})
    assert off.render(message)["content"] == "static\ntoday"


def test_rendering_is_the_same_every_time() -> None:
    message = Message(role="system", content=[TextContent(text="static", cache_prompt=True)])
    assert CLAUDE.render(message) == CLAUDE.render(message)


def test_the_moving_mark_stands_on_the_last_user_or_tool_message_of_a_copy() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "static"},
        {"role": "user", "content": "do it"},
        {"role": "assistant", "tool_calls": []},
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}],
        },
        {"role": "assistant", "content": "hm"},
    ]
    before = json.dumps(messages)
    marked = mark_cache(messages)
    assert json.dumps(messages) == before
    places = [index for index, message in enumerate(marked) if "cache_control" in json.dumps(message)]
    assert places == [0, 3]
    assert marked[3]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(marked[3]["content"])
    assert mark_cache([]) == []


def test_images_of_results_follow_the_whole_batch_as_a_message_of_the_user() -> None:
    image = {"type": "image_url", "image_url": {"url": IMAGE}}
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "seen"}, image]},
        {"role": "tool", "tool_call_id": "b", "content": "plain"},
        {"role": "assistant", "content": "fine"},
        {"role": "tool", "tool_call_id": "c", "content": [image]},
    ]
    hoisted = hoist_images(messages)
    assert [message["role"] for message in hoisted] == ["tool", "tool", "user", "assistant", "tool", "user"]
    assert hoisted[0]["content"] == "seen"
    assert hoisted[2]["content"][-1] == image
    assert hoist_images(messages[1:3]) == messages[1:3]


def test_the_middle_is_left_out_and_the_limit_kept() -> None:
    assert cut_middle("short", 10) == "short"
    for limit in (3, 30, 60, 999):
        assert len(cut_middle("y" * 1000, limit)) == limit


def test_a_router_keeps_what_any_of_its_models_may_want_and_each_call_leaves_out_what_its_model_does_not() -> None:
    plain, thinking = LLM(model="openai/plain"), LLM(model="anthropic/claude-sonnet-4-5")
    responding = LLM(model="openai/gpt-5", api_mode="responses")
    router = RandomRouter(llms_for_routing={"plain": plain, "thinking": thinking, "responding": responding})
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    item = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"}
    calls = [MessageToolCall(id="c", name="ls", arguments="{}", responses_item_id="fc")]
    assert router.render(Message(role="assistant", thinking_blocks=[thought]))["thinking_blocks"] == [thought]
    wire = router.render(
        Message(role="assistant", reasoning_content="Hm.", thinking_blocks=[thought, item], tool_calls=calls)
    )
    (for_plain,), (for_thinking,), (for_responding,) = (one.adapted([wire]) for one in (plain, thinking, responding))
    assert for_plain.keys() == {"role", "tool_calls"}
    assert "item_id" not in for_plain["tool_calls"][0]
    assert for_thinking["thinking_blocks"] == [thought]
    assert for_responding["thinking_blocks"] == [item]
    assert for_responding["tool_calls"][0]["item_id"] == "fc"
