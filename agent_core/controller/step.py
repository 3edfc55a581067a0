"""One step of the agent: the prompt from the view, the model's answer into the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from agent_core.agent.base import AgentBase
from agent_core.agent.critic import criticised
from agent_core.agent.step_form import StepInput, StepOutcome
from agent_core.agent.switch_llm import ModelChoice
from agent_core.agent.vision import renderer
from agent_core.controller.account import Account
from agent_core.controller.branch_reader import BranchReader
from agent_core.controller.failed_calls import error_for, failed_first
from agent_core.controller.guards import check_progress, error_events, failure_of, nudge
from agent_core.controller.live import Deltas, Retries, whole
from agent_core.controller.outcomes import completed
from agent_core.controller.remarks import blind, rephrase
from agent_core.controller.replay import ReplayManager
from agent_core.controller.state import ConversationState
from agent_core.controller.stuck import USUAL_THRESHOLDS, StuckDetectionThresholds, StuckDetector
from agent_core.errors import (
    LLMContentPolicyError,
    LLMContextWindowError,
    LLMMalformedHistoryError,
    NoCondensationError,
)
from agent_core.events.control import AgentState, AgentStateChanged, CondensationRequest
from agent_core.events.llm_events import ActionEvent, MessageEvent, SystemPromptEvent
from agent_core.events.risk import SecurityRisk
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import PAGE, EventStream
from agent_core.events.transient import StatusNotice
from agent_core.llm.response import LLMResponse
from agent_core.memory.condenser import condensed_by
from agent_core.memory.prompt import PromptCache
from agent_core.memory.sharing import shared_tools
from agent_core.memory.view import View
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationGate, policy_in_force
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.live import present_tools

logger = logging.getLogger(__name__)


class Step:
    """Takes the steps of one conversation's agent; at most one at a time.

    Attributes:
        account: what the conversation's models cost.
    """

    def __init__(
        self,
        stream: EventStream,
        agent: AgentBase,
        *,
        tools: Mapping[str, ToolDefinition],
        gate: ConfirmationGate,
        max_budget: float | None,
        version: str,
        loops: StuckDetectionThresholds | None = USUAL_THRESHOLDS,
        cache_key: str = "",
        payer: Callable[[LLMResponse], None] | None = None,
    ) -> None:
        """`loops` is when an agent that repeats itself is stopped (None: never); the others are those of `Account`."""
        self._view = View()
        self._replay = ReplayManager()
        self._loops = loops
        self._stuck = StuckDetector(loops) if loops else None
        self._log = BranchReader(stream, self._see, self._forget)
        self._stream = stream
        self._agent = agent
        self._models = ModelChoice(agent, stream.secrets.add)
        self._tools = tools
        self._offer(dict(tools))
        models = [*agent.get_all_llms(), agent.llm]
        self.account = Account(stream, models, max_budget=max_budget, cache_key=cache_key, payer=payer)
        self._gate = gate
        self._version = version
        self._prompts = PromptCache(renderer(agent.llm, tools))

    def _offer(self, tools: dict[str, ToolDefinition]) -> None:
        """Have the model choose from these."""
        self._offered = tools
        self._schemas = shared_tools([self._agent.shown_tool(tool) for tool in tools.values()])

    async def _present_tools(self) -> dict[str, ToolDefinition]:
        tools = await present_tools(self._tools)
        if list(map(id, tools.values())) != list(map(id, self._offered.values())):
            self._offer(tools)
            self._gate = self._gate.with_tools(tools)
        return self._offered

    def gate(self, state: ConversationState | None) -> ConfirmationGate:
        """What decides in this state which actions wait for the user."""
        stored = None if state is None else state.policy
        return replace(self._gate, policy=policy_in_force(stored, self._gate.policy))

    def init_state(self, first_events: Sequence[AnyEvent], secrets: Mapping[str, str]) -> SystemPromptEvent | None:
        """What the log, which begins with these events, still has to tell the agent before anything else.

        `secrets` are descriptions by name.
        """
        return self._agent.missing_prompt(first_events, self._schemas, version=self._version, secrets=secrets)

    def set_analyzer(self, analyzer: SecurityAnalyzer | None) -> None:
        """From the next answer of the model on, have this analyzer judge its calls."""
        self._gate = replace(self._gate, analyzer=analyzer)

    def system_prompt(self, secrets: Mapping[str, str]) -> SystemPromptEvent:
        """What an agent is told on a branch that begins before it was told; `secrets` are descriptions by name."""
        return self._agent.system_prompt_event(self._schemas, version=self._version, secrets=secrets)

    def following(self) -> AbstractContextManager[None]:
        """Within this, the stream keeps what the next step has still to read."""
        return self._log.following()

    async def take(self, state: ConversationState) -> None:
        """Ask the model and store what comes of it.

        Cancelling it ends the request; the text streamed so far is declared void.

        Raises:
            AgentStuckInLoopError: the agent only repeats itself.
            LLMError: the model could not be asked.
            EventStoreError: its answer could not be stored.
        """
        seen = state.last_event_id
        await self._log.read(until=seen)
        if self._replay.should_replay():
            await self._repeat(state, seen)
            return
        if await self._warned():
            return
        if (answer := blind(self._agent.llm, state, self._offered)) is not None:
            await self._stream.add_event(answer)
            return
        view = await self._fitting_view()
        if view is None:
            return
        tools = await self._present_tools()
        deltas = Deltas(self._stream)
        retries = Retries(self._stream)
        try:
            step = self._input(tools, self._prompts.prompt(view))
            step = replace(step, on_delta=deltas.offer, on_retry=retries.note, view=view)
            outcome = completed(await self._agent.astep(step))
            await retries.settle()
            if (critic := self._agent.critic) is not None:
                outcome = replace(outcome, events=await criticised(critic, self._view.events, outcome.events))
            outcome, must_confirm = await self._judged(outcome, state)
            stored = await self._store_whole(outcome, seen, must_confirm=must_confirm, was_limited=retries.was_limited)
        except LLMContentPolicyError as error:
            deltas.discard()
            await retries.settle()
            said = rephrase(error, state)
            await self._stream.add_events([*_back_to_work(was_limited=retries.was_limited), said])
            return
        except (LLMContextWindowError, LLMMalformedHistoryError):
            deltas.discard()
            await retries.settle()
            condenser = self._agent.condenser if self._agent.condenses_on_overflow else None
            if condenser is None or not condenser.handles_condensation_requests():
                raise
            await self._stream.add_events([*_back_to_work(was_limited=retries.was_limited), CondensationRequest()])
            return
        except BaseException:
            deltas.discard()
            await retries.settle()
            raise
        if not any(_is_shown(event) for event in outcome.events):
            deltas.discard()  # nothing of it is in the log
        await self._log.read(until=stored)  # the tools are at work: what is done now is not left for their end

    async def _repeat(self, state: ConversationState, seen: int) -> None:
        """Store what is recorded in place of the model's answer."""
        recorded = self._replay.step(self._input(await self._present_tools(), []))
        outcome, must_confirm = await self._judged(recorded, state)
        await self._store_whole(outcome, seen, must_confirm=must_confirm, was_limited=False)

    def _input(self, tools: Mapping[str, ToolDefinition], prompt: Sequence[dict[str, Any]]) -> StepInput:
        return StepInput(
            prompt=prompt,
            tools=tools,
            tool_schemas=self._schemas,
            predicts_risk=self._gate.analyzer is not None,
            context=self.account.context,
        )

    def _forget(self) -> None:
        self._view, self._replay = View(), ReplayManager()
        self._stuck = StuckDetector(self._loops) if self._loops else None
        self._work_with(self._models.forgotten())

    def _see(self, event: AnyEvent) -> None:
        self._view.add(event)
        self._work_with(self._models.after(event))
        self._replay.observe(event)
        if self._stuck is not None:
            self._stuck.fold(event)
        if event.id % PAGE == 0:
            self._prompts.render_settled(self._view)

    def _work_with(self, agent: AgentBase) -> None:
        if agent is not self._agent:
            self._agent, self._prompts = agent, PromptCache(renderer(agent.llm, self._tools))
            self._offer(self._offered)

    async def _warned(self) -> bool:
        """Stop an agent that is stuck; warn one that is about to be, which is all that this step does."""
        if self._stuck is None:
            return False
        check_progress(self._stuck)
        warning = nudge(self._stuck)
        if warning is not None:
            await self._stream.add_event(warning)
        return warning is not None

    async def _fitting_view(self) -> View | None:
        """The view as the model is to see it; None when its condensation is all that this step does."""
        if self._agent.condenser is None:
            return self._view
        try:
            outcome = await condensed_by(self._agent.condenser, self._view, self._agent.llm, self.account.context)
        except NoCondensationError as error:
            if self._view.is_too_long or not self._view.wants_condensation:
                raise
            detail = failure_of(error)[1]  # a wish that cannot be fulfilled: nothing more
            self._stream.publish(StatusNotice("STATUS$ERROR", detail, "error"))
            await self._stream.add_events(error_events(error, detail))
            return None
        if isinstance(outcome, View):
            return outcome
        await self._stream.add_event(outcome.model_copy(update={"metrics": self.account.note()}))
        return None

    async def _judged(self, outcome: StepOutcome, state: ConversationState) -> tuple[StepOutcome, bool]:
        """The outcome with the risk of each action in it, and whether the actions wait for the user."""
        gate = self.gate(state)
        places, actions = [], []
        for place, event in enumerate(outcome.events):
            if isinstance(event, ActionEvent) and event.action is not None:
                places.append(place)
                actions.append(event)
        classified = await gate.aclassify(actions, self._view.events)
        must_confirm = gate.decide(classified)
        events = list(outcome.events)
        for place, (action, risk) in zip(places, classified, strict=True):
            if risk is SecurityRisk.MEDIUM and gate.is_confirmation_mode_active:
                where, tool = self._stream.conversation_id, action.tool_name
                logger.warning("conversation %s: a call of %s is of MEDIUM risk", where, tool)
            judged = {"security_risk": risk, "awaits_confirmation": must_confirm}
            events[place] = action.model_copy(update=judged)
        return replace(outcome, events=events), must_confirm

    async def _store_whole(self, outcome: StepOutcome, seen: int, *, must_confirm: bool, was_limited: bool) -> int:
        """An answer and the errors that belong to it are stored whole: a stop that comes meanwhile waits for that.

        Returns the id of the last event of the answer.
        """
        storing = self._store(outcome, seen, must_confirm=must_confirm, was_limited=was_limited)
        return await whole(asyncio.create_task(storing, name=f"store-answer:{self._stream.conversation_id}"))

    async def _store(self, outcome: StepOutcome, seen: int, *, must_confirm: bool, was_limited: bool) -> int:
        common = {"seen": seen, "metrics": self.account.note()}
        events: list[AnyEvent] = [
            event.model_copy(update=common) if isinstance(event, ActionEvent | MessageEvent) else event
            for event in outcome.events
        ]
        before = _back_to_work(was_limited=was_limited)
        errors = sorted(outcome.errors.items())
        if must_confirm:
            # The state comes first: clients draw the question when the action arrives, below
            # the newest event. So no error may come behind what is asked about.
            failed, events = failed_first(events, [position for position, _ in errors])
            answered = (await self._stream.add_events([*before, *failed]))[len(before) :]
            await self._stream.add_events(
                [error_for(call, text) for call, (_, text) in zip(answered, errors, strict=True)]
            )
            before, errors = [AgentStateChanged(agent_state=AgentState.AWAITING_USER_CONFIRMATION)], []
        stored = (await self._stream.add_events([*before, *events]))[len(before) :]
        await self._stream.add_events([error_for(stored[position], text) for position, text in errors])
        return stored[-1].id if stored else seen


def _is_shown(event: AnyEvent) -> bool:
    """Whether those who saw an answer's text come find it in this event."""
    return event.source == "agent" and not (isinstance(event, MessageEvent) and event.is_blank)


def _back_to_work(*, was_limited: bool) -> list[AnyEvent]:
    """The end of the state `rate_limited`, where it was entered."""
    return [AgentStateChanged(agent_state=AgentState.RUNNING)] if was_limited else []
