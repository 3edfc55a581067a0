"""The state as a lock among the threads of a program."""

from __future__ import annotations

import threading

import pytest

from agent_core.library.conversation_state import FairLock
from tests.unit.library.playing import DONE, Script, agent, conversation

LIMIT = 60.0


def until_waiting(lock: FairLock, count: int) -> None:
    while len(lock.turns) <= count:
        threading.Event().wait(0.001)


def test_threads_get_it_in_the_order_of_coming_and_who_has_it_may_take_it_again() -> None:
    lock, order = FairLock(), []

    def take(number: int) -> None:
        lock.acquire()
        order.append(number)
        lock.release()

    lock.acquire()
    lock.acquire()
    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for count, thread in enumerate(threads, start=1):
        thread.start()
        until_waiting(lock, count)
    lock.release()
    assert not order, "it was taken twice"
    lock.release()
    for thread in threads:
        thread.join(LIMIT)
    assert order == list(range(8))
    with pytest.raises(RuntimeError, match="not this thread's"):
        lock.release()


def test_a_run_goes_on_while_a_program_holds_the_state() -> None:
    entered = threading.Event()

    def enter() -> None:
        with one.state:
            entered.set()

    with conversation(agent(Script(DONE))) as one:
        with one.state as state, one.state:
            one.send_message("Hello")
            one.run()
            assert state is one.state
            other = threading.Thread(target=enter)
            other.start()
            until_waiting(one.state._lock, 1)
            assert not entered.is_set()
        assert entered.wait(LIMIT)
        other.join(LIMIT)
