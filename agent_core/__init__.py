"""agent_core: conversations between people, models and sandboxes, without a server or a database.

The public names are loaded when they are first used, so importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_core.lazy_names import LazyNames

if TYPE_CHECKING:
    import logging

    from agent_core.agent.agent import Agent as Agent
    from agent_core.agent.base import AgentBase as AgentBase
    from agent_core.agent.codeact import CodeActAgent as CodeActAgent
    from agent_core.agent.critic import AgentFinishedCritic as AgentFinishedCritic
    from agent_core.agent.critic import CriticBase as CriticBase
    from agent_core.agent.critic import CriticMixin as CriticMixin
    from agent_core.agent.critic import EmptyPatchCritic as EmptyPatchCritic
    from agent_core.agent.critic import IterativeRefinementConfig as IterativeRefinementConfig
    from agent_core.agent.critic import PassCritic as PassCritic
    from agent_core.agent.presets import BrowsingAgent as BrowsingAgent
    from agent_core.agent.presets import DummyAgent as DummyAgent
    from agent_core.agent.presets import LocAgent as LocAgent
    from agent_core.agent.presets import PlanningAgent as PlanningAgent
    from agent_core.agent.presets import ReadOnlyAgent as ReadOnlyAgent
    from agent_core.agent.presets import VisualBrowsingAgent as VisualBrowsingAgent
    from agent_core.agent.presets import get_default_agent as get_default_agent
    from agent_core.agent.presets import get_planning_agent as get_planning_agent
    from agent_core.agent.step import StepInput as StepInput
    from agent_core.agent.step import StepOutcome as StepOutcome
    from agent_core.agent.switch_llm import SwitchLLMTool as SwitchLLMTool
    from agent_core.agent.system_prompt import PromptManager as PromptManager
    from agent_core.controller.agent_controller import AgentController as AgentController
    from agent_core.controller.replay import ReplayManager as ReplayManager
    from agent_core.controller.stuck import StuckDetectionThresholds as StuckDetectionThresholds
    from agent_core.controller.stuck import StuckDetector as StuckDetector
    from agent_core.errors import ConversationRunError as ConversationRunError
    from agent_core.errors import DrydockError as DrydockError
    from agent_core.errors import FunctionCallConversionError as FunctionCallConversionError
    from agent_core.errors import FunctionCallNotExistsError as FunctionCallNotExistsError
    from agent_core.errors import FunctionCallValidationError as FunctionCallValidationError
    from agent_core.errors import LLMAuthenticationError as LLMAuthenticationError
    from agent_core.errors import LLMBadRequestError as LLMBadRequestError
    from agent_core.errors import LLMContentPolicyError as LLMContentPolicyError
    from agent_core.errors import LLMContextWindowError as LLMContextWindowError
    from agent_core.errors import LLMError as LLMError
    from agent_core.errors import LLMMalformedHistoryError as LLMMalformedHistoryError
    from agent_core.errors import LLMNoResponseError as LLMNoResponseError
    from agent_core.errors import LLMRateLimitError as LLMRateLimitError
    from agent_core.errors import LLMTimeoutError as LLMTimeoutError
    from agent_core.errors import LLMUnavailableError as LLMUnavailableError
    from agent_core.errors import NoCondensationError as NoCondensationError
    from agent_core.errors import RemoteError as RemoteError
    from agent_core.errors import SkillValidationError as SkillValidationError
    from agent_core.errors import ToolError as ToolError
    from agent_core.errors import ToolNotFoundError as ToolNotFoundError
    from agent_core.events.branches import get_unmatched_actions as get_unmatched_actions
    from agent_core.events.classification import ErrorClassification as ErrorClassification
    from agent_core.events.control import AgentState as AgentState
    from agent_core.events.control import Condensation as Condensation
    from agent_core.events.control import CondensationRequest as CondensationRequest
    from agent_core.events.control import ConversationErrorEvent as ConversationErrorEvent
    from agent_core.events.control import HookExecutionEvent as HookExecutionEvent
    from agent_core.events.control import InterruptEvent as InterruptEvent
    from agent_core.events.control import PauseEvent as PauseEvent
    from agent_core.events.control import RecallAction as RecallAction
    from agent_core.events.control import RecallObservation as RecallObservation
    from agent_core.events.event import Event as Event
    from agent_core.events.event import LLMConvertibleEvent as LLMConvertibleEvent
    from agent_core.events.llm_events import ActionEvent as ActionEvent
    from agent_core.events.llm_events import AgentErrorEvent as AgentErrorEvent
    from agent_core.events.llm_events import CondensationSummaryEvent as CondensationSummaryEvent
    from agent_core.events.llm_events import CriticResult as CriticResult
    from agent_core.events.llm_events import MessageEvent as MessageEvent
    from agent_core.events.llm_events import MetricsSnapshot as MetricsSnapshot
    from agent_core.events.llm_events import ObservationEvent as ObservationEvent
    from agent_core.events.llm_events import SystemPromptEvent as SystemPromptEvent
    from agent_core.events.llm_events import TokenUsage as TokenUsage
    from agent_core.events.llm_events import UserRejectObservation as UserRejectObservation
    from agent_core.events.messages import ImageContent as ImageContent
    from agent_core.events.messages import Message as Message
    from agent_core.events.messages import MessageToolCall as MessageToolCall
    from agent_core.events.messages import TextContent as TextContent
    from agent_core.events.messages import content_to_str as content_to_str
    from agent_core.events.risk import SecurityRisk as SecurityRisk
    from agent_core.events.schema import Action as Action
    from agent_core.events.schema import Observation as Observation
    from agent_core.events.stream import EventStream as EventStream
    from agent_core.events.transient import TextDelta as TextDelta
    from agent_core.library.console import ConsoleView as ConsoleView
    from agent_core.library.conversation import Conversation as Conversation
    from agent_core.library.conversation_log import ExecutionStatus as ExecutionStatus
    from agent_core.library.conversation_log import get_agent_final_response as get_agent_final_response
    from agent_core.library.conversation_state import ConversationState as ConversationState
    from agent_core.library.mcp_sign_in import asign_in_to_mcp_server as asign_in_to_mcp_server
    from agent_core.library.mcp_sign_in import sign_in_to_mcp_server as sign_in_to_mcp_server
    from agent_core.library.workspace import DockerWorkspace as DockerWorkspace
    from agent_core.library.workspace import LocalWorkspace as LocalWorkspace
    from agent_core.library.workspace import RemoteWorkspace as RemoteWorkspace
    from agent_core.llm.llm import LLM as LLM
    from agent_core.llm.metrics import ConversationStats as ConversationStats
    from agent_core.llm.metrics import Metrics as Metrics
    from agent_core.llm.profiles import FallbackStrategy as FallbackStrategy
    from agent_core.llm.registry import LLMRegistry as LLMRegistry
    from agent_core.llm.registry import ProfileStore as ProfileStore
    from agent_core.llm.response import LLMResponse as LLMResponse
    from agent_core.llm.response import RetryNotice as RetryNotice
    from agent_core.llm.router import MultimodalRouter as MultimodalRouter
    from agent_core.llm.router import RandomRouter as RandomRouter
    from agent_core.llm.router import RouterLLM as RouterLLM
    from agent_core.llm.transport.exchange import CallContext as CallContext
    from agent_core.memory.condenser import Condenser as Condenser
    from agent_core.memory.condenser import CondenserBase as CondenserBase
    from agent_core.memory.condenser import NoOpCondenser as NoOpCondenser
    from agent_core.memory.condenser import PipelineCondenser as PipelineCondenser
    from agent_core.memory.condenser import RollingCondenser as RollingCondenser
    from agent_core.memory.condensers import AmortizedForgettingCondenser as AmortizedForgettingCondenser
    from agent_core.memory.condensers import BrowserOutputCondenser as BrowserOutputCondenser
    from agent_core.memory.condensers import ConversationWindowCondenser as ConversationWindowCondenser
    from agent_core.memory.condensers import LLMAttentionCondenser as LLMAttentionCondenser
    from agent_core.memory.condensers import LLMSummarizingCondenser as LLMSummarizingCondenser
    from agent_core.memory.condensers import ObservationMaskingCondenser as ObservationMaskingCondenser
    from agent_core.memory.condensers import RecentEventsCondenser as RecentEventsCondenser
    from agent_core.memory.condensers import StructuredSummaryCondenser as StructuredSummaryCondenser
    from agent_core.memory.condensers import get_default_condenser as get_default_condenser
    from agent_core.memory.memory import Memory as Memory
    from agent_core.memory.view import View as View
    from agent_core.security.analyzer import EnsembleSecurityAnalyzer as EnsembleSecurityAnalyzer
    from agent_core.security.analyzer import LLMSecurityAnalyzer as LLMSecurityAnalyzer
    from agent_core.security.analyzer import SecurityAnalyzer as SecurityAnalyzer
    from agent_core.security.confirmation import AlwaysConfirm as AlwaysConfirm
    from agent_core.security.confirmation import ConfirmationPolicy as ConfirmationPolicy
    from agent_core.security.confirmation import ConfirmRisky as ConfirmRisky
    from agent_core.security.confirmation import NeverConfirm as NeverConfirm
    from agent_core.security.grayswan import GraySwanAnalyzer as GraySwanAnalyzer
    from agent_core.security.hooks import AgentHook as AgentHook
    from agent_core.security.hooks import CommandHook as CommandHook
    from agent_core.security.hooks import HookConfig as HookConfig
    from agent_core.security.hooks import HookEvent as HookEvent
    from agent_core.security.hooks import HookMatcher as HookMatcher
    from agent_core.security.hooks import PromptHook as PromptHook
    from agent_core.security.pattern import PatternSecurityAnalyzer as PatternSecurityAnalyzer
    from agent_core.security.secrets import CallableSecret as CallableSecret
    from agent_core.security.secrets import LookupSecret as LookupSecret
    from agent_core.security.secrets import SecretRegistry as SecretRegistry
    from agent_core.security.secrets import SecretSource as SecretSource
    from agent_core.security.secrets import StaticSecret as StaticSecret
    from agent_core.security.shell_rules import PolicyRailSecurityAnalyzer as PolicyRailSecurityAnalyzer
    from agent_core.security.shell_rules import ShellRuleAnalyzer as ShellRuleAnalyzer
    from agent_core.session.repository import GitSetup as GitSetup
    from agent_core.session.repository import Repository as Repository
    from agent_core.skills.agent_catalog import AgentDefinition as AgentDefinition
    from agent_core.skills.agent_catalog import register_agent as register_agent
    from agent_core.skills.agent_catalog import register_agent_definition as register_agent_definition
    from agent_core.skills.agent_catalog import register_agent_if_absent as register_agent_if_absent
    from agent_core.skills.context import AgentContext as AgentContext
    from agent_core.skills.loader import load_project_skills as load_project_skills
    from agent_core.skills.loader import load_skill as load_skill
    from agent_core.skills.loader import load_skills_from_dir as load_skills_from_dir
    from agent_core.skills.loader import load_skills_from_folder as load_skills_from_folder
    from agent_core.skills.loader import load_user_skills as load_user_skills
    from agent_core.skills.skill import KeywordTrigger as KeywordTrigger
    from agent_core.skills.skill import PathTrigger as PathTrigger
    from agent_core.skills.skill import Skill as Skill
    from agent_core.skills.skill import TaskTrigger as TaskTrigger
    from agent_core.tools.builtin import FinishTool as FinishTool
    from agent_core.tools.builtin import ThinkTool as ThinkTool
    from agent_core.tools.definition import ToolDefinition as ToolDefinition
    from agent_core.tools.execution import ToolExecutor as ToolExecutor
    from agent_core.tools.invoke_skill import InvokeSkillTool as InvokeSkillTool
    from agent_core.tools.presets import get_default_tools as get_default_tools
    from agent_core.tools.presets import get_planning_tools as get_planning_tools
    from agent_core.tools.presets import register_planning_tools as register_planning_tools
    from agent_core.tools.registry import is_tool_usable as is_tool_usable
    from agent_core.tools.registry import list_registered_tools as list_registered_tools
    from agent_core.tools.registry import list_usable_tools as list_usable_tools
    from agent_core.tools.registry import register_tool as register_tool
    from agent_core.tools.registry import resolve_tool as resolve_tool
    from agent_core.tools.spec import DeclaredResources as DeclaredResources
    from agent_core.tools.spec import Tool as Tool
    from agent_core.tools.spec import ToolAnnotations as ToolAnnotations
    from agent_core.tools.truncation import maybe_truncate as maybe_truncate

    # Names by which other programs know the same; new programs use the ones they stand for.
    BaseConversation = Conversation
    ConfirmationPolicyBase = ConfirmationPolicy
    ConversationExecutionStatus = ExecutionStatus
    HookDefinition = CommandHook
    HookEventType = HookEvent
    LLMCallContext = CallContext
    LLMContextWindowExceedError = LLMContextWindowError
    LLMProfileStore = ProfileStore
    LLMServiceUnavailableError = LLMUnavailableError
    LLMStreamChunk = TextDelta
    LocalConversation = Conversation
    MicroagentValidationError = SkillValidationError
    ModelResponseStream = TextDelta
    NoCondensationAvailable = NoCondensationError
    SecurityAnalyzerBase = SecurityAnalyzer
    StreamingDeltaEvent = TextDelta

    __version__: str
    get_logger = logging.getLogger

_names = LazyNames(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("agent_core.version").VERSION
    if name == "get_logger":
        return import_module("logging").getLogger
    if name == "__all__":
        return sorted([*_names.listed, "__version__", "get_logger"])
    return _names.load(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_names.known, "get_logger"])
