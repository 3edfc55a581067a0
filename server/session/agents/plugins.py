"""`Plugins`: those that users and the operator have installed, and what conversations get of them."""

from __future__ import annotations

import asyncio
import logging
import re
import tarfile
import tempfile
import time
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakValueDictionary

from agent_core.destinations import Destinations
from agent_core.errors import DrydockError, SkillValidationError, ToolError
from agent_core.mcp.config import McpServer
from agent_core.mcp.servers import servers_of
from agent_core.security.hooks import HookConfig
from agent_core.session.plugins import PlacedFiles, PlacedFolder, PluginParts
from agent_core.session.settings import SessionSettings
from agent_core.skills.agent_catalog import INHERIT, AgentDefinition
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import Skill
from agent_core.troubles import Trouble, coded
from server.db.data_folder import PLUGIN_SCRATCH
from server.db.database import Database
from server.db.errors import DatabaseError
from server.db.repositories.plugins import SERVER, PluginRepository, StoredPlugin, owner_of
from server.db.repositories.user_settings import StoredSettings
from server.db.storage_health import file_error, is_of_disk
from server.git_providers.kinds import Credentials, base_url, credentials, known_tokens
from server.session.agents.plugin_fetch import Fetched, PluginError, fetch
from server.settings.plugin_source import PluginSource
from server.settings.settings import Settings

FOLDER: Final = "/tmp/drydock-plugins"  # noqa: S108 - in sandboxes, which are each conversation's own
AT_ONCE: Final = 2
RETRY_SECONDS: Final = 300.0
"""After which an operator's plugin that could not be fetched is asked for again; no conversation waits for that."""
PATIENCE_SECONDS: Final = 10.0
"""For which conversations wait for operator's plugins that were never asked for."""
WAIT_SECONDS: Final = 30.0
"""For which an installation waits for others."""
KEPT_BYTES: Final = 64 * 1024 * 1024
"""Of plugins that were read, so that they need not be read again."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_reading = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plugins")

logger = logging.getLogger(__name__)


class InstalledPlugin(NamedTuple):
    """A stored plugin, what it brings (None where that cannot be used any more), and what is wrong with its files."""

    stored: StoredPlugin
    parts: PluginParts | None
    problems: tuple[SkillValidationError, ...]
    folder: PlacedFolder


class _Failure(NamedTuple):
    at: float
    problem: SkillValidationError


class PluginUpdate(NamedTuple):
    """An update: the commit before, and the plugin as it is now."""

    old_commit: str
    plugin: InstalledPlugin


@dataclass(frozen=True, slots=True)
class PluginsOfConversation:
    """What a conversation gets of all its plugins; of two things with one name the first counts."""

    skills: tuple[Skill, ...] = ()
    hooks: HookConfig = field(default_factory=HookConfig)
    servers: Mapping[str, McpServer] = field(default_factory=dict)
    refused_programs: frozenset[str] = frozenset()
    agents: tuple[AgentDefinition, ...] = ()
    folders: tuple[PlacedFolder, ...] = ()
    problems: tuple[SkillValidationError, ...] = ()

    def added_to(self, settings: SessionSettings) -> SessionSettings:
        """The settings of a session that has all this besides; what it has already of the same name stays."""
        rules, own = settings.mcp_rules, settings.mcp_config
        refused = rules.refused_programs | (self.refused_programs - own.keys())
        return replace(
            settings,
            agent_context=(settings.agent_context or AgentContext()).merged(plugin=self.skills),
            hooks=settings.hooks.followed_by(self.hooks),
            mcp_config={**self.servers, **own},
            mcp_rules=replace(rules, refused_programs=refused),
            agent_definitions=(*settings.agent_definitions, *self.agents),
            folders=(*settings.folders, *self.folders),
            skill_problems=(*settings.skill_problems, *self.problems),
        )


class Plugins:
    """Installs plugins from git addresses, each at the commit that was fetched, and reads those that are there.

    Nothing of a plugin runs on this host. `start` begins to install the operator's (setting ``plugins``), `close` ends
    that.
    """

    def __init__(self, database: Database, settings: Settings, destinations: Destinations) -> None:
        self._stored: PluginRepository = database.plugins
        self._settings = settings
        self._destinations = destinations
        self._scratch = database.data_dir.absolute()
        self._fetching = asyncio.Semaphore(AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._failures: dict[PluginSource, _Failure] = {}
        self._installing: asyncio.Task[None] | None = None
        self._read_before: OrderedDict[tuple[str, str, str], tuple[InstalledPlugin, int]] = OrderedDict()

    def start(self) -> None:
        if self._settings.plugins:
            self._begin_installing()

    async def close(self) -> None:
        if self._installing is not None:
            self._installing.cancel()
            await asyncio.wait([self._installing])

    # --- what users ask for ---

    async def all(self, user_id: str, disabled: Collection[str] = ()) -> list[InstalledPlugin]:
        """The user's, by name, and those of the whole server before them, less those that the user has `disabled`."""
        known, _ = await self._known_of_server()
        server = [replace(one, enabled=not self._is_off(one.name, disabled)) for one in known]
        return [await self._read(one) for one in (*server, *await self._stored.all(owner_of(user_id)))]

    async def get(self, user_id: str, name: str) -> InstalledPlugin | None:
        found = await self._stored.get(owner_of(user_id), name)
        return await self._read(found) if found is not None else None

    async def install(self, user_id: str, source: PluginSource, user: StoredSettings | None) -> InstalledPlugin:
        """Fetch it and keep it; the same commit of the same source, installed already, is returned as it is.

        Raises `PluginError`, `PluginTakenError`, or `DatabaseError`; nothing is kept then.
        """
        owner = owner_of(user_id)
        async with _turn(self._lock(owner)):
            made = await self._made(owner, source, user)
            before = await self._stored.get(owner, made.stored.name)
            same = before is not None and (before.source, before.path) == (source.url, source.path)
            if before is not None and same and before.commit == made.stored.commit:
                return await self._read(before)
            await self._stored.add(made.stored)
            return made

    async def update(
        self, user_id: str, name: str, user: StoredSettings | None, *, ref: str | None = None
    ) -> PluginUpdate | None:
        """Fetch anew what it was installed from, at `ref` if one is given; None: there is no such plugin.

        Raises as `install`; then it stays as it was.
        """
        owner = owner_of(user_id)
        async with _turn(self._lock(owner)):
            before = await self._stored.get(owner, name)
            if before is None:
                return None
            wanted = before.ref if ref is None else ref
            made = await self._made(owner, source_of(before.source, wanted, before.path), user)
            if made.stored.name != name:
                raise PluginError(f"it calls itself {made.stored.name!r} by now; remove {name!r} and install that")
            if not await self._stored.replace(made.stored, before.commit):
                raise PluginError("it was changed meanwhile; look at it again")
            kept = replace(made.stored, enabled=before.enabled)
            return PluginUpdate(before.commit, made._replace(stored=kept))

    async def enable(self, user_id: str, name: str, *, enabled: bool) -> bool:
        return await self._stored.enable(owner_of(user_id), name, enabled=enabled)

    async def remove(self, user_id: str, name: str) -> bool:
        return await self._stored.delete(owner_of(user_id), name)

    # --- what conversations get ---

    async def of_conversation(self, user_id: str, disabled: Collection[str] = ()) -> PluginsOfConversation:
        """What the plugins of the server bring that the user has not `disabled`, and those of this user's own."""
        server, problems = await self._of_server()
        server = [one for one in server if not self._is_off(one.name, disabled)]
        stored = [*server, *(await self._stored.all(owner_of(user_id)) if self._settings.user_plugins else [])]
        names: set[str] = set()
        found: list[InstalledPlugin] = []
        for one in stored:
            if one.enabled and one.name not in names:
                names.add(one.name)
                found.append(await self._read(one))
        return _together(found, problems, self._settings.mcp_programs)

    async def is_of_server(self, name: str) -> bool:
        """Whether the operator has installed a plugin of this name for all."""
        return any(one.name == name for one in (await self._known_of_server())[0])

    def _is_off(self, name: str, disabled: Collection[str]) -> bool:
        return name in disabled and not self._settings.required_plugins

    async def _of_server(self) -> tuple[list[StoredPlugin], list[SkillValidationError]]:
        """The operator's plugins that are there, and why others are not; waits only for what was never asked for."""
        if not self._settings.plugins:
            return [], []
        known, missing = await self._known_of_server()
        if any(self._is_due(source) for source in missing):
            installing = self._begin_installing()
            if any(source not in self._failures for source in missing):
                await asyncio.wait([installing], timeout=PATIENCE_SECONDS)
                known, missing = await self._known_of_server()
        return known, [self._problem(source) for source in missing]

    def _is_due(self, source: PluginSource) -> bool:
        tried = self._failures.get(source)
        return tried is None or time.monotonic() - tried.at >= RETRY_SECONDS

    def _problem(self, source: PluginSource) -> SkillValidationError:
        tried = self._failures.get(source)
        if tried is not None:
            return tried.problem
        text = f"plugin {source.url}: it is still being fetched; the conversation has it when it is started again"
        return SkillValidationError(text, path=source.url)

    def _begin_installing(self) -> asyncio.Task[None]:
        if self._installing is None or self._installing.done():
            self._installing = asyncio.create_task(self._install_servers(), name="plugins")
        return self._installing

    async def _install_servers(self) -> None:
        """Install those of the operator's that are missing and due, one after the other; failures are kept."""
        try:
            known, missing = await self._known_of_server()
            for source in filter(self._is_due, missing):
                try:
                    made = await self._made(SERVER, source, None)
                    if any(one.name == made.stored.name for one in known):
                        raise PluginError(f"another plugin of the setting plugins is called {made.stored.name!r}, too")
                    await self._stored.keep_only(SERVER, known)  # others are of former settings
                    await self._stored.add(made.stored)
                    known.append(made.stored)
                    self._failures.pop(source, None)
                except DrydockError as error:
                    extra = coded(Trouble.PLUGIN_FAILED)
                    logger.warning(
                        "the plugin %s of the setting plugins is left out: %s", source.url, error, extra=extra
                    )
                    problem = SkillValidationError(f"plugin {source.url}: {error}", path=source.url)
                    self._failures[source] = _Failure(time.monotonic(), problem)
        except Exception:
            extra = coded(Trouble.PLUGIN_FAILED)
            logger.exception("the plugins of the setting plugins could not be installed", extra=extra)

    async def _known_of_server(self) -> tuple[list[StoredPlugin], list[PluginSource]]:
        stored = {(one.source, one.commit, one.path): one for one in await self._stored.all(SERVER)}
        wanted = [PluginSource.pinned(text) for text in self._settings.plugins]
        keys = [(one.url, one.ref, one.path) for one in wanted]
        known = [stored[key] for key in keys if key in stored]
        return known, [source for source, key in zip(wanted, keys, strict=True) if key not in stored]

    def _lock(self, owner: str) -> asyncio.Lock:
        return self._locks.setdefault(owner, asyncio.Lock())

    async def _made(self, owner: str, source: PluginSource, user: StoredSettings | None) -> InstalledPlugin:
        # An operator's is one at a time as it is, and conversations that wait for it do not wait for users'.
        async with _turn(self._fetching) if owner != SERVER else nullcontext():
            credentials = _credentials(source, user, self._settings)
            fetched = await fetch(source, self._destinations, credentials, scratch=self._scratch)
        stored = StoredPlugin(
            owner=owner,
            name=source.usual_name,
            source=source.url,
            ref=source.ref,
            path=source.path,
            commit=fetched.commit,
            archive=await asyncio.get_running_loop().run_in_executor(_reading, fetched.archive),
        )
        try:
            made = await asyncio.get_running_loop().run_in_executor(_reading, self._read_strictly, stored, fetched)
        except SkillValidationError as error:
            raise PluginError(str(error)) from error
        except OSError as error:
            if is_of_disk(error):
                raise file_error("its files cannot be unpacked or read", error) from error
            raise PluginError(f"its files cannot be read: {error.strerror or error}") from error
        if not _NAME.fullmatch(made.stored.name):
            raise PluginError(
                f"its name {made.stored.name[:100]!r} cannot be used; a name has letters, digits, dots, hyphens and"
                " underscores, and a letter or a digit first"
            )
        return made

    async def _read(self, stored: StoredPlugin) -> InstalledPlugin:
        """What a stored plugin brings; read from its archive, unless that was done a short while ago."""
        key = (stored.owner, stored.name, stored.commit)
        if key in self._read_before:
            self._read_before.move_to_end(key)
            return self._read_before[key][0]._replace(stored=stored)
        archive = await self._stored.archive(*key)
        found, size = await asyncio.get_running_loop().run_in_executor(
            _reading, self._read_archive, stored, archive or b""
        )
        if found.parts is not None:
            self._read_before[key] = found, size
            while sum(each for _, each in self._read_before.values()) > KEPT_BYTES:
                self._read_before.popitem(last=False)
        return found

    def _read_archive(self, stored: StoredPlugin, archive: bytes) -> tuple[InstalledPlugin, int]:
        """What is in it, and how many bytes of files."""
        usual = replace(stored, name=PluginSource(stored.source, path=stored.path).usual_name)
        try:
            fetched = Fetched.of_archive(stored.commit, archive)
            return self._read_strictly(usual, fetched)._replace(stored=stored), sum(map(len, fetched.files.values()))
        except (SkillValidationError, OSError, EOFError, tarfile.TarError, zlib.error) as error:
            if isinstance(error, OSError) and is_of_disk(error):
                # No conversation begins without a plugin's hooks because the disk is full.
                raise file_error(f"The files of the plugin {stored.name} cannot be unpacked or read", error) from error
            # An earlier version took it, or what was stored is damaged.
            target = f"{FOLDER}/{stored.name}"
            problem = SkillValidationError(f"plugin {stored.name}: {error}", path=target)
            return InstalledPlugin(stored, None, (problem,), self._folder(stored)), 0

    def _read_strictly(self, stored: StoredPlugin, fetched: Fetched) -> InstalledPlugin:
        """The plugin in these files, under its own name; `SkillValidationError`: they are none; `OSError`."""
        problems: list[SkillValidationError] = []
        with tempfile.TemporaryDirectory(prefix=PLUGIN_SCRATCH, dir=self._scratch) as scratch:
            folder = Path(scratch).resolve() / stored.name
            for name, content in fetched.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            folder.mkdir(exist_ok=True)
            try:
                parts = PluginParts.read(folder, problems.append)
            except SkillValidationError as error:
                _refuse_fault_of_disk([*problems, error])
                text = str(error).replace(f"{folder}/", "").replace(str(folder), stored.name)
                raise SkillValidationError(text) from None
            _refuse_fault_of_disk(problems)
            name = parts.plugin.name
            target = f"{FOLDER}/{name}"
            moved = _without_secrets(parts.moved(folder, target))
        told = [
            SkillValidationError(
                str(one).replace(str(folder), f"plugin {name}"),
                path=one.path.replace(str(folder), target),
                line=one.line,
            )
            for one in problems
        ]
        named = replace(stored, name=name)
        return InstalledPlugin(named, moved, tuple(told), self._folder(named))

    def _folder(self, stored: StoredPlugin) -> PlacedFolder:
        """Where its files are in sandboxes; they are read when one is given them."""

        async def read() -> PlacedFiles:
            try:
                archive = await self._stored.archive(stored.owner, stored.name, stored.commit)
            except DatabaseError as error:
                raise ToolError(f"they could not be read: {error}") from error
            if archive is None:
                raise ToolError("the plugin was changed or removed meanwhile; start the conversation again")
            fetched = await asyncio.get_running_loop().run_in_executor(
                _reading, Fetched.of_archive, stored.commit, archive
            )
            return PlacedFiles(fetched.files, fetched.executables)

        return PlacedFolder(f"{FOLDER}/{stored.name}", read)


@asynccontextmanager
async def _turn(lock: asyncio.Lock | asyncio.Semaphore) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await lock.acquire()
    except TimeoutError:
        raise PluginError("other plugins are being installed at the moment; try again in a minute") from None
    try:
        yield
    finally:
        lock.release()


def source_of(url: str, ref: str, path: str) -> PluginSource:
    """The source with these parts; `PluginError` names the one that cannot be used."""
    try:
        return PluginSource.checked(url, ref, path)
    except ValueError as error:
        raise PluginError(str(error)) from error


def _refuse_fault_of_disk(problems: Sequence[SkillValidationError]) -> None:
    """Raise the first `OSError` that says more of the disk than of the plugin: what it brings is not known then."""
    for problem in problems:
        if isinstance(problem.__cause__, OSError) and is_of_disk(problem.__cause__):
            raise problem.__cause__


def _credentials(source: PluginSource, user: StoredSettings | None, server: Settings) -> Credentials | None:
    """The user's token, if the address is at the provider that it is for."""
    for name, token in known_tokens(user.provider_tokens if user is not None else {}).items():
        if source.url.startswith(f"{base_url(name, token.host or server.git_hosts.get(name))}/"):
            return credentials(name, token.token)
    return None


def _together(
    plugins: Sequence[InstalledPlugin],
    problems: Sequence[SkillValidationError],
    programs: Literal["sandbox", "host", "never"],
) -> PluginsOfConversation:
    skills: dict[str, Skill] = {}
    servers: dict[str, McpServer] = {}
    agents: dict[str, AgentDefinition] = {}
    refused: set[str] = set()
    hooks = HookConfig()
    for plugin in plugins:
        if plugin.parts is None:
            continue
        is_own = plugin.stored.owner == SERVER
        hooks = hooks.followed_by(plugin.parts.hooks)
        for skill in plugin.parts.plugin.skills:
            skills.setdefault(skill.name, skill)
        for name, server in plugin.parts.servers.items():
            if servers.setdefault(name, server) is server and server.kind == "stdio":
                # On this host nothing of a plugin runs; and in sandboxes what the operator has not forbidden.
                refused |= {name} if programs == "host" or (programs == "never" and not is_own) else set()
        for agent in plugin.parts.plugin.agents:
            agents.setdefault(agent.name, _confined(agent, programs))
    return PluginsOfConversation(
        skills=tuple(skills.values()),
        hooks=hooks,
        servers=servers,
        refused_programs=frozenset(refused),
        agents=tuple(agents.values()),
        folders=tuple(plugin.folder for plugin in plugins if plugin.parts is not None),
        problems=(*problems, *(problem for plugin in plugins for problem in plugin.problems)),
    )


def _without_secrets(parts: PluginParts) -> PluginParts:
    """The plugin with servers that are lent no secret of the user's: its author says where they send it."""
    skills = []
    for skill in parts.plugin.skills:
        try:
            servers = {name: one.model_dump(exclude_defaults=True) for name, one in servers_of(skill).items()}
        except ValueError:  # it is told in the conversations
            skills.append(skill)
            continue
        brought = {name: {**server, "lends_secrets": False} for name, server in servers.items()}
        skills.append(skill.model_copy(update={"mcp_tools": brought or None}))
    agents = [
        agent.model_copy(
            update={
                "mcp_config": {
                    name: {**one, "lends_secrets": False} if isinstance(one, dict) else one
                    for name, one in agent.mcp_config.items()
                }
            }
        )
        for agent in parts.plugin.agents
    ]
    return replace(
        parts,
        plugin=parts.plugin.model_copy(update={"skills": skills, "agents": agents}),
        servers={name: one.model_copy(update={"lends_secrets": False}) for name, one in parts.servers.items()},
    )


def _confined(agent: AgentDefinition, programs: str) -> AgentDefinition:
    """The kind without what it could reach on this host: models of a store of its own, and programs."""
    servers: dict[str, Any] = agent.mcp_config
    if programs != "sandbox":
        servers = {name: one for name, one in servers.items() if isinstance(one, dict) and "command" not in one}
    return agent.model_copy(update={"model": INHERIT, "profile_store_dir": None, "mcp_config": servers})


def servers_of_plugin(parts: PluginParts) -> list[str]:
    """The names of the MCP servers that it brings, those of its skills among them."""
    names = dict.fromkeys(parts.servers)
    for skill in parts.plugin.skills:
        try:
            names.update(dict.fromkeys(servers_of(skill)))
        except ValueError:  # it is told in the conversations
            continue
    return list(names)
