"""The servers of one conversation: connected together in the background, each with its own failure."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from agent_core.mcp.client import load
from agent_core.mcp.config import McpServer, expanded, mcp_servers, names_in
from agent_core.mcp.connection import McpConnection
from agent_core.mcp.grants import sign_in_id
from agent_core.mcp.program import HostPrograms, McpServerError, ProgramPlace
from agent_core.mcp.sign_in import SignIns
from agent_core.mcp.tool import McpTool
from agent_core.skills.skill import SERVERS_REFUSED, TRUSTED_LEVELS, Skill, SkillLevel

_FORMER = ("stdio_servers", "sse_servers", "shttp_servers")


def servers_with_skills(
    own: Mapping[str, McpServer], skills: Iterable[Skill]
) -> tuple[dict[str, McpServer], dict[str, str]]:
    """The `own` servers, which take precedence, and those that `skills` bring; the unusable ones with reasons."""
    found = dict(own)
    unusable: dict[str, str] = {}
    for skill in skills:
        try:
            brought = servers_of(skill)
        except ValueError as error:
            unusable[f"of skill {skill.name}"] = f"mcp_tools of the skill cannot be used: {error}"
            continue
        if brought and skill.level not in TRUSTED_LEVELS:
            unusable.update((name, f"the skill {skill.name!r} brings it: {SERVERS_REFUSED}") for name in brought)
            continue
        for name, server in brought.items():
            if found.setdefault(name, server) != server:
                logger.warning(
                    "the MCP server %r of the skill %r is not used: another one has its name", name, skill.name
                )
    return found, unusable


def servers_of(skill: Skill) -> dict[str, McpServer]:
    """The MCP servers that a skill brings; ValueError: what is wrong with them."""
    if not skill.mcp_tools:
        return {}
    is_former = any(key in skill.mcp_tools for key in _FORMER)
    data = _of_former_kind(skill.mcp_tools) if is_former else mcp_servers(skill.mcp_tools)
    found = {}
    for name, server in data.items():
        try:
            found[name] = McpServer.model_validate(server)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(part) for part in (name, *problem["loc"]))
            raise ValueError(f"{place}: {problem['msg'].removeprefix('Value error, ')}") from None
    return found


def _of_former_kind(mcp_tools: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(mcp_tools) - set(_FORMER)):
        raise ValueError(f"{unknown[0]} is not known; there are {list(_FORMER)}")
    programs = mcp_tools.get("stdio_servers") or []
    if not programs:
        raise ValueError("stdio_servers must be given: in this form a skill can bring no other servers")
    if not isinstance(programs, list) or not all(isinstance(one, Mapping) and one.get("name") for one in programs):
        raise ValueError("stdio_servers must be a list of objects with name and command")
    return {str(one["name"]): {key: value for key, value in one.items() if key != "name"} for one in programs}


logger = logging.getLogger(__name__)

FIRST_STEP_SECONDS = 15.0
"""How long a first step waits for servers, not counting the import of `mcp` and the start of their sandbox."""

SecretLookup = Callable[[str], Awaitable[Mapping[str, str]]]
"""Gives the values, by name, of the secrets that are named in a text."""

PROGRAMS_REFUSED = (
    "it is a program, and this server starts no programs for its users (setting mcp_programs); give the address of a"
    " server that runs elsewhere"
)

NO_SECRETS = (
    "it refers to {names}, and whoever wrote it is given no secret of yours; if you trust its server, configure one of"
    " the same name in your settings, which then counts instead"
)


@dataclass(frozen=True, slots=True)
class McpRules:
    """What the servers of a conversation may do.

    References are looked up last in `environment` (None: the variables of this process). `refused_programs` are left
    out if they are programs, and those that skills of the `refused_levels` bring; `programs` is where they run.
    `sign_ins` has the tokens of their user; without it servers that want a sign-in cannot be used.
    """

    environment: Mapping[str, str] | None = None
    refused_programs: frozenset[str] = frozenset()
    refused_levels: frozenset[SkillLevel] = frozenset()
    programs: Literal["host", "sandbox"] = "host"
    sign_ins: SignIns | None = None


class McpServers:
    """Connects to servers and has their tools. Nothing happens before `start`; `close` ends everything.

    References in the `config` are looked up in `variables`, then in the secrets, then in the `environment`; `unusable`
    says why servers cannot be configured. `changed` is set whenever tools or problems have changed, and cleared by its
    waiter; `reported` has the problems (server and reason) that the user knows already.
    """

    def __init__(
        self,
        config: Mapping[str, McpServer],
        *,
        variables: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        unusable: Mapping[str, str] | None = None,
        refused_programs: Collection[str] = (),
        programs: ProgramPlace | None = None,
        sign_ins: SignIns | None = None,
    ) -> None:
        self.programs = programs or HostPrograms()
        self.changed = asyncio.Event()
        self.reported: set[tuple[str, str]] = set()
        self._variables = dict(variables or {})
        self._environment = os.environ if environment is None else environment
        self._lookup: SecretLookup | None = None
        self._refused = set(refused_programs)
        self._sign_ins = sign_ins
        self._connections = self._made(config)
        self._unusable = dict(unusable or {})
        self._hide: Callable[[Iterable[str]], None] = lambda values: None
        self._starting: list[asyncio.Task[None]] = []
        self._loaded_at = 0.0
        self._closing: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None

    def _made(self, config: Mapping[str, McpServer]) -> list[McpConnection]:
        return [
            McpConnection(
                name,
                server,
                prepare=self._expanded,
                programs=self.programs,
                on_change=self.changed.set,
                sign_ins=self._sign_ins,
            )
            for name, server in config.items()
            if server.enabled
        ]

    def add(self, skills: Iterable[Skill], refused_levels: Collection[SkillLevel] = ()) -> bool:
        """Have the servers of these skills besides, connected at once if the others are; whether any is new.

        Programs of skills from `refused_levels` are left out.
        """
        is_changed = False
        for skill in skills:
            before = {connection.name: connection.server for connection in self._connections}
            config, unusable = servers_with_skills(before, [skill])
            added = self._made({name: server for name, server in config.items() if name not in before})
            if skill.level in refused_levels:
                self._refused.update(connection.name for connection in added)
            self._unusable.update(unusable)
            self._connections.extend(added)
            if self._loading is not None:
                self._connect(added)
            is_changed = is_changed or bool(added or unusable)
        return is_changed

    @property
    def is_empty(self) -> bool:
        return not (self._connections or self._unusable)

    def secrets(self) -> list[str]:
        return [value for connection in self._connections for value in connection.server.secrets]

    def start(self, lookup: SecretLookup | None = None, hide: Callable[[Iterable[str]], None] | None = None) -> None:
        """Begin to connect to all of them, once. `lookup` gives the secrets that the configuration refers to.

        `hide` is told the tokens that servers are shown.
        """
        self._lookup = lookup or self._lookup
        self._hide = hide or self._hide
        if self._loading is not None:
            return
        if self._sign_ins is not None:
            self._sign_ins.listeners.add(self)
        self._loading = asyncio.create_task(self._load(), name="mcp-load")
        self._connect(self._connections)

    def _connect(self, connections: Sequence[McpConnection]) -> None:
        if connections and self._loading is not None and self._loading.done():
            self._loading = asyncio.create_task(self._load(), name="mcp-load")  # a step waits for these anew
        self._starting.extend(self._connecting(connection) for connection in connections)
        if self._unusable:
            self.changed.set()

    def _connecting(self, connection: McpConnection) -> asyncio.Task[None]:
        starting = asyncio.create_task(connection.start(), name=f"mcp-start:{connection.name}")
        starting.add_done_callback(lambda _task: self.changed.set())
        return starting

    def hide(self, values: Iterable[str]) -> None:
        """These are tokens of the user (see `agent_core.mcp.sign_in.SignInListener`)."""
        self._hide(values)

    def signed_in(self, server: str) -> None:
        """There are tokens for this server now: what waits for them goes on."""
        for number, connection in enumerate(self._connections):
            if self._closing is not None or connection.address != server:
                continue
            connection.signed_in()
            self.reported.discard((connection.name, self._sign_in_text()))
            if self._starting[number].done() and not connection.is_connected:
                self._starting[number] = self._connecting(connection)

    def wanted_sign_ins(self) -> dict[str, tuple[str, str]]:
        """The servers where a person has to sign in first, by name: the sign-ins' ids, and what to tell the person."""
        wanting = [one for one in self._connections if one.wants_sign_in]
        return {one.name: (sign_in_id(one.address), self._sign_in_text()) for one in wanting}

    def _sign_in_text(self) -> str:
        return f"it wants you to sign in: {self._sign_ins.advice}" if self._sign_ins is not None else ""

    @property
    def pending(self) -> list[str]:
        if self._loading is None:
            return []
        both = zip(self._connections, self._starting, strict=True)
        return [connection.name for connection, starting in both if not (starting.done() or connection.tools)]

    async def settled(self, limit_seconds: float | None = None) -> None:
        """Wait until it is known of each server whether it can be used; `FIRST_STEP_SECONDS` at most."""
        waiting = [task for task in self._starting if not task.done()]
        if waiting and self._loading is not None:
            await asyncio.wait([self._loading])
            limit = FIRST_STEP_SECONDS if limit_seconds is None else limit_seconds
            left = self._loaded_at + limit - asyncio.get_running_loop().time()
            await asyncio.wait(waiting, timeout=max(0.0, left))

    async def all_settled(self) -> None:
        waiting = [task for task in self._starting if not task.done()]
        if waiting:
            await asyncio.wait(waiting)

    def tools(self, taken: Collection[str] = ()) -> list[McpTool]:
        """The present tools, less those `taken`: of several with one name that of the first server."""
        found: dict[str, McpTool] = {}
        for connection in self._connections:
            for tool in connection.tools:
                if tool.name not in taken:
                    found.setdefault(tool.name, tool)
        return list(found.values())

    def problems(
        self, taken: Collection[str] = (), lets_through: Callable[[str], bool] = lambda name: True
    ) -> dict[str, list[str]]:
        """Why servers or tools cannot be used; `taken` as for `tools`.

        `lets_through` says which names count; where it raises `ValueError`, that is why.
        """
        found: dict[str, list[str]] = {name: [reason] for name, reason in self._unusable.items()}
        owners: dict[str, str] = {}
        for connection in self._connections:
            own = found.setdefault(connection.name, [])
            if connection.failure:
                own.append(f"it cannot be used: {connection.failure}")
            own.extend(f"its tool {name!r} is left out: {why}" for name, why in connection.left_out.items())
            for tool in connection.tools:
                try:
                    if not lets_through(tool.name):
                        continue
                except ValueError as error:
                    own.append(f"its tool {tool.name!r} is left out: {error}")
                    continue
                owner = "the agent itself" if tool.name in taken else owners.setdefault(tool.name, connection.name)
                if owner != connection.name:
                    of_whom = owner if tool.name in taken else f"the MCP server {owner!r}"
                    own.append(f"its tool {tool.name!r} is left out: {of_whom} has one of that name")
        return {name: reasons for name, reasons in found.items() if reasons}

    async def close(self) -> None:
        """End all connections and the programs behind them, within a bounded time; calling it again waits for it."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="mcp-close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._sign_ins is not None:
            self._sign_ins.listeners.discard(self)
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        if self._starting:
            closing = [asyncio.create_task(one.close(), name=f"mcp-close:{one.name}") for one in self._connections]
            await asyncio.wait(closing)
            await asyncio.wait(self._starting)  # they have nothing left to wait for
            for task in (*closing, *self._starting):
                if not task.cancelled() and (error := task.exception()) is not None:
                    logger.error("%s failed", task.get_name(), exc_info=error)

    async def _load(self) -> None:
        await load()
        if any(connection.server.kind == "stdio" for connection in self._connections):
            await self.programs.ready()
        self._loaded_at = asyncio.get_running_loop().time()

    async def _expanded(self, server: McpServer) -> McpServer:
        data: dict[str, Any] = server.model_dump()
        if server.kind == "stdio" and any(
            one.server is server and one.name in self._refused for one in self._connections
        ):
            raise McpServerError(PROGRAMS_REFUSED)
        if not (names := names_in(data)):
            return server
        lookup = self._lookup if server.lends_secrets else None
        secrets = await lookup(" ".join(sorted(names))) if lookup is not None else {}
        values = {name: value for name, value in (*self._environment.items(), *secrets.items()) if name in names}
        values |= {name: value for name, value in self._variables.items() if name in names}
        whole = expanded(data, values)
        if not server.lends_secrets and (missing := names_in(whole)):
            raise McpServerError(NO_SECRETS.format(names=", ".join(sorted(missing))))
        try:
            return McpServer.model_validate(whole)
        except ValueError:
            # The message of the error would show values.
            raise McpServerError(f"it cannot be configured with the values of {sorted(names)}; check them") from None
