"""What a program gives a conversation, looked at before anything is made of it."""

from __future__ import annotations

from agent_core.agent.base import AgentBase
from agent_core.session.callbacks import Callback


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
