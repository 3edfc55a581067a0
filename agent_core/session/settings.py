"""What a session is given: the model, the agent and its limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_core.agent.base import AgentBase
from agent_core.controller.stuck import USUAL_THRESHOLDS, StuckDetectionThresholds
from agent_core.events.llm_events import ActionEvent
from agent_core.llm.llm import LLM
from agent_core.mcp.config import McpServer
from agent_core.mcp.servers import McpRules
from agent_core.mcp.tool import OwnTool
from agent_core.memory.condenser import Condenser
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationGate, ConfirmationPolicy, NeverConfirm, policy_in_force
from agent_core.security.hooks import HookConfig
from agent_core.security.secrets import GivenSecret
from agent_core.session.agent_options import AgentOptions
from agent_core.session.repository import GitSetup
from agent_core.skills.context import AgentContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import Tool

ConfirmSubagents = Callable[[Sequence[ActionEvent]], bool | Awaitable[bool]]
"""A program's word on what sub-agents want to do: a function, which is called in a thread, or a coroutine function."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of one conversation's session; a running session keeps those it was started with.

    Attributes:
        max_iterations: answers of the model until the agent waits for its user.
        max_budget: US dollars until the agent waits for its user; None for no limit.
        limits_per_run: whether each run may take `max_iterations` answers; else only a limit that was hit is extended.
        policy: which actions wait for the user's word, as long as nobody has chosen another one.
        analyzer: judges the risk of actions; None leaves all risks unknown, whatever the model says of them.
        conversation_instructions: told to the agent with the facts of the workspace.
        sandbox_remarks: what the agent is told of its sandbox besides the facts of the workspace.
        condenser: shortens what the model is shown when it becomes too long; None never does.
        stuck_detection: whether an agent that only repeats itself is stopped.
        stuck_thresholds: after how many repetitions that is.
        seed: a tar file with what the workspace begins with; it is removed when its files are there.
        snapshots: whether the files of the workspace are kept as they were, so that they can go back.
        agent: the agent itself, which then counts instead of `llm`, `agent_class`, `condenser` and `tools`; and, where
            that is None, instead of `agent_context`.
        tools: replaces the tools of the agent class; None keeps them.
        hooks: run in the sandbox before and after the agent's calls, and before those that the project configures.
        secrets: values that are hidden wherever they appear in the log (the model's key is always hidden).
        named_secrets: by name, for the commands that name them; hidden as well, only names and descriptions are told.
        agent_context: skills and texts for the agent; None uses what the workspace holds.
        mcp_config: MCP servers for an agent that is made here; one that is given brings its own.
        mcp_rules: what they may do.
        own_tools: tools of the program around the session, for an agent that uses MCP servers; sub-agents have none.
        agent_options: what is chosen about the tools of an agent that is made here.
        client_tools: tools that clients carry out, beside all others; a session can be given others later.
        enable_browsing: whether an agent that is made here may have a browser, where its class says that it has one.
        enable_sub_agents: whether an agent that is made here can put sub-agents to work, where its class knows how.
        git: the repository that its workspace begins with, and whose name stands on commits.
        confirm_subagents: decides about actions of sub-agents that wait for a user's word; None agrees where the policy
            here is `NeverConfirm`, and refuses otherwise.
    """

    llm: LLM
    agent_class: str = "CodeActAgent"
    max_iterations: int = 500
    max_budget: float | None = None
    limits_per_run: bool = False
    policy: ConfirmationPolicy = field(default_factory=NeverConfirm)
    analyzer: SecurityAnalyzer | None = None
    conversation_instructions: str = ""
    sandbox_remarks: str = ""
    condenser: Condenser | None = None
    stuck_detection: bool = True
    stuck_thresholds: StuckDetectionThresholds = USUAL_THRESHOLDS
    snapshots: bool = True
    seed: Path | None = None
    tools: tuple[Tool, ...] | None = None
    agent: AgentBase | None = None
    hooks: HookConfig = field(default_factory=HookConfig)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    named_secrets: Mapping[str, GivenSecret] = field(default_factory=dict, repr=False)
    agent_context: AgentContext | None = None
    mcp_config: Mapping[str, McpServer] = field(default_factory=dict)
    mcp_rules: McpRules = field(default_factory=McpRules)
    own_tools: tuple[OwnTool, ...] = ()
    agent_options: AgentOptions = field(default_factory=AgentOptions)
    client_tools: tuple[Tool, ...] = ()
    enable_sub_agents: bool = False
    enable_browsing: bool = True
    git: GitSetup = field(default_factory=GitSetup)
    confirm_subagents: ConfirmSubagents | None = None

    def policy_after(self, stored: Mapping[str, Any] | None) -> ConfirmationPolicy:
        """The policy in force where the log has this one, as data (None: none)."""
        return policy_in_force(stored, self.policy)

    def gate(self, tools: Mapping[str, ToolDefinition]) -> ConfirmationGate:
        """What decides for an agent with these tools which actions wait for the user."""
        return ConfirmationGate.for_tools(self.policy, self.analyzer, tools)
