"""Questions whether the agent may do something, through the protocol's own client library."""

from __future__ import annotations

import pytest
from acp import RequestError

from agent_core.testing.model_turns import Turn, call, finish
from drydock_client import DrydockClient
from tests.contract.acp.conftest import TOKEN, Desk

COMMAND = call("terminal", {"command": "rm -r build", "security_risk": "HIGH"}, text="I clean up.")


@pytest.fixture
async def asking(desk: Desk) -> Desk:
    """Its user's agents ask before what is risky."""
    async with DrydockClient(desk.url, TOKEN) as client:
        settings = {"llm_model": "openai/scripted", "llm_base_url": desk.model.url, "llm_api_key": "sk-x"}
        await client.settings.change(confirmation_mode=True, **settings)
    turns = iter([COMMAND, finish("Done."), COMMAND, finish("Again.")])
    desk.answer = lambda request: next(turns)
    return desk


async def test_what_is_allowed_once_is_done_and_asked_again(asking: Desk) -> None:
    session = await asking.new()
    assert session.modes is not None
    assert session.modes.current_mode_id == "ask"
    assert await asking.prompt(session.session_id, "Clean up.") == "end_turn"
    ((tool_call, options),) = asking.editor.asked
    assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]
    (begun,) = asking.editor.of("tool_call")
    assert (tool_call.tool_call_id, begun.status, tool_call.title) == (begun.tool_call_id, "pending", "`rm -r build`")
    statuses = [one.status for one in asking.editor.of("tool_call_update")]
    assert statuses[0] == "in_progress"
    assert statuses[-1] == "completed"
    assert await asking.prompt(session.session_id, "Again.") == "end_turn"
    assert len(asking.editor.asked) == 2


async def test_what_is_rejected_is_not_done(asking: Desk) -> None:
    asking.editor.choose = lambda tool_call: "reject"
    session = await asking.new()
    assert await asking.prompt(session.session_id, "Clean up.") == "end_turn"
    assert asking.editor.of("tool_call_update")[-1].status == "failed"
    assert asking.editor.said() == "I clean up."


async def test_what_is_allowed_for_good_is_not_asked_again(asking: Desk) -> None:
    asking.editor.choose = lambda tool_call: "allow-always"
    session = await asking.new()
    assert await asking.prompt(session.session_id, "Clean up.") == "end_turn"
    assert await asking.prompt(session.session_id, "Again.") == "end_turn"
    assert len(asking.editor.asked) == 1
    assert [one.current_mode_id for one in asking.editor.of("current_mode_update")] == ["auto"]
    with pytest.raises(RequestError, match="modeId: everything was allowed"):
        await asking.conn.set_session_mode(session_id=session.session_id, mode_id="ask")


async def test_nothing_is_asked_in_the_mode_that_allows_everything(asking: Desk) -> None:
    session = await asking.new()
    await asking.conn.set_session_mode(session_id=session.session_id, mode_id="auto")
    assert await asking.prompt(session.session_id, "Clean up.") == "end_turn"
    assert not asking.editor.asked
    assert asking.editor.said() == "I clean up.Done."
    with pytest.raises(RequestError, match="modeId: there is no 'yolo'; there are ask, auto"):
        await asking.conn.set_session_mode(session_id=session.session_id, mode_id="yolo")


async def test_a_question_is_left_when_the_turn_is_cancelled(asking: Desk) -> None:
    session = await asking.new()

    asking.editor.choose = lambda tool_call: None
    asking.editor.when_asked = lambda: asking.conn.cancel(session_id=session.session_id)
    assert await asking.prompt(session.session_id, "Clean up.") == "cancelled"


async def test_a_question_that_was_open_is_asked_when_the_session_is_loaded(asking: Desk) -> None:
    async with DrydockClient(asking.url, TOKEN) as client:
        made = await client.create_conversation(message="Clean up.")
        await client.wait(made.id, until=["awaiting_user_confirmation"])
    await asking.limited(asking.conn.load_session(session_id=made.id, cwd=str(asking.folder), mcp_servers=[]))
    await asking.editor.until(lambda: "Done." in asking.editor.said())
    assert len(asking.editor.asked) == 1


async def test_several_calls_of_one_answer_are_asked_one_by_one_and_done_together(asking: Desk) -> None:
    both = call("terminal", {"command": "one", "security_risk": "HIGH"})
    more = call("terminal", {"command": "two", "security_risk": "HIGH"})
    turns = iter([Turn(text="Both.", calls=(*both.calls, *more.calls)), finish("Done.")])
    asking.answer = lambda request: next(turns)
    session = await asking.new()
    assert await asking.prompt(session.session_id, "Do both.") == "end_turn"
    assert [tool_call.title for tool_call, _ in asking.editor.asked] == ["`one`", "`two`"]
    assert [one.status for one in asking.editor.of("tool_call_update") if one.status == "completed"] == [
        "completed"
    ] * 2


async def test_the_first_refusal_refuses_all_calls_of_an_answer(asking: Desk) -> None:
    calls = [call("terminal", {"command": name, "security_risk": "HIGH"}).calls for name in ("one", "two")]
    turns = iter([Turn(text="Both.", calls=(*calls[0], *calls[1])), finish("Done.")])
    asking.answer = lambda request: next(turns)
    asking.editor.choose = lambda tool_call: "reject" if tool_call.title == "`one`" else "allow"
    session = await asking.new()
    assert await asking.prompt(session.session_id, "Do both.") == "end_turn"
    assert len(asking.editor.asked) == 1
    ends = {one.tool_call_id: one.status for one in asking.editor.of("tool_call_update")}
    assert list(ends.values()) == ["failed", "failed"]


async def test_an_editor_that_cannot_ask_has_it_rejected(asking: Desk) -> None:
    def broken(tool_call: object) -> str:
        raise RequestError.method_not_found("session/request_permission")

    asking.editor.choose = broken
    session = await asking.new()
    assert await asking.prompt(session.session_id, "Clean up.") == "end_turn"
    assert asking.editor.of("tool_call_update")[-1].status == "failed"
