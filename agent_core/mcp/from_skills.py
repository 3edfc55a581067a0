"""Servers that skills bring along."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from agent_core.mcp.config import McpServer, mcp_servers
from agent_core.skills.skill import Skill

logger = logging.getLogger(__name__)

_FORMER = ("stdio_servers", "sse_servers", "shttp_servers")


def servers_with_skills(
    own: Mapping[str, McpServer], skills: Iterable[Skill]
) -> tuple[dict[str, McpServer], dict[str, str]]:
    """The agent's `own` servers with those of `skills` that nothing triggers, and the unusable ones with the reason.

    Of two with the same name the agent's own is taken, then the first skill's.
    """
    found = dict(own)
    unusable: dict[str, str] = {}
    for skill in skills:
        if skill.trigger is not None or not skill.mcp_tools:
            continue
        try:
            brought = _servers_of(skill.mcp_tools)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(part) for part in problem["loc"])
            text = f"{place}: {problem['msg'].removeprefix('Value error, ')}".removeprefix(": ")
            unusable[f"of skill {skill.name}"] = f"mcp_tools of the skill cannot be used: {text}"
            continue
        except ValueError as error:
            unusable[f"of skill {skill.name}"] = f"mcp_tools of the skill cannot be used: {error}"
            continue
        for name, server in brought.items():
            if found.setdefault(name, server) != server:
                logger.warning(
                    "the MCP server %r of the skill %r is not used: another one has its name", name, skill.name
                )
    return found, unusable


def _servers_of(mcp_tools: Mapping[str, Any]) -> dict[str, McpServer]:
    if any(key in mcp_tools for key in _FORMER):
        return _of_former_kind(mcp_tools)
    return {name: McpServer.model_validate(server) for name, server in mcp_servers(mcp_tools).items()}


def _of_former_kind(mcp_tools: Mapping[str, Any]) -> dict[str, McpServer]:
    """The older form, in which a skill can bring programs only."""
    if unknown := sorted(set(mcp_tools) - set(_FORMER)):
        raise ValueError(f"{unknown[0]} is not known; there are {list(_FORMER)}")
    programs = mcp_tools.get("stdio_servers") or []
    if not programs:
        raise ValueError("stdio_servers must be given: in this form a skill can bring no other servers")
    if not isinstance(programs, list) or not all(isinstance(one, Mapping) and one.get("name") for one in programs):
        raise ValueError("stdio_servers must be a list of objects with name and command")
    return {
        str(one["name"]): McpServer.model_validate({key: value for key, value in one.items() if key != "name"})
        for one in programs
    }
