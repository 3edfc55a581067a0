"""Plugins of sandboxes: what an agent class needs there beside its tools (`AgentBase.sandbox_plugins`)."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent_core.errors import ToolError
from agent_core.spelling import spelled
from agent_core.tools.context import SandboxAccess

OUTPUT_CHARS: Final = 2_000
MAX_FILE_BYTES: Final = 512 * 1024
PLUGINS_FOLDER: Final = '"$HOME/.drydock-plugins"'
"""As a shell reads it."""
_MARGIN_SECONDS: Final = 30.0
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@spelled
@dataclass(frozen=True, slots=True)
class PluginService:
    """A program that runs in the background of a sandbox.

    `command` is run by a shell; the service is ready when the shell command `ready` succeeds.
    """

    command: str
    ready: str = "true"


@spelled
@dataclass(frozen=True)
class PluginRequirement:
    """Something that a sandbox brings up for an agent, in the order of `AgentBase.sandbox_plugins`.

    It is brought up whenever the sandbox has started anew, before anything else runs there, so it has to be able to
    find its work done. What fails, or
    is not done within `limit_seconds`, is told in the conversation, which goes on without. A subclass may define
    `bring_up` instead of giving data.

    Attributes:
        name: what it is called in the conversation; small letters, digits, hyphen and underscore.
        files: texts by their paths, relative to a folder of the plugin's own (the variable ``PLUGIN_DIR``).
        env: variables for its commands and its service, and then for every terminal, cell and program of the sandbox.
        setup: shell commands, one after the other, in the workspace; the first that fails ends it.
        service: a program that is started then, unless it is ready already.
        limit_seconds: for all of that together.
    """

    name: str
    files: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    service: PluginService | None = None
    limit_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r} has to be small letters, digits, hyphens and underscores, up to 40")
        if wrong := [one for one in self.env if not _VARIABLE.fullmatch(one) or one.startswith("DRYDOCK_")]:
            raise ValueError(f"env: {wrong} cannot name variables")
        if wrong := [one for one, value in self.env.items() if not isinstance(value, str) or "\0" in value]:
            raise ValueError(f"env: the values of {wrong} have to be texts without NUL")
        if not isinstance(self.setup, tuple):
            raise TypeError("setup: give a tuple of commands, such as ('make tools',)")
        for path, text in self.files.items():
            if path.startswith("/") or ".." in path.split("/") or not path.strip():
                raise ValueError(f"files: {path!r} leads out of the plugin's folder")
            if len(text.encode()) > MAX_FILE_BYTES:
                raise ValueError(f"files: {path!r} has more than {MAX_FILE_BYTES} bytes")
        if not self.limit_seconds > 0:
            raise ValueError(f"limit_seconds is {self.limit_seconds}; it must be above zero")

    @property
    def is_there_already(self) -> bool:
        """Whether there is nothing to bring up, since every sandbox has it."""
        plain = type(self).bring_up is PluginRequirement.bring_up
        return plain and not (self.files or self.env or self.setup or self.service)

    async def bring_up(self, sandbox: SandboxAccess) -> None:
        """Bring it up; raises `ToolError` with what a command printed, or an error of the sandbox."""
        for path, text in self.files.items():
            place = f'"$PLUGIN_DIR"/{shlex.quote(path)}'
            coded = base64.b64encode(text.encode()).decode()
            await self._run(sandbox, f'mkdir -p "$(dirname {place})" && printf %s {coded} | base64 -d > {place}', path)
        for command in self.setup:
            await self._run(sandbox, command, command)
        if self.service is not None:
            await self._serve(sandbox, self.service)
        if self.env:
            await sandbox.request("environment.set", {"variables": dict(self.env)}, limit_seconds=self.limit_seconds)

    @property
    def _exports(self) -> str:
        return "; ".join(f"export {name}={shlex.quote(value)}" for name, value in self.env.items()) or "true"

    @property
    def _folder(self) -> str:
        return f'export PLUGIN_DIR={PLUGINS_FOLDER}/{self.name}; mkdir -p "$PLUGIN_DIR"; {self._exports}'

    async def _run(self, sandbox: SandboxAccess, command: str, what: str) -> None:
        result = await self._shell(sandbox, f"{self._folder}\n{command}", fresh=True)
        if result["exit_code"] != 0:
            raise ToolError(f"{what[:200]!r} {_outcome(result)}")

    async def _serve(self, sandbox: SandboxAccess, service: PluginService) -> None:
        """In a kept shell of its own, for what a fresh one has started ends with it."""
        log = '"$PLUGIN_DIR"/service.log'
        started = f"""{self._folder}
if ! ( {service.ready}
) >/dev/null 2>&1; then
( exec sh -c {shlex.quote(service.command)} ) > {log} 2>&1 < /dev/null &
plugin_service=$!
( until ( {service.ready}
) >/dev/null 2>&1; do
  kill -0 $plugin_service 2>/dev/null || {{ echo 'it has ended:'; tail -c {OUTPUT_CHARS} {log}; exit 1; }}
  sleep 0.1
done )
fi"""
        result = await self._shell(sandbox, started, session=f"plugin-{self.name}")
        if result["exit_code"] != 0:
            said = await self._shell(sandbox, f"{self._folder}\ntail -c {OUTPUT_CHARS} {log}", fresh=True)
            tail = "" if result["exit_code"] is not None else str(said["output"]).strip()
            raise ToolError(f"its service {_outcome(result)} {tail}".strip())

    async def _shell(self, sandbox: SandboxAccess, command: str, **where: object) -> Mapping[str, Any]:
        args = {**where, "command": command, "timeout": self.limit_seconds, "max_output": OUTPUT_CHARS}
        return (await sandbox.request("shell.run", args, limit_seconds=self.limit_seconds + _MARGIN_SECONDS)).result


def _outcome(result: Mapping[str, Any]) -> str:
    said = str(result["output"]).strip() or str(result["notice"] or "").strip()
    code = result["exit_code"]
    return (f"ended with exit code {code}. " if code is not None else "was not done in time. ") + said


@spelled
@dataclass(frozen=True)
class AgentSkillsRequirement(PluginRequirement):
    """The functions that a kernel's cells find ready to use, in every sandbox; without it cells do not find them."""

    name: str = "agent_skills"


@spelled
@dataclass(frozen=True)
class JupyterRequirement(PluginRequirement):
    """The kernel, which every sandbox starts with the first cell; an agent class without it has no cells."""

    name: str = "jupyter"


DEFAULT_PLUGINS: Final = (AgentSkillsRequirement(), JupyterRequirement())
"""In the order in which they are there: a kernel's cells find the skills."""
