"""The demo model, in a real shell and a real folder, and what it makes of surprises."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from agent_core.events.messages import Message
from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.llm import LLM
from tests.contract.llm.workshop import Workshop, finish_text


def demo(**options: Any) -> LLM:
    return LLM(litellm_extra_body={"pace": 0}, **options)


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, demo())


def calls_of(shop: Workshop) -> list[str]:
    return [call.name for response in shop.responses for call in response.message.tool_calls or ()]


async def test_the_tour_makes_a_project_finds_its_fault_and_shows_its_tests_green(shop: Workshop) -> None:
    shop.say("Please build me a web shop")
    end = await shop.run()
    assert (shop.root / "drydock-tour" / "roman.py").read_text().count("IV") == 1
    said = finish_text(end)
    assert "'IIII' != 'IV'" in said
    assert "Ran 3 tests" in said
    assert "LLM_MODEL" in said
    assert "demo" in shop.responses[0].message.text
    assert "“Please build me a web shop” is beyond me" in shop.responses[0].message.text
    batches = [len(response.message.tool_calls or ()) for response in shop.responses]
    assert max(batches) == 2
    assert len(shop.commands) == 3
    assert end.cost is None
    assert end.usage.completion_tokens > 0


async def test_at_its_own_pace_it_takes_its_time_and_at_none_it_does_not(tmp_path: Path) -> None:
    heard: list[TextDelta | TextDiscarded] = []
    llm = LLM(litellm_extra_body={"pace": 0.02})
    hello = [llm.render(Message.user("hi"))]
    shop = Workshop(tmp_path, llm)
    start = time.monotonic()
    await llm.acompletion(hello, shop.schemas, on_delta=heard.append)
    assert time.monotonic() - start > 0.04
    assert len(heard) > 1
    start = time.monotonic()
    for _ in range(20):
        await demo().acompletion(hello, shop.schemas)
    assert (time.monotonic() - start) / 20 < 1


async def test_a_later_request_adds_a_feature_and_another_runs_the_tests(shop: Workshop) -> None:
    shop.say("hi")
    await shop.run()
    shop.say("nice, thank you!")
    assert "Ran 4 tests" in finish_text(await shop.run())
    assert "def from_roman" in (shop.root / "drydock-tour" / "roman.py").read_text()
    shop.say("nice, thank you!")
    assert "I ran the tests again. Ran 4 tests" in finish_text(await shop.run())
    shop.say("add a feature")
    assert "Ran 4 tests" in finish_text(await shop.run())


async def test_another_tour_takes_another_folder(shop: Workshop) -> None:
    (shop.root / "drydock-tour").mkdir()
    shop.say("hi")
    await shop.run()
    shop.say("tour")
    await shop.run()
    assert sorted(path.name for path in shop.root.iterdir()) == ["drydock-tour", "drydock-tour-2", "drydock-tour-3"]
    shop.say("run the tests")
    await shop.run()
    assert shop.commands[-1].endswith("drydock-tour-3")


async def test_a_folder_with_spaces_is_no_trouble(tmp_path: Path) -> None:
    root = tmp_path / "a b'c"
    root.mkdir()
    shop = Workshop(root, demo())
    shop.say("hi")
    assert "Ran 3 tests" in finish_text(await shop.run())
    assert shlex.quote(str(root / "drydock-tour")) in shop.commands[-1]


@pytest.mark.parametrize("at", range(1, 7))
async def test_stopped_anywhere_it_goes_on_where_it_was(tmp_path: Path, at: int) -> None:
    shop = Workshop(tmp_path, demo())
    shop.say("hi")
    for _ in range(at):
        await shop.step()
    shop.say("stop")
    assert "Stopped" in (await shop.run()).message.text
    shop.say("what is the weather like?")
    answer = (await shop.run()).message
    assert not answer.tool_calls
    assert "Say `tour`" in answer.text
    shop.say("tour")
    assert "Ran 3 tests" in finish_text(await shop.run())
    assert len([path for path in shop.root.iterdir() if path.is_dir()]) == 1
    assert len(shop.commands) == 3


async def test_a_message_that_arrives_while_it_already_answers_is_not_forgotten(shop: Workshop) -> None:
    shop.say("hi")
    await shop.step()
    shop.say("how are you?")
    late = shop.messages.pop()
    response = await shop.step()
    shop.messages.insert(-1 - len(response.message.tool_calls or ()), late)
    answer = (await shop.step()).message
    assert not answer.tool_calls
    assert "only the demo" in answer.text


@pytest.mark.parametrize(
    "surprise",
    ["The call was interrupted; the conversation was paused.", "The sandbox went away while it was needed.", ""],
)
@pytest.mark.parametrize("at", range(6))
async def test_a_call_that_fails_is_made_again_or_made_otherwise(tmp_path: Path, at: int, surprise: str) -> None:
    shop = Workshop(tmp_path, demo())
    shop.say("hi")
    shop.overrides = [*([None] * at), surprise]
    assert "all green" in finish_text(await shop.run())


async def test_a_command_that_hangs_is_interrupted_and_run_again(shop: Workshop) -> None:
    shop.say("hi")
    shop.overrides = [
        "[The command has produced no new output for 10 seconds and is still running.]",
        "^C\n[Current working directory: /]\n[Command finished with exit code 130]",
    ]
    assert "Ran 3 tests" in finish_text(await shop.run())
    interrupt = (shop.responses[1].message.tool_calls or [])[0]
    assert json.loads(interrupt.arguments)["command"] == "C-c"
    assert json.loads(interrupt.arguments)["is_input"] is True


async def test_when_nothing_works_it_says_so_and_ends(shop: Workshop) -> None:
    shop.say("hi")
    shop.overrides = ["Something is broken."] * 50
    end = await shop.run()
    assert not end.message.tool_calls
    assert "never came to an end" in end.message.text
    assert "Something is broken." in end.message.text


@pytest.mark.parametrize("at", range(6))
async def test_a_refused_call_ends_it_politely(tmp_path: Path, at: int) -> None:
    shop = Workshop(tmp_path, demo())
    shop.say("hi")
    shop.overrides = [*([None] * at), "Action rejected: not now"]
    end = await shop.run()
    assert "Say `tour`" in finish_text(end) or "all green" in finish_text(end)


async def test_without_python_it_says_what_is_missing(shop: Workshop) -> None:
    shop.say("hi")
    shop.overrides = [
        "/w\nbash: python3: command not found\n[Current working directory: /w]\n[Command finished with exit code 0]"
    ]
    assert "no `python3`" in (await shop.run()).message.text


async def test_tests_that_are_green_already_are_believed(shop: Workshop) -> None:
    shop.say("hi")
    green = "Ran 3 tests in 0.001s\n\nOK\n[Current working directory: /w]\n[Command finished with exit code 0]"
    shop.overrides = [None, None, None, green]
    assert "all is well already" in finish_text(await shop.run())


@pytest.mark.parametrize("missing", [("file_editor",), ("finish",), ("file_editor", "finish")])
async def test_it_makes_do_with_fewer_tools(tmp_path: Path, missing: tuple[str, ...]) -> None:
    shop = Workshop(tmp_path, demo(), without=missing)
    shop.say("hi")
    end = await shop.run()
    assert "Ran 3 tests" in finish_text(end)
    shop.say("more")
    assert "Ran 4 tests" in finish_text(await shop.run())


async def test_without_a_terminal_it_explains_itself(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, demo(), without=("terminal",))
    shop.say("hi")
    end = await shop.run()
    assert "needs the tool `terminal`" in end.message.text


async def test_asked_for_a_title_it_has_one(shop: Workshop) -> None:
    llm = shop.llm
    response = await llm.acompletion([llm.render(Message.user("Give this conversation a short title: ..."))])
    assert response.message.text == "A tour of Drydock"


async def test_it_needs_no_client_library_and_makes_ids_that_never_repeat(shop: Workshop) -> None:
    shop.say("hi")
    await shop.run()
    ids = [call.id for response in shop.responses for call in response.message.tool_calls or ()]
    assert len(set(ids)) == len(ids)
