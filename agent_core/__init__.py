"""agent_core: conversations between people, models and sandboxes, without a server or a database.

The public names are loaded when they are first used, so importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_core.agent.agent import Agent
    from agent_core.agent.base import AgentBase
    from agent_core.agent.codeact import CodeActAgent
    from agent_core.agent.critic import (
        AgentFinishedCritic,
        CriticBase,
        CriticMixin,
        EmptyPatchCritic,
        IterativeRefinementConfig,
        PassCritic,
    )
    from agent_core.agent.planning import PlanningAgent, get_planning_agent
    from agent_core.agent.presets import get_default_agent
    from agent_core.conversation import Conversation
    from agent_core.errors import ConversationRunError
    from agent_core.events.control import Condensation, CondensationRequest, ConversationErrorEvent, HookExecutionEvent
    from agent_core.events.event import Event, LLMConvertibleEvent
    from agent_core.events.llm_events import (
        ActionEvent,
        AgentErrorEvent,
        CondensationSummaryEvent,
        MessageEvent,
        ObservationEvent,
        SystemPromptEvent,
        UserRejectObservation,
    )
    from agent_core.events.messages import ImageContent, Message, MessageToolCall, TextContent, content_to_str
    from agent_core.events.risk import SecurityRisk
    from agent_core.events.schema import Action, Observation
    from agent_core.llm.fallback import FallbackStrategy
    from agent_core.llm.llm import LLM
    from agent_core.llm.registry import LLMRegistry
    from agent_core.llm.router import MultimodalRouter, RandomRouter, RouterLLM
    from agent_core.log import get_logger
    from agent_core.memory.condenser import Condenser, NoOpCondenser, PipelineCondenser
    from agent_core.memory.condensers.attention import LLMAttentionCondenser
    from agent_core.memory.condensers.forgetting import AmortizedForgettingCondenser, RecentEventsCondenser
    from agent_core.memory.condensers.masking import BrowserOutputCondenser, ObservationMaskingCondenser
    from agent_core.memory.condensers.structured import StructuredSummaryCondenser
    from agent_core.memory.condensers.summarizing import LLMSummarizingCondenser
    from agent_core.memory.condensers.window import ConversationWindowCondenser
    from agent_core.security.analyzer import EnsembleSecurityAnalyzer, LLMSecurityAnalyzer, SecurityAnalyzer
    from agent_core.security.confirmation import AlwaysConfirm, ConfirmationPolicy, ConfirmRisky, NeverConfirm
    from agent_core.security.hooks import HookConfig
    from agent_core.security.pattern import PatternSecurityAnalyzer
    from agent_core.security.shell_rules import PolicyRailSecurityAnalyzer, ShellRuleAnalyzer
    from agent_core.session.repository import GitSetup, Repository
    from agent_core.session.status import ExecutionStatus
    from agent_core.session.workspace import DockerWorkspace, LocalWorkspace
    from agent_core.skills.agent_catalog import register_agent, register_agent_definition
    from agent_core.skills.agent_definition import AgentDefinition
    from agent_core.skills.context import AgentContext
    from agent_core.skills.skill import Skill
    from agent_core.skills.trigger import KeywordTrigger, PathTrigger, TaskTrigger
    from agent_core.tools.definition import ToolDefinition
    from agent_core.tools.execution import ToolExecutor
    from agent_core.tools.registry import list_registered_tools, register_tool, resolve_tool
    from agent_core.tools.spec import Tool, ToolAnnotations

    __version__: str

__all__ = [
    "LLM",
    "Action",
    "ActionEvent",
    "Agent",
    "AgentBase",
    "AgentContext",
    "AgentDefinition",
    "AgentErrorEvent",
    "AgentFinishedCritic",
    "AlwaysConfirm",
    "AmortizedForgettingCondenser",
    "BrowserOutputCondenser",
    "CodeActAgent",
    "Condensation",
    "CondensationRequest",
    "CondensationSummaryEvent",
    "Condenser",
    "ConfirmRisky",
    "ConfirmationPolicy",
    "Conversation",
    "ConversationErrorEvent",
    "ConversationRunError",
    "ConversationWindowCondenser",
    "CriticBase",
    "CriticMixin",
    "DockerWorkspace",
    "EmptyPatchCritic",
    "EnsembleSecurityAnalyzer",
    "Event",
    "ExecutionStatus",
    "FallbackStrategy",
    "GitSetup",
    "HookConfig",
    "HookExecutionEvent",
    "ImageContent",
    "IterativeRefinementConfig",
    "KeywordTrigger",
    "LLMAttentionCondenser",
    "LLMConvertibleEvent",
    "LLMRegistry",
    "LLMSecurityAnalyzer",
    "LLMSummarizingCondenser",
    "LocalWorkspace",
    "Message",
    "MessageEvent",
    "MessageToolCall",
    "MultimodalRouter",
    "NeverConfirm",
    "NoOpCondenser",
    "Observation",
    "ObservationEvent",
    "ObservationMaskingCondenser",
    "PassCritic",
    "PathTrigger",
    "PatternSecurityAnalyzer",
    "PipelineCondenser",
    "PlanningAgent",
    "PolicyRailSecurityAnalyzer",
    "RandomRouter",
    "RecentEventsCondenser",
    "Repository",
    "RouterLLM",
    "SecurityAnalyzer",
    "SecurityRisk",
    "ShellRuleAnalyzer",
    "Skill",
    "StructuredSummaryCondenser",
    "SystemPromptEvent",
    "TaskTrigger",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "ToolDefinition",
    "ToolExecutor",
    "UserRejectObservation",
    "__version__",
    "content_to_str",
    "get_default_agent",
    "get_logger",
    "get_planning_agent",
    "list_registered_tools",
    "register_agent",
    "register_agent_definition",
    "register_tool",
    "resolve_tool",
]

_MODULES = {
    "agent.agent": ("Agent",),
    "agent.base": ("AgentBase",),
    "agent.codeact": ("CodeActAgent",),
    "agent.critic": (
        "AgentFinishedCritic",
        "CriticBase",
        "CriticMixin",
        "EmptyPatchCritic",
        "IterativeRefinementConfig",
        "PassCritic",
    ),
    "agent.planning": (
        "PlanningAgent",
        "get_planning_agent",
    ),
    "agent.presets": ("get_default_agent",),
    "conversation": ("Conversation",),
    "errors": ("ConversationRunError",),
    "events.control": (
        "Condensation",
        "CondensationRequest",
        "ConversationErrorEvent",
        "HookExecutionEvent",
    ),
    "events.event": (
        "Event",
        "LLMConvertibleEvent",
    ),
    "events.llm_events": (
        "ActionEvent",
        "AgentErrorEvent",
        "CondensationSummaryEvent",
        "MessageEvent",
        "ObservationEvent",
        "SystemPromptEvent",
        "UserRejectObservation",
    ),
    "events.messages": (
        "ImageContent",
        "Message",
        "MessageToolCall",
        "TextContent",
        "content_to_str",
    ),
    "events.risk": ("SecurityRisk",),
    "events.schema": (
        "Action",
        "Observation",
    ),
    "llm.fallback": ("FallbackStrategy",),
    "llm.llm": ("LLM",),
    "llm.registry": ("LLMRegistry",),
    "llm.router": (
        "MultimodalRouter",
        "RandomRouter",
        "RouterLLM",
    ),
    "log": ("get_logger",),
    "memory.condenser": (
        "Condenser",
        "NoOpCondenser",
        "PipelineCondenser",
    ),
    "memory.condensers.attention": ("LLMAttentionCondenser",),
    "memory.condensers.forgetting": (
        "AmortizedForgettingCondenser",
        "RecentEventsCondenser",
    ),
    "memory.condensers.masking": (
        "BrowserOutputCondenser",
        "ObservationMaskingCondenser",
    ),
    "memory.condensers.structured": ("StructuredSummaryCondenser",),
    "memory.condensers.summarizing": ("LLMSummarizingCondenser",),
    "memory.condensers.window": ("ConversationWindowCondenser",),
    "security.analyzer": (
        "EnsembleSecurityAnalyzer",
        "LLMSecurityAnalyzer",
        "SecurityAnalyzer",
    ),
    "security.confirmation": (
        "AlwaysConfirm",
        "ConfirmRisky",
        "ConfirmationPolicy",
        "NeverConfirm",
    ),
    "security.hooks": ("HookConfig",),
    "security.pattern": ("PatternSecurityAnalyzer",),
    "security.shell_rules": (
        "PolicyRailSecurityAnalyzer",
        "ShellRuleAnalyzer",
    ),
    "session.repository": (
        "GitSetup",
        "Repository",
    ),
    "session.status": ("ExecutionStatus",),
    "session.workspace": (
        "DockerWorkspace",
        "LocalWorkspace",
    ),
    "skills.agent_catalog": (
        "register_agent",
        "register_agent_definition",
    ),
    "skills.agent_definition": ("AgentDefinition",),
    "skills.context": ("AgentContext",),
    "skills.skill": ("Skill",),
    "skills.trigger": (
        "KeywordTrigger",
        "PathTrigger",
        "TaskTrigger",
    ),
    "tools.definition": ("ToolDefinition",),
    "tools.execution": ("ToolExecutor",),
    "tools.registry": (
        "list_registered_tools",
        "register_tool",
        "resolve_tool",
    ),
    "tools.spec": (
        "Tool",
        "ToolAnnotations",
    ),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name, loaded when it is asked for."""
    if name == "__version__":
        return import_module("agent_core.version").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
