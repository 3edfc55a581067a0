"""`Sandboxes`: which provider makes them, those of conversations that are not loaded, and the disk's reserve."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from agent_core.errors import DrydockError, SandboxError
from agent_core.runtime.local.launch_order import host_has_browser
from agent_core.runtime.sandbox import (
    ExtraDeps,
    HasHosts,
    HasImages,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
    SandboxState,
    TellsRunning,
)
from agent_core.troubles import Trouble, coded, trouble_of
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.drained_hosts import DrainedHosts
from server.metrics import ServerMetrics
from server.session.memory_ceiling import MemoryCeiling
from server.session.sandbox_choice import (
    ChosenSandbox,
    commands_in,
    commands_of,
    image_of,
    limits_of,
    network_of,
    stored_choice,
)
from server.session.sandbox_hosts import SandboxHosts
from server.settings.settings import MEGABYTE, Settings

ENGINE_UNAVAILABLE: Final = "engine_unavailable"
UNKNOWN_HOST: Final = "unknown_host"
ENGINE_RETRY_SECONDS: Final = 1.0
_ENTRIES = 10_000
"""Files and folders left free, where the file system has a number of them."""
_FASTEST = 2 * 1024**3
_SHORTEST, _LONGEST = 0.1, 2.0
_LONGEST_WAIT = 300.0
_MORE_ROOM = 4 * 1024**2
_FULL = 256 * 1024**2
"""A disk with more room than that is not the one that something found full."""


class DiskReserve:
    """Tells whether disks (of the server's folder, then its engine's) have less than `reserve` bytes free (0: never).

    Databases fail without. Once they had, there is room again only with a tenth more.
    """

    def __init__(self, folders: Sequence[str], reserve: int) -> None:
        self._folders = folders
        self._reserve = reserve
        self._free = 0
        self._is_engines = self.is_low = False

    def watch(self, folders: Sequence[str]) -> None:
        """Look at these from now on."""
        self._folders = folders

    def problem(self) -> str:
        """Why nothing more may be written, and what to do, as of now; "" when there is room."""
        self.is_low = self._is_low() and bool(self._reserve)
        if not self.is_low:
            return ""
        free, reserve = self._free / 1024**2, self._reserve / 1024**2
        whose = "The disk of the server's Docker engine" if self._is_engines else "The server's disk"
        return (
            f"{whose} is nearly full: {free:.0f} MiB are free, and {reserve:.0f} MiB are kept in reserve"
            " (disk_reserve_mb). Until there is room again, no sandbox is started and those"
            " that run are frozen; then they go on by themselves. Remove conversations, or free some space on the disk."
        )

    def check(self) -> None:
        if problem := self.problem():
            raise SandboxError(problem, code="disk_reserve")

    async def until_more_room(self, limit_seconds: float) -> None:
        """Wait until somebody has freed space on a disk that was full; not for ever, as quotas are not seen.

        Nor less than a tenth of the time, or five seconds: what is tried in vain frees its own space again.
        """
        began, folders = time.monotonic(), self._folders
        limit = min(limit_seconds, _LONGEST_WAIT)
        before = _free_on_each(folders)
        while (waited := time.monotonic() - began) < limit:
            await asyncio.sleep(min(_LONGEST / 4, limit - waited))
            found = _free_on_each(folders)
            has_more = any(then < _FULL and now >= then + _MORE_ROOM for now, then in zip(found, before, strict=True))
            if has_more and time.monotonic() - began >= min(limit / 10, 5.0):
                return
            before = [min(pair) for pair in zip(found, before, strict=True)]

    @property
    def free_mb(self) -> int:
        return self._free // 1024**2

    @property
    def next_look(self) -> float:
        """Seconds after which to look again: the sooner, the less there is above the reserve."""
        if self.is_low or not self._reserve:
            return _LONGEST / 4
        return min(_LONGEST, max(_SHORTEST, (self._free - self._reserve) / _FASTEST))

    def _is_low(self) -> bool:
        needed, entries = self._reserve, _ENTRIES
        if self.is_low:
            needed, entries = needed + needed // 10, entries + entries // 10
        low, least = False, None
        for number, folder in enumerate(self._folders):
            try:
                found = os.statvfs(folder)
            except OSError:
                continue
            free = found.f_bavail * found.f_frsize
            low = low or free < needed or (found.f_files > 4 * _ENTRIES and found.f_favail < entries)
            if least is None or free < least:
                least, self._is_engines = free, number > 0
        self._free = least or 0
        return low


def _free_on_each(folders: Sequence[str]) -> list[int]:
    found = []
    for folder in folders:
        try:
            disk = os.statvfs(folder)
            found.append(disk.f_bavail * disk.f_frsize)
        except OSError:
            found.append(0)
    return found


logger = logging.getLogger(__name__)

REAP_SECONDS = 20.0
DESTROY_SECONDS = 30.0
AGAIN_SECONDS = 30.0
"""After so long it is tried again to remove what could not be removed."""

OTHER_SANDBOXES = "other_sandboxes"
"""Key among a conversation's options: the states of its sandboxes of providers that are not in use, by name."""


LOCAL_PROVIDERS = frozenset({"local", "unconfined"})
"""Providers whose sandboxes see the programs of this host."""


ENGINE_FOLDER = "/var/lib/docker"
"""Where an engine of this host keeps what its containers write, unless it is told otherwise; until it has said so."""


class SandboxSelection(NamedTuple):
    """A provider, and why it was taken; ``provider`` None: none can work here, and ``reason`` says what to do.

    `code` is that of the error then, for example ``engine_unavailable``.
    """

    provider: SandboxProvider | None
    reason: str
    code: str = ""

    @property
    def name(self) -> str:
        return self.provider.name if self.provider is not None else "none"


class Sandboxes:
    """The sandboxes of this server; entered (``async with``), it chooses their provider (`choose`) in the background.

    Before the first sandbox is handed out, those of no conversation (`known_ids`) are removed, unless there are other
    servers of the same instance (`are_others`): theirs may be of conversations that have only just begun.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        instance_id: str,
        choose: Callable[[], Awaitable[SandboxSelection]],
        known_ids: Callable[[], Awaitable[Collection[str]]],
        are_others: Callable[[], Awaitable[bool]] | None = None,
        drained: DrainedHosts | None = None,
        metrics: ServerMetrics | None = None,
    ) -> None:
        self._settings = settings
        self._instance_id = instance_id
        self._choose = choose
        self._known_ids = known_ids
        self._are_others = are_others
        self.check_owner: Callable[[], None] = lambda: None
        """Raises `SandboxError` while all of them may be other servers' by now."""
        self._metrics = metrics or ServerMetrics()
        self._unremoved: dict[str, ConversationRecord] = {}
        self._removing: asyncio.Task[None] | None = None
        self._folder = str(settings.data_dir.absolute())
        self.reserve = DiskReserve([self._folder, ENGINE_FOLDER], settings.disk_reserve_mb * MEGABYTE)
        self.hosts = SandboxHosts(drained, self._metrics, self._sweep)
        most = settings.max_memory_mb
        self.memory = MemoryCeiling(most if most is None else most * MEGABYTE)
        self._choosing: asyncio.Task[SandboxSelection] | None = None
        self._choice: SandboxSelection | None = None
        self._provider: SandboxProvider | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in (self._choosing, self._preparing, self._removing, self._following):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._provider is not None:
            await self._provider.close()

    def check_room(self) -> None:
        """Raise `SandboxError` while nothing more may begin, for want of room on the disk or of memory."""
        self.reserve.check()
        self.memory.check()

    @property
    def choice(self) -> SandboxSelection | None:
        return self._choice

    async def chosen(self) -> SandboxSelection:
        """What was chosen, once known; where nothing worked before, it is tried again."""
        if self._choice is not None and self._choice.provider is not None:
            return self._choice
        return await asyncio.shield(self._begin())

    async def _once_chosen(self) -> SandboxSelection:
        """As `chosen`, but what has failed is not tried again."""
        return self._choice or await self.chosen()

    async def provider(self) -> SandboxProvider:
        """The provider in use; `SandboxError` says why there is none, and what to do."""
        choice = await self.chosen()
        if choice.provider is None:
            raise SandboxError(choice.reason, code="no_provider")
        return choice.provider

    async def until_engine_answers(self, waiting: Callable[[str], None]) -> None:
        """Wait while the engine is away that there is to be one, as while its host starts, for as long as a start may.

        `waiting` is told why, each time that it is tried again.
        """
        last = time.monotonic() + self._settings.sandbox_start_seconds
        while (choice := await self.chosen()).code == ENGINE_UNAVAILABLE and time.monotonic() < last:
            waiting(choice.reason)
            await asyncio.sleep(ENGINE_RETRY_SECONDS)

    async def can_be_made(self) -> bool:
        """Whether the provider can make any just now; takes some seconds where an engine hangs."""
        provider = (await self.chosen()).provider
        return provider is not None and (await provider.check()).ok

    async def running(self) -> Collection[str] | None:
        """The conversations whose sandboxes may be up; None: of this provider each has to be asked for itself."""
        try:
            provider = await self.provider()
            return await provider.running(self._instance_id) if isinstance(provider, TellsRunning) else None
        except SandboxError as error:
            logger.debug("what runs cannot be told: %s", error)
            return ()

    async def lacks(self) -> Mapping[str, str]:
        """What conversations cannot choose of their sandboxes: see `SandboxProvider.lacks`."""
        provider = (await self._once_chosen()).provider
        return await provider.lacks() if provider is not None else {}

    async def sandbox(
        self,
        record: ConversationRecord,
        environment: Mapping[str, str] | None = None,
        waiting: Callable[[str], None] = lambda reason: None,
    ) -> Sandbox:
        """This provider's sandbox of the conversation, new or found again, not started; raises as `provider` does.

        `environment` has further variables of everything in it. A new one waits until one of several hosts has a place
        for it, for as long as a start may take; `waiting` is told why.
        """
        self.check_owner()
        provider = await self.provider()
        spec = self.spec(record)
        spec = replace(spec, environment={**(environment or {}), **spec.environment})
        state = _stored_state(record, provider.name)
        if state is not None:
            return provider.restore(spec, {key: str(value) for key, value in state.items()})
        return await _made(provider, spec, waiting)

    def spec(self, record: ConversationRecord) -> SandboxSpec:
        return self._spec(record.id, stored_choice(record))

    def kind(self, chosen: ChosenSandbox, environment: Mapping[str, str]) -> SandboxSpec:
        """All that decides how the sandbox of a conversation is made that has chosen this, but which one it is."""
        return replace(self._spec("", chosen), environment=dict(environment))

    async def made_ahead(self, kind: SandboxSpec, conversation_id: str) -> Sandbox:
        """One of this kind for a conversation to come, the same as `sandbox` gives then; raises as `provider` does."""
        environment = {**kind.environment, **_port_variables(conversation_id)}
        spec = replace(kind, conversation_id=conversation_id, environment=environment)
        return await _made(await self.provider(), spec, lambda reason: None)

    async def image_id(self, spec: SandboxSpec, state: SandboxState) -> str:
        """What the name of its image stands for now where the sandbox of this state is; "" where sandboxes have none.

        Raises `SandboxError`, also where that place takes no new sandboxes any more.
        """
        provider = await self.provider()
        if not isinstance(provider, HasImages):
            return ""
        found = await provider.image_id(spec.image, state)
        if not found and isinstance(provider, HasHosts):
            raise SandboxError("Its host takes no new sandboxes, or has the image no more.", code="no_host")
        return found

    def _spec(self, conversation_id: str, chosen: ChosenSandbox) -> SandboxSpec:
        settings = self._settings
        commands = commands_in(chosen, settings)
        return SandboxSpec(
            environment=_port_variables(conversation_id),
            conversation_id=conversation_id,
            instance_id=self._instance_id,
            image=image_of(chosen, settings),
            extra_deps=ExtraDeps(commands, settings.runtime_extra_deps_seconds) if commands else None,
            data_dir=str(settings.data_dir.absolute()),
            network=network_of(chosen, settings),
            limits=limits_of(chosen, settings),
        )

    async def may_have_browser(self, record: ConversationRecord) -> bool:
        """Whether the conversation's agent gets a browser; waits for a choice that is still being made."""
        if self._settings.enable_browsing != "auto":
            return self._settings.enable_browsing == "always"
        name: str = self._settings.sandbox
        if name == "auto":
            name = (await self._once_chosen()).name
        if name in LOCAL_PROVIDERS:
            return host_has_browser()
        return bool(self.spec(record).image != Settings.model_fields["sandbox_image"].default)

    async def stop(self, record: ConversationRecord) -> None:
        """End the processes of an unloaded conversation's sandbox; its workspace stays. Failures are logged."""
        await self._settle(record, Trouble.SANDBOX_NOT_STOPPED, lambda sandbox: sandbox.stop())

    async def destroy(self, record: ConversationRecord) -> None:
        """Remove a deleted conversation's sandbox. What fails is logged, and tried again until it is done."""
        if await self._settle(record, Trouble.SANDBOX_NOT_REMOVED, lambda sandbox: sandbox.destroy()):
            return
        self._unremoved[record.id] = record
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove_later(), name="sandbox-removal")

    async def _remove_later(self) -> None:
        while self._unremoved:
            await asyncio.sleep(AGAIN_SECONDS)
            for known in self._unremoved.keys() & await self._known_ids():  # begun anew meanwhile, under the same id
                del self._unremoved[known]
            in_trouble = set[Any]()
            for record in list(self._unremoved.values()):
                host = (record.sandbox or {}).get("host")
                if host in in_trouble:
                    continue  # the others there have the same
                if not await self._settle(record, Trouble.SANDBOX_NOT_REMOVED, lambda sandbox: sandbox.destroy()):
                    in_trouble.add(host)
                    continue
                del self._unremoved[record.id]

    async def _settle(
        self, record: ConversationRecord, otherwise: Trouble, action: Callable[[Sandbox], Awaitable[None]]
    ) -> bool:
        if record.sandbox is None:
            return True
        try:
            async with asyncio.timeout(DESTROY_SECONDS):
                await action(await self.sandbox(record))
        except (DrydockError, TimeoutError) as error:
            what = "stopped" if otherwise is Trouble.SANDBOX_NOT_STOPPED else "removed"
            problem = f"its sandbox could not be {what}: {error or 'it took too long'}"
            self._metrics.trouble(otherwise, problem, record.id)
            return isinstance(error, SandboxError) and error.code == UNKNOWN_HOST  # nobody will ever know it again
        return True

    def _begin(self) -> asyncio.Task[SandboxSelection]:
        if self._choosing is None or self._choosing.done():
            self._choosing = asyncio.create_task(self._find(), name="sandbox-choice")
        return self._choosing

    async def _find(self) -> SandboxSelection:
        try:
            choice = await self._choose()
        except DrydockError as error:
            choice = SandboxSelection(None, str(error), error.code if isinstance(error, SandboxError) else "")
        if choice.provider is not None:
            self._provider = choice.provider  # which is to be closed, also where the server ends in the next line
            has_hosts = await self.hosts.serve(choice.provider)
            await self._reap(choice.provider.reap)
            if has_hosts and self._following is None:
                self._following = asyncio.create_task(self.hosts.run(), name="sandbox-hosts")
            self._preparing = asyncio.create_task(self._prepare(choice.provider), name="sandbox-preparation")
        self._choice = choice
        return choice

    async def _prepare(self, provider: SandboxProvider) -> None:
        try:
            self.reserve.watch([self._folder, *await provider.folders()])
            if self._settings.runtime_extra_deps and (reason := (await provider.lacks()).get("extra_deps")) is not None:
                text = f"no conversation can begin here with the setting runtime_extra_deps: {reason}"
                self._metrics.trouble(Trouble.DEPS_FAILED, text, level=logging.ERROR)
            await provider.prepare(self._spec("", ChosenSandbox(extra_deps=commands_of(None, self._settings))))
        except DrydockError as error:
            code = (trouble_of(error.code) if isinstance(error, SandboxError) else None) or Trouble.START_FAILED
            self._metrics.trouble(code, f"sandboxes could not be prepared: {error}")

    async def _sweep(self, host: str) -> None:
        provider = await self.provider()
        if isinstance(provider, HasHosts):
            await self._reap(partial(provider.sweep, host))

    async def _reap(self, reap: Callable[[str, Any], Awaitable[list[str]]]) -> None:
        """Where other servers run, nothing is removed, which hosts are told: they take new ones then."""
        try:
            async with asyncio.timeout(REAP_SECONDS):
                others = self._are_others is not None and await self._are_others()
                if others and not self.hosts.views():
                    return
                removed = await reap(self._instance_id, None if others else await self._known_ids())
        except (DrydockError, TimeoutError) as error:
            text = f"left-over sandboxes could not be removed: {error or 'it took too long'}"
            self._metrics.trouble(Trouble.LEFTOVERS_KEPT, text)
            return
        if removed:
            extra = coded(Trouble.LEFTOVERS_REMOVED, times=len(removed))
            logger.info("removed the sandboxes of %d deleted conversations", len(removed), extra=extra)


async def _made(provider: SandboxProvider, spec: SandboxSpec, waiting: Callable[[str], None]) -> Sandbox:
    if isinstance(provider, HasHosts):
        return await provider.place(spec, waiting)
    return provider.create(spec)


def _stored_state(record: ConversationRecord, provider: str) -> Mapping[str, Any] | None:
    state = record.sandbox
    if state is not None and state.get("provider", provider) == provider:
        return state
    others: Mapping[str, Mapping[str, Any]] = record.options.get(OTHER_SANDBOXES, {})
    return others.get(provider)


APP_PORTS: Final = (range(20_000, 25_000), range(25_000, 30_000))
"""Below those that outgoing connections take."""


def app_ports(conversation_id: str) -> tuple[int, ...]:
    """The ports for what an agent serves, one of each range: ``APP_PORT_1`` and ``APP_PORT_2`` in its sandbox.

    They are the conversation's for good, and rarely another's, since sandboxes without isolation share them.
    """
    number = int.from_bytes(hashlib.sha256(conversation_id.encode()).digest()[:8])
    return tuple(ports[number % len(ports)] for ports in APP_PORTS)


def _port_variables(conversation_id: str) -> dict[str, str]:
    return {f"APP_PORT_{number}": str(port) for number, port in enumerate(app_ports(conversation_id), start=1)}
