"""`SubagentFactory`: the kinds of a session's sub-agents, their agents and sessions."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from agent_core.agent.agent import Agent
from agent_core.agent.base import AgentBase, given_model, llms_in
from agent_core.controller.child_run import ChildSession, DelegatedTask
from agent_core.controller.state import ControllerState
from agent_core.controller.step import Step
from agent_core.controller.usage import SubAgentBudget
from agent_core.errors import SandboxError, SkillValidationError, ToolError
from agent_core.events.llm_events import ActionEvent
from agent_core.events.store import EventStore, child_id
from agent_core.events.stream import EventStream
from agent_core.llm.llm import LLM
from agent_core.llm.registry import ProfileStore, StoredModels
from agent_core.memory.condenser import Condenser
from agent_core.memory.condensers import get_default_condenser
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.channel.shared_sandbox import SharedSandbox
from agent_core.security.confirmation import AlwaysConfirm, ConfirmationPolicy, ConfirmRisky, NeverConfirm
from agent_core.security.hooks import HookConfig
from agent_core.security.secrets import SecretRegistry
from agent_core.session.repository import GitSetup
from agent_core.session.settings import AgentOptions, SessionSettings
from agent_core.skills.agent_catalog import (
    INHERIT,
    AgentCatalog,
    AgentDefinition,
    AgentKind,
    PermissionMode,
    agents_in_texts,
    is_registered,
    load_user_agents,
)
from agent_core.skills.context import AgentContext
from agent_core.tools.context import SubAgentError
from agent_core.tools.execution import ToolExecutor, called, exit_as_error
from agent_core.tools.registry import canonical_name
from agent_core.tools.spec import Tool
from agent_core.tools.subagents import has_usable_tools, is_kind_usable, usable_kinds, usable_tools

logger = logging.getLogger(__name__)

FACTS_SECONDS: Final = 10.0
END_SECONDS: Final = 5.0

_POLICIES: Final[dict[PermissionMode, ConfirmationPolicy]] = {
    "always_confirm": AlwaysConfirm(),
    "never_confirm": NeverConfirm(),
    "confirm_risky": ConfirmRisky(),
}
_questions = ThreadPoolExecutor(max_workers=4, thread_name_prefix="confirm-subagents")
_leaves = ThreadPoolExecutor(max_workers=2, thread_name_prefix="subagents")


@dataclass(frozen=True, slots=True)
class Parent:
    """Parts that a sub-agent's session has from its parent's; `budget` pays for it."""

    shared: Shared
    budget: SubAgentBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Parts that a session shares with those of its sub-agents."""

    stream: EventStream
    store: EventStore
    settings: SessionSettings
    agent: AgentBase
    sandbox: SandboxConnection | SharedSandbox
    secrets: SecretRegistry
    step: Step
    parent: Parent | None
    skill_problems: tuple[SkillValidationError, ...]
    open: Callable[..., Awaitable[ChildSession]]

    @property
    def depth(self) -> int:
        """How deep it is nested: 0 for a user's conversation."""
        return self.parent.shared.depth + 1 if self.parent is not None else 0

    @property
    def cache_key(self) -> str:
        """Under which providers cache its prompts and those of its sub-agents."""
        return self.parent.shared.cache_key if self.parent is not None else self.stream.conversation_id


class SubagentFactory:
    """Makes the sub-agents of a session: their kinds, agents and sessions."""

    def __init__(self, shared: Shared, state: Callable[[], ControllerState]) -> None:
        self._shared = shared
        self._state = state
        self._catalog: AgentCatalog | None = None

    @property
    def _policy(self) -> ConfirmationPolicy:
        return self._shared.step.gate(self._state()).policy

    async def agent(self, order: DelegatedTask) -> tuple[AgentBase, AgentKind | None]:
        """A fresh agent for an order, and its kind, if it is of one; raises `SubAgentError`."""
        caller, name, settings = self._shared.agent, order.agent_type, self._shared.settings
        if order.is_class and not is_registered(name):
            own, options = settings.agent_llms.get(name, caller.llm), settings.agent_configs.get(name, AgentOptions())
            agent = make_agent_of_class(name, own, order.label, options, settings.purpose_llms)
            if agent is not None:
                return _with_identity_of(caller, agent), None
        kind = (await self._known()).find(name)
        if kind is None:  # it may have been written since
            self._catalog = None
            kind = (await self._known()).find(name)
        if kind is None or not is_kind_usable(kind):
            known = ", ".join(usable_kinds(await self._known()))
            raise SubAgentError(f"there is no kind of sub-agent called {name[:100]!r} here; there are: {known}")
        made = make_subagent(kind, caller, order.label, settings.stored_models, settings.purpose_llms)
        return _with_identity_of(caller, made), kind

    async def session(
        self, order: DelegatedTask, agent: AgentBase, kind: AgentKind | None, budget: SubAgentBudget
    ) -> ChildSession:
        shared = self._shared
        own = kind.definition if kind is not None else None
        limits: dict[str, Any] = {}
        if order.is_class:
            limits["max_iterations"] = max(1, self._state().limits.iteration_limit - self._state().iterations)
        elif own is not None:
            limits["max_iterations"] = own.max_iteration_per_run or shared.settings.max_iterations
            limits["max_budget"] = own.max_budget_per_run or shared.settings.max_budget
        hooks = shared.settings.hooks
        if own is not None and own.hooks:
            try:
                hooks = hooks.followed_by(HookConfig.model_validate(own.hooks))
            except ValueError as error:
                raise SubAgentError(f"the hooks of the sub-agent {own.name!r} cannot be used: {error}") from error
        settings = replace(
            shared.settings,
            agent=agent,
            agent_context=None,
            client_tools=(),  # clients follow this log only
            own_tools=(),  # they belong to the user's conversation
            skill_problems=(),  # told there, too
            folders=(),  # likewise
            git=GitSetup(),  # their sandbox has it already
            settle_sandbox=None,
            limits_per_run=True,  # each task is a run
            policy=_policy(own, self._policy),
            hooks=hooks,
            **limits,
        )
        return await shared.open(
            child_id(shared.stream.conversation_id, order.name),
            store=shared.store,
            settings=settings,
            sandbox=SharedSandbox(shared.sandbox, order.name),
            hook_events=(),
            parent=Parent(shared, budget),
        )

    async def end_shells(self, name: str) -> None:
        args = {"session": "default"}
        with contextlib.suppress(SandboxError, ToolError):
            await SharedSandbox(self._shared.sandbox, name).request("shell.kill", args, limit_seconds=END_SECONDS)

    async def confirm(self, actions: Sequence[ActionEvent]) -> bool:
        handler = self._shared.settings.confirm_subagents
        if handler is None:
            return isinstance(self._policy, NeverConfirm)
        try:
            if inspect.iscoroutinefunction(handler):
                return bool(await handler(actions))
            return bool(await asyncio.get_running_loop().run_in_executor(_questions, called, handler, actions))
        except Exception:
            logger.exception("the program could not decide about a sub-agent's actions, so they are refused")
            return False

    async def _known(self) -> AgentCatalog:
        if self._catalog is None:
            reply = await self._shared.sandbox.request("workspace.facts", {}, limit_seconds=FACTS_SECONDS)
            self._catalog = await known_kinds(self._shared.settings, reply.result)
        return self._catalog


async def end_tools_of_child(agent: AgentBase, caller: AgentBase) -> None:
    """End what the tools of a sub-agent hold, if it has any yet; what they share with the asking agent's stays."""
    shared_ids = {id(tool.executor) for tool in caller.tools_map.values()}
    for tool in agent.tools_map.values() if agent.is_initialized else ():
        executor = tool.executor
        if (
            id(executor) not in shared_ids
            and isinstance(executor, ToolExecutor)
            and type(executor).close is not ToolExecutor.close
        ):
            shared_ids.add(id(executor))
            with exit_as_error():
                await asyncio.get_running_loop().run_in_executor(_leaves, executor.close)


async def known_kinds(settings: SessionSettings, facts: Mapping[str, Any]) -> AgentCatalog:
    """The kinds of sub-agents: given, and in files of the workspace with these facts, then of the user's home."""
    found = project_agents(facts)
    if settings.reads_home:
        found += await asyncio.get_running_loop().run_in_executor(_leaves, load_user_agents)
    return AgentCatalog(found, settings.agent_definitions)


async def describe_subagent_kinds(agent: AgentBase, settings: SessionSettings, facts: Mapping[str, Any]) -> str:
    """The description of the kinds that are given, or in files, for an agent that can have sub-agents.

    Its tools tell of the others.
    """
    if not any(canonical_name(tool.name) in DELEGATING for tool in agent.tools):
        return ""
    kinds = (await known_kinds(settings, facts)).kinds().values()
    lines = [f"- {kind.definition.summary}" for kind in kinds if kind.definition.level in ("plugin", "project", "user")]
    return "\n".join(["More kinds of sub-agents:", *lines]) if lines else ""


def project_agents(facts: Mapping[str, Any]) -> list[AgentDefinition]:
    """The kinds of sub-agents that a workspace defines, from its facts (the result of ``workspace.facts``)."""
    listed = facts.get("agents")
    files: dict[str, str] = {}
    for one in listed if isinstance(listed, list) else []:
        path, text = (one.get("path"), one.get("content")) if isinstance(one, dict) else (None, None)
        if isinstance(path, str) and isinstance(text, str):  # what comes from a sandbox is not trusted to have its form
            files[path] = text
    return agents_in_texts(files, "project")


def _policy(own: AgentDefinition | None, caller: ConfirmationPolicy) -> ConfirmationPolicy:
    """The kind's policy, if it sets one; files of a project or a plugin may make it stricter, not laxer."""
    if own is None or own.permission_mode is None:
        return caller
    chosen = _POLICIES[own.permission_mode]
    is_stricter = isinstance(caller, NeverConfirm) or isinstance(chosen, AlwaysConfirm)
    return chosen if own.level not in ("project", "plugin") or is_stricter else caller


DELEGATING: Final = frozenset({"delegate", "task", "task_tool_set", "delegate_to_browsing_agent"})
"""The tools that make sub-agents; any but the main agent gets them only by name."""


def make_subagent(
    kind: AgentKind, caller: AgentBase, label: str, models: StoredModels, purposes: Mapping[str, LLM]
) -> AgentBase:
    """A fresh agent of this kind for a sub-conversation of `caller`; its model is counted under `label`.

    A model that the kind names is one of `models`; where those are files, of the folder that it names, if any. Its
    condenser asks the one of `purposes` for condensers, or else its own.

    Raises `SubAgentError` where its profile, its condenser or a tool is not there.
    """
    definition = kind.definition
    llm = _llm(definition, caller.llm, models).model_copy(update={"usage_id": label})
    llm.reset_metrics()
    try:
        if kind.make is not None:
            made: Any = kind.make(llm)
            if not isinstance(made, AgentBase):
                kind_of = type(made).__name__
                raise SubAgentError(f"the function of the sub-agent {definition.name!r} made no agent, but a {kind_of}")
            return made
        names = usable_tools(kind)
        return Agent(
            llm=llm,
            tools=[tool for tool in caller.tools if canonical_name(tool.name) not in DELEGATING]
            if names is None
            else [Tool(name=name) for name in names],
            agent_context=_context(definition, caller.agent_context),
            condenser=_condenser(definition, purposes.get("condenser", llm)),
            system_prompt_kwargs=dict(caller.system_prompt_kwargs),
            **_servers(definition),
        )
    except (ValidationError, ValueError) as error:
        raise SubAgentError(f"the sub-agent {definition.name!r} cannot be made: {error}") from error


def make_agent_of_class(
    name: str, llm: LLM, label: str, options: AgentOptions, purposes: Mapping[str, LLM]
) -> AgentBase | None:
    """A fresh agent of a registered class with this model, and with what is chosen about agents of its class.

    None for no such class, or one without its tools.
    """
    if name not in AgentBase.list_agents():
        return None
    llm = llm.model_copy(update={"usage_id": label})
    llm.reset_metrics()
    own, wished, summing = AgentBase.get_cls(name), options.condenser, purposes.get("condenser", llm)
    condenser = get_default_condenser(summing) if wished is None else Condenser.from_config(wished, summing)
    agent = own(llm=llm, condenser=condenser, **options.fields_for(own, model=llm.model))
    if agent.critic is not None:
        agent = agent.model_copy(update={"critic": given_model(agent.critic, purposes.get("critic", llm), "critic")})
    return agent if has_usable_tools(agent.tools) else None


def _with_identity_of(caller: AgentBase, agent: AgentBase) -> AgentBase:
    """A fresh sub-agent; where the asking agent was told who it is, this one is told the same and no file of a home."""
    given, own = caller.system_prompt_kwargs, agent.system_prompt_kwargs
    if "identity" not in given or "identity" in own:
        return agent
    return agent.model_copy(update={"system_prompt_kwargs": {**own, "identity": given["identity"]}})


def _llm(definition: AgentDefinition, inherited: LLM, models: StoredModels) -> LLM:
    if definition.model == INHERIT:
        return inherited
    if definition.level == "project":
        # Whoever wrote the files of a workspace does not decide which of its user's models, with whose key, is paid.
        logger.warning("the sub-agent %r of the project uses the asking agent's model", definition.name)
        return inherited
    try:
        if definition.profile_store_dir is not None and isinstance(models, ProfileStore):
            models = ProfileStore(definition.profile_store_dir)
        return models.load(definition.model)
    except (OSError, ValueError) as error:
        raise SubAgentError(f"the sub-agent {definition.name!r} has no model: {error}") from error


def _condenser(definition: AgentDefinition, summing: LLM) -> Condenser | None:
    if definition.condenser == "none":
        return None
    if definition.condenser != "default":
        condenser: Condenser = Condenser.revive(definition.condenser)
        if definition.level not in ("project", "plugin") or not any(llms_in(condenser)):
            return condenser
        # A model's options say where the log is sent, and which files of this host are read and written.
        logger.warning("the sub-agent %r has the usual condenser: a file gives its own a model", definition.name)
    return get_default_condenser(summing)


def _context(definition: AgentDefinition, caller: AgentContext | None) -> AgentContext:
    at_hand = {skill.name: skill for skill in caller.skills} if caller is not None else {}
    if missing := [name for name in definition.skills if name not in at_hand]:
        logger.warning("the sub-agent %r goes without the skills %s: they are not at hand", definition.name, missing)
    return AgentContext(
        skills=[at_hand[name] for name in definition.skills if name in at_hand],
        system_message_suffix=definition.instructions,
        load_project_skills=caller is None or caller.load_project_skills,
    )


def _servers(definition: AgentDefinition) -> dict[str, Any]:
    """Without the servers that a project's file names: they would be started outside of the sandbox."""
    if not definition.mcp_config:
        return {}
    if definition.level == "project":
        logger.warning("the servers of the sub-agent %r are left out: a project's file names them", definition.name)
        return {}
    return {"mcp_config": definition.mcp_config}
