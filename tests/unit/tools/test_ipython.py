"""What a model is told of cells, and what a sandbox is asked for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_core.events.messages import ImageContent, TextContent
from agent_core.tools import IPythonAction, IPythonExecutor, IPythonObservation, IPythonTool, get_default_tools
from agent_core.tools.registry import canonical_name
from agent_core.tools.spec import DeclaredResources
from tests.answering_sandbox import AnsweringSandbox, Asked, FakeCall

RESULT = {
    "status": "completed",
    "output": "2",
    "omitted": 0,
    "images": [],
    "working_dir": "/w",
    "python": "/py",
    "notice": "",
}
EXTRA = "[Jupyter current working directory: /w]\n[Jupyter Python interpreter: /py]"


@dataclass
class Sandbox(AnsweringSandbox):
    result: dict[str, Any] = field(default_factory=dict)

    def answer(self, asked: Asked) -> dict[str, Any]:
        return {**RESULT, **self.result}


async def seen(action: IPythonAction | str = "1+1", **result: Any) -> IPythonObservation:
    made = IPythonAction(code=action) if isinstance(action, str) else action
    observation = await IPythonExecutor().acall(made, FakeCall(Sandbox(result)))
    assert isinstance(observation, IPythonObservation)
    return observation


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({}, "2"),
        ({"output": "2\n"}, "2"),
        ({"output": ""}, "[Code executed successfully with no output]"),
        ({"output": "", "status": "timeout"}, "[Execution timed out (120 seconds).]"),
        ({"output": "a\n", "status": "timeout", "notice": "N."}, "a\n[Execution timed out (120 seconds).]\n[N.]"),
        ({"output": "", "images": ["data:image/png;base64,A"]}, ""),
    ],
)
async def test_the_text_ends_with_directory_and_interpreter_unless_not_wished(
    result: dict[str, Any], text: str
) -> None:
    assert (await seen(**result)).text == (f"{text}\n{EXTRA}" if text else EXTRA)
    assert (await seen(IPythonAction(code="1", include_extra=False), **result)).text == text


async def test_code_that_fails_is_no_error_and_a_sandbox_without_a_kernel_is_one() -> None:
    assert not (await seen(status="error")).is_error
    assert not (await seen(status="kernel_died")).is_error
    assert (await seen(status="unavailable", working_dir="", notice="There is none.")).is_error


async def test_a_model_is_shown_the_pictures_but_not_those_printed_as_text() -> None:
    url = "data:image/png;base64,AAAA"
    told = (await seen(output=f"a\n![plot]({url})\nb", images=[url])).to_llm_content
    assert told[1] == ImageContent(image_urls=[url])
    assert isinstance(told[0], TextContent)
    assert told[0].text.startswith("a\n[A picture was printed here; it is not repeated as text.]\nb\n")


async def test_the_sandbox_is_asked_once_under_the_key_with_the_secrets_that_are_named() -> None:
    sandbox = Sandbox()
    call = FakeCall(sandbox, hard_timeout=7.5)
    await IPythonExecutor().acall(IPythonAction(code="print(TOKEN)", kernel_init_code="x = 1"), call)
    asked = sandbox.asked[0]
    assert (asked.op, asked.key, asked.limit_seconds) == ("kernel.run", "c:3", 157.5)
    assert asked.args == {
        "code": "print(TOKEN)",
        "timeout": 7.5,
        "max_output": 30_000,
        "env": {"TOKEN": "s3cret"},
        "init_code": "x = 1",
    }


def test_the_model_gives_the_code_and_how_risky_it_is() -> None:
    tool = IPythonTool.create()[0]
    function = tool.to_openai_tool(add_security_risk_prediction=True)["function"]
    assert function["name"] == "execute_ipython_cell"
    assert list(function["parameters"]["properties"]) == ["security_risk", "summary", "code"]
    assert function["parameters"]["required"] == ["code"]
    assert not tool.annotations.readOnlyHint
    assert tool.declared_resources(IPythonAction(code="1")) == DeclaredResources(
        keys=("ipython:kernel",), declared=True
    )


def test_the_tool_is_found_by_all_its_names() -> None:
    for name in ("execute_ipython_cell", "IPythonTool", "ipython", "jupyter"):
        assert canonical_name(name) == "execute_ipython_cell"
    assert get_default_tools(enable_jupyter=True)[-1].name == "execute_ipython_cell"


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(TypeError, match="takes no parameter \\['colour'\\]"):
        IPythonTool.create(colour="red")
    with pytest.raises(ValueError, match="timeout_seconds is 0; it must be above zero"):
        IPythonTool.create(timeout_seconds=0)
