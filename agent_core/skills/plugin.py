"""Plugins: folders with skills, commands, sub-agents, servers and hooks that belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from agent_core.errors import SkillValidationError
from agent_core.events.messages import Frozen
from agent_core.skills.agent_catalog import AgentDefinition, agents_in_texts
from agent_core.skills.files import SKILL_FILE
from agent_core.skills.loader import MCP_FILE, LeftOutReport, load_skill, load_skills_from_folder, log_problem
from agent_core.skills.skill import Skill, TaskTrigger

MANIFESTS: Final = (".plugin/plugin.json", ".claude-plugin/plugin.json")
MAX_FILE_BYTES: Final = 1024 * 1024


class Plugin(Frozen):
    """What a plugin brings: skills, commands (skills that ``/plugin:command`` tells), sub-agents, servers, hooks."""

    name: str = Field(min_length=1)
    version: str = "1.0.0"
    description: str = ""
    skills: list[Skill] = Field(default_factory=list)
    agents: list[AgentDefinition] = Field(default_factory=list)
    mcp_servers: dict[str, Any] = Field(default_factory=dict)
    hooks: str = ""


def read_plugin(folder: Path, *, report: LeftOutReport = log_problem) -> Plugin:
    """The plugin in a folder, or the one skill that the folder is; else `SkillValidationError`.

    Broken skills, commands and sub-agents are left out; `report` is told of the first two.
    """
    if not folder.is_dir():
        raise SkillValidationError(f"{folder}: is no folder; give the folder of a plugin")
    manifest = next((found for name in MANIFESTS if (found := _object(folder / name))), {})
    name = manifest.get("name") or folder.resolve().name
    hooks = folder / "hooks/hooks.json"
    skills = list(load_skills_from_folder(folder / "skills", report=report).values())
    if (folder / SKILL_FILE).is_file():  # the folder is a skill itself
        skills.append(load_skill(folder / SKILL_FILE))
    commands = _commands(folder / "commands", str(name), report)
    plugin = Plugin(
        name=str(name),
        version=str(manifest.get("version") or "1.0.0"),
        description=str(manifest.get("description") or ""),
        skills=[skill.at("plugin") for skill in (*skills, *commands)],
        agents=_agents(folder / "agents"),
        mcp_servers=_object(folder / MCP_FILE),
        hooks=_text(hooks) if hooks.is_file() else "",
    )
    if not (manifest or plugin.skills or plugin.agents or plugin.mcp_servers or plugin.hooks):
        raise SkillValidationError(f"{folder}: is no plugin: it has neither {MANIFESTS[0]} nor skills, agents, hooks …")
    return plugin


def _commands(folder: Path, plugin: str, report: LeftOutReport) -> list[Skill]:
    found = []
    for name, skill in load_skills_from_folder(folder, report=report).items():
        command = f"/{plugin}:{name}"
        found.append(skill.model_copy(update={"name": command[1:], "trigger": TaskTrigger(triggers=[command])}))
    return found


def _agents(folder: Path) -> list[AgentDefinition]:
    files = sorted(folder.glob("*.md")) if folder.is_dir() else []
    return agents_in_texts({str(path): _text(path) for path in files}, "plugin")


def _object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    text = _text(path)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SkillValidationError(f"{path}: is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise SkillValidationError(f"{path}: must be a JSON object, not {type(found).__name__}")
    return found


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise OSError(f"it has more than {MAX_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SkillValidationError(f"{path}: cannot be read: {error}") from error
