"""All analyzers: importing this module registers each by its name."""

from __future__ import annotations

from agent_core.security.analyzer import EnsembleSecurityAnalyzer, LLMSecurityAnalyzer, SecurityAnalyzer
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
