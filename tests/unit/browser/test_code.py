"""The lines of the `browser` tool: parsed, never run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.tools.browser_code import FUNCTIONS, BrowserCodeAction, BrowserTool, parse

FIFTEEN = (
    *(
        "goto",
        "go_back",
        "go_forward",
        "noop",
        "scroll",
        "fill",
        "select_option",
        "click",
        "dblclick",
        "hover",
        "press",
    ),
    *("focus", "clear", "drag_and_drop", "upload_file"),
)


@pytest.mark.parametrize(
    ("code", "name", "args"),
    [
        ("goto('http://www.example.com')", "navigate", {"url": "http://www.example.com"}),
        ("go_back()", "back", {}),
        ("go_forward()", "forward", {}),
        ("noop()", "wait", {"ms": 1000}),
        ("noop(500)", "wait", {"ms": 500}),
        ("scroll(-50.2, -100.5)", "wheel", {"x": -50.2, "y": -100.5}),
        ("fill('45', 'multi-line\\nexample')", "fill", {"id": 45, "text": "multi-line\nexample"}),
        ("select_option('48', 'blue')", "select", {"id": 48, "options": ["blue"]}),
        ("select_option('48', ['red', 'green'])", "select", {"id": 48, "options": ["red", "green"]}),
        ("click('51')", "click", {"id": 51, "button": "left", "modifiers": []}),
        ("click(51, button='right')", "click", {"id": 51, "button": "right", "modifiers": []}),
        (
            "click('48', button='middle', modifiers=['Shift'])",
            "click",
            {"id": 48, "button": "middle", "modifiers": ["Shift"]},
        ),
        ("dblclick('12')", "click", {"id": 12, "button": "left", "modifiers": [], "times": 2}),
        ("hover('8')", "hover", {"id": 8}),
        ("press('26', 'ControlOrMeta+a')", "press", {"id": 26, "keys": "ControlOrMeta+a"}),
        ("focus('455')", "focus", {"id": 455}),
        ("clear('996')", "clear", {"id": 996}),
        ("drag_and_drop('56', '498')", "drag", {"from": 56, "to": 498}),
        ("upload_file('572', 'receipt.pdf')", "upload", {"id": 572, "files": ["receipt.pdf"]}),
        ("upload_file('63', [])", "upload", {"id": 63, "files": []}),
    ],
)
def test_each_function_is_read(code: str, name: str, args: dict[str, Any]) -> None:
    assert [tuple(call) for call in parse(code)] == [(name, args)]


def test_there_are_fifteen_functions_and_all_are_described() -> None:
    assert tuple(FUNCTIONS) == FIFTEEN
    described = BrowserTool.create()[0].to_openai_tool()["function"]["parameters"]["properties"]["code"]["description"]
    assert all(f"{name}(" in described for name in FIFTEEN)


def test_several_calls_are_read_in_order_without_comments() -> None:
    read = parse("fill('1', 'a')  # the name\n\n# then\npress('1', 'Enter'); noop()")
    assert [call.name for call in read] == ["fill", "press", "wait"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "no call; the functions are goto, go_back"),
        ("import os", "line 1 of code is not a call"),
        ("x = click('1')", "line 1 of code is not a call"),
        ("goto('a')\nos.system('ls')", "line 2 of code is not a call"),
        ("eval('1')", "line 1 of code calls 'eval'; the functions are"),
        ("goto(open('/etc/passwd').read())", "the arguments of goto must be constants"),
        ("goto('a' + 'b')", "the arguments of goto must be constants"),
        ("goto(", "line 1 of code cannot be read"),
        ("click()", "click: bid: Missing required argument"),
        ("click('a51')", "bid 'a51' is no element's; take the number in brackets"),
        ("click('1', button='up')", "click: button: Input should be 'left', 'middle' or 'right'"),
        ("noop(99999999)", "noop: wait_ms: Input should be less than or equal to 60000"),
        ("fill('1')", "fill: value: Missing required argument"),
        ("fill('1', 'a', 'b')", "Unexpected positional argument"),
        ("click('1', **{'button': 'left'})", "Unexpected keyword argument"),
        ("noop()\n" * 51, "code has 51 calls, the limit is 50"),
        ("#" * 200_001, "code has 200001 characters, the limit is 200000"),
        ("(" * 5000, "cannot be read"),
        ("goto('\0')", "cannot be read"),
    ],
)
def test_anything_else_is_refused_with_the_reason(code: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"code|bid") as caught:
        parse(code)
    assert said in str(caught.value)


@given(st.text(alphabet=st.sampled_from("goto(click')\"12,[]\n #=*{}:fnp_\\"), max_size=60))
def test_whatever_the_text_it_is_read_or_refused(code: str) -> None:
    with suppress(ValueError):
        assert parse(code)


def test_an_action_with_bad_code_is_not_made() -> None:
    with pytest.raises(ValueError, match="the functions are"):
        BrowserCodeAction(code="launch()")
    assert BrowserCodeAction(code="go_back()").calls()[0].name == "back"
