"""`Span`: a stretch of work that somebody may measure or trace, within the one that asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Protocol, Self

PRESENT: Final[ContextVar[Span | None]] = ContextVar("span", default=None)
"""The span that work is done in at present; tasks that are made in it have it, too, also after its end."""


class Span:
    """A stretch of work, entered with ``with``; free of cost, and without any effect, where nobody watches.

    `facts` say what is done, and may grow until its end; they are few, short, and never what people or models wrote.
    `parent` is the span in which it is entered, if none is given. At its end `seconds` says how long it took, `error`
    the kind of what it was left with, and `inside` how long the spans directly in it took, by their names.
    `trace` is the name of its trace for people, where there is one. A watcher sets that, `handle`, and `tell`, which
    `headers_for` asks.
    """

    __slots__ = (
        "_began",
        "_token",
        "error",
        "facts",
        "handle",
        "inside",
        "name",
        "parent",
        "seconds",
        "tell",
        "trace",
    )

    def __init__(self, name: str, parent: Span | None = None, **facts: Any) -> None:
        self.name = name
        self.parent = parent
        self.facts = facts
        self.seconds = 0.0
        self.error = ""
        self.inside: dict[str, float] = {}
        self.trace = ""
        self.tell: Callable[[str], dict[str, str]] | None = None
        self.handle: Any = None
        self._token: Any = None
        self._began = 0.0

    def headers_for(self, host: str) -> dict[str, str]:
        """With which a server at this host ("": a program) that is asked in it may join its trace; mostly none."""
        return {} if self.tell is None else self.tell(host)

    def __enter__(self) -> Self:
        if _watchers:
            self.parent = self.parent or PRESENT.get()
            self._token = PRESENT.set(self)
            for watcher in _watchers:
                watcher.begun(self)
            self._began = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is None:
            return
        self.seconds = perf_counter() - self._began
        self.error = self.error or ("" if kind is None else kind.__name__)
        with suppress(ValueError):  # a task that was forgotten is closed in the context of whoever collects it
            PRESENT.reset(self._token)
        if (parent := self.parent) is not None:
            parent.inside[self.name] = parent.inside.get(self.name, 0.0) + self.seconds
        for watcher in _watchers:
            watcher.ended(self)
        self._token = self.parent = None  # whoever was made in it may keep it for long


class SpanWatcher(Protocol):
    """Is told of every span of the process, in the thread that it is of; must neither block nor raise."""

    def begun(self, span: Span) -> None: ...

    def ended(self, span: Span) -> None: ...


_watchers: tuple[SpanWatcher, ...] = ()


@contextmanager
def watched_by(watcher: SpanWatcher) -> Iterator[None]:
    """Within this the watcher is told of every span."""
    global _watchers  # spans are made where nobody can be handed in: in models, in tools
    _watchers = (*_watchers, watcher)
    try:
        yield
    finally:
        _watchers = tuple(one for one in _watchers if one is not watcher)
