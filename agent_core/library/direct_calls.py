"""`DirectCalls`: calls of tools by the program itself, beside its agent."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from agent_core.errors import DrydockError, ToolError
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.masking import SecretMasker
from agent_core.events.schema import Action, Observation
from agent_core.events.serialization import AnyEvent
from agent_core.library.run_loop import RunLoop
from agent_core.runtime.action_runner import DirectContext, failure
from agent_core.session.agent_session import AgentSession
from agent_core.session.factory import ConversationDrafts, draft_llm
from agent_core.tools.builtin import FinishAction
from agent_core.tools.definition import ToolDefinition


class DirectCalls:
    """Calls tools in one conversation's sandbox; as the user, where the tool's state is in the log."""

    def __init__(self, work: RunLoop) -> None:
        self._work = work

    async def call(self, definition: ToolDefinition, action: Action) -> Observation:
        if not definition.remembers:
            return await self._unrecorded(definition, action)
        work = self._work
        async with work.sessions.used() as session:
            is_running = work.is_running
            asked = (await work.write(ActionEvent(source="user", tool_name=definition.name, action=action)))[0]
        assert isinstance(asked, ActionEvent)  # noqa: S101 - it is what was stored
        answer = await self._answered(session, asked) if is_running else None
        if answer is None:  # nobody is at work who would do it
            return await self._recorded(definition, action, asked)
        if isinstance(answer, ObservationEvent):
            return answer.observation
        raise ValueError(answer.error if isinstance(answer, AgentErrorEvent) else "the call was not carried out")

    async def rerun(self, tools: Mapping[str, ToolDefinition]) -> list[Observation]:
        branch = self._work.log.branch()
        recorded = [event async for event in branch if isinstance(event, ActionEvent) and event.source == "agent"]
        results: list[Observation] = []
        for event in recorded:
            if event.action is None or isinstance(event.action, FinishAction):
                continue
            try:
                definition = tool_named(tools, event.tool_name, event.action)
                results.append(await self._unrecorded(definition, event.action))
            except (ToolError, ValueError) as error:
                results.append(Observation.from_text(str(error), is_error=True))
            if results[-1].is_error or getattr(results[-1], "exit_code", 0) not in (0, -1):
                break
        return results

    async def _answered(self, session: AgentSession, asked: AnyEvent) -> AnyEvent | None:
        async with session.stream.subscribe(after=asked.id) as events:
            async for event in events:
                if getattr(event, "cause", None) == asked.id:
                    return event  # type: ignore[return-value] # notices have no cause
        await self._work.until_run_ended()
        return None

    async def _recorded(self, definition: ToolDefinition, action: Action, asked: ActionEvent) -> Observation:
        try:
            seen = await self._unrecorded(definition, action)
        except (DrydockError, ValueError) as error:
            await self._work.write(failure(asked, str(error)))
            raise
        answer = ObservationEvent(source="user", cause=asked.id, observation=seen, tool_name=definition.name)
        await self._work.write(answer)
        return seen

    async def _unrecorded(self, definition: ToolDefinition, action: Action) -> Observation:
        work = self._work
        secrets, latest, llm = work.settings.named_secrets, await self._latest(definition), draft_llm(work.agent)
        drafts, masker = ConversationDrafts(lambda: llm, work.call_context), work.masker
        async with work.sessions.sandbox_access() as sandbox:
            context = DirectContext(work.conversation_id, sandbox, secrets, masker.add, latest, drafts)
            try:
                return _without_secrets(masker, await definition.acall(action, context))
            finally:
                await sandbox.ack([context.idempotency_key])  # the sandbox keeps nothing of it

    async def _latest(self, definition: ToolDefinition) -> Observation | None:
        latest: Observation | None = None
        if definition.remembers:
            async for event in self._work.log.branch():
                if not isinstance(event, ObservationEvent) or event.tool_name != definition.name:
                    continue
                latest = latest if event.observation.is_error else event.observation
        return latest


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
