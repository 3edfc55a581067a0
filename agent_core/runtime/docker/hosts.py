"""Several Docker engines as one provider: which of them gets a sandbox, and which of them are there at all."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from agent_core.errors import SandboxError
from agent_core.runtime.docker.docker_host import DockerHost
from agent_core.runtime.docker.engine import HostAwayError, labels_of
from agent_core.runtime.docker.images import is_listed, is_own, missing_error
from agent_core.runtime.docker.provider import DockerProvider, unknown_host
from agent_core.runtime.docker.sandbox import HOST
from agent_core.runtime.sandbox import (
    LABEL_CONVERSATION,
    Availability,
    HostView,
    Sandbox,
    SandboxSpec,
    SandboxState,
)
from agent_core.troubles import Trouble, coded

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""How often each host is looked at."""
FIRST_SECONDS: Final = 3.0
"""How long the first look at all hosts is waited for, once one of them is there."""
ANSWER_SECONDS: Final = 10.0
"""How long a host may take to say how it is; whether it is there it says within `HEARTBEAT_SECONDS`."""
MEASURE_SECONDS: Final = 30.0
"""How often it is asked how much memory each of its containers has."""
MEASURING_SECONDS: Final = 3.0
"""How long that may take; of those that are not asked in time the last word counts."""
PLACED_SECONDS: Final = 15.0
"""A sandbox that was placed so long ago is among what a host says that it runs, or never came to be."""
FULL_SECONDS: Final = 60.0
"""How long a host gets nothing new whose disk had no space for a sandbox: engines do not say how much there is."""
AGAIN_SECONDS: Final = 1.0
"""How often it is tried again to find a place."""
SANDBOX_BYTES: Final = 256 * 1024**2
"""What a sandbox is reckoned with at least, whatever it has at present."""
KEPT_BYTES: Final = 1024**3
"""What a host's other programs are left."""
FEWEST: Final = 2


class EngineFacts(NamedTuple):
    """What an engine says of itself; `used` is what its running containers have, in bytes.

    `conversations` are those whose sandboxes run there, of whichever server.
    """

    version: str
    processors: int
    memory: int
    used: int
    conversations: frozenset[str]
    images: frozenset[str]


class _Host:
    """One engine: its provider, what it last said, and what is known of it since."""

    def __init__(self, wish: DockerHost, connect_seconds: float, *, direct: bool) -> None:
        self.wish = wish
        self.name = wish.name
        self.provider = DockerProvider.of_host(wish, connect_seconds=connect_seconds, direct=direct)
        self.engine = self.provider.engine
        self.engine.lost = "it has not answered yet"
        self.is_draining = wish.draining
        self.is_swept = False
        self.was_looked_at = asyncio.Event()
        self.since = time.time()
        self.facts: EngineFacts | None = None
        self._placed: dict[str, float] = {}
        self._measured_at = -MEASURE_SECONDS
        self._measured: dict[str, int] = {}

    @property
    def is_up(self) -> bool:
        return not self.engine.lost

    @property
    def takes_new(self) -> bool:
        return self.is_up and self.is_swept and not self.is_draining

    @property
    def sandboxes(self) -> int:
        """How many run there, with those that were placed there lately."""
        return (len(self.facts.conversations) if self.facts is not None else 0) + self._promised()

    @property
    def most(self) -> int:
        if self.wish.max_sandboxes is not None:
            return self.wish.max_sandboxes
        memory = self.facts.memory if self.facts is not None else 0
        return max(FEWEST, (memory - KEPT_BYTES) // SANDBOX_BYTES)

    @property
    def free(self) -> int:
        """Bytes that sandboxes to come may have; nothing of a host that is lost."""
        if self.facts is None or not self.is_up:
            return 0
        return max(0, self.facts.memory - KEPT_BYTES - self.facts.used - self._promised() * SANDBOX_BYTES)

    def has(self, image: str) -> bool:
        return self.facts is not None and is_listed(image, self.facts.images)

    def why_not(self, image: str) -> str:
        """Why it gets no sandbox of this image now; "" where it may."""
        if not self.is_up:
            return f"cannot be reached ({self.engine.lost.rstrip('.')})"
        if self.is_draining:
            return "is being drained"
        if not self.is_swept:
            return "has just come back"
        if self.sandboxes >= self.most:
            return f"is full ({self.sandboxes} sandboxes of {self.most})"
        if not self.free:
            return "has no memory left"
        if time.monotonic() < self.engine.full_at + FULL_SECONDS:
            return "has no space left on its disk"
        return "" if self.has(image) or not is_own(image) else f"does not have the image {image}"

    def placed(self, conversation_id: str) -> None:
        self._placed[conversation_id] = time.monotonic()

    def _promised(self) -> int:
        """How many were placed there lately that do not run yet."""
        last = time.monotonic() - PLACED_SECONDS
        self._placed = {one: at for one, at in self._placed.items() if at > last}
        return len(self._placed.keys() - (self.facts.conversations if self.facts is not None else frozenset()))

    async def look(self) -> None:
        """Learn how it is. Raises `SandboxError`."""
        # Not at the first look, for which whoever has a sandbox there waits.
        measures = self.facts is not None and time.monotonic() >= self._measured_at + MEASURE_SECONDS
        known = dict(self._measured)
        least = SANDBOX_BYTES if self.wish.max_sandboxes is None else 0  # else somebody has said how many there may be
        abandoned = threading.Event()

        def work(client: Any) -> tuple[EngineFacts, dict[str, int]]:
            return _look(client, known, least, abandoned, measures=measures)

        try:
            self.facts, found = await self.engine.look("say how it is", work, ANSWER_SECONDS)
        finally:
            abandoned.set()
        if measures:
            self._measured, self._measured_at = found, time.monotonic()

    @property
    def view(self) -> HostView:
        facts = self.facts
        return HostView(
            name=self.name,
            url=self.wish.url,
            status="lost" if not self.is_up else "draining" if self.is_draining else "up",
            reason="" if self.is_up else str(HostAwayError(self.name, self.engine.lost)),
            since=self.since,
            version=facts.version if facts is not None else "",
            processors=facts.processors if facts is not None else 0,
            memory=facts.memory if facts is not None else 0,
            memory_free=self.free,
            sandboxes=self.sandboxes,
            max_sandboxes=self.most if facts is not None or self.wish.max_sandboxes is not None else 0,
            images=tuple(sorted(facts.images)) if facts is not None else (),
            is_swept=self.is_swept,
        )


class DockerHosts:
    """Makes each sandbox on one of several hosts (`SandboxProvider`, `HasImages`, `HasHosts`), where it then stays.

    A host with memory for all that the sandbox may take goes before those with only some, then one that has its image,
    then the one with most memory free. What cannot be reached takes nothing, and counts for nothing that is free: what
    it has waits for it. The first host has the sandboxes that know of none, of when there was but one engine.

    It looks at its hosts from `check` to `close`.
    """

    name = "docker"

    def __init__(self, hosts: Sequence[DockerHost], *, connect_seconds: float = 15.0, direct: bool = True) -> None:
        self._hosts = {wish.name: _Host(wish, connect_seconds, direct=direct) for wish in hosts}
        self._watching: asyncio.Task[None] | None = None
        self._changed: dict[str, None] = {}
        self._news = asyncio.Event()

    # --- where a sandbox goes ---

    async def place(self, spec: SandboxSpec, waiting: Callable[[str], None]) -> Sandbox:
        loop = asyncio.get_running_loop()
        last = loop.time() + spec.limits.start_seconds
        while True:
            try:
                host = self._choice(spec)
                await host.engine.must_answer()
                return self._made(host, spec)
            except HostAwayError as error:
                self._lose(host, error.reason)
                continue
            except SandboxError as error:
                if error.code == "image_missing" or loop.time() > last:
                    raise
                waiting(str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    def create(self, spec: SandboxSpec) -> Sandbox:
        """As `place`, by what is known at this moment; raises `SandboxError` where there is no place."""
        return self._made(self._choice(spec), spec)

    def restore(self, spec: SandboxSpec, state: SandboxState) -> Sandbox:
        """Raises `SandboxError` (``unknown_host``) where there is no such host any more."""
        return self._of(state).provider.restore(spec, state)

    def _made(self, host: _Host, spec: SandboxSpec) -> Sandbox:
        host.placed(spec.conversation_id)
        return host.provider.create(spec)

    def _of(self, state: SandboxState) -> _Host:
        name = state.get(HOST) or next(iter(self._hosts))
        if name not in self._hosts:
            raise unknown_host(name)
        return self._hosts[name]

    def _choice(self, spec: SandboxSpec) -> _Host:
        reasons = {host.name: host.why_not(spec.image) for host in self._hosts.values()}
        able = [host for host in self._hosts.values() if not reasons[host.name]]
        if not able:
            raise _no_place(spec.image, reasons)

        def worth(host: _Host) -> tuple[bool, bool, int]:
            has_all = host.free >= spec.limits.memory
            return has_all, host.has(spec.image), host.free

        return max(able, key=worth)  # of equal ones the first

    # --- how the hosts are ---

    async def check(self) -> Availability:
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="docker-hosts")
        looks = {asyncio.create_task(host.was_looked_at.wait()) for host in self._hosts.values()}
        _, late = await asyncio.wait(looks, timeout=FIRST_SECONDS)
        if late and not self._up():
            await asyncio.wait(late)
        for one in late:
            one.cancel()
        there = [host.name for host in self._up()]
        away = [f"{host.name} {host.why_not('')}" for host in self._hosts.values() if not host.is_up]
        told = f"{len(there)} of {len(self._hosts)} Docker hosts answer"
        told += f" ({', '.join(there)})" if there else ""
        return Availability(bool(there), "; ".join([told, *away]), "" if there else "See to one of them.")

    def hosts(self) -> Sequence[HostView]:
        return [host.view for host in self._hosts.values()]

    def drain(self, host: str, draining: bool) -> None:
        found = self._hosts[host]
        if found.is_draining is not draining:
            found.is_draining, found.since = draining, time.time()
            what = "is drained: it takes no new sandboxes" if draining else "takes new sandboxes again"
            logger.info("the Docker host %s %s", host, what)
            self._tell(found)

    async def next_change(self) -> HostView:
        while not self._changed:
            self._news.clear()
            await self._news.wait()
        name = next(iter(self._changed))
        del self._changed[name]
        return self._hosts[name].view

    async def _watch(self) -> None:
        async def follow(host: _Host) -> None:
            while True:
                is_first = host.facts is None
                await self._look(host)
                host.was_looked_at.set()
                if host.facts is None or not is_first:  # else it is measured now
                    await asyncio.sleep(LOOK_SECONDS)

        async with asyncio.TaskGroup() as group:
            for host in self._hosts.values():
                group.create_task(follow(host), name=f"docker-host {host.name}")

    async def _look(self, host: _Host) -> None:
        try:
            await host.look()
        except HostAwayError as error:
            self._lose(host, error.reason)
        except SandboxError as error:
            self._lose(host, str(error))
        except Exception as error:
            logger.debug("the Docker host %s could not be looked at", host.name, exc_info=True)
            self._lose(host, f"it says what cannot be understood ({error!r})")
        else:
            self._found(host)

    def _lose(self, host: _Host, reason: str) -> None:
        was_up, is_first = host.is_up, host.facts is None
        if was_up or is_first:
            if was_up or host.engine.lost != reason:
                extra = coded(Trouble.HOST_LOST)
                logger.warning("the Docker host %s cannot be reached: %s", host.name, reason.rstrip("."), extra=extra)
            host.engine.lose(reason)
        if was_up:
            host.since = time.time()
            self._tell(host)

    def _found(self, host: _Host) -> None:
        if host.is_up:
            return
        host.engine.lost, host.since = "", time.time()
        facts = host.facts
        assert facts is not None  # noqa: S101 - it has just said how it is
        logger.info("the Docker host %s is there (version %s)", host.name, facts.version)
        self._tell(host)

    def _tell(self, host: _Host) -> None:
        self._changed[host.name] = None
        self._news.set()

    # --- the rest of a provider ---

    async def lacks(self) -> Mapping[str, str]:
        return {}

    async def folders(self) -> Sequence[str]:
        found: list[str] = []
        for host in self._up():
            with suppress(HostAwayError):
                found += await host.provider.folders()
        return found

    async def check_image(self, image: str) -> Availability:
        """Whether a host has it, or can pull it."""
        said = Availability(False, "no Docker host answers")
        for host in self._up():
            said = await host.provider.check_image(image)
            if said.ok:
                return said._replace(reason=f"{said.reason} (host {host.name})")
        return said

    async def image_id(self, image: str, state: SandboxState) -> str:
        host = self._of(state)
        return await host.provider.image_id(image, state) if host.takes_new else ""

    async def reap(self, instance_id: str, keep: Collection[str] | None) -> list[str]:
        """On all hosts that are there; the others are swept when they are back (`sweep`)."""
        found = await asyncio.gather(*(self.sweep(host.name, instance_id, keep) for host in self._up()))
        return sorted({conversation for one in found for conversation in one})

    async def running(self, instance_id: str) -> Collection[str]:
        found: set[str] = set()
        for host in self._up():
            with suppress(HostAwayError):
                found.update(await host.provider.running(instance_id))
        return found

    async def sweep(self, host: str, instance_id: str, keep: Collection[str] | None) -> list[str]:
        found = self._hosts[host]
        try:
            removed = await found.provider.reap(instance_id, keep) if keep is not None else []
        except HostAwayError as error:
            self._lose(found, error.reason)
            return []
        except SandboxError as error:
            extra = coded(Trouble.LEFTOVERS_KEPT)
            logger.warning("left-over sandboxes of the Docker host %s were not removed: %s", host, error, extra=extra)
            removed = []
        found.is_swept = True
        return removed

    async def prepare(self, spec: SandboxSpec) -> None:
        ready = [host for host in self._up() if host.takes_new and host.has(spec.image)]
        await asyncio.gather(*(host.provider.prepare(spec) for host in ready))

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        await asyncio.gather(*(host.provider.close() for host in self._hosts.values()))

    def _up(self) -> list[_Host]:
        return [host for host in self._hosts.values() if host.is_up]


def _no_place(image: str, reasons: Mapping[str, str]) -> SandboxError:
    """Why no host gets a sandbox of this image, of each."""
    told = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
    lacking = f"does not have the image {image}"
    if all(reason == lacking for reason in reasons.values()):
        return missing_error(image, f"no Docker host has it ({', '.join(reasons)})")
    return SandboxError(
        f"No Docker host can take a sandbox at present: {told}.",
        code="no_host",
        fix="It is tried again; see to one of them, or add another one to docker_hosts.",
    )


def _look(
    client: Any, known: Mapping[str, int], least: int, abandoned: threading.Event, *, measures: bool
) -> tuple[EngineFacts, dict[str, int]]:
    """What an engine says of itself (in a thread), and the memory of its containers, as `known` or measured anew.

    A sandbox is reckoned with `least` bytes, where it has less. What is `abandoned` asks no further.
    """

    def ask(question: Callable[[], Any]) -> Any:
        if abandoned.is_set():
            raise SandboxError("Nobody waits for it any more.")
        return question()

    info = ask(client.info)
    running = ask(client.containers)
    ids = [one["Id"] for one in running]
    measured = {one: known[one] for one in ids if one in known}
    if measures:
        order = sorted(ids, key=measured.__contains__)  # first those that are not known at all
        measured |= _measured(client, order, abandoned)
    ours = {one["Id"]: labels_of(one)[LABEL_CONVERSATION] for one in running if LABEL_CONVERSATION in labels_of(one)}
    names = {
        name for image in ask(client.images) for key in ("RepoTags", "RepoDigests") for name in image.get(key) or ()
    }
    facts = EngineFacts(
        version=str(info.get("ServerVersion") or ""),
        processors=int(info.get("NCPU") or 0),
        memory=int(info.get("MemTotal") or 0),
        used=sum(max(measured.get(one["Id"], 0), least * (one["Id"] in ours)) for one in running),
        conversations=frozenset(ours.values()),
        images=frozenset(names),
    )
    return facts, measured


def _measured(client: Any, ids: Sequence[str], abandoned: threading.Event) -> dict[str, int]:
    measured: dict[str, int] = {}
    last = time.monotonic() + MEASURING_SECONDS
    for one in ids:
        if time.monotonic() > last or abandoned.is_set():
            break
        # It may have ended meanwhile, and a proxy before the engine may not tell.
        with suppress(Exception):
            measured[one] = _memory_of(client.stats(one, stream=False, one_shot=True))
    return measured


def _memory_of(stats: Mapping[str, Any]) -> int:
    """As ``docker stats`` reckons it: without the files that are merely cached."""
    memory = stats.get("memory_stats") or {}
    detail = memory.get("stats") or {}
    cached = detail.get("total_inactive_file", detail.get("inactive_file", 0))
    return max(0, int(memory.get("usage") or 0) - int(cached or 0))
