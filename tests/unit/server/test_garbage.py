"""What a conversation's end leaves to the garbage collector does not wait for it in growing numbers."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Iterator

import pytest

from server.cli import spare_collector

OBJECTS = 2000
"""So many has a session whose agent has taken a few steps."""
AT_WORK = 60
ENDED = 240


class Session:
    """Knows itself, and has a log."""

    def __init__(self) -> None:
        self.itself = self
        self.log = [{"event": [number]} for number in range(OBJECTS // 2)]


@pytest.fixture
def _like_a_server() -> Iterator[None]:
    usual = gc.get_threshold()
    spare_collector()
    yield
    gc.set_threshold(*usual)


@pytest.mark.usefixtures("_like_a_server")
def test_sessions_that_have_ended_do_not_pile_up_until_there_are_hundreds_of_thousands_of_objects() -> None:
    at_work: deque[Session] = deque(maxlen=AT_WORK)
    known = weakref.WeakSet[Session]()
    most = 0
    for _ in range(ENDED):
        at_work.append(Session())
        known.add(at_work[-1])
        most = max(most, len(known))
    # Looks through all begin after 110,000 objects and must find a quarter more than there was.
    assert most <= ENDED * 3 // 4, most
