"""What is told of errors: never so much, and never so late, that nobody would read it."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Callable, List, Optional

_FRAMES = 20


def bounded(told: Callable[..., List[str]]) -> Callable[..., List[str]]:
    """IPython's way of telling an error, with the frames in the middle left out where there are very many.

    Each takes it a millisecond or more, and a function that calls itself without end has thousands.
    """

    def short(kind: Any, value: Any, trace: Optional[TracebackType] = None, *more: Any, **options: Any) -> List[str]:
        frames = _frames(trace)
        over = len(frames) - 2 * _FRAMES
        if over <= 0:
            return told(kind, value, trace, *more, **options)
        lines = told(kind, value, _joined(frames[:_FRAMES] + frames[-_FRAMES:]), *more, **options)
        return [f"[{over} frames in the middle of the calls are left out here]", *lines]

    return short


def warm(shell: Any) -> None:
    """Have IPython load what it needs to tell of an error, so that the first interrupted cell is answered at once."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        shell.InteractiveTB.structured_traceback(*sys.exc_info())


def _frames(trace: Optional[TracebackType]) -> List[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def _joined(frames: List[TracebackType]) -> Optional[TracebackType]:
    joined: Optional[TracebackType] = None
    for frame in reversed(frames):
        joined = TracebackType(joined, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return joined
