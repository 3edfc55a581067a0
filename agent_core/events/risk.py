"""Risk of an action: one notion for events, tools, analyzers and the wire."""

from __future__ import annotations

from enum import StrEnum


class SecurityRisk(StrEnum):
    """The risk of one action, as the string of its name: LOW < MEDIUM < HIGH, and UNKNOWN where nobody can tell.

    To compare the order with UNKNOWN raises `ValueError`: it is neither harmless nor the worst.
    """

    UNKNOWN = "UNKNOWN"
    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"

    def is_riskier(self, other: SecurityRisk, reflexive: bool = True) -> bool:
        """Whether it is greater than `other`, or (`reflexive`) equal to it; raises `ValueError` for UNKNOWN."""
        return self >= other if reflexive else self > other

    def __lt__(self, other: str) -> bool:
        return self._rank() < _known(other)._rank()

    def __le__(self, other: str) -> bool:
        return self._rank() <= _known(other)._rank()

    def __gt__(self, other: str) -> bool:
        return self._rank() > _known(other)._rank()

    def __ge__(self, other: str) -> bool:
        return self._rank() >= _known(other)._rank()

    def _rank(self) -> int:
        if self is SecurityRisk.UNKNOWN:
            raise ValueError("UNKNOWN is neither more nor less than another risk; compare known risks only")
        return _ORDER.index(self)


_ORDER = (SecurityRisk.LOW, SecurityRisk.MEDIUM, SecurityRisk.HIGH)


def _known(value: str) -> SecurityRisk:
    return SecurityRisk(value)
