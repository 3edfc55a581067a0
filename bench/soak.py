"""``python -m bench.soak``: hours of ordinary life in little time, and whether anything of the server grows meanwhile.

Conversations are made, worked with, left, found again, taken back, forked, stopped and deleted, with clients that come
and go, and some that vanish. Memory, tasks, descriptors and threads are looked at every few seconds. What grows beyond
its bound after the warm-up fails the run, as does what outlives the last conversation: sandboxes, sessions, tasks,
connections.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import uvloop
from websockets.exceptions import WebSocketException

from agent_core.errors import DrydockError
from bench.client import following, state_of
from bench.figures import Figure, table
from bench.load import Load, look
from bench.machine import contention, machine_facts
from bench.processes import Server
from bench.slopes import CONFIDENCE, Slope, slope
from bench.stage import Stage

BOUNDS: Final = {
    "memory_mb": 16.0,
    "drydock_tasks": 30.0,
    "other_descriptors": 30.0,
    "threads": 4.0,
    "drydock_sessions": 30.0,
    "processes": 60.0,
    "wal_mb": 16.0,
}
"""What may be added in an hour. The descriptors are those that are no kept connections to the model server."""
OF_THE_LOAD: Final = frozenset({"drydock_tasks", "other_descriptors", "drydock_sessions"})
FOLLOWED: Final = ("drydock_loaded_conversations", "drydock_connections")
"""What these follow: a machine that others use, too, takes longer for each task, and so has more of them at once."""
SPARE_CONNECTIONS: Final = 8
"""What may be kept to the model server beyond one for each agent at work."""

THINK_SECONDS: Final = 0.5
COMMAND_SECONDS: Final = 2.0
FILLERS: Final = 8
LOOK_SECONDS: Final = 5.0
SAY_SECONDS: Final = 30.0
TASK_SECONDS: Final = 600.0
REST_SECONDS: Final = 60.0
IDLE_SECONDS: Final = "15"
SETTLE_SECONDS: Final = 180.0
"""A connection to a model server is kept for two minutes after its last call."""
MAY_BE_LEFT: Final = {"processes": 0.0, "drydock_sessions": 0.0, "drydock_tasks": 10.0, "descriptors": 20.0}
"""Beyond what there was before everybody began; the descriptors are the connections that the driver itself keeps."""
JUDGED_MINUTES: Final = 10.0
"""In a shorter run pools and caches still fill: its slopes are shown, and fail nothing."""
RESULTS: Final = Path(__file__).parent / "results"
FAILURES: Final = (httpx.HTTPError, WebSocketException, OSError, TimeoutError, AssertionError)
"""What a client meets when something went wrong, or when its conversation was deleted under it."""


@dataclass(frozen=True)
class Plan:
    """How much of everything. The first `warm_seconds` are left out of the slopes: pools and caches fill, each to its
    bound, and what still grows when that much was done does not stop.
    """

    minutes: float
    conversations: int
    at_work: int
    clients: int
    steps: int = 20
    command_seconds: float = COMMAND_SECONDS
    seed: int = 1

    @property
    def seconds(self) -> float:
        return self.minutes * 60

    @property
    def task_seconds(self) -> float:
        """How long a task may take."""
        return TASK_SECONDS + self.steps * self.command_seconds

    @property
    def warm_seconds(self) -> float:
        return self.seconds / 2

    @property
    def block_seconds(self) -> float:
        """Twenty-five of them make the slope."""
        return (self.seconds - self.warm_seconds) / 25


@dataclass(frozen=True, slots=True)
class Looked:
    """One look, so many seconds after the beginning, and what the pool had."""

    at: float
    conversations: int
    at_work: int
    load: Load


class Pool:
    """The conversations that there are: those that rest, for whoever wants to work with one, and those at work."""

    def __init__(self, rng: random.Random) -> None:
        self.resting: dict[str, int] = {}
        """With the last event that a client of theirs has seen."""
        self.at_work: dict[str, int] = {}
        self._rng = rng

    def __len__(self) -> int:
        return len(self.resting) + len(self.at_work)

    def __contains__(self, conversation_id: str) -> bool:
        return conversation_id in self.resting or conversation_id in self.at_work

    def take(self) -> str:
        conversation_id = self._rng.choice(list(self.resting))
        self.at_work[conversation_id] = self.resting.pop(conversation_id)
        return conversation_id

    def rest(self, conversation_id: str) -> None:
        self.resting[conversation_id] = self.at_work.pop(conversation_id)

    def add(self, conversation_id: str) -> None:
        self.at_work[conversation_id] = -1

    def drop(self, conversation_id: str) -> None:
        self.at_work.pop(conversation_id, None)
        self.resting.pop(conversation_id, None)


class Soak:
    """The users of one server, for as long as the plan says."""

    def __init__(self, server: Server, plan: Plan, say: Callable[[str], None]) -> None:
        self._server = server
        self._plan = plan
        self._say = say
        self._rng = random.Random(plan.seed)
        self._pool = Pool(self._rng)
        self._client = httpx.AsyncClient(
            base_url=server.url, timeout=120, limits=httpx.Limits(max_connections=None, max_keepalive_connections=20)
        )
        self._began = time.monotonic()
        self.looks: list[Looked] = []
        self.done = Counter[str]()
        self.failed = Counter[str]()

    async def run(self) -> None:
        """Make the conversations, then everybody works until the time is over; then every conversation is deleted."""
        async with self._client:
            await self._fill()
            before = await look(self._server, self._client)
            self._say(f"{len(self._pool)} conversations after {time.monotonic() - self._began:.0f} s")
            lives = [self._again(self._work, number) for number in range(self._plan.at_work)]
            watchers = [self._again(self._watch, number) for number in range(self._plan.clients - self._plan.at_work)]
            people = [asyncio.create_task(life) for life in (*lives, *watchers)]
            await self._come_to_speed()
            self._say(f"{self.done['tasks']} tasks after {time.monotonic() - self._began:.0f} s: the time begins")
            self._began = time.monotonic()
            looking = asyncio.create_task(self._look_on())
            try:
                await asyncio.wait({looking}, timeout=self._plan.seconds)
            finally:
                for task in (looking, *people):
                    task.cancel()
                await asyncio.wait({looking, *people})
            if not looking.cancelled() and (error := looking.exception()) is not None:
                raise error
            self._say("the time is over: every conversation is deleted")
            self.left = await self._clear(before)

    async def _come_to_speed(self) -> None:
        """Wait until there are as many tasks done as users: they all began with one, and none had ended yet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._plan.task_seconds):
                while self.done["tasks"] <= self._plan.at_work:  # noqa: ASYNC110 - a wait for what others count
                    await asyncio.sleep(0.2)

    async def _again(self, live: Callable[[], Awaitable[None]], number: int) -> None:
        await asyncio.sleep(number * self._plan.seconds / 24 / self._plan.clients)  # not all in one moment
        while True:
            try:
                await live()
            except FAILURES as error:
                self.failed[f"{live.__name__.strip('_')}: {_kind(error)}"] += 1
                await asyncio.sleep(1)

    # --- those who work ---

    async def _work(self) -> None:
        """One piece of a conversation's life: it is made or found again, works, and perhaps more happens to it."""
        is_new = len(self._pool) < self._plan.conversations or not self._pool.resting
        conversation_id = await self._create() if is_new else self._pool.take()
        try:
            await self._task(conversation_id)
            chance = self._rng.random()
            if chance < 0.08:
                await self._rewind(conversation_id)
            elif chance < 0.14:
                await self._fork(conversation_id)
            elif chance < 0.20:
                await self._post(conversation_id, "stop")
                self.done["stopped"] += 1
            if chance > 0.5 or len(self._pool) > self._plan.conversations:
                await self._delete(conversation_id)
                return
        except FAILURES:
            with suppress(*FAILURES):
                await self._delete(conversation_id)
            raise
        finally:
            if conversation_id in self._pool.at_work:
                self._pool.rest(conversation_id)

    async def _fill(self) -> None:
        """Make all conversations but one as forks of the first, which need no sandbox before somebody works with them.

        Each has one task behind it, which is their mean for ever after, since half of all tasks end with a deletion.
        """
        first = await self._create()
        await self._task(first)
        self._pool.rest(first)
        missing = iter(range(self._plan.conversations - len(self._pool)))

        async def fork() -> None:
            for _ in missing:
                made = await self._post(first, "fork", copy_files=False)
                self._pool.resting[str(made["conversation_id"])] = -1

        await asyncio.gather(*(fork() for _ in range(FILLERS)))

    async def _create(self) -> str:
        answer = await self._client.post("/api/conversations", json={})
        answer.raise_for_status()
        conversation_id = str(answer.json()["conversation_id"])
        self._pool.add(conversation_id)
        self.done["created"] += 1
        return conversation_id

    async def _task(self, conversation_id: str) -> None:
        after = self._pool.at_work[conversation_id]
        async with following(self._server.url, conversation_id, after=after) as client:
            await client.say("go")
            await client.until_state("running", "error")
            ended = await client.until(
                lambda frame: state_of(frame) in ("finished", "error"), limit_seconds=self._plan.task_seconds
            )
            ids = [one.frame["id"] for one in client.arrivals if isinstance(one.frame.get("id"), int)]
            self._pool.at_work[conversation_id] = max(ids, default=after)
        state = state_of(ended.frame)
        assert state == "finished", f"a task ended as {state}"
        self.done["tasks"] += 1

    async def _rewind(self, conversation_id: str) -> None:
        latest = self._pool.at_work[conversation_id]
        await self._post(conversation_id, "rewind", event_id=max(0, latest - self._rng.randrange(2, 20)))
        self.done["taken back"] += 1

    async def _fork(self, conversation_id: str) -> None:
        made = await self._post(conversation_id, "fork")
        self._pool.resting[str(made["conversation_id"])] = -1
        self.done["forked"] += 1

    async def _post(self, conversation_id: str, what: str, **body: object) -> dict[str, Any]:
        answer = await self._client.post(f"/api/conversations/{conversation_id}/{what}", json=body)
        answer.raise_for_status()
        return dict(answer.json())

    async def _delete(self, conversation_id: str) -> None:
        self._pool.drop(conversation_id)  # first, since who looks on is sent away before the answer comes
        answer = await self._client.delete(f"/api/conversations/{conversation_id}")
        answer.raise_for_status()
        self.done["deleted"] += 1

    # --- those who look on ---

    async def _watch(self) -> None:
        """Follow something that works for a while: over a socket, or as a program does; some vanish in between."""
        if not self._pool.at_work:
            await asyncio.sleep(1)
            return
        conversation_id = self._rng.choice(list(self._pool.at_work))
        seconds = self._rng.uniform(5, 45)
        follow = self._follow_log if self._rng.random() < 0.2 else self._follow_socket
        try:
            with suppress(TimeoutError):
                await follow(conversation_id, seconds)
        except FAILURES:
            if conversation_id in self._pool:  # else it was deleted meanwhile
                raise

    async def _follow_socket(self, conversation_id: str, seconds: float) -> None:
        async with following(self._server.url, conversation_id) as client:
            self.done["watched"] += 1
            with suppress(TimeoutError):
                await client.until(lambda _frame: False, limit_seconds=seconds)
            if self._rng.random() < 0.3:
                client.vanish()
                self.done["vanished"] += 1

    async def _follow_log(self, conversation_id: str, seconds: float) -> None:
        path = f"/api/conversations/{conversation_id}/log/live"
        async with asyncio.timeout(seconds), self._client.stream("GET", path) as answer:
            self.done["live logs"] += 1
            async for _ in answer.aiter_bytes():
                pass

    # --- looking ---

    async def _look_on(self) -> None:
        said = 0.0
        while True:
            load = await look(self._server, self._client)
            at = time.monotonic() - self._began
            self.looks.append(Looked(at, len(self._pool), len(self._pool.at_work), load))
            if at - said >= min(SAY_SECONDS, self._plan.seconds / 5):
                said = at
                self._say(self._line(self.looks[-1]))
            await asyncio.sleep(min(LOOK_SECONDS, self._plan.block_seconds / 2))

    def _line(self, one: Looked) -> str:
        load = one.load
        return (
            f"{one.at / 60:4.1f} min: {one.conversations} conversations, {one.at_work} at work, "
            f"{load['drydock_loaded_conversations']:.0f} loaded; {load.memory_mb:.0f} MB, "
            f"{load['drydock_tasks']:.0f} tasks, {load.descriptors} descriptors, {load.threads} threads, "
            f"{load.processes} processes of sandboxes, database {load.database_mb:.0f} MB, WAL {load.wal_mb:.1f} MB; "
            f"{self.done['tasks']} tasks done, {self.failed.total()} failures"
        )

    async def _clear(self, before: Load) -> Load:
        gate = asyncio.Semaphore(8)

        async def delete(conversation_id: str) -> None:
            async with gate:
                answer = await self._client.delete(f"/api/conversations/{conversation_id}")
                answer.raise_for_status()

        while found := (await self._client.get("/api/conversations", params={"limit": 100})).json()["results"]:
            await asyncio.gather(*(delete(info["conversation_id"]) for info in found))
        end = time.monotonic() + SETTLE_SECONDS
        while left := _left(before, load := await look(self._server, self._client)):
            if time.monotonic() > end:
                raise TimeoutError(f"{left} more than before the first user came; open are {load.opened}")
            await asyncio.sleep(0.2)  # nothing says by itself when it holds less
        return load


def _left(before: Load, after: Load) -> str:
    """What there is more of than may be, of all that ends with the last conversation; "" for nothing."""
    usual = {name: before[name] if name in ("drydock_tasks", "descriptors") else 0.0 for name in MAY_BE_LEFT}
    found = {name: after[name] - usual[name] for name in MAY_BE_LEFT}
    return ", ".join(f"{more:.0f} {name}" for name, more in found.items() if more > MAY_BE_LEFT[name])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the run has shown."""

    plan: Plan
    slopes: dict[str, Slope]
    looks: Sequence[Looked]
    left: Load
    done: dict[str, int]
    failed: dict[str, int]

    @property
    def grown(self) -> list[str]:
        """What grows faster than it may; nothing in a run too short to tell."""
        if self.plan.minutes < JUDGED_MINUTES:
            return []
        found = [name for name, line in self.slopes.items() if line.exceeds(BOUNDS[name])]
        kept = max((one.load.kept_connections for one in self.looks), default=0)
        return [*found, "kept_connections"] if kept > self.plan.at_work + SPARE_CONNECTIONS else found

    def figures(self) -> list[Figure]:
        """One row for each slope, in units an hour."""
        return [
            Figure(
                name,
                line.per_hour,
                "/h",
                BOUNDS[name],
                note=f"± {line.margin:.3g}, around {line.mean:.4g}",
            )
            for name, line in self.slopes.items()
        ]


async def soak(stage: Stage, plan: Plan) -> Outcome:
    """Carry the plan out on a server of its own.

    Raises:
        TimeoutError: there was more than may be left when every conversation had been deleted.
    """
    script = f"steps:{plan.steps}"
    async with (
        stage.model(script, delay=THINK_SECONDS, command_seconds=plan.command_seconds) as model,
        stage.server(
            model=model,
            idle_unload_seconds=IDLE_SECONDS,
            sandbox_stop_seconds=IDLE_SECONDS,
            cull_interval_seconds="3",
            log_level="warning",
            max_working_conversations=str(plan.at_work),
            max_sandboxes="1000",
        ) as server,
    ):
        users = Soak(server, plan, stage.say)
        await users.run()
    counted = [one for one in users.looks if one.at > plan.warm_seconds]
    at_once = [[one.load[name] for one in counted] for name in FOLLOWED]
    slopes = {
        name: slope(
            [(one.at, one.load[name]) for one in counted],
            block_seconds=plan.block_seconds,
            beside=at_once if name in OF_THE_LOAD else (),
        )
        for name in BOUNDS
    }
    return Outcome(plan, slopes, users.looks, users.left, dict(users.done), dict(users.failed))


def _kind(error: BaseException) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"{error.request.method} {error.response.status_code} {error.response.text[:120]}"
    return f"{type(error).__name__} {str(error)[:80]}".strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak a server; returns 0, 1 when something grew or was left, 130 when it was ended before."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--conversations", type=int, default=1000, help="how many there are, deleted and made anew")
    parser.add_argument("--at-work", type=int, default=100, help="how many of them work at any time")
    parser.add_argument("--clients", type=int, default=200, help="one for each at work, the others look on")
    parser.add_argument("--sandbox", choices=("auto", "docker", "local"), default="auto")
    parser.add_argument("--steps", type=int, default=Plan.steps, help="how many each task takes")
    parser.add_argument(
        "--command-seconds", type=float, default=COMMAND_SECONDS, help="how long the command of each step takes"
    )
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON (default: bench/results)")
    options = parser.parse_args(arguments)
    if not options.clients >= options.at_work >= 1:
        parser.error("--clients: there is one for each conversation at work; name as many or more")
    plan = Plan(
        *(options.minutes, options.conversations, options.at_work, options.clients),
        *(options.steps, options.command_seconds, options.seed),
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(plan, options.sandbox, options.output))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("soak: ended before it was done; nothing is left behind\n")
        return 130
    except (DrydockError, TimeoutError) as error:
        sys.stderr.write(f"soak: {error or 'something did not end in time'}\n")
        return 1


async def _run(plan: Plan, sandbox: Any, output: Path) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    facts = {**machine_facts(), "contention": contention()}
    async with Stage.open(quick=False, sandbox=sandbox) as stage:
        stage.say(f"sandbox: {stage.reason}")
        outcome = await soak(stage, plan)
        name = stage.sandbox
    path = output / f"soak-{time.strftime('%Y%m%d-%H%M%S')}.json"
    content = {"machine": facts, "sandbox": name, "confidence": CONFIDENCE, "bounds": BOUNDS, **asdict(outcome)}
    await asyncio.to_thread(_write, path, content)
    print(table(outcome.figures()))
    print(f"on average: {_averages(outcome)}")
    print(f"done: {_counted(outcome.done)}")
    print(f"failures: {_counted(outcome.failed) or 'none'}")
    print(f"left when all was deleted: {outcome.left}")
    print(f"{plan.minutes:g} minutes, sandbox {name}; written to {path}")
    if plan.minutes < JUDGED_MINUTES:
        print(f"Too short to say what grows: that takes {JUDGED_MINUTES:g} minutes. What is left over counts.")
    if outcome.grown:
        print(f"GROWS: {', '.join(outcome.grown)}")
    return 1 if outcome.grown else 0


def _averages(outcome: Outcome) -> str:
    counted = [one for one in outcome.looks if one.at > outcome.plan.warm_seconds]
    facts = {
        "conversations": [float(one.conversations) for one in counted],
        "with a client who works": [float(one.at_work) for one in counted],
        "at work": [one.load["drydock_working"] for one in counted],
        "loaded": [one.load["drydock_loaded_conversations"] for one in counted],
        "sandboxes": [one.load["drydock_sandboxes"] for one in counted],
    }
    return ", ".join(f"{statistics.fmean(numbers):.0f} {what}" for what, numbers in facts.items())


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(counts.items(), key=lambda one: -one[1]))


if __name__ == "__main__":
    sys.exit(main())
