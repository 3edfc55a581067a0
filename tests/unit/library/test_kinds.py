"""What is stored as data is made again from it by its `kind`, whichever class of its family is asked."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from agent_core import (
    LLM,
    Action,
    ActionEvent,
    Agent,
    AgentBase,
    AgentErrorEvent,
    AgentFinishedCritic,
    AlwaysConfirm,
    AmortizedForgettingCondenser,
    BrowserOutputCondenser,
    Condensation,
    CondensationRequest,
    CondensationSummaryEvent,
    Condenser,
    ConfirmationPolicy,
    ConfirmRisky,
    ConversationErrorEvent,
    ConversationWindowCondenser,
    CriticBase,
    EmptyPatchCritic,
    EnsembleSecurityAnalyzer,
    Event,
    HookExecutionEvent,
    InterruptEvent,
    LLMAttentionCondenser,
    LLMConvertibleEvent,
    LLMSecurityAnalyzer,
    LLMSummarizingCondenser,
    Message,
    MessageEvent,
    MultimodalRouter,
    NeverConfirm,
    NoOpCondenser,
    Observation,
    ObservationEvent,
    ObservationMaskingCondenser,
    PassCritic,
    PatternSecurityAnalyzer,
    PauseEvent,
    PipelineCondenser,
    PolicyRailSecurityAnalyzer,
    RandomRouter,
    RecentEventsCondenser,
    SecurityAnalyzer,
    ShellRuleAnalyzer,
    StructuredSummaryCondenser,
    SystemPromptEvent,
    TextContent,
    Tool,
    UserRejectObservation,
)
from agent_core.tools import FinishObservation, TerminalAction

MODEL = LLM(model="openai/gpt-4o")
TERMINAL = TerminalAction(command="ls")
CONDENSERS: list[Condenser] = [
    AmortizedForgettingCondenser(max_size=50),
    BrowserOutputCondenser(),
    ConversationWindowCondenser(),
    LLMAttentionCondenser(llm=MODEL),
    LLMSummarizingCondenser(llm=MODEL, max_size=80, keep_first=4),
    NoOpCondenser(),
    ObservationMaskingCondenser(attention_window=3),
    RecentEventsCondenser(),
    StructuredSummaryCondenser(llm=MODEL),
]
ROUTERS: list[LLM] = [
    MultimodalRouter(llms_for_routing={"primary": MODEL, "secondary": LLM(model="openai/small")}),
    RandomRouter(llms_for_routing={"a": MODEL}),
]
EVENTS: list[Event] = [
    ActionEvent(tool_name="terminal", action=TERMINAL, tool_call_id="c"),
    AgentErrorEvent(error="no", tool_name="terminal", tool_call_id="c"),
    Condensation(forgotten_event_ids=[1, 2], summary="s", summary_offset=1),
    CondensationRequest(),
    CondensationSummaryEvent(summary="s"),
    ConversationErrorEvent(code="c", detail="d"),
    InterruptEvent(),
    PauseEvent(),
    HookExecutionEvent(hook_event_type="Stop", hook_command="c", success=True),
    MessageEvent(source="user", llm_message=Message.user("hi")),
    ObservationEvent(cause=1, tool_name="finish", observation=FinishObservation.from_text("done")),
    SystemPromptEvent(system_prompt=TextContent(text="x")),
    UserRejectObservation(cause=1, tool_name="terminal"),
]
CASES: list[tuple[type[BaseModel], BaseModel]] = [
    *((Condenser, one) for one in (*CONDENSERS, PipelineCondenser(condensers=CONDENSERS))),
    *((ConfirmationPolicy, one) for one in (AlwaysConfirm(), NeverConfirm(), ConfirmRisky(threshold="MEDIUM"))),
    *((SecurityAnalyzer, one) for one in (LLMSecurityAnalyzer(), PatternSecurityAnalyzer())),
    *((SecurityAnalyzer, one) for one in (PolicyRailSecurityAnalyzer(rails=("disk",)), ShellRuleAnalyzer())),
    (SecurityAnalyzer, EnsembleSecurityAnalyzer(analyzers=(LLMSecurityAnalyzer(), ShellRuleAnalyzer()))),
    *((CriticBase, one) for one in (AgentFinishedCritic(), EmptyPatchCritic(), PassCritic(mode="all_actions"))),
    *((LLM, one) for one in ROUTERS),
    *(
        (AgentBase, kind(llm=ROUTERS[0], condenser=CONDENSERS[0], critic=PassCritic(), tools=[Tool(name="terminal")]))
        for kind in AgentBase.agents.values()
        if issubclass(kind, Agent) and kind.__module__.startswith("agent_core.")
    ),
    *((Event, one) for one in EVENTS),
    *((LLMConvertibleEvent, one) for one in EVENTS if isinstance(one, LLMConvertibleEvent)),
    (Action, TERMINAL),
    (Observation, FinishObservation.from_text("done")),
]


@pytest.mark.parametrize(
    ("family", "one"), CASES, ids=[f"{family.__name__}-{type(one).__name__}" for family, one in CASES]
)
def test_data_of_every_kind_become_what_they_were(family: type[BaseModel], one: BaseModel) -> None:
    data = one.model_dump()
    assert data["kind"] == type(one).__name__ or isinstance(one, ConversationErrorEvent)
    for again in (family.model_validate(data), family.model_validate_json(one.model_dump_json())):
        assert type(again) is type(one)
        assert again == one


class Mine(BaseModel):
    condenser: Condenser
    policy: ConfirmationPolicy


def test_a_field_of_a_familys_type_reads_every_kind() -> None:
    data = {"condenser": {"kind": "NoOpCondenser"}, "policy": {"kind": "ConfirmRisky", "threshold": "LOW"}}
    found = Mine.model_validate(data)
    assert found.condenser == NoOpCondenser()
    assert found.policy == ConfirmRisky(threshold="LOW")


@pytest.mark.parametrize("family", [Condenser, ConfirmationPolicy, SecurityAnalyzer, CriticBase, AgentBase, LLM, Event])
@pytest.mark.parametrize("data", [{"kind": "Nonesuch"}, {"kind": "NeverHeard", "a": 1}])
def test_a_kind_that_there_is_not_is_refused(family: type[BaseModel], data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="kind"):
        family.model_validate(data)
