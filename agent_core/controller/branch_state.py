"""The state of one branch of a log, and the events with which a branch begins."""

from __future__ import annotations

from agent_core.controller.limits import Limits
from agent_core.controller.state import ConversationState
from agent_core.events.branches import Branches, Pages, Rewind, read_branch
from agent_core.events.classification import ErrorClassification
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import AgentErrorEvent, SystemPromptEvent
from agent_core.events.serialization import AnyEvent

UNDONE = "The conversation was taken back to this point, before the call had a result."


async def state_of_branch(log: Pages, branches: Branches, leaf: int | None = None) -> ConversationState:
    """The state that the events of the branch alone make up; its limits mean nothing.

    Raises:
        EventStoreError: the log cannot be read.
    """
    state = ConversationState(Limits(max_iterations=1))
    async for event in read_branch(log, branches, leaf):
        state.fold(event)
    return state


def opening_of(rewind: Rewind, state: ConversationState, prompt: SystemPromptEvent | None = None) -> list[AnyEvent]:
    """What is written together to go on behind the event that `rewind` names, whose branch has come to `state`.

    Calls that are open there are answered: their results are undone, or were not yet there. `prompt` is what the agent
    is told where the branch does not say it. The agent waits for its user.
    """
    answers = [
        AgentErrorEvent(
            cause=action.id,
            error=UNDONE,
            tool_name=action.tool_name,
            tool_call_id=action.tool_call_id,
            classification=ErrorClassification.INTERRUPTED,
        )
        for action in state.unanswered.values()
    ]
    told = [prompt] if prompt is not None and not state.has_system_prompt else []
    return [rewind, *told, *answers, AgentStateChanged(agent_state=AgentState.AWAITING_USER_INPUT)]
