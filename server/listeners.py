"""What an operator's own code may be told by a running server: `EventListener` and `MonitoringListener`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from agent_core.events.event import Event


class EventListener(ABC):
    """Sees the events of every conversation, in the order of each, when they are stored.

    A subclass registers itself under its `listener_name`, by which the setting `event_listeners` puts it to use. The
    server makes one, without arguments, for all conversations; `close` is its end.
    """

    listener_name: ClassVar[str] = ""

    listeners: ClassVar[dict[str, type[EventListener]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name = cls.__dict__.get("listener_name", "")
        known = EventListener.listeners.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"an event listener named {name!r} is there already: {known.__qualname__}; choose another")
        if name:
            EventListener.listeners[name] = cls

    @abstractmethod
    async def on_event(self, conversation_id: str, event: Event) -> None:
        """Take the next event of a conversation; the events of other conversations may come meanwhile.

        The one after it comes when this returns, or is given up after half a minute. What it raises is logged.
        """

    async def close(self) -> None:  # noqa: B027 - most have nothing to end
        """The server ends; nothing comes any more."""


class MonitoringListener:
    """Hears what is worth counting about conversations; this one does nothing.

    The setting `monitoring_listener_class` puts a subclass to use, which is made once, without arguments. Its methods
    are called in the server's loop and must not block; what they raise is logged.
    """

    def on_create_conversation(self) -> None:
        """A conversation was created, also by an import or a fork."""

    def on_agent_session_start(self, success: bool, duration: float) -> None:
        """A conversation's agent has come up, or has failed to, after so many seconds."""

    def on_session_event(self, event: Event) -> None:
        """An event was stored in a conversation that is loaded."""
