"""`WarmSandboxes`: sandboxes that are up before the conversations that they are for, which need not wait for them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from agent_core.errors import DrydockError, SandboxError
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.troubles import Trouble, coded, trouble_of
from server.db.repositories.conversations import ConversationRecord
from server.metrics import ServerMetrics
from server.session.sandboxes import Sandboxes

logger = logging.getLogger(__name__)

IDLE_SECONDS: Final = 600.0
"""None is kept of a kind of which no conversation has begun for so long."""
OLDEST_SECONDS: Final = 3600.0
"""One that nobody has come for in that time is made anew."""
RATE_SECONDS: Final = 60.0
"""As many are kept as conversations have begun within that time, and one at least."""
PAUSE_SECONDS: Final = 1.0
"""The conversation that has just begun has the machine to itself for so long before the next one is made."""
AGAIN_SECONDS: Final = 30.0
"""After so long it is tried again, where none could be made."""
CHECK_SECONDS: Final = 1.0
"""How long a conversation that begins waits for the word of an engine; then its sandbox is made for it."""
END_SECONDS: Final = 10.0


@dataclass(eq=False)
class _Warm:
    """A sandbox that is up, and the stream to it, which tells when it is not; `id` is its conversation's to be."""

    id: str
    kind: _Kind
    connection: SandboxConnection
    image: str
    made_at: float = field(default_factory=time.monotonic)

    @property
    def is_good(self) -> bool:
        return self.connection.is_ready and time.monotonic() < self.made_at + OLDEST_SECONDS


class _Kind:
    """Sandboxes that are made in the same way, and when conversations began that have such a one."""

    def __init__(self, spec: SandboxSpec, most: int) -> None:
        self.spec = spec
        self.ready: list[_Warm] = []
        self._begun: deque[float] = deque(maxlen=most)

    def used(self) -> None:
        self._begun.append(time.monotonic())

    @property
    def last_used(self) -> float:
        return self._begun[-1]

    @property
    def wanted(self) -> int:
        return max(1, sum(at > time.monotonic() - RATE_SECONDS for at in self._begun))


class WarmSandboxes:
    """Keeps up to `most` sandboxes ready, of the kinds that conversations have begun with lately.

    Each is made for one id as the sandbox of the conversation with that id, which there is not yet: a conversation that
    begins has the id of one that is ready (`id_for`). So none is ever anybody else's, nothing is to be changed of it,
    and a killed server leaves it either to its conversation or to nobody, whose sandboxes its next start removes.

    There are none before the first conversation, nor while one waits for its turn, the disk or memory is short, or
    nothing can be made. Left (``async with``), it removes them, in bounded time.
    """

    def __init__(self, sandboxes: Sandboxes, most: int, metrics: ServerMetrics) -> None:
        self._sandboxes = sandboxes
        self._most = most
        self._metrics = metrics
        self._kinds: list[_Kind] = []
        self._offered: dict[str, _Warm] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._not_before = 0.0
        """When the next one may be made."""
        self._room: Callable[[], int] = lambda: 0
        self._on_taken: Callable[[str], None] = lambda conversation_id: None
        self._task: asyncio.Task[None] | None = None
        metrics.gauge("drydock_warm_sandboxes", lambda: self.count)

    async def __aenter__(self) -> Self:
        if self._most:
            self._task = asyncio.create_task(self._run(), name="warm-sandboxes")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        for one in self._kinds:
            self._remove(one.ready)
        self._kinds.clear()
        if not self._ending:
            return
        _, late = await asyncio.wait(self._ending, timeout=END_SECONDS)
        for task in late:
            task.cancel()
        if late:
            text = f"{len(late)} sandboxes that were kept ready could not be removed in time; the next start does it"
            self._metrics.trouble(Trouble.SANDBOX_NOT_REMOVED, text)

    def serve(self, room: Callable[[], int], on_taken: Callable[[str], None]) -> None:
        """Be told by whoever runs the conversations how many more sandboxes may be up, and tell it who has one.

        Nothing is kept ready before.
        """
        self._room, self._on_taken = room, on_taken

    @property
    def count(self) -> int:
        return sum(len(kind.ready) for kind in self._kinds)

    # --- for conversations that begin ---

    @asynccontextmanager
    async def id_for(self, spec: SandboxSpec, *, unused_after: tuple[type[Exception], ...] = ()) -> AsyncIterator[str]:
        """An id for a new conversation whose sandbox is of this kind (`Sandboxes.kind`): that of one that is ready.

        Without one it is any. One that is not `taken` stays, where it ends in order or with an error that says that the
        id is written down nowhere (`unused_after`); after any other it goes.
        """
        one = await self._offer(spec) if self._task is not None else None
        if one is None or self._task is None:
            yield uuid4().hex
            return
        self._offered[one.id] = one
        is_used = True
        try:
            yield one.id
            is_used = False
        except unused_after:
            is_used = False
            raise
        finally:
            if self._offered.pop(one.id, None) is not None:
                if is_used or self._task.done():
                    self._remove([one])
                else:
                    self._kind(spec).ready.insert(0, one)

    def state_for(self, conversation_id: str) -> dict[str, Any] | None:
        """The state of the sandbox that was offered with this id, to be stored with its conversation; None: none."""
        one = self._offered.get(conversation_id)
        return None if one is None else dict(one.connection.sandbox.state)

    async def taken(self, conversation_id: str) -> None:
        """The conversation of this id is stored: the sandbox is its own from now on, and nobody's here."""
        if (one := self._offered.pop(conversation_id, None)) is not None:
            self._on_taken(conversation_id)
            await one.connection.close()

    async def _offer(self, spec: SandboxSpec) -> _Warm | None:
        kind = self._kind(spec)
        kind.used()
        if (now := time.monotonic()) >= self._not_before:  # not longer and longer where one begins after the other
            self._not_before = now + PAUSE_SECONDS
        self._news.set()
        if not (kind.ready and self._allowed()):
            return None
        last = time.monotonic() + CHECK_SECONDS
        while kind.ready and time.monotonic() < last:
            one = kind.ready[0]
            image = await self._image(one)
            if one not in kind.ready:  # it has gone, or somebody else has it
                continue
            kind.ready.remove(one)
            if one.is_good and image is not None and one.image == image:
                return one
            self._remove([one])
        return None

    async def _image(self, one: _Warm) -> str | None:
        """What its image is by now, since the name may have got another; None: nobody says so in time."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return await self._sandboxes.image_id(one.kind.spec, one.connection.sandbox.state)
        except (DrydockError, TimeoutError):
            return None

    def _kind(self, spec: SandboxSpec) -> _Kind:
        found = next((kind for kind in self._kinds if kind.spec == spec), None)
        if found is None:
            found = _Kind(spec, self._most)
            self._kinds.append(found)
        return found

    # --- in the background ---

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS if self._kinds else None):
                    await self._news.wait()
            self._news.clear()
            try:
                await self._keep()
            except DrydockError as error:
                self._not_before = time.monotonic() + AGAIN_SECONDS
                code = trouble_of(error.code) if isinstance(error, SandboxError) else None
                text = f"no sandbox could be made ready for conversations to come: {error}"
                self._metrics.trouble(code or Trouble.START_FAILED, text)
            except Exception:
                self._not_before = time.monotonic() + AGAIN_SECONDS
                logger.exception("no sandbox could be made ready", extra=coded(Trouble.UNEXPECTED))

    async def _keep(self) -> None:
        """Remove what is not wanted any more, and make what is wanted, one after the other."""
        now = time.monotonic()
        for kind in self._kinds:
            self._drop(kind, [one for one in kind.ready if not one.is_good])
        for kind, number in self._targets().items():
            self._drop(kind, kind.ready[number:])
        self._kinds = [kind for kind in self._kinds if kind.ready or now < kind.last_used + IDLE_SECONDS]
        while (next_one := self._missing()) is not None:
            await self._make(next_one)

    def _missing(self) -> _Kind | None:
        if time.monotonic() < self._not_before:
            return None
        offered = Counter(one.kind for one in self._offered.values())
        targets = self._targets().items()
        return next((kind for kind, number in targets if len(kind.ready) + offered[kind] < number), None)

    def _targets(self) -> Mapping[_Kind, int]:
        """How many of each kind are to be there: one of each, what was used last first, then another, and so on."""
        now, left = time.monotonic(), self._allowed()
        used = sorted(self._kinds, key=lambda kind: kind.last_used, reverse=True)
        wanted = {kind: kind.wanted if now < kind.last_used + IDLE_SECONDS else 0 for kind in used}
        targets = dict.fromkeys(used, 0)
        for _ in range(self._most):
            for kind in used:
                if left and targets[kind] < wanted[kind]:
                    targets[kind] += 1
                    left -= 1
        return targets

    def _allowed(self) -> int:
        """How many there may be in all: what conversations need goes before."""
        sandboxes = self._sandboxes
        if sandboxes.choice is None or sandboxes.choice.provider is None:
            return 0
        if sandboxes.memory.is_near or sandboxes.memory.problem() or sandboxes.reserve.problem():
            return 0
        return max(0, min(self._most, self._room()))

    async def _make(self, kind: _Kind) -> None:
        new_id = uuid4().hex
        sandbox = await self._sandboxes.made_ahead(kind.spec, new_id)
        image = await self._sandboxes.image_id(kind.spec, sandbox.state)
        one = _Warm(new_id, kind, SandboxConnection(sandbox), image)
        try:
            await one.connection.start()
        except BaseException:
            self._remove([one])
            raise
        kind.ready.append(one)

    def _drop(self, kind: _Kind, some: list[_Warm]) -> None:
        kind.ready = [one for one in kind.ready if one not in some]
        self._remove(some)

    def _remove(self, some: list[_Warm]) -> None:
        for one in some:
            task = asyncio.create_task(self._end(one), name=f"remove {one.id}")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, one: _Warm) -> None:
        await one.connection.close()
        await self._sandboxes.destroy(ConversationRecord(id=one.id, sandbox=dict(one.connection.sandbox.state)))
