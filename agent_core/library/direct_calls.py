"""Calls of tools by the program itself, beside its agent."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from agent_core.errors import DrydockError, ToolError
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.masking import SecretMasker
from agent_core.events.schema import Action, Observation
from agent_core.library.remote.run import RemoteRun
from agent_core.library.run_loop import RunLoop
from agent_core.runtime.action_runner import DirectContext, failure
from agent_core.security.secrets import SecretRegistry
from agent_core.session.factory import ConversationDrafts, draft_llm
from agent_core.tools.builtin import FinishAction
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.terminal import TerminalAction, TerminalObservation, TerminalTool


async def call_tool(work: RunLoop, definition: ToolDefinition, action: Action) -> Observation:
    """Call a tool in the conversation's sandbox; as the user, where the tool's state is in the log."""
    if not definition.remembers:
        return await _unrecorded(work, definition, action)
    if isinstance(work, RemoteRun):
        return await work.call_by_server(definition, action)
    async with work.sessions.used() as session:
        is_running = work.is_running
        call = (await work.write(ActionEvent(source="user", tool_name=definition.name, action=action)))[0]
    assert isinstance(call, ActionEvent)  # noqa: S101 - it is what was stored
    answer: object = None
    if is_running:
        async with session.stream.subscribe(after=call.id) as events:
            async for event in events:
                if isinstance(event, Event) and event.cause == call.id:
                    answer = event
                    break
        if answer is None:
            await work.until_run_ended()
    if isinstance(answer, ObservationEvent):
        return answer.observation
    if answer is not None:
        raise ValueError(answer.error if isinstance(answer, AgentErrorEvent) else "the call was not carried out")
    try:  # nobody is at work who would do it
        observation = await _unrecorded(work, definition, action)
    except (DrydockError, ValueError) as error:
        await work.write(failure(call, str(error)))
        raise
    await work.write(ObservationEvent(source="user", cause=call.id, observation=observation, tool_name=definition.name))
    return observation


async def run_command(work: RunLoop, command: str, limit_seconds: float) -> TerminalObservation:
    """Run a command in the agent's default terminal, which it has or not."""
    (terminal,) = TerminalTool.create()
    observation = await _unrecorded(work, terminal, TerminalAction(command=command, timeout=limit_seconds))
    if not isinstance(observation, TerminalObservation):  # a secret was part of what has to have a certain form
        raise ToolError(observation.text)
    return observation


async def rerun(work: RunLoop, tools: Mapping[str, ToolDefinition]) -> list[Observation]:
    """Repeat the calls of the agent that the log has, up to the first that fails."""
    branch = work.log.branch()
    recorded = [event async for event in branch if isinstance(event, ActionEvent) and event.source == "agent"]
    results: list[Observation] = []
    for event in recorded:
        if event.action is None or isinstance(event.action, FinishAction):
            continue
        try:
            definition = tool_named(tools, event.tool_name, event.action)
            results.append(await _unrecorded(work, definition, event.action))
        except (ToolError, ValueError) as error:
            results.append(Observation.from_text(str(error), is_error=True))
        if results[-1].is_error or getattr(results[-1], "exit_code", 0) not in (0, -1):
            break
    return results


async def _unrecorded(work: RunLoop, definition: ToolDefinition, action: Action) -> Observation:
    latest, llm = None, draft_llm(work.agent)
    if definition.remembers:
        async for event in work.log.branch():
            if isinstance(event, ObservationEvent) and event.tool_name == definition.name:
                latest = latest if event.observation.is_error else event.observation
    drafts, masker = ConversationDrafts(lambda: llm, work.call_context), work.masker
    secrets = SecretRegistry(masker.add)
    secrets.update(work.settings.named_secrets)
    async with work.sessions.sandbox_access() as sandbox:
        context = DirectContext(sandbox, work.conversation_id, secrets=secrets, latest=latest, draft_model=drafts)
        try:
            return _without_secrets(masker, await definition.acall(action, context))
        finally:
            await sandbox.ack([context.idempotency_key])  # the sandbox keeps nothing of it


def _without_secrets(masker: SecretMasker, observation: Observation) -> Observation:
    data = observation.model_dump(mode="json")
    masked = masker.data(data) | {name: data[name] for name in ("kind",) if name in data}
    if masked == data:
        return observation
    try:
        return type(observation).model_validate(masked)
    except ValidationError:  # a secret is part of what has to have a certain form
        return Observation.from_text(masker.text(observation.text), is_error=observation.is_error)


def tool_named(tools: Mapping[str, ToolDefinition], name: str, action: Action) -> ToolDefinition:
    """The tool of this name; `KeyError` where there is none, `TypeError` where it takes another kind of action."""
    found = tools.get(name)
    if found is None:
        raise KeyError(f"tool {name!r} is not there; available are {sorted(tools)}")
    if not isinstance(action, found.action_type):
        raise TypeError(f"tool {name!r} takes a {found.action_type.__name__}, not a {type(action).__name__}")
    return found.as_executable()
