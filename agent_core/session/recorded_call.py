"""A program's call of a tool whose state is in the log: it has to stand there, too."""

from __future__ import annotations

from agent_core.errors import DrydockError
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.schema import Action, Observation
from agent_core.events.serialization import AnyEvent
from agent_core.runtime.answers import failure
from agent_core.session.agent_session import AgentSession
from agent_core.session.conversation_loop import ConversationLoop
from agent_core.session.operations import call_tool
from agent_core.tools.definition import ToolDefinition


async def call_recorded(work: ConversationLoop, definition: ToolDefinition, action: Action) -> Observation:
    """Call a tool as the user, so that its result is what the agent finds; others as `call_tool` does.

    Raises:
        ToolError, ValueError: the call failed.
        SandboxError: the sandbox cannot be had.
    """
    if not definition.remembers:
        return await call_tool(work, definition, action)
    async with work.session() as session:
        is_running = work.is_running
        asked = (await work.write(ActionEvent(source="user", tool_name=definition.name, action=action)))[0]
    assert isinstance(asked, ActionEvent)  # noqa: S101 - it is what was stored
    answer = await _answered(work, session, asked) if is_running else None
    if answer is None:  # nobody is at work who would do it
        return await _called(work, definition, action, asked)
    if isinstance(answer, ObservationEvent):
        return answer.observation
    raise ValueError(answer.error if isinstance(answer, AgentErrorEvent) else "the call was not carried out")


async def _answered(work: ConversationLoop, session: AgentSession, asked: AnyEvent) -> AnyEvent | None:
    """What the run that is under way answers; None where it ends without."""
    async with session.stream.subscribe(after=asked.id) as events:
        async for event in events:
            if getattr(event, "cause", None) == asked.id:
                return event  # type: ignore[return-value] # notices have no cause
    await work.until_run_ended()
    return None


async def _called(
    work: ConversationLoop, definition: ToolDefinition, action: Action, asked: ActionEvent
) -> Observation:
    """The result of the call, which the log has then."""
    try:
        observation = await call_tool(work, definition, action)
    except (DrydockError, ValueError) as error:
        await work.write(failure(asked, str(error)))
        raise
    await work.write(
        ObservationEvent(source="user", cause=asked.id, observation=observation, tool_name=definition.name)
    )
    return observation
