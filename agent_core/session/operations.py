"""What a program does with its conversation beside the agent's runs; in the library's loop."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from agent_core.agent.base import AgentBase
from agent_core.errors import ToolError
from agent_core.events.control import Condensation, CondensationRequest
from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.masking import SecretMasker
from agent_core.events.schema import Action, Observation
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM, CallContext
from agent_core.memory.condenser import condensed_by
from agent_core.security.secrets import SecretRegistry
from agent_core.session import questions
from agent_core.session.conversation_loop import ConversationLoop
from agent_core.session.direct_call import DirectContext, call_directly, tool_named
from agent_core.session.drafts import ConversationDrafts, draft_llm
from agent_core.session.goal import GoalVerdict, judged
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.finish import FinishAction


async def call_tool(work: ConversationLoop, definition: ToolDefinition, action: Action) -> Observation:
    """Call a tool in the conversation's sandbox; nobody else hears of it. Secrets are hidden in what it says.

    Raises:
        ToolError, ValueError: the call failed.
        SandboxError: the sandbox cannot be had.
    """
    secrets, latest = work.settings.named_secrets, await _latest(work, definition)
    llm = draft_llm(work.agent)
    drafts = ConversationDrafts(lambda: llm, _call_context(work))
    masker = _masker(work)
    async with work.sessions.sandbox_access() as sandbox:
        context = DirectContext(work.conversation_id, sandbox, secrets, masker.add, latest, drafts)
        return _without_secrets(masker, await call_directly(definition, action, context))


def _without_secrets(masker: SecretMasker, observation: Observation) -> Observation:
    """The observation as the log would have it."""
    data = observation.model_dump(mode="json")
    masked = masker.data(data) | {name: data[name] for name in ("kind",) if name in data}
    if masked == data:
        return observation
    try:
        return type(observation).model_validate(masked)
    except ValidationError:  # a secret is part of what has to have a certain form
        return Observation.from_text(masker.text(observation.text), is_error=observation.is_error)


async def _latest(work: ConversationLoop, definition: ToolDefinition) -> Observation | None:
    latest: Observation | None = None
    if definition.remembers:
        async for event in work.log.branch():
            if not isinstance(event, ObservationEvent) or event.tool_name != definition.name:
                continue
            latest = latest if event.observation.is_error else event.observation
    return latest


async def rerun_actions(work: ConversationLoop, tools: Mapping[str, ToolDefinition]) -> list[Observation]:
    """Carry out the agent's recorded actions once more, up to the first that fails.

    Raises:
        KeyError: a tool is not there any more.
        SandboxError: the sandbox cannot be had.
    """
    recorded = [
        event async for event in work.log.branch() if isinstance(event, ActionEvent) and event.source == "agent"
    ]
    results: list[Observation] = []
    for event in recorded:
        if event.action is None or isinstance(event.action, FinishAction):
            continue
        try:
            results.append(await call_tool(work, tool_named(tools, event.tool_name, event.action), event.action))
        except (ToolError, ValueError) as error:
            results.append(Observation.from_text(str(error), is_error=True))
        if _has_failed(results[-1]):
            break
    return results


def _has_failed(observation: Observation) -> bool:
    return observation.is_error or getattr(observation, "exit_code", 0) not in (0, -1)


async def condense(work: ConversationLoop) -> None:
    """Ask for a condensation; between runs it is made at once.

    Raises:
        NoCondensationError: it cannot be made; between runs it is as if nobody had asked then.
    """
    request, condenser = CondensationRequest(source="user"), work.agent.condenser
    if work.is_running or condenser is None:
        await work.say(request)
        return
    view = await work.log.view()
    view.add(request)
    outcome = await condensed_by(condenser, view, work.agent.llm, work.side_calls.context)
    made: list[AnyEvent] = [request]
    if isinstance(outcome, Condensation):
        made.append(outcome.model_copy(update={"metrics": await work.side_calls.snapshot()}))
    await work.write(*made)


async def answer(work: ConversationLoop, question: str) -> str:
    """What the model says to a question about the conversation.

    Raises:
        ValueError: the question is empty.
        LLMError: the model cannot be asked, or says nothing.
    """
    return await questions.answer(work.log, work.agent.llm, _hidden(work, question), _call_context(work))


async def title(work: ConversationLoop, llm: LLM, max_length: int) -> str:
    """A title for the conversation.

    Raises:
        ValueError: the user has said nothing yet, or `max_length` is too small.
    """
    return await questions.title(work.log, llm, max_length, _call_context(work))


async def judge_goal(work: ConversationLoop, objective: str, llm: LLM) -> GoalVerdict:
    """What a model says of how far the conversation has come with its objective.

    Raises:
        LLMError: the model could not be asked.
    """
    return await judged(await work.log.view(), _hidden(work, objective), llm, _call_context(work))


async def use_agent(work: ConversationLoop, agent: AgentBase) -> None:
    """Have this agent work, from the next run on.

    Raises:
        RuntimeError: the present one is at work.
    """
    if work.is_running:
        raise RuntimeError(f"conversation {work.conversation_id} is running; pause it first")
    await work.end_session()
    work.sessions.use_agent(agent)


def _call_context(work: ConversationLoop) -> CallContext:
    session = work.session_at_work
    return work.side_calls.context if session is None else session.call_context


def _hidden(work: ConversationLoop, text: str) -> str:
    """The text as the log would have it: without the secrets."""
    return _masker(work).text(text)


def _masker(work: ConversationLoop) -> SecretMasker:
    if (session := work.session_at_work) is not None:
        return session.stream.secrets
    masker = SecretMasker(work.settings.secrets)
    SecretRegistry(masker.add).update(work.settings.named_secrets)
    return masker
