"""Tool calls as text and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import FunctionCallConversionError, FunctionCallNotExistsError, FunctionCallValidationError
from agent_core.events.messages import Message, TextContent
from agent_core.llm.text_protocol import (
    EXAMPLE_END,
    as_text,
    next_number,
    split_batches,
    system_suffix,
    with_call,
    worked_example,
    written,
)

PROPERTIES: dict[str, Any] = {
    "command": {"type": "string", "description": "What to run"},
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "reset": {"type": "boolean"},
    "lines": {"type": "array", "items": {"type": "integer"}},
    "more": {"type": "object", "properties": {"deep": {"type": "string", "description": "Inside"}}},
    "mode": {"type": "string", "enum": ["fast", "slow"]},
    "security_risk": {"type": "string", "enum": ["LOW", "HIGH"]},
}


def tool(name: str, properties: dict[str, Any] | None = None, *required: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties or {}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters}}


TOOLS = [
    tool("terminal", PROPERTIES, "command", "security_risk"),
    tool("file_editor", {"command": {"type": "string"}, "path": {"type": "string"}}, "command"),
    tool("finish", {"message": {"type": "string"}}),
]


def read(text: str, number: int = 1, **options: bool) -> Message:
    return with_call(Message.assistant(text), TOOLS, number, **options)


def arguments_of(message: Message) -> dict[str, Any]:
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    arguments: dict[str, Any] = json.loads(call.arguments)
    return arguments


def call(call_id: str, name: str = "terminal", **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def result(call_id: str, text: str, name: str = "terminal") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}


_texts = st.text(st.characters(codec="utf-8"), max_size=60).filter(
    lambda text: "</parameter>" not in text and "<parameter=" not in text and "\r" not in text
)
_arguments = st.fixed_dictionaries(
    {"command": _texts},
    optional={
        "count": st.integers(),
        "share": st.floats(allow_nan=False, allow_infinity=False),
        "reset": st.booleans(),
        "lines": st.lists(st.integers(), max_size=4),
        "more": st.dictionaries(_texts, _texts, max_size=2),
        "mode": st.sampled_from(["fast", "slow"]),
    },
)


@given(_arguments)
def test_a_call_written_as_text_is_read_back_as_it_was(arguments: dict[str, Any]) -> None:
    text = "I try it.\n\n" + written("terminal", json.dumps(arguments))
    message = read(text)
    assert message.text == "I try it."
    assert arguments_of(message) == arguments


@given(_arguments.filter(lambda arguments: "</function" not in json.dumps(arguments)), st.sampled_from(["", "</"]))
def test_what_the_stop_word_cut_off_is_put_back(arguments: dict[str, Any], left: str) -> None:
    text = written("terminal", json.dumps(arguments)).removesuffix("</function>") + left
    assert arguments_of(read(text)) == arguments


_batches = st.lists(
    st.one_of(
        st.builds(lambda text: [{"role": "user", "content": text}], _texts),
        st.builds(
            lambda number, count: [
                {
                    "role": "assistant",
                    "content": "thought",
                    "tool_calls": [call(f"{number}-{position}", command=f"{position}") for position in range(count)],
                },
                *(result(f"{number}-{position}", f"{number}:{position}") for position in range(count)),
            ],
            st.integers(),
            st.integers(1, 5),
        ),
    ),
    max_size=8,
)


@given(_batches)
def test_a_prompt_in_text_has_every_call_right_before_its_result_in_order(batches: list[list[dict[str, Any]]]) -> None:
    messages = [message for batch in batches for message in batch]
    before = json.dumps(messages)
    prompt = as_text(messages, TOOLS, example=False)
    assert json.dumps(messages) == before
    assert {message["role"] for message in prompt} <= {"system", "user", "assistant"}
    assert not any("tool_calls" in message for message in prompt)
    results = [message for message in messages if message["role"] == "tool"]
    at = [index for index, message in enumerate(prompt) if message["content"].startswith("EXECUTION RESULT of")]
    assert [prompt[index]["content"] for index in at] == [
        f"EXECUTION RESULT of [terminal]:\n{one['content']}" for one in results
    ]
    for index in at:
        assert prompt[index - 1]["role"] == "assistant"
        assert prompt[index - 1]["content"].count("<function=terminal>") == 1
        assert (
            f"<parameter=command>{prompt[index]['content'].rpartition(':')[2]}</parameter>"
            in prompt[index - 1]["content"]
        )


def test_results_that_came_out_of_order_go_to_their_calls() -> None:
    batch = {"role": "assistant", "tool_calls": [call("a", command="1"), call("b", command="2")]}
    split = list(split_batches([batch, result("b", "B"), result("a", "A")]))
    assert [message.get("content") for message in split] == [None, "A", None, "B"]


def test_the_thought_and_the_thinking_of_a_batch_stay_with_its_first_call() -> None:
    batch = {
        "role": "assistant",
        "content": "thought",
        "reasoning_content": "hm",
        "tool_calls": [call("a"), call("b")],
    }
    first, second = split_batches([batch])
    assert first["reasoning_content"] == "hm"
    assert second == {"role": "assistant", "tool_calls": [call("b")]}


def test_the_system_prompt_lists_the_functions_and_the_rules() -> None:
    system, user = as_text(
        [{"role": "system", "content": "You help."}, {"role": "user", "content": "Hi"}], TOOLS, example=False
    )
    text = system["content"]
    assert text.startswith("You help.\n\n")
    for part in (
        "Function 1: terminal",
        "Description: Does terminal.",
        "(1) command (string, required): What to run",
        "(2) count (integer, optional)",
        "(5) lines (array of integer, optional)",
        "- deep (string, optional): Inside",
        "(7) mode (string, optional) Allowed values: `fast`, `slow`.",
        "Function 3: finish",
        "<function=NAME>",
    ):
        assert part in text
    assert user == {"role": "user", "content": "Hi"}


def test_the_functions_stand_in_the_block_that_every_conversation_shares() -> None:
    blocks = [
        {"type": "text", "text": "static", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "own"},
    ]
    (system,) = as_text([{"role": "system", "content": blocks}], TOOLS, example=False)
    assert "Function 1: terminal" in system["content"][0]["text"]
    assert system["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert system["content"][1] == blocks[1]


def test_a_prompt_without_a_system_message_gets_one() -> None:
    system, _ = as_text([{"role": "user", "content": "Hi"}], TOOLS, example=False)
    assert system["role"] == "system"
    assert system["content"] == system_suffix(TOOLS).strip()


def test_without_tools_nothing_is_said_of_them() -> None:
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Hi"}]
    assert as_text(messages, [], example=True) == messages


def test_the_first_message_of_the_user_follows_an_example_made_of_the_tools_there_are() -> None:
    messages = [{"role": "user", "content": "Do it"}, {"role": "user", "content": "Go on"}]
    _, first, second = as_text(messages, TOOLS, example=True)
    assert first["content"].endswith(f"{EXAMPLE_END}Do it")
    assert "<function=file_editor>" in first["content"]
    assert second["content"] == "Go on"
    only_terminal = worked_example([TOOLS[0]])
    assert "<function=terminal>" in only_terminal
    assert "file_editor" not in only_terminal
    assert "finish" not in only_terminal
    assert worked_example([tool("weather")]) == ""


def test_an_image_of_a_result_stays_and_the_mark_of_the_message_goes_to_its_last_part() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    mark = {"type": "ephemeral"}
    shown = {**result("a", ""), "content": [{"type": "text", "text": "seen"}, image], "cache_control": mark}
    plain = {**result("a", "seen"), "cache_control": mark}
    first, second = as_text([shown, plain], [], example=False)
    assert first["role"] == "user"
    assert first["content"][0]["text"] == "EXECUTION RESULT of [terminal]:\nseen"
    assert first["content"][1] == {**image, "cache_control": mark}
    assert second["content"] == [
        {"type": "text", "text": "EXECUTION RESULT of [terminal]:\nseen", "cache_control": mark}
    ]


def test_arguments_that_are_no_object_cannot_be_written() -> None:
    with pytest.raises(FunctionCallConversionError, match="not a JSON object"):
        written("terminal", "[1]")


def test_calls_are_numbered_from_one_and_no_number_comes_again() -> None:
    assert next_number([]) == 1
    history = [{"role": "assistant", "tool_calls": [call("call_x"), call("call_y")]}]
    assert next_number(history) == 3
    assert next_number([{"role": "assistant", "tool_calls": [call("toolu_07")]}]) == 8
    message = read("<function=finish>\n</function>", number=3)
    assert message.tool_calls is not None
    assert message.tool_calls[0].id == "toolu_03"


@pytest.mark.parametrize(
    "text",
    [
        "Think.</think>\n<tool_call>\n<function=terminal>\n<parameter=command>ls</parameter>\n</function>\n</tool_call>",
        "Think.\n<function=terminal>\n<parameter=command=ls</parameter>\n</function>",
        "Think.\n<function=execute_bash>\n<parameter=command>\nls\n</parameter>\n</function>",
        "Think.\n<function=bash><parameter=command>ls</parameter></function> And then I wait.",
        "Think.\n<function=terminal>\n<parameter=command>ls</parameter>\n</",
        "Think.\n<function=terminal>\n<parameter=command>ls</parameter>\n",
        "Think.\n<function=terminal>\r\n<parameter=command>\r\nls\r\n</parameter>\r\n</function>",
        "Think.\n<function=terminal>\n<parameter=command>ls</parameter>\n</function>\n<function=finish>\n</function>",
    ],
)
def test_what_models_get_wrong_about_the_form_is_forgiven(text: str) -> None:
    message = read(text)
    assert message.text == "Think."
    assert message.tool_calls is not None
    assert message.tool_calls[0].name == "terminal"
    assert arguments_of(message) == {"command": "ls"}


def test_a_value_out_of_a_list_may_stand_among_white_space() -> None:
    text = "<function=terminal>\n<parameter=command>ls</parameter>\n<parameter=mode> fast\n </parameter>\n</function>"
    assert arguments_of(read(text)) == {"command": "ls", "mode": "fast"}


def test_a_risk_may_be_said_of_a_function_that_does_not_ask_for_it() -> None:
    text = (
        "<function=finish>\n<parameter=message>Done.</parameter>\n<parameter=security_risk>LOW</parameter>\n</function>"
    )
    assert arguments_of(read(text)) == {"message": "Done.", "security_risk": "LOW"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<function=teleport>\n</function>", r"no function 'teleport'.*\['file_editor', 'finish', 'terminal'\]"),
        ("<function=terminal>\n<parameter=speed>9</parameter>\n</function>", "no parameter 'speed'"),
        ("<function=terminal>\n</function>", r"lacks the required parameters \['command'\]"),
        ("<function=terminal>\n<parameter=command>x</parameter><parameter=count>two</parameter></function>", "integer"),
        ("<function=terminal>\n<parameter=command>x</parameter><parameter=share>true</parameter></function>", "number"),
        ("<function=terminal>\n<parameter=command>x</parameter><parameter=lines>1, 2</parameter></function>", "array"),
        ("<function=terminal>\n<parameter=command>x</parameter><parameter=more>[]</parameter></function>", "object"),
        ("<function=terminal>\n<parameter=command>x</parameter><parameter=reset>si</parameter></function>", "true or"),
        ("<function=terminal>\n<parameter=command>x</parameter><parameter=mode>odd</parameter></function>", "one of"),
        ("<function=terminal>\n<parameter=command>x</function>", "'command' has no end"),
    ],
)
def test_a_call_that_cannot_be_says_what_is_wrong_with_it(text: str, complaint: str) -> None:
    with pytest.raises(FunctionCallValidationError, match=complaint):
        read(text)


def test_a_call_that_was_cut_off_at_the_output_limit_is_never_run() -> None:
    half = "<function=terminal>\n<parameter=command>rm -rf build</parameter>\n"
    assert read(half).tool_calls
    with pytest.raises(FunctionCallValidationError, match="cut off"):
        read(half, is_cut=True)
    assert read(half + "</function>", is_cut=True).tool_calls


@pytest.mark.parametrize("before", [" " * 200_000, "\n" * 200_000 + "</think>", "<tool_call>\n" * 8 + "\n"])
def test_white_space_and_tags_before_a_call_are_left_out(before: str) -> None:
    message = read(f"Yes.{before}<function=finish>\n</function>")
    assert message.text == "Yes."
    assert message.tool_calls


def test_a_function_that_there_is_not_is_an_error_of_its_own() -> None:
    with pytest.raises(FunctionCallNotExistsError, match=r"no function 'fly'\. Available: \['file_editor'"):
        read("<function=fly>\n</function>")


def test_text_without_a_call_is_left_alone() -> None:
    for text in ("Hello", "Use <function=NAME> and so on <function=NAME>", "<function"):
        assert read(text) == Message.assistant(text)
    several = Message(
        role="assistant", content=[TextContent(text="a"), TextContent(text="<function=finish></function>")]
    )
    assert [part.text for part in with_call(several, TOOLS, 1).content if isinstance(part, TextContent)] == ["a"]


@given(st.text(max_size=200), st.sampled_from(["", "<function=terminal>", "<parameter=command>", "</function>"]))
def test_nothing_that_a_model_writes_raises_anything_but_a_refusal(text: str, piece: str) -> None:
    try:
        message = read(f"{text}{piece}{text}{piece}")
    except FunctionCallValidationError:
        return
    for one in message.tool_calls or ():
        assert isinstance(json.loads(one.arguments), dict)


ODD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"count": {"type": "integer", "description": "How many"}, "loop": {"$ref": "#/$defs/loop"}},
    "properties": {
        "anything": True,
        "count": {"$ref": "#/$defs/count"},
        "maybe": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
        "either": {"type": ["null", "number"]},
        "loop": {"$ref": "#/$defs/loop"},
        "elsewhere": {"$ref": "https://example.com/schema"},
        "list": {"type": "array", "items": True},
        "inner": {"type": "object", "properties": {"x": False}, "required": "x"},
    },
    "required": ["count", 5],
}


def test_the_schemas_of_other_peoples_tools_are_told_and_read_whatever_they_are_like() -> None:
    tools = [{"type": "function", "function": {"name": "odd", "description": "Odd.", "parameters": ODD_SCHEMA}}]
    told = system_suffix(tools)
    assert "(2) count (integer, required): How many" in told
    assert "(3) maybe (boolean, optional)" in told
    assert "(4) either (number, optional)" in told
    text = written("odd", json.dumps({"anything": "x", "count": 3, "maybe": True, "either": 1.5}))
    read_back = with_call(Message.assistant(text), tools, 1)
    assert arguments_of(read_back) == {"anything": "x", "count": 3, "maybe": True, "either": 1.5}
    endless = {f"d{n}": {"properties": {key: {"$ref": f"#/$defs/d{n + 1}"} for key in "abcd"}} for n in range(50)}
    unusual: list[dict[str, Any]] = [{}, {"properties": []}, {"properties": {"a": {"enum": "b"}}}, {"$defs": []}]
    for parameters in [*unusual, {"$defs": endless, "properties": {"a": {"$ref": "#/$defs/d0"}}}]:
        system_suffix([{"type": "function", "function": {"name": "n", "parameters": parameters}}])


def test_a_function_that_says_nothing_of_its_parameters_takes_none() -> None:
    bare = {"type": "function", "function": {"name": "status"}}
    assert "Function 1: status\nDescription:\nIt takes no parameters." in system_suffix([bare])
