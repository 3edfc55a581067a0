"""Policies, and the gate that decides over a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from agent_core.events.llm_events import ActionEvent
from agent_core.events.risk import SecurityRisk
from agent_core.security.analyzer import LLMSecurityAnalyzer, SecurityAnalyzer
from agent_core.security.confirmation import (
    AlwaysConfirm,
    AnyPolicy,
    ConfirmationGate,
    ConfirmationPolicy,
    ConfirmRisky,
    NeverConfirm,
    is_confirmation_mode_active,
)
from agent_core.security.shell_rules import ShellRuleAnalyzer
from agent_core.tools.builtin import FinishAction, ThinkAction
from agent_core.tools.registry import resolve_tools
from agent_core.tools.spec import Tool
from agent_core.tools.terminal import TerminalAction

POLICIES = [
    NeverConfirm(),
    AlwaysConfirm(),
    ConfirmRisky(),
    ConfirmRisky(threshold=SecurityRisk.LOW, confirm_unknown=False),
]
ORDER = ["LOW", "MEDIUM", "HIGH"]


class Holder(BaseModel):
    policy: AnyPolicy


def call(risk: SecurityRisk = SecurityRisk.UNKNOWN, tool: str = "terminal", command: str = "make") -> ActionEvent:
    return ActionEvent(tool_name=tool, action=TerminalAction(command=command), security_risk=risk)


def asks(
    batch: Sequence[ActionEvent],
    policy: ConfirmationPolicy,
    analyzer: SecurityAnalyzer | None = None,
    read_only: Iterable[str] = (),
) -> bool:
    return ConfirmationGate(policy, analyzer, frozenset(read_only)).must_confirm(batch)


THINK = ActionEvent(tool_name="think", action=ThinkAction(thought="hm"))
FINISH = ActionEvent(tool_name="finish", action=FinishAction(message="done"))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_policy_is_made_again_from_its_json(policy: ConfirmationPolicy) -> None:
    holder = Holder(policy=policy)
    assert Holder.model_validate_json(holder.model_dump_json()) == holder
    with pytest.raises(ValidationError, match="frozen"):
        setattr(policy, "kind", "x")  # noqa: B010 - the type checker knows that it is frozen


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValidationError, match="'AlwaysConfirm', 'ConfirmRisky', 'NeverConfirm'"):
        Holder.model_validate({"policy": {"kind": "Sometimes"}})


@pytest.mark.parametrize("risk", list(SecurityRisk))
def test_never_and_always_ask_whatever_the_risk(risk: SecurityRisk) -> None:
    assert not NeverConfirm().should_confirm(risk)
    assert AlwaysConfirm().should_confirm(risk)


@given(threshold=st.sampled_from(ORDER), risk=st.sampled_from(SecurityRisk), confirm_unknown=st.booleans())
def test_confirm_risky_asks_from_its_threshold_on(threshold: str, risk: SecurityRisk, confirm_unknown: bool) -> None:
    policy = ConfirmRisky(threshold=SecurityRisk(threshold), confirm_unknown=confirm_unknown)
    if risk is SecurityRisk.UNKNOWN:
        assert policy.should_confirm(risk) == confirm_unknown
    else:
        assert policy.should_confirm(risk) == (ORDER.index(risk) >= ORDER.index(threshold))


def test_defaults_ask_for_high_and_for_unknown() -> None:
    assert ConfirmRisky() == ConfirmRisky(threshold=SecurityRisk.HIGH, confirm_unknown=True)
    assert ConfirmRisky().should_confirm()
    assert not ConfirmRisky().should_confirm(SecurityRisk.MEDIUM)
    with pytest.raises(ValidationError, match="threshold must be"):
        ConfirmRisky(threshold=SecurityRisk.UNKNOWN)


def test_risks_may_be_given_by_their_names() -> None:
    assert ConfirmRisky().should_confirm("HIGH")  # type: ignore[arg-type] # a program that is not type-checked
    assert not ConfirmRisky(confirm_unknown=False).should_confirm("UNKNOWN")  # type: ignore[arg-type] # likewise


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_nothing_and_a_single_thought_or_finish_need_no_agreement(policy: ConfirmationPolicy) -> None:
    for batch in ([], [THINK], [FINISH]):
        assert not asks(batch, policy)
        assert not asks(batch, policy, ShellRuleAnalyzer())


def test_one_call_that_needs_agreement_stops_its_batch() -> None:
    low, high = call(SecurityRisk.LOW), call(SecurityRisk.HIGH)
    analyzer = LLMSecurityAnalyzer()
    assert not asks([low, low], ConfirmRisky(), analyzer)
    assert asks([low, high, low], ConfirmRisky(), analyzer)
    assert asks([low, FINISH], AlwaysConfirm(), analyzer)
    assert asks([THINK, high], ConfirmRisky(), analyzer)
    assert not asks([high, high], NeverConfirm(), analyzer)


def test_without_an_analyzer_every_risk_is_unknown() -> None:
    assert asks([call(SecurityRisk.LOW)], ConfirmRisky())
    assert not asks([call(SecurityRisk.HIGH)], ConfirmRisky(confirm_unknown=False))
    assert asks([call(SecurityRisk.LOW)], AlwaysConfirm())


def test_read_only_tools_are_low_where_an_analyzer_is_set() -> None:
    reading = call(tool="grep")
    assert asks([reading], ConfirmRisky(), LLMSecurityAnalyzer())
    assert not asks([reading], ConfirmRisky(), LLMSecurityAnalyzer(), {"grep"})
    assert asks([reading], ConfirmRisky(), None, {"grep"})
    assert asks([call(SecurityRisk.HIGH, tool="grep")], ConfirmRisky(), LLMSecurityAnalyzer(), {"grep"})
    assert not asks([call(SecurityRisk.LOW), THINK], ConfirmRisky(), LLMSecurityAnalyzer())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("analyzer", [None, LLMSecurityAnalyzer(), ShellRuleAnalyzer()], ids=str)
def test_confirmation_mode_is_active_if_and_only_if_there_is_an_analyzer_and_a_policy_that_asks(
    analyzer: LLMSecurityAnalyzer | ShellRuleAnalyzer | None, policy: ConfirmationPolicy
) -> None:
    expected = analyzer is not None and policy.kind != "NeverConfirm"
    assert is_confirmation_mode_active(analyzer, policy) == expected
    assert ConfirmationGate(policy, analyzer).is_confirmation_mode_active == expected


async def test_a_gate_knows_its_tools_and_says_the_same_asynchronously() -> None:
    gate = ConfirmationGate.for_tools(
        ConfirmRisky(), ShellRuleAnalyzer(), resolve_tools([Tool(name="terminal"), Tool(name="think")])
    )
    assert gate.read_only_tools == {"think"}
    batch = [call(command="ls"), call(command="rm -rf /"), THINK]
    classified = gate.classify(batch)
    assert [risk for _, risk in classified] == ["LOW", "HIGH", "LOW"]
    assert await gate.aclassify(batch) == classified
    assert gate.decide(classified)
    assert gate.must_confirm(batch)
    assert not gate.must_confirm([batch[0], THINK])
    bare = ConfirmationGate(ConfirmRisky())
    assert await bare.aclassify(batch) == bare.classify(batch)


def test_a_policy_alone_goes_by_the_risks_that_the_actions_carry() -> None:
    assert ConfirmRisky().must_confirm([call()])
    assert ConfirmRisky().must_confirm([call(SecurityRisk.LOW), call(SecurityRisk.HIGH)])
    assert not ConfirmRisky().must_confirm([call(SecurityRisk.MEDIUM), THINK, FINISH])
    assert not NeverConfirm().must_confirm([call(SecurityRisk.HIGH)])
