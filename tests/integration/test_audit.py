"""What a test has left is named."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.integration.audit import OwnHoldings
from tests.waiting import until

_SLEEP = "import time; time.sleep(60)"


async def test_whatever_is_left_is_named_and_nothing_of_it_once_it_has_ended(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = OwnHoldings(tmp_path, scratch, asyncio.get_running_loop())
    (own,) = before.left()  # the test itself, which an audit comes after
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="waits for ever")
    thread.start()
    task = asyncio.create_task(asyncio.sleep(60), name="sleeps for ever")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", _SLEEP)
    # Not a child of this process any more, and found by the folder that it was given.
    subprocess.run(["setsid", "-f", sys.executable, "-c", _SLEEP, f"{tmp_path}/data"], check=True)  # noqa: ASYNC221
    with tempfile.NamedTemporaryFile(prefix="drydock-half-", dir=scratch):
        left = before.left()
    os.close(descriptor)
    for line in left:
        if line.startswith("process "):
            os.kill(int(line.split()[1].strip(":")), 9)
    await child.wait()
    end.set()
    thread.join()
    task.cancel()
    await asyncio.wait({task})
    text = "\n".join(left)
    for name in (
        "thread waits for ever",
        "task sleeps for ever",
        "temporary file drydock-half-",
        f"descriptor of {tmp_path}",
    ):
        assert name in text
    assert text.count("process ") == 2
    await until(lambda: before.left() == [own], seconds=10)
