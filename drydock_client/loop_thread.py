"""An event loop in a thread of its own, and how blocking code uses what lives there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from drydock_client.errors import ClientError

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")

END_SECONDS: Final = 10.0


class LoopThread:
    """The thread. `run` may be called from any other, also from one with an event loop of its own (which it blocks)."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Work is handed over before the loop is told to stop, or not at all: what comes later would never be done.
        self._handing_over = threading.Lock()

    def start(self) -> None:
        """Begin; returns when the loop takes work."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(ready,), name="drydock-client", daemon=True)
        self._thread.start()
        ready.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this there and wait for it; whatever interrupts the wait (such as Ctrl-C) cancels it."""
        with self._handing_over:
            if self._loop is None:
                work.close()
                raise ClientError("The client is not open.", fix="Use it in a `with` block.")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ClientError("The client was closed meanwhile.", fix="Close it when its last call is over.") from None
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """Cancel what still runs, and end the thread."""
        with self._handing_over:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join(END_SECONDS)
            self._thread = None

    def _work(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(ready.set)
            self._loop.run_forever()


class Front(Generic[A_co]):
    """Base of blocking counterparts: the asynchronous object, and the thread in which it lives."""

    def __init__(self, inner: A_co, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread


class BlockingIterator(Iterator[T]):
    """What an asynchronous iterator gives, for a ``for`` loop; its `close` and the end of its ``with`` end it."""

    def __init__(self, items: AsyncIterator[T], thread: LoopThread) -> None:
        self._items = items
        self._thread = thread

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self._thread.run(self._next())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it, and the connection behind it."""
        self._thread.run(self._close())

    async def _next(self) -> T:
        return await anext(self._items)

    async def _close(self) -> None:
        if (close := getattr(self._items, "aclose", None)) is not None:
            await close()


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Front[A], P], T]:
    """The same method of a `Front`, which waits for the result."""

    @wraps(method)
    def wait(front: Front[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return front._thread.run(method(front._inner, *args, **kwargs))

    return wait


def iterating(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Front[A], P], BlockingIterator[T]]:
    """The same method of a `Front`, whose items a ``for`` loop can take."""

    @wraps(method)
    def iterate(front: Front[A], /, *args: P.args, **kwargs: P.kwargs) -> BlockingIterator[T]:
        return BlockingIterator(method(front._inner, *args, **kwargs), front._thread)

    return iterate
