"""What callbacks may ask of the conversation that calls them: nothing hangs (agent-core 8.3)."""

from __future__ import annotations

from agent_core import Conversation, Event, ExecutionStatus
from agent_core.events.llm_events import ActionEvent, MessageEvent
from tests.unit.library.playing import DONE, Script, agent, conversation, model, run

WAITS = "would wait for itself"


def test_a_callback_may_send_messages_and_look_and_while_the_agent_works_pause_it() -> None:
    one: Conversation
    refused: list[str] = []

    def asks(event: Event) -> None:
        if isinstance(event, MessageEvent) and event.llm_message.text == "Hello":
            one.send_message("And one thing more.")
            for action in (one.pause, one.run, lambda: one.switch_llm(model(Script(), usage_id="other")), one.close):
                try:
                    action()
                except RuntimeError as error:
                    refused.append(str(error))
        elif isinstance(event, ActionEvent) and not refused[4:]:
            one.send_message("Wait.")
            refused.append(str(one.state.execution_status))
            one.pause()

    script = Script(run("ls"), DONE, DONE)
    with conversation(agent(script), callbacks=[asks]) as one:
        one.send_message("Hello")
        assert [WAITS in text for text in refused] == [True] * 4
        statuses = []
        for _ in range(2):
            one.run()
            statuses.append(one.state.execution_status)
    assert statuses == [ExecutionStatus.PAUSED, ExecutionStatus.FINISHED]
    assert refused[4] == "running"
    told = script.prompt()
    assert "And one thing more." in told
    assert "Wait." in told


def test_the_same_goes_for_one_that_is_awaited_and_not_for_what_it_leaves_behind() -> None:
    one: Conversation
    refused: list[str] = []

    async def asks(event: Event) -> None:
        if isinstance(event, MessageEvent) and event.llm_message.text == "Hello":
            await one.asend_message("And one thing more.")
            try:
                await one.aclose()
            except RuntimeError as error:
                refused.append(str(error))

    script = Script(DONE)
    with conversation(agent(script), callbacks=[asks]) as one:
        one.send_message("Hello")
        assert [WAITS in text for text in refused] == [True]
        one.run()
        assert one.state.execution_status is ExecutionStatus.FINISHED
    assert "And one thing more." in script.prompt()
