"""``python -m bench.witness URL PATH``: how long an ordinary client waits for its answers.

Each line that it reads is a number of seconds to look for, and each that it prints what it saw, as JSON.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import httpx
import orjson

from bench.figures import p50, percentile

PAUSE_SECONDS = 0.02
TOKEN = "WITNESS_TOKEN"  # noqa: S105 - the name of a variable


async def witness(url: str, path: str, seconds: float) -> dict[str, float]:
    """Ask again and again, on one connection, for so long; in milliseconds."""
    waited: list[float] = []
    headers = {"X-Session-API-Key": os.environ[TOKEN]}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        (await client.get(path)).raise_for_status()
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            (await client.get(path)).raise_for_status()
            waited.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(PAUSE_SECONDS)
    return {"asked": len(waited), "p50": p50(waited), "p99": percentile(waited, 99), "max": max(waited)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(orjson.dumps(asyncio.run(witness(sys.argv[1], sys.argv[2], float(line)))).decode(), flush=True)
