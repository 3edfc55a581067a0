"""A cursor over a conversation: its history, then what happens live, across broken connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, NamedTuple, Self

from drydock_client.errors import BusyError, ClientError, KeyRefusedError, NotFoundError, UnreachableError
from drydock_client.events import Action, Connected, Live, Observation, Resync, State, read_frame
from drydock_client.line import Line, LineRefused
from drydock_client.refusals import KEY_FIX

FIRST_DELAY: Final = 0.1
MAX_DELAY: Final = 3.0
CONNECT_SECONDS: Final = 20.0


class LineMaker(NamedTuple):
    """What a `Following` needs of its client.

    Attributes:
        open: opens a line behind an event, within so many seconds.
        check: asks for the conversation, so that whatever is wrong has a clear answer.
        opened: the followings that have, or may have, a connection.
    """

    open: Callable[[int, float], Awaitable[Line]]
    check: Callable[[], Awaitable[None]]
    opened: set[Following]


class Following:
    """An async iterator over a conversation (see `DrydockClient.follow`); also an async context manager.

    Leaving it early is best done by leaving its ``async with``, or by `aclose`; the client's end closes it as well.
    One task at a time may iterate; a wait that is cancelled loses nothing.

    Attributes:
        position: give it as `after` to go on here another time.
    """

    def __init__(
        self, conversation_id: str, maker: LineMaker, *, after: int, live: bool, reconnect_seconds: float
    ) -> None:
        self.conversation_id = conversation_id
        self.position = after
        self._maker = maker
        self._live = live
        self._limit = reconnect_seconds
        self._line: Line | None = None
        self._barren = 0
        self._lost_at = 0.0
        self._was_connected = False
        self._is_closed = False
        self._newest_state = after
        self._told: tuple[str, str] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def __anext__(self) -> Live:
        """The next item.

        Raises:
            StopAsyncIteration: it was closed.
            UnreachableError: the server was away for longer than `reconnect_seconds`.
            NotFoundError: there is no such conversation (any more).
            KeyRefusedError: the server wants another key.
        """
        while not self._is_closed:
            if self._line is None:
                self._line = await self._connected()
                if self._live:
                    again, self._was_connected = self._was_connected, True
                    return Connected(again=again)
                self._was_connected = True
            frame = await self._line.receive()
            if frame is None:
                self._lost()
                await self._let_go()
                continue
            self._barren = 0
            item = read_frame(*frame)
            if isinstance(item, Resync):
                await self._begin_anew()
            if (taken := self._taken(item)) is not None:
                return taken
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End it, and its connection."""
        self._is_closed = True
        self._maker.opened.discard(self)
        await self._let_go()

    async def _begin_anew(self) -> None:
        """The log is another one than that which was followed."""
        self.position = self._newest_state = -1
        self._told = None
        await self._let_go()

    def _lost(self) -> None:
        """The line is over. Lines that end before they have brought anything count as if there had been none."""
        if self._barren == 0:
            self._lost_at = asyncio.get_running_loop().time()
        self._barren += 1

    async def _let_go(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def _connected(self) -> Line:
        """A connection, however often it takes; the first one is not waited for."""
        if not self._was_connected:
            await self._maker.check()
            self._maker.opened.add(self)
        loop = asyncio.get_running_loop()
        end = self._lost_at + self._limit if self._was_connected else 0.0
        delay = FIRST_DELAY
        if self._barren > 1:
            if loop.time() > end:
                raise UnreachableError("The server ends each live connection at once.", fix="Its log says why.")
            delay = min(FIRST_DELAY * 2 ** min(self._barren, 10), MAX_DELAY)
            await asyncio.sleep(delay)
        while True:
            try:
                return await self._maker.open(self.position, CONNECT_SECONDS)
            except (LineRefused, UnreachableError) as error:
                problem = self._judged(error)
                if loop.time() + delay > end:
                    raise problem from error
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))  # noqa: S311 - spreads clients, guards nothing
            delay = min(delay * 2, MAX_DELAY)

    def _judged(self, error: LineRefused | UnreachableError) -> ClientError:
        """The error to raise when there is no more time; raises at once what another attempt would not mend."""
        if isinstance(error, UnreachableError):
            return error
        message = str(error)
        if message == "invalid_session_api_key":
            raise KeyRefusedError("The server does not take this key.", status=401, fix=KEY_FIX) from error
        if message == f"Conversation {self.conversation_id} not found":
            raise NotFoundError(message, status=404) from error
        return BusyError(f"The live connection was refused: {message}", status=503)

    def _taken(self, item: Live) -> Live | None:
        """The item, if it is new and wanted; keeps account of the position.

        States do not move the position, because a server may tell a newer state before older actions; which of them
        are known is kept apart.
        """
        match item:
            case Action() | Observation():
                if item.id <= self.position:
                    return None
                self.position = item.id
                return item
            case State():
                return self._taken_state(item)
        return item if self._live else None

    def _taken_state(self, item: State) -> State | None:
        said = (str(item.state), item.reason)
        if item.id is None:
            if said == self._told:
                return None  # said again on connecting
        elif item.id <= self._newest_state:
            return None
        else:
            self._newest_state = item.id
        self._told = said
        return item
