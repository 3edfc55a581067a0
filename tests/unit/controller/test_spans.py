"""What an agent does, as spans: each within the message that asked for it, or within the run that is taken up."""

from __future__ import annotations

from agent_core.events.control import AgentState
from agent_core.spans import Span, watched_by
from tests.unit.controller.stage import REPLIES, Stage
from tests.unit.controller.test_answers import is_in, until


class Watcher:
    """Keeps the spans in the order of their beginnings, each with its parent."""

    def __init__(self) -> None:
        self.seen: list[tuple[Span, Span | None]] = []
        self.ended_count = 0

    def begun(self, span: Span) -> None:
        self.seen.append((span, span.parent))

    def ended(self, span: Span) -> None:
        self.ended_count += 1

    def below(self, parent: Span | None) -> list[str]:
        return [span.name for span, above in self.seen if above is parent]

    def named(self, name: str) -> list[Span]:
        return [span for span, _ in self.seen if span.name == name]


async def test_steps_calls_and_commands_are_below_the_message_that_asked_for_them() -> None:
    watcher, stage = Watcher(), Stage()
    await stage.begin()
    with watched_by(watcher):
        with Span("socket_message") as message:
            await stage.say()
        await until(stage, is_in(AgentState.FINISHED), [REPLIES["one"], REPLIES["finish"]])
        first, second = watcher.named("step")
        terminal, finish = watcher.named("tool_call")
        assert watcher.below(message) == ["step", "step"]
        assert watcher.below(first) == ["model_call", "tool_call"]
        assert watcher.below(second) == ["model_call", "tool_call"]
        assert "sandbox_request" in watcher.below(terminal)
        assert (terminal.facts["tool"], finish.facts["tool"]) == ("terminal", "finish")
        assert first.inside["model_call"] > 0
        assert watcher.named("model_call")[0].facts["input_tokens"] == 10

        with Span("http_request") as another:
            await stage.say()
        await until(stage, is_in(AgentState.AWAITING_USER_INPUT), [REPLIES["text"]])
        assert watcher.below(another) == ["step"]
        await stage.end()
    assert watcher.ended_count == len(watcher.seen)


async def test_a_run_that_is_taken_up_is_one_of_its_own() -> None:
    watcher, stage = Watcher(), Stage()
    with watched_by(watcher):
        await stage.begin()
        await stage.say()
        await until(stage, lambda log: stage.model.asking, [])
        await stage.crash()
        watcher.seen.clear()
        await stage.begin()
        await until(stage, is_in(AgentState.FINISHED), [REPLIES["one"], REPLIES["finish"]])
        (run,) = watcher.named("resumed_run")
        assert watcher.below(run) == ["step", "step"]
        await stage.end()


async def test_spans_cost_and_change_nothing_where_nobody_watches() -> None:
    with Span("step") as outer, Span("model_call") as inner:
        pass
    assert (outer.seconds, outer.inside, inner.parent) == (0.0, {}, None)
