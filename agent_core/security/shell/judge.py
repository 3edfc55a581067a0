"""Judges a shell command: its risk, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Finding, Programs
from agent_core.security.shell.marks import RESERVED
from agent_core.security.shell.programs.damaging import DAMAGING
from agent_core.security.shell.programs.installing import INSTALLING
from agent_core.security.shell.programs.interpreting import INTERPRETING
from agent_core.security.shell.programs.managing import MANAGING
from agent_core.security.shell.programs.networking import NETWORKING
from agent_core.security.shell.programs.reading import READING
from agent_core.security.shell.programs.starting import STARTING
from agent_core.security.shell.programs.variables import VARIABLES
from agent_core.security.shell.syntax import Budget, TooComplexError
from agent_core.security.shell.walker import Walker

MAX_COMMAND: Final = 1_000_000
MAX_REMEMBERED: Final = 4_000
_INVISIBLE: Final = re.compile(
    "[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f"
    + re.escape("".join(sorted(RESERVED)))
    + "]"
)
"""Characters that a person does not see, or that we use as marks: what they hide nobody can agree to."""
PROGRAMS: Final = Programs(
    {**READING, **VARIABLES, **STARTING, **INTERPRETING, **NETWORKING, **INSTALLING, **MANAGING, **DAMAGING}
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The risk of a command and the findings behind it, those that matter most first."""

    risk: SecurityRisk
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, in words for a person; without the mere naming of programs unless there is nothing else."""
        return tuple(dict.fromkeys(finding.reason for finding in self.findings if finding.risk is self.risk))


def judge(command: str) -> Judgement:
    """Judge a command without running any of it.

    HIGH wins over everything: what is dangerous stays so whatever else there is. Then UNKNOWN: something could not be
    told. Then the greatest of the other risks; a command that only looks at things is LOW, and so is an empty one.
    Time and memory are bounded however long or nested the command is; what goes beyond is UNKNOWN.
    """
    return _judged_before(command) if len(command) <= MAX_REMEMBERED else _judge(command)


def _judge(command: str) -> Judgement:
    if len(command) > MAX_COMMAND:
        finding = Finding(SecurityRisk.UNKNOWN, "too-complex", f"is longer than {MAX_COMMAND:,} characters")
        return Judgement(SecurityRisk.UNKNOWN, (finding,))
    if _INVISIBLE.search(command):
        finding = Finding(SecurityRisk.UNKNOWN, "characters", "holds control or invisible characters")
        return Judgement(SecurityRisk.UNKNOWN, (finding,))
    walker = Walker(PROGRAMS, Budget())
    try:
        walker.walk(command)
    except (TooComplexError, RecursionError) as error:
        reason = str(error) if isinstance(error, TooComplexError) else "the command is nested too deeply to be judged"
        walker.note(Finding(SecurityRisk.UNKNOWN, "too-complex", reason))
    return _judgement(walker.findings)


_judged_before = lru_cache(maxsize=128)(_judge)  # several analyzers ask about the same command
_ORDER: Final = (SecurityRisk.HIGH, SecurityRisk.UNKNOWN, SecurityRisk.MEDIUM, SecurityRisk.LOW)


def _judgement(findings: list[Finding]) -> Judgement:
    ordered = tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.risk)))
    return Judgement(ordered[0].risk if ordered else SecurityRisk.LOW, ordered)
