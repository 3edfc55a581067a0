"""How risky an action is: one notion for events, tools, analyzers and the wire."""

from __future__ import annotations

from enum import StrEnum


class SecurityRisk(StrEnum):
    """The risk of one action: LOW < MEDIUM < HIGH, and UNKNOWN where nobody can tell.

    It is the string of its name, in JSON and in the log too. Whether two risks are equal can always be asked; which is
    the greater one only of known risks: any such comparison with UNKNOWN raises `ValueError`, so that nobody takes it
    for harmless (or for the worst) without saying so.
    """

    UNKNOWN = "UNKNOWN"
    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"

    def is_riskier(self, other: SecurityRisk, reflexive: bool = True) -> bool:
        """Whether this risk is greater than `other`; an equal one counts unless `reflexive` is False.

        Raises:
            ValueError: one of the two is UNKNOWN.
        """
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
