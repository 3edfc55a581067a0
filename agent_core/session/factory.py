"""Factories of a session's parts, from its settings: the agent with its context, secrets, step, model for drafts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from agent_core.agent.base import AgentBase, given_model, llms_in
from agent_core.agent.codeact import CodeActAgent
from agent_core.agent.presets import (
    BrowsingAgent,
    DummyAgent,
    LocAgent,
    PlanningAgent,
    ReadOnlyAgent,
    VisualBrowsingAgent,
)
from agent_core.controller.usage import UsageTracker
from agent_core.errors import LimitReachedError, LLMError, ToolError
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.llm.features import provider_of
from agent_core.llm.llm import LLM, CallContext
from agent_core.llm.router import RouterLLM
from agent_core.llm.transport.routes import HOST_CREDENTIALS
from agent_core.memory.condenser import Condenser
from agent_core.security.secrets import SecretRegistry
from agent_core.session.settings import SessionSettings
from agent_core.session.subagent_factory import Parent
from agent_core.skills.context import AgentContext, user_notes
from agent_core.skills.loader import LeftOutReport, load_public_skills, load_user_skills, log_problem
from agent_core.skills.skill import Skill
from agent_core.tools.context import SandboxAccess
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import ToolExecutor

logger = logging.getLogger(__name__)
USAGE_ID: Final = "draft_editor_llm"

AGENT_CLASSES = (CodeActAgent, PlanningAgent, ReadOnlyAgent, LocAgent, BrowsingAgent, VisualBrowsingAgent, DummyAgent)
"""Agents that settings can name; a program may define more."""

reading_files = ThreadPoolExecutor(max_workers=2, thread_name_prefix="skills")


async def make_agent(settings: SessionSettings, report: LeftOutReport = log_problem) -> AgentBase:
    """The given agent (itself, if it has its tools), or one of the class that the settings name, else `KeyError`.

    `report` is told of skills that are left out.
    """
    if settings.agent is not None:
        if settings.agent.is_initialized:
            return settings.agent
        context = settings.agent_context or settings.agent.agent_context
        return settings.agent.model_copy(update={"agent_context": await _completed(context, report)})
    made = AgentBase.get_cls(settings.agent_class or CodeActAgent.__name__)
    chosen = settings.agent_options.fields_for(made, model=settings.llm.model, browsing=settings.enable_browsing)
    own: dict[str, Any] = {} if settings.tools is None else {"tools": list(settings.tools)}
    if settings.enable_sub_agents and "enable_sub_agents" in made.model_fields:
        own["enable_sub_agents"] = True
    if "draft_editor_llm" in made.model_fields:
        drafts = settings.agent_options.draft_editor_model
        chosen_drafts = settings.purpose_llms.get("draft_editor")
        own["draft_editor_llm"] = model_for_drafts(settings.llm, drafts) if drafts is not None else chosen_drafts
    condenser = settings.condenser
    if settings.agent_options.condenser is not None:
        summing = settings.purpose_llms.get("condenser", settings.llm)
        condenser = Condenser.from_config(settings.agent_options.condenser, summing)
    own |= chosen
    variables = own.pop("system_prompt_kwargs", {})
    agent = made(
        llm=settings.llm,
        condenser=condenser,
        system_prompt_kwargs={
            "llm_security_analyzer": settings.analyzer is not None,
            "cli_mode": bool(settings.agent_options.cli_mode),
            **variables,
        },
        agent_context=await _completed(settings.agent_context, report),
        mcp_config=dict(settings.mcp_config),
        **own,
    )
    if agent.critic is None:
        return agent
    critic = given_model(agent.critic, settings.purpose_llms.get("critic", settings.llm), "critic")
    return agent.model_copy(update={"critic": critic})


def completed(context: AgentContext | None, report: LeftOutReport = log_problem) -> AgentContext | None:
    """The context with skills and notes as far as it asks for them; reads files, may fetch a repository."""
    if context is None:
        return None
    user: list[Skill] = []
    if context.load_user_skills:
        try:
            user = load_user_skills(report=report)
        except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
            logger.warning("the user's skills are left out: %s", error)
    public: list[Skill] = []
    if context.load_public_skills:
        try:
            public = load_public_skills(context.marketplace_path, context.registered_marketplaces, report=report)
        except Exception:  # the agent can work without them, whatever a stranger's repository holds
            logger.exception("the public skills are left out")
    merged = context.merged(user=user, public=public) if user or public else context
    notes = user_notes() if context.load_memory else ""
    if not notes or notes in (context.memory_context or ""):
        return merged
    together = "\n\n".join(filter(None, [context.memory_context, notes]))
    return merged.model_copy(update={"memory_context": together})


async def _completed(context: AgentContext | None, report: LeftOutReport) -> AgentContext | None:
    return await asyncio.get_running_loop().run_in_executor(reading_files, completed, context, report)


def with_full_context(agent: AgentBase) -> AgentBase:
    """The agent with its context completed; reads files, and may fetch a repository."""
    context = completed(agent.agent_context)
    return agent if context is agent.agent_context else agent.model_copy(update={"agent_context": context})


def as_sent(event: AnyEvent, agent: AgentBase) -> AnyEvent:
    """A message of the user with the suffix that the agent's context adds to each; other events as they are."""
    suffix = agent.agent_context.user_message_suffix if agent.agent_context is not None else None
    if not suffix or not isinstance(event, MessageEvent) or event.source == "environment":
        return event
    return event.model_copy(update={"extended_content": [*event.extended_content, TextContent(text=suffix)]})


async def prepare_tools(tools: Iterable[ToolDefinition], sandbox: SandboxAccess) -> None:
    """Put what the tools need into a sandbox that has just been started."""
    for tool in tools:
        if isinstance(tool.executor, ToolExecutor):
            await tool.executor.prepare(sandbox)


def make_secrets(
    settings: SessionSettings, agent: AgentBase, stream: EventStream, parent: Parent | None = None
) -> SecretRegistry:
    """The registry of the conversation's secrets (of its `parent`'s), which the stream hides from now on."""
    if parent is not None:
        stream.secrets = parent.shared.stream.secrets
    models = [agent.llm, *agent.get_all_llms(), *llms_in(settings.analyzer)]
    stream.secrets.add([*settings.secrets, *(secret for llm in models for secret in llm.secrets)])
    secrets = parent.shared.secrets if parent is not None else SecretRegistry(stream.secrets.add)
    if agent.agent_context is not None:
        secrets.update(agent.agent_context.secrets or {})
    if parent is None:
        secrets.update(settings.named_secrets)
    return secrets


def draft_llm(agent: AgentBase) -> LLM:
    """The agent's model for drafts, or else its own, counted apart; no prompt comes twice, so none is cached."""
    apart = agent.llm_for_drafts.model_copy(update={"usage_id": USAGE_ID, "caching_prompt": False})
    apart.reset_metrics()
    return apart


def model_for_drafts(llm: LLM, name: str) -> LLM:
    """The model of this name, at the address of `llm`. Its key is for the same address or the same provider only.

    A model that is asked with the host's own credentials gets no address of another provider's.
    """
    llm = llm.active_llm if isinstance(llm, RouterLLM) else llm
    is_same = provider_of(name) == provider_of(llm.model)
    base_url = llm.base_url if is_same or not name.startswith(HOST_CREDENTIALS) else None
    return LLM(model=name, base_url=base_url, api_key=llm.api_key if is_same or base_url else None)


class ConversationDrafts:
    """Fulfils `agent_core.tools.spec.DraftModel`; `check` raises `LimitReachedError` where no money is left."""

    def __init__(self, llm: Callable[[], LLM], context: CallContext, check: Callable[[], None] = lambda: None) -> None:
        self._llm = llm
        self._context = context
        self._check = check

    async def answer(self, messages: Sequence[Message]) -> str:
        try:
            self._check()
            return (await self._llm().acompletion(messages, context=self._context)).message.text
        except (LLMError, LimitReachedError) as error:
            raise ToolError(f"the draft model could not be asked: {error}") from error


def make_drafts(agent: AgentBase, usage: UsageTracker, check: Callable[[], None]) -> ConversationDrafts:
    """The model for drafts of a conversation with this agent, registered among its models when it is first asked."""
    llm = draft_llm(agent)
    return ConversationDrafts(lambda: usage.registry.get_llm(USAGE_ID, llm), usage.context, check)
