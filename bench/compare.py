"""``python -m bench.compare --url A --url B``: the same rounds against two servers of the protocol, side by side.

Any two that speak the public protocol (docs/protocol.md): two versions, two machines, one with another database. They
are asked in turns, A B B A, so that whatever else the machine does meets both alike. Tokens are given by the variables
``TOKEN_A`` and ``TOKEN_B``. What a round makes it deletes. The agent's model and sandbox are the servers' own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import orjson

from bench.client import following, state_of
from bench.figures import p50
from bench.machine import machine_facts

ROUNDS: Final = 10
LISTS: Final = 5
LIMIT_SECONDS: Final = 300.0
ENDS: Final = ("finished", "awaiting_user_input", "error", "rejected", "stopped")
UNITS: Final = {"steps": "", "steps per second": "1/s"}
"""Those of what is not in milliseconds."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two servers."""

    name: str
    url: str
    token: str

    def client(self) -> httpx.AsyncClient:
        headers = {"X-Session-API-Key": self.token} if self.token else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)


async def one_round(side: Side, message: str) -> dict[str, float]:
    """A conversation from its creation to the end of what its agent does, opened again, listed, and deleted; in ms."""
    found: dict[str, float] = {}

    def took(what: str, began: float) -> None:
        found[what] = (time.perf_counter() - began) * 1000

    async with side.client() as client:
        began = time.perf_counter()
        answer = await client.post("/api/conversations", json={})
        answer.raise_for_status()
        took("conversation created", began)
        name = str(answer.json()["conversation_id"])
        path = f"/api/conversations/{name}"
        try:
            began = time.perf_counter()
            async with following(side.url, name, key=side.token) as follower:
                await follower.until(lambda _: True, limit_seconds=LIMIT_SECONDS)
                took("opened: first event", began)
                await follower.until_state("awaiting_user_input")
                took("opened: the agent is ready", began)
                follower.arrivals.clear()
                began = time.perf_counter()
                await follower.say(message)
                await follower.until(lambda frame: frame.get("source") == "user", limit_seconds=LIMIT_SECONDS)
                took("message sent, and back as an event", began)
                await follower.until(lambda frame: state_of(frame) == "running", limit_seconds=LIMIT_SECONDS)
                await follower.until(lambda frame: state_of(frame) in ENDS, limit_seconds=LIMIT_SECONDS)
                took("message sent, and all done", began)
                steps = sum(one.frame.get("source") == "agent" and "action" in one.frame for one in follower.arrivals)
                found["steps"] = steps
                found["steps per second"] = steps / (time.perf_counter() - began)
            began = time.perf_counter()
            async with following(side.url, name, key=side.token) as follower:
                await follower.until(lambda frame: state_of(frame) in ENDS, limit_seconds=LIMIT_SECONDS)
            took("opened again: all events", began)
            for what, address in (("list of conversations", "/api/conversations"), ("its events", f"{path}/events")):
                began = time.perf_counter()
                for _ in range(LISTS):
                    (await client.get(address, params={"limit": 20})).raise_for_status()
                found[what] = (time.perf_counter() - began) * 1000 / LISTS
        finally:
            began = time.perf_counter()
            (await client.delete(path)).raise_for_status()
            took("deleted", began)
    return found


async def compare(a: Side, b: Side, *, rounds: int, message: str) -> list[tuple[dict[str, float], dict[str, float]]]:
    """So many pairs of rounds, after one of each that is not counted."""
    for side in (a, b):
        await one_round(side, message)
    pairs = []
    for number in range(rounds):
        order = (a, b) if number % 2 == 0 else (b, a)
        found = {side.name: await one_round(side, message) for side in order}
        pairs.append((found[a.name], found[b.name]))
        sys.stderr.write(f"  round {number + 1} of {rounds}\n")
    return pairs


def table(pairs: Sequence[tuple[dict[str, float], dict[str, float]]]) -> str:
    """The medians of both, and of the ratios of each pair."""
    lines = ["| What | A | B | B to A | B was less in |", "|---|---|---|---|---|"]
    for what in pairs[0][0]:
        ours, theirs = [a[what] for a, _ in pairs], [b[what] for _, b in pairs]
        unit = UNITS.get(what, "ms")
        ratios = [second / first for first, second in zip(ours, theirs, strict=True) if first]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else ""
        less = sum(second < first for first, second in zip(ours, theirs, strict=True))
        cells = (what, *(f"{p50(one):.1f} {unit}".strip() for one in (ours, theirs)), ratio, f"{less} of {len(pairs)}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print the table, write JSON where that is wished; 1 where a server did not do its part."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="The same rounds against two servers.")
    parser.add_argument("--url", action="append", required=True, metavar="URL", help="of the one, and of the other")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"pairs of rounds (default: {ROUNDS})")
    parser.add_argument("--message", default="go", help="what the agent is told (default: go)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="for all figures, as JSON")
    options = parser.parse_args(arguments)
    if len(options.url) != 2:
        parser.error("name two servers: --url A --url B")
    if options.rounds < 1:
        parser.error("--rounds is 1 at least")
    a, b = (
        Side(name, url.rstrip("/"), os.environ.get(f"TOKEN_{name}", ""))
        for name, url in zip("AB", options.url, strict=True)
    )
    facts = machine_facts()
    try:
        pairs = asyncio.run(compare(a, b, rounds=options.rounds, message=options.message))
    except (httpx.HTTPError, OSError, TimeoutError, AssertionError) as error:
        sys.stderr.write(f"compare: a server did not do its part: {type(error).__name__}: {error}\n")
        return 1
    print(table(pairs))
    print(
        f"A is {a.url}, B is {b.url}; medians of {len(pairs)} pairs; {facts['processors']} cores, load {facts['load']}"
    )
    if options.output is not None:
        content = {"machine": facts, "a": a.url, "b": b.url, "rounds": [{"a": one, "b": other} for one, other in pairs]}
        options.output.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
