"""Executors: what carries out the calls of a tool, in a thread, in the loop, or in a sandbox."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from agent_core.events.schema import Action, Observation
from agent_core.spelling import spelled
from agent_core.tools.context import SandboxAccess, ToolContext

ActionT = TypeVar("ActionT", bound=Action, default=Any)
ObservationT = TypeVar("ObservationT", bound=Observation, default=Any)
T = TypeVar("T")

logger = logging.getLogger(__name__)

_threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="tool")


class ToolExecutor(ABC, Generic[ActionT, ObservationT]):
    """Base for executors that hold something; a plain function, synchronous or not, will do as well.

    ``executor(action, conversation)`` carries out one call; `conversation` is a `ToolContext`, or None. ``__call__``
    runs in a thread; an ``acall`` of the same arguments is awaited instead, where a loop runs.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            spelled(cls)

    @abstractmethod
    def __call__(self, action: ActionT, conversation: Any = None) -> ObservationT:
        """Carry out one call."""

    async def prepare(self, sandbox: SandboxAccess) -> None:
        """Put into a conversation's sandbox what has to be there; called each time it was started, before any call."""

    def close(self) -> None:
        """Let go of what it holds; called once, at the end of the conversation."""

    def interrupt(self) -> None:
        """Make a call that is under way end soon; called in another thread or in the loop, and must not block."""


@dataclass(slots=True)
class ThreadCall:
    """One call that is carried out in a thread: its context, its loop, and what it asked that loop to do."""

    context: ToolContext
    loop: asyncio.AbstractEventLoop
    futures: set[Future[Any]] = field(default_factory=set)
    is_ended: bool = False

    def do(self, work: Callable[[ToolContext], Coroutine[Any, Any, T]]) -> T:
        """Have the loop do `work` and wait, in the call's thread; concurrent.futures.CancelledError if interrupted."""
        future = asyncio.run_coroutine_threadsafe(work(self.context), self.loop)
        self.futures.add(future)
        if self.is_ended:
            future.cancel()
        try:
            return future.result()
        finally:
            self.futures.discard(future)

    def end(self) -> None:
        self.is_ended = True
        for future in list(self.futures):
            future.cancel()


_present: contextvars.ContextVar[ThreadCall | None] = contextvars.ContextVar("call", default=None)


def present_call() -> ThreadCall | None:
    """The call that this thread carries out, if any: a tool built from others finds its conversation by it."""
    return _present.get()


@contextmanager
def exit_as_error() -> Iterator[None]:
    """RuntimeError stands for what is no `Exception` (`SystemExit`, say), which would end everybody's loop."""
    try:
        yield
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise RuntimeError(f"it tried to end the program ({type(error).__name__})") from error


async def execute(executor: Callable[..., Any], action: Action, conversation: ToolContext | None) -> Any:
    """Carry out a call; when cancelled, the executor is told to interrupt it."""
    asynchronous = getattr(executor, "acall", None)
    try:
        if asynchronous is not None:
            return await asynchronous(action, conversation)
        if _is_asynchronous(executor):
            return await executor(action, conversation)
        result = await _in_thread(executor, action, conversation)
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError:
        interrupt = getattr(executor, "interrupt", None)
        if interrupt is not None:
            try:
                interrupt()
            except Exception:
                logger.exception("a call could not be interrupted: it goes on, and its result counts for nothing")
        raise


def execute_now(executor: Callable[..., Any], action: Action, conversation: ToolContext | None) -> Any:
    """Carry out a call and wait; an asynchronous one works in the loop of this thread's conversation, or its own."""
    call = present_call()
    if call is not None and _is_asynchronous(executor):
        return call.do(lambda context: executor(action, context))
    result = executor(action, conversation)
    if not inspect.isawaitable(result):
        return result
    with ThreadPoolExecutor(1, thread_name_prefix="tool-call") as alone:  # there may be a loop in this thread already
        return alone.submit(asyncio.run, _awaited(result)).result()


def called(function: Callable[..., T], *args: Any) -> T:
    """Call a program's own function in a thread: nobody who waits for a future could be told of a `StopIteration`."""
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration") from error


def _is_asynchronous(executor: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(executor) or inspect.iscoroutinefunction(type(executor).__call__)


async def _awaited(result: Awaitable[T]) -> T:
    return await result


async def _in_thread(executor: Callable[..., Any], action: Action, conversation: ToolContext | None) -> Any:
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    call = None if conversation is None else ThreadCall(conversation, loop)
    context.run(_present.set, call)
    try:
        return await loop.run_in_executor(_threads, context.run, called, executor, action, conversation)
    finally:
        if call is not None:
            call.end()


class OwnSandbox(Protocol):
    """A sandbox on a folder, for one executor."""

    def submit(self, work: Callable[[ToolContext], Coroutine[Any, Any, T]]) -> Future[T]:
        """Have `work` done in a loop elsewhere; starts the sandbox the first time."""

    def close(self) -> None: ...


class SandboxExecutor(ToolExecutor[ActionT, ObservationT]):
    """Works in the sandbox of the conversation that asks, or in one of its own on `working_dir` (here if empty).

    Subclasses define `carry_out`. Called in a thread it waits for the result.
    """

    def __init__(self, working_dir: str = "") -> None:
        self.working_dir = working_dir
        self._own: OwnSandbox | None = None

    @abstractmethod
    async def carry_out(self, action: ActionT, context: ToolContext, key: str | None) -> ObservationT:
        """Do it, with requests to the sandbox of the context; those that must not be repeated under the key."""

    def __call__(self, action: ActionT, conversation: ToolContext | None = None) -> ObservationT:
        call = present_call()
        if call is not None:
            return call.do(lambda context: self.carry_out(action, context, None))
        return self._alone(action).result()

    async def acall(self, action: ActionT, conversation: ToolContext | None = None) -> ObservationT:
        if conversation is None:
            return await asyncio.wrap_future(self._alone(action))
        return await self.carry_out(action, conversation, conversation.idempotency_key)

    def close(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def _alone(self, action: ActionT) -> Future[ObservationT]:
        if self._own is None:  # its module stands above the tools, so it is named
            self._own = import_module("agent_core.runtime.standalone").FolderSandbox(self.working_dir)
        return self._own.submit(lambda context: self.carry_out(action, context, None))
