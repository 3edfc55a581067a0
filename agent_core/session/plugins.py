"""Plugins of a session: read and checked as a whole, and brought into a sandbox with their files."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from agent_core.errors import SkillValidationError
from agent_core.mcp.config import McpServer, McpServerMap, expanded
from agent_core.security.hooks import CommandHook, HookConfig
from agent_core.skills.loader import LeftOutReport, log_problem
from agent_core.skills.plugin import Plugin, read_plugin
from agent_core.tools.context import SandboxAccess

ROOT_VARIABLES: Final = ("DRYDOCK_PLUGIN_ROOT", "CLAUDE_PLUGIN_ROOT")
"""Where a plugin's files are, for its hooks and servers."""

PLACING_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class PluginParts:
    """A plugin, with its hooks and its MCP servers as they are used."""

    plugin: Plugin
    hooks: HookConfig
    servers: dict[str, McpServer]

    @classmethod
    def read(cls, folder: Path, report: LeftOutReport = log_problem) -> PluginParts:
        """The plugin in a folder; `SkillValidationError`: there is none, or its hooks or servers cannot be used.

        Skills and commands that are broken are left out, and `report` told.
        """
        plugin = read_plugin(folder, report=report)
        try:
            hooks = HookConfig.from_json(plugin.hooks) if plugin.hooks else HookConfig()
        except ValueError as error:
            raise SkillValidationError(f"plugin {plugin.name!r}, hooks/hooks.json: {error}") from None
        try:
            servers: McpServerMap = TypeAdapter(McpServerMap).validate_python(plugin.mcp_servers)
        except ValidationError as error:
            raise _unusable_server(plugin, error) from None
        return cls(plugin, hooks, servers)

    def moved(self, folder: Path, target: str) -> PluginParts:
        """The same plugin, for a sandbox that has its files in `target` and not in `folder`.

        Its commands and servers find that as ``${DRYDOCK_PLUGIN_ROOT}`` or ``${CLAUDE_PLUGIN_ROOT}``.
        `SkillValidationError`: a server cannot be used there.
        """
        here = f"{folder}/"
        roots = dict.fromkeys(ROOT_VARIABLES, target)

        def place(source: str | None) -> str | None:
            return f"{target}/{source.removeprefix(here)}" if source and source.startswith(here) else source

        skills = [
            skill.model_copy(
                update={"source": place(skill.source), "mcp_tools": expanded(skill.mcp_tools, roots)},
            )
            for skill in self.plugin.skills
        ]
        agents = [
            agent.model_copy(
                update={
                    "source": place(agent.source),
                    "mcp_config": expanded(agent.mcp_config, roots),
                    "hooks": _told_of_data(agent.hooks, target),
                }
            )
            for agent in self.plugin.agents
        ]
        servers = {}
        for name, server in self.servers.items():
            try:
                servers[name] = McpServer.model_validate(expanded(server.model_dump(), roots))
            except ValidationError as error:
                raise _unusable_server(self.plugin, error, name) from None
        return replace(
            self,
            plugin=self.plugin.model_copy(update={"skills": skills, "agents": agents}),
            hooks=_told(self.hooks, target),
            servers=servers,
        )


def _unusable_server(plugin: Plugin, error: ValidationError, *name: str) -> SkillValidationError:
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in (*name, *problem["loc"]))
    return SkillValidationError(f"plugin {plugin.name!r}, .mcp.json: {place}: {problem['msg']}")


def _told(hooks: HookConfig, target: str) -> HookConfig:
    """The hooks, with commands that know where the plugin is."""
    variables = " ".join(f"{name}={shlex.quote(target)}" for name in ROOT_VARIABLES)

    def told(hook: Any) -> Any:
        if not isinstance(hook, CommandHook):
            return hook
        return hook.model_copy(update={"command": f"export {variables}; {hook.command}"})

    return HookConfig(
        hooks={
            event: tuple(
                matcher.model_copy(update={"hooks": tuple(told(hook) for hook in matcher.hooks)})
                for matcher in matchers
            )
            for event, matchers in hooks.hooks.items()
        }
    )


def _told_of_data(hooks: dict[str, Any] | None, target: str) -> dict[str, Any] | None:
    if not hooks:
        return hooks
    try:
        return _told(HookConfig.model_validate(hooks), target).model_dump(mode="json", by_alias=True)
    except ValueError:
        return hooks  # whoever asks for such a sub-agent is told


class PlacedFiles(NamedTuple):
    """Files by their paths in a folder, and which of them are programs."""

    files: Mapping[str, bytes]
    executables: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PlacedFolder:
    """Files that a sandbox is given whenever it has started, in the folder `path`; `read` may raise `ToolError`."""

    path: str
    read: Callable[[], Awaitable[PlacedFiles]]

    async def place(self, sandbox: SandboxAccess) -> None:
        """Write them, over what is there; raises `SandboxError` or `ToolError`."""
        files, executables = await self.read()
        for name, data in files.items():
            mode = 0o755 if name in executables else 0o644
            await sandbox.request(
                "file.write", {"path": f"{self.path}/{name}", "mode": mode}, blob=data, limit_seconds=PLACING_SECONDS
            )
