"""Calls of a model: repaired where the meaning is plain, refused in words that it can act on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.agent.tool_calls import ParsedCall, parse_call
from agent_core.events.messages import MessageToolCall
from agent_core.events.schema import Action
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.file_editor import FileEditorAction
from agent_core.tools.presets import get_builtin_tools, get_default_tools
from agent_core.tools.registry import resolve_tools
from agent_core.tools.terminal import TerminalAction

TOOLS = resolve_tools([*get_default_tools(enable_browser=False), *get_builtin_tools()])


def parse(name: str, arguments: str | dict[str, object]) -> ParsedCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return parse_call(MessageToolCall(id="c1", name=name, arguments=text), TOOLS)


def test_a_good_call_becomes_a_typed_action_without_the_extras() -> None:
    parsed = parse("terminal", {"command": "ls", "security_risk": "LOW", "summary": "list files"})
    assert parsed.action == TerminalAction(command="ls")
    assert (parsed.security_risk, parsed.summary) == ("LOW", "list files")
    assert json.loads(parsed.call.arguments)["security_risk"] == "LOW"


@pytest.mark.parametrize(
    ("name", "arguments", "tool", "expected"),
    [
        ("execute_bash", {"command": "ls"}, "terminal", TerminalAction(command="ls")),
        ("git", {"command": "status"}, "terminal", TerminalAction(command="git status")),
        ("git", {"command": "git log"}, "terminal", TerminalAction(command="git log")),
        ("execute", {"command": ["cd /", "ls"]}, "terminal", TerminalAction(command="cd /\nls")),
        ("reset", {"security_risk": " low "}, "terminal", TerminalAction(command="reset")),
        ("pwd", {}, "terminal", TerminalAction(command="pwd")),
        ("terminal\n", {"command": "ls"}, "terminal", TerminalAction(command="ls")),
        (
            "str_replace_editor",
            {"path": "/a"},
            "file_editor",
            FileEditorAction(command="view", path="/a"),
        ),
        (
            "str_replace_editor",
            {"path": "/a", "file_text": "x"},
            "file_editor",
            FileEditorAction(command="create", path="/a", file_text="x"),
        ),
        (
            "str_replace_editor",
            {"path": "/a", "insert_line": 3, "new_str": "x"},
            "file_editor",
            FileEditorAction(command="insert", path="/a", insert_line=3, new_str="x"),
        ),
        (
            "str_replace_editor",
            {"path": "/a", "old_str": "x", "insert_line": 3},
            "file_editor",
            FileEditorAction(command="str_replace", path="/a", old_str="x", insert_line=3),
        ),
        ("ls", {"security_risk": "LOW", "summary": "what is there"}, "terminal", TerminalAction(command="ls")),
        (
            "str_replace_editor",
            {"path": "/a", "view_range": [1, 2], "summary": "look"},
            "file_editor",
            FileEditorAction(command="view", path="/a", view_range=[1, 2]),
        ),
        (
            "str_replace",
            {"path": "/a", "old_str": "x", "new_str": "y"},
            "file_editor",
            FileEditorAction(command="str_replace", path="/a", old_str="x", new_str="y"),
        ),
    ],
)
def test_names_that_models_use_for_our_tools_are_understood(
    name: str, arguments: dict[str, object], tool: str, expected: object
) -> None:
    parsed = parse(name, arguments)
    assert parsed.tool_name == tool
    assert parsed.action == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"command": "a\nb"}', "a\nb"),
        ('{"command": "ls"} and then some', "ls"),
        ('{"command": ["cd /", "ls"]}', "cd /\nls"),
        ('{"command": "ls", "timeout": null}', "ls"),
        ('{"command": "ls", "is_input": "false"}', "ls"),
        ('{"command": "ls", "timeout": "30"}', "ls"),
        ('{"command": "ls", "securtiy_risk": "HIGH"}', "ls"),
    ],
)
def test_arguments_are_repaired_where_their_meaning_is_plain(arguments: str, expected: str) -> None:
    parsed = parse("terminal", arguments)
    assert isinstance(parsed.action, TerminalAction)
    assert parsed.action.command == expected


def test_a_search_without_the_tool_for_it_becomes_a_command() -> None:
    parsed = parse("grep", {"pattern": "it's", "path": "/a b", "include": "*.py", "security_risk": "LOW"})
    assert isinstance(parsed.action, TerminalAction)
    assert parsed.action.command == """grep -rnE '--include=*.py' -- 'it'"'"'s' '/a b'"""
    assert parsed.security_risk == "LOW"
    assert json.loads(parsed.call.arguments)["security_risk"] == "LOW"


@pytest.mark.parametrize("arguments", ["[1, 2]", '"ls"', "3", "null", "true", ""])
def test_arguments_that_are_no_object_count_as_none_at_all(arguments: str) -> None:
    parsed = parse("terminal", arguments)
    assert "command: Field required" in parsed.error
    assert json.loads(parsed.call.arguments) == {}
    assert parse("pwd", arguments).action == TerminalAction(command="pwd")


def test_a_call_that_says_nothing_of_itself_is_summed_up_by_its_tool_and_arguments() -> None:
    assert parse("terminal", {"command": "l\u00f6sche"}).summary == 'terminal: {"command": "l\u00f6sche"}'
    assert len(parse("terminal", {"command": "x" * 1000}).summary) == 200


def test_an_edit_that_says_neither_what_to_do_nor_only_where_is_refused() -> None:
    parsed = parse("str_replace_editor", {"path": "/a", "new_str": "x"})
    assert parsed.action is None
    assert "command is missing" in parsed.error
    assert "Parameters provided: ['new_str', 'path']" in parsed.error


@pytest.mark.parametrize("text", ["[1, 5]", " [1, 5]]}", "[1, 5] (five lines)"])
def test_json_text_for_a_list_is_read_and_what_follows_it_is_cut(text: str) -> None:
    parsed = parse("file_editor", {"command": "view", "path": "/a", "view_range": text})
    assert parsed.action == FileEditorAction(command="view", path="/a", view_range=[1, 5])
    assert json.loads(parsed.call.arguments) == {"command": "view", "path": "/a", "view_range": [1, 5]}


class SortAction(Action):
    rows: list[str] | str = ""
    heading: str | list[str] = ""
    limit: int | None = None
    by: dict[str, int] | None = None


SORT = {"sort": ToolDefinition(name="sort", description="Sorts.", action_type=SortAction)}


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ({"rows": '["a"]'}, SortAction(rows='["a"]')),
        ({"heading": ["a", "b"]}, SortAction(heading=["a", "b"])),
        ({"heading": " a "}, SortAction(heading=" a ")),
        ({"by": '{"a": 1} as you said'}, SortAction(by={"a": 1})),
        ({"limit": " 5 "}, SortAction(limit=5)),
    ],
)
def test_what_fits_as_it_is_is_not_repaired(given: dict[str, object], understood: SortAction) -> None:
    parsed = parse_call(MessageToolCall(id="c1", name="sort", arguments=json.dumps(given)), SORT)
    assert parsed.action == understood


def test_a_risk_that_is_spelled_right_counts_before_one_that_is_not() -> None:
    parsed = parse("terminal", {"command": "ls", "security_risk": "HIGH", "securtiy_risk": "LOW"})
    assert parsed.security_risk == "HIGH"


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_what_is_no_number_counts_as_not_given_and_is_not_sent_back(number: str) -> None:
    parsed = parse("terminal", f'{{"command": "ls", "timeout": {number}}}')
    assert parsed.action == TerminalAction(command="ls")
    assert json.loads(parsed.call.arguments) == {"command": "ls"}


def test_an_unknown_tool_is_named_with_those_there_are() -> None:
    parsed = parse("teleport", {})
    assert parsed.action is None
    assert (
        parsed.error
        == "Tool 'teleport' not found. Available: ['file_editor', 'finish', 'task_tracker', 'terminal', 'think']"
    )


def test_bad_arguments_are_refused_with_keys_and_never_with_values() -> None:
    parsed = parse("terminal", {"comand": "echo my-secret-value", "timeout": -1})
    assert parsed.action is None
    assert "my-secret-value" not in parsed.error
    assert "Parameters provided: ['comand', 'timeout']" in parsed.error
    assert "command: Field required" in parsed.error


def test_a_call_cannot_pass_itself_off_as_the_call_of_another_tool() -> None:
    parsed = parse("terminal", {"command": "ls", "kind": "FinishAction"})
    assert parsed.action is None
    assert "kind: Extra inputs are not permitted" in parsed.error
    assert parse("terminal", {"command": "ls", "kind": "TerminalAction"}).action == TerminalAction(command="ls")


def test_an_invalid_risk_is_refused_with_the_valid_ones() -> None:
    assert "['HIGH', 'LOW', 'MEDIUM', 'UNKNOWN']" in parse("terminal", {"command": "x", "security_risk": "meh"}).error


def test_the_risk_of_a_read_only_tool_counts_for_nothing() -> None:
    assert parse("think", {"thought": "hm", "security_risk": "HIGH"}).security_risk == "UNKNOWN"


def test_half_a_json_is_refused_and_what_is_kept_is_valid_json() -> None:
    parsed = parse("terminal", '{"command": "ls')
    assert parsed.action is None
    assert "could not be parsed" in parsed.error
    assert json.loads(parsed.call.arguments)["_openhands_malformed_tool_call"] is True


def test_a_name_that_no_provider_would_take_back_is_made_harmless() -> None:
    parsed = parse("no such <tool>!" + "x" * 1000, {})
    assert len(parsed.tool_name) <= 64
    assert parsed.call.name == parsed.tool_name
    assert parsed.tool_name.replace("_", "").replace("-", "").isalnum()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
)


@given(
    st.sampled_from(["terminal", "file_editor", "think", "finish", "bash", "nope", ""]) | st.text(),
    st.text() | json_values.map(json.dumps) | st.dictionaries(st.text(), json_values).map(json.dumps),
)
def test_nothing_that_a_model_sends_raises_and_everything_kept_is_valid(name: str, arguments: str) -> None:
    parsed = parse(name, arguments)
    assert (parsed.action is None) == bool(parsed.error)
    assert isinstance(json.loads(parsed.call.arguments), dict)
    parsed.call.arguments.encode()
    assert len(parsed.error) < 5_000


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"a":' * 50_000, '{"command": "' + "x" * 1_000_000 + '"}'])
def test_extreme_arguments_are_answered(arguments: str) -> None:
    parsed = parse("terminal", arguments)
    assert (parsed.action is None) == bool(parsed.error)


@pytest.mark.parametrize("name", ["terminal", "nonesuch", "task_tracker"])
@pytest.mark.parametrize("deep", ['{"a":' * 300 + "1" + "}" * 300, "[" * 600 + "]" * 600, "[" * 100_000])
def test_arguments_that_are_nested_too_deeply_are_refused(name: str, deep: str) -> None:
    parsed = parse(name, f'{{"task_list": {deep}}}')
    assert parsed.action is None
    assert "nested too deeply" in parsed.error
    assert json.loads(parsed.call.arguments)["_openhands_malformed_tool_call"] is True


def test_json_text_that_is_nested_too_deeply_is_not_read() -> None:
    parsed = parse("task_tracker", {"command": "plan", "task_list": "[" * 300 + "]" * 300})
    assert parsed.action is None
    assert "task_list" in parsed.error


def test_half_characters_in_json_text_are_made_whole() -> None:
    parsed = parse("task_tracker", {"command": "plan", "task_list": '[{"title": "a\\ud83d"}]'})
    assert parsed.action is not None
    parsed.action.model_dump_json()


def test_a_tool_that_fails_at_reading_its_arguments_is_a_call_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: ToolDefinition, arguments: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(ToolDefinition, "action_from_arguments", fails)
    parsed = parse("terminal", {"command": "ls"})
    assert parsed.action is None
    assert "the tool cannot read them (KeyError). Parameters provided: ['command']" in parsed.error
    assert "secret" not in parsed.error
