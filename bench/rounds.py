"""Measuring again what missed its budget: others' work on the machine makes a figure worse, never better."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from bench.figures import Figure, text

ROUNDS = 3


async def measured(measure: Callable[[], Awaitable[list[Figure]]], rounds: int = ROUNDS) -> list[Figure]:
    """The figures of one round, or of up to `rounds` as long as a budget is missed.

    Of several rounds each figure with a budget is its best, with the rows below that explain it; its note names what
    every round gave.
    """
    taken = [await measure()]
    while len(taken) < rounds and any(figure.met is False for figure in best_of(taken)):
        taken.append(await measure())
    return best_of(taken)


def best_of(rounds: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Of the same figures, measured several times, each the best one."""
    divided = [_blocks(figures) for figures in rounds]
    if len(divided) == 1:
        return list(rounds[0])
    return [figure for versions in zip(*divided, strict=True) for figure in _best(versions)]


def _blocks(figures: Sequence[Figure]) -> list[list[Figure]]:
    """Each figure with a budget, and those without one that follow it."""
    blocks: list[list[Figure]] = []
    for figure in figures:
        if figure.budget is not None or not blocks:
            blocks.append([])
        blocks[-1].append(figure)
    return blocks


def _best(versions: Sequence[list[Figure]]) -> list[Figure]:
    heads = [version[0] for version in versions]
    if heads[0].budget is None:
        return versions[-1]
    sign = -1 if heads[0].at_least else 1
    best, *rest = min(versions, key=lambda version: sign * version[0].value)
    each = ", ".join(text(head.value, head.unit) for head in heads)
    note = f"best of {len(heads)} rounds: {each}"
    return [replace(best, note=f"{note}; {best.note}" if best.note else note), *rest]
