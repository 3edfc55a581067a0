"""Risks: their order, their strings, and how they add up."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.events.llm_events import ActionEvent
from agent_core.events.risk import SecurityRisk
from agent_core.events.serialization import from_payload, to_payload
from agent_core.security.analyzer import riskiest

KNOWN = [SecurityRisk.LOW, SecurityRisk.MEDIUM, SecurityRisk.HIGH]
RISKS = st.sampled_from(SecurityRisk)


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge])
@given(first=RISKS, second=RISKS)
def test_known_risks_are_ordered_and_unknown_has_no_place_among_them(
    compare: Callable[[object, object], bool], first: SecurityRisk, second: SecurityRisk
) -> None:
    if SecurityRisk.UNKNOWN in {first, second}:
        with pytest.raises(ValueError, match="UNKNOWN"):
            compare(first, second)
    else:
        assert compare(first, second) == compare(KNOWN.index(first), KNOWN.index(second))


@given(first=RISKS, second=RISKS)
def test_whether_risks_are_equal_can_always_be_asked(first: SecurityRisk, second: SecurityRisk) -> None:
    assert (first == second) == (first is second)
    assert first == first.value
    assert hash(first) == hash(first.value)


def test_is_riskier_counts_an_equal_one_unless_told_otherwise() -> None:
    assert SecurityRisk.HIGH.is_riskier(SecurityRisk.LOW)
    assert SecurityRisk.HIGH.is_riskier(SecurityRisk.HIGH)
    assert not SecurityRisk.HIGH.is_riskier(SecurityRisk.HIGH, reflexive=False)
    assert not SecurityRisk.LOW.is_riskier(SecurityRisk.HIGH)
    with pytest.raises(ValueError, match="UNKNOWN"):
        SecurityRisk.UNKNOWN.is_riskier(SecurityRisk.UNKNOWN)


@given(st.lists(RISKS))
def test_the_riskiest_is_the_greatest_that_is_known(risks: list[SecurityRisk]) -> None:
    known = [risk for risk in risks if risk is not SecurityRisk.UNKNOWN]
    assert riskiest(risks) == (KNOWN[max(KNOWN.index(risk) for risk in known)] if known else "UNKNOWN")
    if SecurityRisk.UNKNOWN in risks:
        assert riskiest(risks, propagate_unknown=True) == "UNKNOWN"


@given(RISKS)
def test_events_keep_risks_as_their_plain_strings(risk: SecurityRisk) -> None:
    event = ActionEvent(tool_name="x", security_risk=risk)
    assert json.loads(event.model_dump_json())["security_risk"] == risk.value
    read = ActionEvent.model_validate({"tool_name": "x", "security_risk": risk.value})
    assert read.security_risk is risk
    stored = from_payload(to_payload(event), 0)
    assert isinstance(stored, ActionEvent)
    assert stored.security_risk is risk
