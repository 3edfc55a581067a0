"""What a program's conversation is, as data for a server; its own tools stay in its own process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from agent_core.agent.base import AgentBase
from agent_core.agent.client_tool import MAX_SECONDS, ClientTool
from agent_core.agent.system_prompt import user_identity
from agent_core.events.masking import EXPOSE_SECRETS
from agent_core.llm.profiles import EXPOSE_FALLBACKS
from agent_core.security.secrets import SecretRegistry
from agent_core.session.repository import GitSetup, Repository
from agent_core.session.settings import SessionSettings
from agent_core.skills.agent_catalog import INHERIT, AgentDefinition, load_user_agents, registered_definitions
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import canonical_name, registered_tools, resolve_tool
from agent_core.tools.spec import Tool

logger = logging.getLogger(__name__)

_OURS: Final = "agent_core."
_OF_THIS_PROCESS: Final = ("retry_listener", "log_completions_callback", "record_to")


@dataclass(slots=True)
class ProgramData:
    """The `data` that the server is given, and the tools that this process carries out."""

    data: dict[str, Any]
    own_tools: Mapping[str, ToolDefinition] = field(default_factory=dict)


def check_for_server(agent: AgentBase, settings: SessionSettings, persistence_dir: str | None) -> None:
    """Raise `ValueError` for what only a process that runs the agent itself can have."""
    if persistence_dir is not None:
        raise ValueError("persistence_dir: the server keeps the log; leave it out, and go on by conversation_id")
    if settings.confirm_subagents is not None:
        raise ValueError(
            "confirm_subagents: a server cannot call it; leave it out, and what sub-agents would have to ask about is "
            "refused there, unless the policy asks nobody"
        )
    for llm in agent.get_all_llms():
        for name in _OF_THIS_PROCESS:
            if getattr(llm, name) is not None:
                raise ValueError(f"llm.{name}: it belongs to this process, and the server asks the model; leave it out")


async def program_of(agent: AgentBase, settings: SessionSettings, state: Any) -> ProgramData:
    """The agent (whose tools are made), with what goes with it; its secrets are looked up now.

    Raises as `check_for_server`.
    """
    check_for_server(agent, settings, None)
    specs, own = _split_tools(agent, state)
    context = agent.agent_context
    if context is not None:  # it has been completed here, with what this user's home has
        done = {"load_user_skills": False, "load_public_skills": False, "registered_marketplaces": [], "secrets": None}
        context = context.model_copy(update=done)
    variables = {"identity": user_identity(), **agent.system_prompt_kwargs}
    sent = agent.model_copy(
        update={
            "tools": [*specs, *settings.client_tools],
            "agent_context": context,
            "system_prompt_kwargs": variables,
        }
    )
    if _has_own_prompt(agent):
        default = type(agent).model_fields["system_prompt_filename"].default
        sent = sent.model_copy(update={"system_prompt": agent.static_system_message, "system_prompt_filename": default})
    registry = SecretRegistry(lambda values: None)
    registry.update((agent.agent_context.secrets if agent.agent_context is not None else None) or {})
    registry.update(settings.named_secrets)
    described = registry.descriptions()
    values = await registry.environment_for(" ".join(described)) if described else {}
    whole = {EXPOSE_SECRETS: True, EXPOSE_FALLBACKS: True}
    data = {
        "agent": sent.model_dump(mode="json", context=whole),
        "max_iteration_per_run": settings.max_iterations,
        "max_budget_per_run": settings.max_budget,
        "stuck_detection": settings.stuck_detection,
        "stuck_detection_thresholds": settings.stuck_thresholds.model_dump(mode="json"),
        "security_analyzer": None
        if settings.analyzer is None
        else settings.analyzer.model_dump(mode="json", context=whole),
        "hook_config": settings.hooks.model_dump(mode="json"),
        "secrets": {name: {"value": value, "description": described[name]} for name, value in values.items()},
        "agent_definitions": [one.model_dump(mode="json") for one in _kinds(settings)],
    }
    if settings.git != GitSetup():
        data["git"] = asdict(settings.git) | {
            "repository": _repository(settings.git.repository),
            "organization": _repository(settings.git.organization),
        }
    return ProgramData(data, own)


def _kinds(settings: SessionSettings) -> list[AgentDefinition]:
    """The kinds of sub-agents that are all data, those in this user's home too; a stored model is left here."""
    kinds = [*settings.agent_definitions, *registered_definitions()]
    for one in load_user_agents():
        if one.model == INHERIT and one.profile_store_dir is None:
            kinds.append(one)
        else:
            logger.warning("the sub-agent %r is left out: a server has no stored model %r", one.name, one.model)
    return kinds


def _repository(repository: Repository | None) -> dict[str, Any] | None:
    if repository is None:
        return None
    token = repository.token.get_secret_value() if repository.token is not None else None
    return {**asdict(replace(repository, token=None)), "token": token}


def _split_tools(agent: AgentBase, state: Any) -> tuple[list[Tool], dict[str, ToolDefinition]]:
    """The tools as the server is to make them, and those among them that are carried out here."""
    known, made = registered_tools(), agent.tools_map
    specs: list[Tool] = []
    own: dict[str, ToolDefinition] = {}
    for spec in agent.tools:
        factory = known.get(canonical_name(spec.name))
        if _is_ours(factory):
            specs.append(spec)
            continue
        for definition in resolve_tool(spec, state):
            if _is_ours(type(definition)):
                specs.append(Tool(name=definition.name))
                continue
            own[definition.name] = made.get(definition.name, definition)
            shown: dict[str, Any] = {
                "name": definition.name,
                "description": definition.description,
                "schema": definition.parameters,
                "timeout": MAX_SECONDS,
                "annotations": definition.annotations.model_dump(exclude_none=True),
            }
            specs.append(Tool(name=ClientTool.tool_name, params=shown))
    return specs, own


def _is_ours(thing: object) -> bool:
    return (getattr(thing, "__module__", "") or "").startswith(_OURS)


def _has_own_prompt(agent: AgentBase) -> bool:
    """Whether its instructions are made from files that only this host has."""
    fields = type(agent).model_fields
    names = ("system_prompt_filename", "security_policy_filename")
    is_changed = any(getattr(agent, name) != fields[name].default for name in names)
    return agent.system_prompt is None and is_changed
