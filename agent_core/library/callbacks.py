"""`Callbacks`: what a program is told of its conversation, each event and text as it comes."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from agent_core.events.event import Event
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import TextDelta, Transient
from agent_core.tools.execution import called

logger = logging.getLogger(__name__)

Callback = Callable[[Any], object]
"""Called in a thread of its own, once and in order; what it returns is awaited if that can be."""


@dataclass(slots=True)
class _Delivery:
    """An event that callbacks are being told of; what they ask for meanwhile is asked in its context."""

    callbacks: Callbacks
    is_over: bool = False


_delivery: contextvars.ContextVar[_Delivery | None] = contextvars.ContextVar("delivery", default=None)


class Callbacks:
    """Calls a program's functions one by one, in `thread`; above debug level only the first failure is logged.

    A `visualizer` is a function of an event, or an object (or a class without arguments) with ``on_event``; if that has
    ``on_token``, it hears texts as well, and ``close`` is called at the end. It comes before the functions.
    """

    def __init__(
        self, for_events: Iterable[Callback], for_tokens: Iterable[Callback], visualizer: object = None
    ) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="callbacks")
        self.kind_of_view = visualizer if isinstance(visualizer, type) else None
        """The class of which another conversation may have a visualizer of its own."""
        self._view = visualizer() if isinstance(visualizer, type) else visualizer
        shown, hears = getattr(self._view, "on_event", self._view), getattr(self._view, "on_token", None)
        if shown is not None and not callable(shown):
            problem = f"visualizer is a {type(self._view).__name__}"
            raise TypeError(f"{problem}: give a function of an event, or what has on_event")
        self.for_events = [*([shown] if shown is not None else []), *for_events]
        self.for_tokens = [*([hears] if callable(hears) else []), *for_tokens]
        self._failed: set[int] = set()

    def close(self) -> None:
        """End the thread, once what it does is done, and whatever the visualizer holds."""
        if callable(end := getattr(self._view, "close", None)):
            self.thread.submit(contextvars.copy_context().run, called, end)
        self.thread.shutdown(wait=False)

    def remove(self, callback: Callback) -> None:
        for callbacks in (self.for_events, self.for_tokens):
            if callback in callbacks:
                callbacks.remove(callback)

    async def tell(self, event: AnyEvent | Transient) -> None:
        """Tell of an event that is stored, or of more text. Each callback gets a copy of the event."""
        if isinstance(event, Transient) and not isinstance(event, TextDelta):
            return
        delivery = _Delivery(self)
        token = _delivery.set(delivery)
        try:
            for callback in list(self.for_tokens if isinstance(event, TextDelta) else self.for_events):
                await self._call(callback, event)
        finally:
            delivery.is_over = True
            _delivery.reset(token)

    @property
    def is_inside(self) -> bool:
        """Whether one of the callbacks asks: whatever waits for them would wait for itself."""
        delivery = _delivery.get()
        return delivery is not None and delivery.callbacks is self and not delivery.is_over

    def check_outside(self, what: str, *, unless: bool = False) -> None:
        """Refuse `what` to a callback, which would wait for itself, unless it need not wait."""
        if self.is_inside and not unless:
            raise RuntimeError(f"{what} in a callback would wait for itself: do it after the run, or elsewhere")

    async def _call(self, callback: Callback, event: object) -> None:
        call = contextvars.copy_context().run
        try:
            result = await asyncio.get_running_loop().run_in_executor(self.thread, call, _tell, callback, event)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            logger.debug("the callback %s failed", name, exc_info=error)
            if id(callback) not in self._failed:
                self._failed.add(id(callback))
                origin = error.__cause__ if isinstance(error.__cause__, StopIteration) else error
                place = traceback.extract_tb(origin.__traceback__)[-1]
                text = "the callback %s failed, and is called all the same from now on: %s: %s (%s, line %s)"
                logger.error(text, name, type(error).__name__, error, place.filename, place.lineno)


def _tell(callback: Callback, event: object) -> object:
    return called(callback, event.model_copy(deep=True) if isinstance(event, Event) else event)


def functions_in(callbacks: Iterable[Callback] | None, name: str) -> list[Callback]:
    """The functions of a list or None; raises `TypeError` for anything that cannot be called."""
    if callbacks is not None and not isinstance(callbacks, Iterable):
        raise TypeError(f"{name} is a {type(callbacks).__name__}: give a list of functions")
    functions = list(callbacks or ())
    for one in functions:
        if not callable(one):
            raise TypeError(f"{name} holds a {type(one).__name__}: give functions of an event")
    return functions
