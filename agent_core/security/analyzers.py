"""All security analyzers, registered by importing this module, and the names by which users choose them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Final

from agent_core.security.analyzer import EnsembleSecurityAnalyzer, LLMSecurityAnalyzer, SecurityAnalyzer
from agent_core.security.confirmation import AlwaysConfirm, ConfirmationPolicy, ConfirmRisky
from agent_core.security.grayswan import GraySwanAnalyzer
from agent_core.security.pattern import PatternSecurityAnalyzer
from agent_core.security.shell_rules import PolicyRailSecurityAnalyzer, ShellRuleAnalyzer

ALL_ANALYZERS: tuple[type[SecurityAnalyzer], ...] = (
    LLMSecurityAnalyzer,
    PatternSecurityAnalyzer,
    ShellRuleAnalyzer,
    PolicyRailSecurityAnalyzer,
    EnsembleSecurityAnalyzer,
    GraySwanAnalyzer,
)


def get_default_analyzer() -> SecurityAnalyzer:
    """Rules that read commands, and the model's own word: the greater risk counts, unknown if either cannot tell."""
    return EnsembleSecurityAnalyzer(analyzers=(ShellRuleAnalyzer(), LLMSecurityAnalyzer()), propagate_unknown=True)


ANALYZERS: Final[Mapping[str, Callable[[], SecurityAnalyzer]]] = {
    "llm": LLMSecurityAnalyzer,
    "rules": ShellRuleAnalyzer,
    "rules+llm": get_default_analyzer,
}


def list_analyzers() -> dict[str, Callable[[], SecurityAnalyzer]]:
    """The analyzers that settings can name: ours, and those that a program has defined, by the names of their classes.

    Each is made without arguments.
    """
    own = {
        name: one
        for name, one in SecurityAnalyzer.classes.items()
        if issubclass(one, SecurityAnalyzer)
        and not inspect.isabstract(one)
        and not one.__module__.startswith("agent_core.")
    }
    return {**own, **ANALYZERS}


def analyzer_named(name: str | None) -> SecurityAnalyzer:
    """The analyzer of this name; the default one for no name, and for one that is not known here."""
    return list_analyzers().get(name or "", get_default_analyzer)()


def policy_with(name: str | None) -> ConfirmationPolicy:
    """What waits for users who want to be asked: what it calls risky or cannot tell; everything without one."""
    return ConfirmRisky() if name in list_analyzers() else AlwaysConfirm()
