"""Checks of the arguments that a program gives a conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent_core.agent.base import AgentBase
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.library.callbacks import Callback

MAX_TAG_CHARS: Final = 256
_NAME: Final = re.compile(r"[a-z0-9]+")


def users_message(message: object, sender: str | None) -> MessageEvent:
    """The event of a message that a program sends for its user.

    Raises:
        TypeError: it is neither a text nor a message.
        ValueError: its role is not user.
    """
    said = Message.user(message) if isinstance(message, str) else message
    if not isinstance(said, Message):
        raise TypeError(f"message is a {type(said).__name__}: give a text or a Message")
    if said.role != "user":
        raise ValueError(f"role is {said.role!r}: only messages of the user can be sent")
    return MessageEvent(source="user", llm_message=said, sender=sender)


def checked(value: object, kind: type, name: str) -> Any:
    """The value, which is of this kind.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}: give a {kind.__name__}")
    return value


def functions_in(callbacks: Iterable[Callback] | None, name: str) -> list[Callback]:
    """The functions of a list of them; None is an empty one.

    Raises:
        TypeError: it is no list, or not of functions.
    """
    if callbacks is not None and not isinstance(callbacks, Iterable):
        raise TypeError(f"{name} is a {type(callbacks).__name__}: give a list of functions")
    functions = list(callbacks or ())
    for one in functions:
        if not callable(one):
            raise TypeError(f"{name} holds a {type(one).__name__}: give functions of an event")
    return functions


def listener(visualizer: object) -> list[Callback]:
    """What calls a visualizer: a function of an event, or an object, or a class without arguments, with ``on_event``.

    Raises:
        TypeError: it is none of these.
    """
    if visualizer is None:
        return []
    shown = visualizer() if isinstance(visualizer, type) else visualizer
    hears = getattr(shown, "on_event", shown)
    if not callable(hears):
        raise TypeError(f"visualizer is a {type(shown).__name__}: give a function of an event, or what has on_event")
    return [hears]


def check_given(agent: object, max_iterations: object, max_budget: object) -> None:
    """Refuse what can only fail later, and less clearly.

    Raises:
        TypeError: `agent` is no agent.
        ValueError: a limit is not a number that can be one.
    """
    if not isinstance(agent, AgentBase):
        raise TypeError(f"agent is a {type(agent).__name__}: give an Agent")
    if not isinstance(max_iterations, int) or max_iterations < 1:
        raise ValueError(f"max_iteration_per_run is {max_iterations!r}: give a whole number, at least 1")
    if max_budget is not None and (not isinstance(max_budget, int | float) or not max_budget >= 0):
        raise ValueError(f"max_budget_per_run is {max_budget!r}: give US dollars, at least 0, or None for no limit")


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """A copy of the tags.

    Raises:
        ValueError: a name has other characters than lower-case letters and digits, or a value is too long.
        TypeError: a value is no text.
    """
    for name, value in tags.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"tag {name!r}: a name has only lower-case letters and digits")
        if not isinstance(value, str):
            raise TypeError(f"tag {name!r}: its value is a {type(value).__name__}: give a text")
        if len(value) > MAX_TAG_CHARS:
            raise ValueError(
                f"tag {name!r}: its value has {len(value)} characters; at most {MAX_TAG_CHARS} are allowed"
            )
    return dict(tags)
