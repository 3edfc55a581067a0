"""Risks and how several of them add up."""

from __future__ import annotations

from collections.abc import Iterable

from agent_core.events.risk import SecurityRisk

__all__ = ["SecurityRisk", "riskiest"]


def riskiest(risks: Iterable[SecurityRisk], *, propagate_unknown: bool = False) -> SecurityRisk:
    """The greatest of the known risks; UNKNOWN when none is known, or there is none.

    With `propagate_unknown` a single UNKNOWN makes the whole UNKNOWN.
    """
    given = list(risks)
    known = [risk for risk in given if risk is not SecurityRisk.UNKNOWN]
    if not known or (propagate_unknown and len(known) < len(given)):
        return SecurityRisk.UNKNOWN
    return max(known)
