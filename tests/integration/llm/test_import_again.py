"""The client library, when its import breaks off half-way: the next call tries again, from the beginning."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

BREAKING: Final = """
import sys

class Once:
    left = 1
    def find_spec(self, name, path=None, target=None):
        if name == "litellm.llms.cohere.embed.handler" and self.left:
            self.left = 0
            raise OSError("too many open files")

sys.meta_path.insert(0, Once())
"""

PROGRAM: Final = """
import asyncio
from agent_core.llm.transport import client

try:
    asyncio.run(client.load_litellm())
except OSError as error:
    print(error)
asyncio.run(client.load_litellm())
print("there")
"""


CANCELLED: Final = """
import asyncio, gc, threading
from agent_core.llm.transport import client

async def main():
    waiting = asyncio.create_task(client.load_litellm())
    await asyncio.sleep(0)
    (importing,) = [thread for thread in threading.enumerate() if thread.name == "litellm-import"]
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.to_thread(importing.join)
    await asyncio.sleep(0)
    print("cancelled" if waiting.cancelled() else waiting.exception())

asyncio.run(main())
gc.collect()
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)


def test_an_import_that_broke_off_is_made_whole_by_the_next_one() -> None:
    done = run(BREAKING + PROGRAM)
    assert done.stdout == "too many open files\nthere\n", done.stderr


def test_an_import_that_fails_when_nobody_waits_any_more_is_told_to_nobody() -> None:
    done = run(BREAKING + CANCELLED)
    assert (done.stdout, done.stderr) == ("cancelled\n", "")
