"""What befalls the whole process is noticed: the clock is set, or no descriptor is left."""

from __future__ import annotations

import os
import resource

import pytest

from agent_core.troubles import Trouble
from server.metrics import ServerMetrics
from server.session.host_watch import JUMP_SECONDS, HostWatch


def test_without_a_descriptor_left_it_says_so_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ServerMetrics()
    watch = HostWatch(metrics)
    watch.look()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)  # the lowest one that is free
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        watch.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert metrics.troubles(Trouble.NO_DESCRIPTORS) == 1
    assert "no descriptor is left (Too many open files)" in caplog.text
    assert metrics.troubles(Trouble.CLOCK_JUMPED) == 0


@pytest.mark.parametrize(("seconds", "words"), [(-3600, "forward by 3600 s"), (86400, "back by 86400 s")])
def test_a_clock_that_is_set_is_noticed_once(caplog: pytest.LogCaptureFixture, seconds: int, words: str) -> None:
    metrics = ServerMetrics()
    watch = HostWatch(metrics)
    watch._clock += JUMP_SECONDS / 2
    watch.look()
    assert metrics.troubles(Trouble.CLOCK_JUMPED) == 0
    watch._clock += seconds
    watch.look()
    watch.look()
    assert metrics.troubles(Trouble.CLOCK_JUMPED) == 1
    assert words in caplog.text
