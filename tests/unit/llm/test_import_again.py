"""The client library, when its import breaks off half-way: the next call tries again, from the beginning."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

PROGRAM: Final = """
import asyncio, sys
from agent_core.llm import client

class Once:
    left = 1
    def find_spec(self, name, path=None, target=None):
        if name == "litellm.llms.cohere.embed.handler" and self.left:
            self.left = 0
            raise OSError("too many open files")

sys.meta_path.insert(0, Once())
try:
    asyncio.run(client.warm_up())
except OSError as error:
    print(error)
asyncio.run(client.warm_up())
print("there")
"""


def test_an_import_that_broke_off_is_made_whole_by_the_next_one() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "too many open files\nthere\n", done.stderr
