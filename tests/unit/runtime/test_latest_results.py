"""The newest results of tools that remember them, before the log was read as far, and after it was rewound."""

from __future__ import annotations

from agent_core.events.branches import Rewind
from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.runtime.action_runner import LatestResults
from agent_core.tools.presets import get_builtin_tools
from agent_core.tools.registry import resolve_tools
from agent_core.tools.spec import Tool
from agent_core.tools.task_tracker import TaskItem, TaskTrackerAction, TaskTrackerObservation

TOOLS = resolve_tools([Tool(name="task_tracker"), *get_builtin_tools()])


class Log:
    """A log in memory, one event a page."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []

    async def page(self, *, after: int = -1) -> list[AnyEvent]:
        return self.events[after + 1 : after + 2]

    def add(self, event: AnyEvent) -> AnyEvent:
        self.events.append(event.stored_as(len(self.events)))
        return self.events[-1]

    def call(self) -> AnyEvent:
        return self.add(ActionEvent(action=TaskTrackerAction(), tool_name="task_tracker"))

    def result(self, cause: AnyEvent, title: str, *, is_error: bool = False, tool: str = "task_tracker") -> AnyEvent:
        observation = TaskTrackerObservation(task_list=[TaskItem(title=title)], is_error=is_error)
        return self.add(
            ObservationEvent(
                source="agent", cause=cause.id, observation=observation, tool_name=tool, tool_call_id="call"
            )
        )


async def title(results: LatestResults, tool: str = "task_tracker") -> str | None:
    found = await results.of(tool)
    return found.task_list[0].title if isinstance(found, TaskTrackerObservation) else None


async def test_a_stored_answer_counts_before_it_was_read_and_is_not_replaced_by_older_ones() -> None:
    log = Log()
    results = LatestResults(TOOLS, log)
    first, second = log.call(), log.call()
    results.observe(first)
    results.observe(second)
    old, new = log.result(first, "old"), log.result(second, "new")
    assert await title(results) is None
    results.answered(new)
    assert await title(results) == "new"
    results.observe(old)
    assert await title(results) == "new"


async def test_errors_and_tools_that_do_not_remember_are_passed_over() -> None:
    log = Log()
    results = LatestResults(TOOLS, log)
    call = log.call()
    results.observe(call)
    for event in (
        log.result(call, "good"),
        log.result(call, "bad", is_error=True),
        log.result(call, "x", tool="think"),
    ):
        results.observe(event)
    assert await title(results) == "good"
    assert await results.of("think") is None
    assert await results.of("nothing") is None


async def test_after_going_back_the_newest_result_of_the_branch_counts_and_late_answers_do_not() -> None:
    log = Log()
    results = LatestResults(TOOLS, log)
    first = log.call()
    kept = log.result(first, "kept")
    undone = log.call()
    for event in (first, kept, undone, log.result(undone, "undone"), log.add(Rewind(to=kept.id))):
        results.observe(event)
    late = log.result(undone, "late")
    results.answered(late)
    assert await title(results) == "kept"
    results.observe(late)
    assert await title(results) == "kept"
    again = log.call()
    results.observe(again)
    results.answered(log.result(again, "again"))
    assert await title(results) == "again"
