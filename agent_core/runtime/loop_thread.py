"""An event loop in a thread of its own, for programs that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
Closer = Callable[[], Awaitable[None]]

EXIT_SECONDS = 15.0
_creation_lock = threading.Lock()


class LoopThread:
    """Runs coroutines for other threads; `close_at_exit` closes things while threads can still be started."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closers: dict[Closer, None] = {}

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work`; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work` (Ctrl-C cancels it); in the thread of this very loop it raises `RuntimeError`."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this would wait for itself: call the asynchronous form instead")
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close_at_exit(self, closer: Closer) -> None:
        self._closers[closer] = None

    def forget(self, closer: Closer) -> None:
        self._closers.pop(closer, None)

    def _running(self) -> asyncio.AbstractEventLoop:
        with _creation_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._turn, args=(self._loop,), name="agent-core", daemon=True)
                self._thread.start()
                # Before the interpreter forbids new threads, which the closing of sandboxes needs; atexit is too late.
                threading._register_atexit(self._end)  # type: ignore[attr-defined] # it has no public name
            return self._loop

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until it is stopped: a task that ends with `SystemExit` ends itself, and not the thread."""
        while True:
            try:
                return loop.run_forever()
            except BaseException:
                logger.exception("something tried to end the program: everything else goes on")

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._close_all(), loop).result(EXIT_SECONDS)
        except Exception as error:  # noqa: BLE001 - the program ends whatever happens
            logger.warning("not everything was closed at the end: %r", error)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(EXIT_SECONDS)
        if not thread.is_alive():
            loop.close()

    async def _close_all(self) -> None:
        async with asyncio.timeout(EXIT_SECONDS):
            await asyncio.gather(*(closer() for closer in list(self._closers)), return_exceptions=True)


_library = LoopThread()


def library_loop() -> LoopThread:
    """The one loop of this process for conversations and tools that are used from ordinary programs."""
    return _library
