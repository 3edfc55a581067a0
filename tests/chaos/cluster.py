"""Several servers, each a machine of its own, behind HAProxy and over one PostgreSQL, while they are disturbed.

``python -m tests.chaos.cluster --runs 100`` carries out as many runs, some at the same time; ``--seeds 3 7`` those of
these seeds, one after the other, ``--keep`` with the same servers, ``--redis`` with a Redis, which is disturbed, too.
It needs root: its network is its own. It ends with 0 where nothing was found.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import httpx

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from tests.chaos.cluster_audit import STEPS, WITNESS, audit
from tests.chaos.cluster_plan import (
    LEASE_SECONDS,
    SERVERS,
    ClusterPlan,
    Disturbance,
    cluster_places,
    cluster_plan_of,
)
from tests.chaos.network import HOME, PORT, Machine, Other, Way, leave_the_network
from tests.chaos.points import pass_name
from tests.chaos.users import Front, User
from tests.integration.server.conftest import ServerProcess
from tests.postgresql import Cluster, Shutdown
from tests.proxies import haproxy_before_several
from tests.redis_server import RedisServer

PROXY_PORT: Final = 8080
TOKEN: Final = "the-same-for-all-servers-and-users"
CLUSTERED: Final = "server.conversation_manager.clustered.ClusteredConversationManager"
DISTURBING_SECONDS: Final = 120.0
SETTLING_SECONDS: Final = 60.0
"""So long after the last disturbance everything was said, and answered."""
REDIS_SECONDS: Final = 15.0
_LINE: Final = 1_000_000
_WORKED: Final = re.compile(r"Working at (u\d+-m\d+\.\d+)")
_ANSWERED: Final = re.compile(r"Answered ((?:u\d+-m\d+ ?)+)")
_WORD: Final = re.compile(r"u\d+-m\d+")


def model(folder: Path, steps: int) -> Any:
    """A model that runs so many commands for each word that was said, and then answers all those words."""

    def answer(request: ModelRequest) -> Turn:
        if not request.json.get("tools"):
            return say("A title")
        words, worked, answered = list[str](), set[str](), set[str]()
        for message in request.messages:
            text = str(message)
            if message["role"] == "user":
                words += [one for one in _WORD.findall(text) if one not in words]
            elif message["role"] == "assistant":
                worked.update(_WORKED.findall(text))
                answered.update(word for found in _ANSWERED.findall(text) for word in found.split())
        for line in (f"{word}.{step}" for word in words for step in range(steps)):
            if line not in worked:
                file = folder / line.partition("-")[0]
                command = call("terminal", {"command": f"echo {line} >> {file}; sleep 0.2"}, delay=0.03)
                return replace(command, text=f"Working at {line}")
        left = [word for word in words if word not in answered]
        return finish(f"Answered {' '.join(left)}" if left else "Nothing is left.", delay=0.03)

    return answer


class House:
    """The servers with all that they need, for as many runs as are wanted."""

    def __init__(
        self,
        folder: Path,
        machines: Sequence[Machine],
        database: Cluster,
        name: str,
        model_url: str,
        lease_seconds: float,
        redis: RedisServer | None = None,
    ) -> None:
        self.folder = folder
        self.front = Front(f"http://127.0.0.1:{PROXY_PORT}", TOKEN)
        self.database = database
        self.redis = redis
        self.name = name
        self.deaths: list[str] = []
        """The places at which servers were killed."""
        self.left: list[str] = []
        """The processes that stayed when all conversations were deleted and the servers had ended."""
        self._machines = machines
        self._trace = folder / "trace"
        self._locks = [asyncio.Lock() for _ in machines]
        self._database_lock = asyncio.Lock()
        self._armed: dict[int, dict[str, str]] = {}
        url = database.url(name, tcp=True)
        self.servers = [
            ServerProcess(
                folder / f"data-{machine.number}",
                *("--host", machine.address, "--port", str(PORT), "--sandbox", "unconfined"),
                environment={
                    "DRYDOCK_DATABASE_URL": f"{url}?application_name=server-{machine.number}",
                    "DRYDOCK_CONVERSATION_MANAGER_CLASS": CLUSTERED,
                    "DRYDOCK_CLUSTER_LEASE_SECONDS": str(lease_seconds),
                    "DRYDOCK_CLUSTER_URL": f"http://{machine.address}:{PORT}",
                    "DRYDOCK_TOKEN": TOKEN,
                    "DRYDOCK_TRUSTED_PROXIES": "10.213.0.0/24",
                    "DRYDOCK_GENERATE_TITLES": "false",
                    "DRYDOCK_HELD_BACK_SECONDS": "2",
                    "LLM_MODEL": "openai/x",
                    "LLM_BASE_URL": model_url,
                    "LLM_API_KEY": "k",
                    "DRYDOCK_REDIS_URL": redis.url if redis is not None else "",
                    "CHAOS_NETWORK": machine.path,
                    "RUN_FIRST": "tests.chaos.network:begin",
                },
            )
            for machine in machines
        ]

    async def begin(self) -> None:
        """Start the first server, which makes the database and the key, and then the others."""
        first, *others = self.servers
        await first.start()
        await self.database.run(*WITNESS, database=self.name)
        (first.data_dir / "sandboxes").mkdir(mode=0o711, exist_ok=True)
        for other in others:
            other.data_dir.mkdir(mode=0o700)
            shutil.copy2(first.data_dir / "secret.key", other.data_dir)
            (other.data_dir / "sandboxes").symlink_to(first.data_dir / "sandboxes")

    async def arm(self, plan: ClusterPlan) -> None:
        """Have all servers run, with what the plan wants of them from their start on."""
        armed: dict[int, dict[str, str]] = {}
        for number, seconds in enumerate(plan.clocks):
            armed[number] = {"CHAOS_CLOCK": str(seconds)} if seconds else {}
        for one in plan.disturbances:
            if one.kind == "kill at a point":
                fault = {"FAULT_CLUSTER": "1", "FAULT_TRACE": str(self._trace), "FAULT_POINT": one.detail}
                armed[one.server] |= fault
        for number, server in enumerate(self.servers):
            if server.returncode is None and server.url and armed[number] != self._armed.get(number, {}):
                await server.stop()
            self._armed[number] = armed[number]
        await asyncio.gather(*map(self.up, range(SERVERS)))

    async def up(self, number: int) -> None:
        """Have this server run; one that dies while it starts is started again, from then on unarmed."""
        server = self.servers[number]
        while server.returncode is not None or not server.url:
            plain = {
                name: value
                for name, value in server.environment.items()
                if not name.startswith("FAULT_") and name != "CHAOS_CLOCK"
            }
            server.environment = {**plain, **self._armed[number]}
            self._armed[number] = {name: one for name, one in self._armed[number].items() if name == "CHAOS_CLOCK"}
            with suppress(RuntimeError, OSError, AssertionError, httpx.HTTPError):
                await server.start()
                return
            await asyncio.sleep(0.2)

    async def supervise(self) -> None:
        """Start again what has died, as a service manager does, but what is down on purpose."""
        while True:
            for number, server in enumerate(self.servers):
                if server.returncode is not None and not self._locks[number].locked():
                    await asyncio.sleep(0.5)
                    async with self._locks[number]:
                        await self.up(number)
            await asyncio.sleep(0.1)

    # --- disturbances ---

    async def disturb(self, plan: ClusterPlan) -> None:
        """All that is planned, each begun so long after the one before, whether or not that is over."""
        async with asyncio.TaskGroup() as group:
            for one in plan.disturbances:
                await asyncio.sleep(one.after)
                group.create_task(self._disturb(one))

    async def _disturb(self, what: Disturbance) -> None:
        match what.kind:
            case "kill" | "end":
                async with self._locks[what.server]:
                    server = self.servers[what.server]
                    await (server.kill() if what.kind == "kill" else server.stop())
                    await asyncio.sleep(what.seconds)
                    await self.up(what.server)
            case "end one after the other":
                for number, server in enumerate(self.servers):
                    async with self._locks[number]:
                        await server.stop()
                        await self.up(number)
            case "freeze":
                pid = self.servers[what.server].pid
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    try:
                        await asyncio.sleep(what.seconds)
                    finally:
                        os.kill(pid, signal.SIGCONT)
            case "cut":
                other, way = what.detail.split()
                machine = self._machines[what.server]
                machine.cut(cast(Other, other), cast(Way, way), self.database.port, self._machines)
                try:
                    await asyncio.sleep(what.seconds)
                finally:
                    machine.heal()
            case "freeze the database" | "stop the database" | "restart the database":
                async with self._database_lock:
                    await self._disturb_database(what)
            case "stop Redis" | "freeze Redis":
                assert self.redis is not None
                (self.redis.stop if what.kind == "stop Redis" else self.redis.freeze)()
                try:
                    await asyncio.sleep(what.seconds)
                finally:
                    (self.redis.start if what.kind == "stop Redis" else self.redis.thaw)()

    async def _disturb_database(self, what: Disturbance) -> None:
        if what.kind == "freeze the database":
            self.database.freeze()
            try:
                await asyncio.sleep(what.seconds)
            finally:
                self.database.thaw()
            return
        await asyncio.to_thread(self.database.stop, cast(Shutdown, what.detail))
        try:
            await asyncio.sleep(what.seconds)
        finally:
            await asyncio.to_thread(self.database.start)

    # --- runs ---

    async def carry_out(self, plan: ClusterPlan) -> list[str]:
        """One run; returns what it found."""
        chance = random.Random(f"users {plan.seed}")
        offsets = [len(server.printed()) for server in self.servers]
        users = [User(self.front, f"u{plan.seed}{number}", plan.words, chance) for number in range(plan.users)]
        found: list[str] = []
        supervisor = asyncio.create_task(self.supervise())
        talking = [asyncio.create_task(user.live(), name=user.name) for user in users]
        try:
            async with asyncio.timeout(DISTURBING_SECONDS):
                await self.disturb(plan)
            try:
                async with asyncio.timeout(SETTLING_SECONDS):
                    await asyncio.gather(*talking)
                    await asyncio.gather(*(user.until_answered(user.words) for user in users))
            except TimeoutError:
                found += [f"{one.name} is still not answered: {_situation(one)}" for one in users if not _is_done(one)]
            else:
                await asyncio.sleep(0.2)  # for what comes twice
                found += await audit(self.front, users, self.folder, self.database, self.name)
                if self.redis is not None:
                    found += [one async for one in self._without_redis()]
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this run found
            found.append(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        finally:
            supervisor.cancel()
            for task in talking:
                task.cancel()
            await asyncio.gather(supervisor, *talking, return_exceptions=True)
            for user in users:
                await user.leave()
        found += [one for user in users for one in user.findings]
        for server, offset in zip(self.servers, offsets, strict=True):
            if "Traceback" in (printed := server.printed(offset)):
                found.append(
                    f"{server.data_dir.name} has written a traceback: {printed[printed.index('Traceback') :][:1500]}"
                )
        await self._forget(users, chance)
        return found

    async def _without_redis(self) -> AsyncIterator[str]:
        """The servers that have not found Redis again."""
        for machine in self._machines:
            front, deadline = Front(f"http://{machine.address}:{PORT}", TOKEN), time.monotonic() + REDIS_SECONDS
            while "\ndrydock_cluster_redis 1" not in await _measured(front):
                if time.monotonic() > deadline:
                    yield f"server {machine.number} has not found Redis again"
                    break
                await asyncio.sleep(0.2)

    async def _forget(self, users: list[User], chance: random.Random) -> None:
        with suppress(TimeoutError, AssertionError):
            async with asyncio.timeout(SETTLING_SECONDS):
                for user in users:
                    if user.conversation_id:
                        await self.front.done("DELETE", f"/api/conversations/{user.conversation_id}", chance)

    async def end(self) -> None:
        for server in self.servers:
            with suppress(TimeoutError):
                await server.stop()
        if self._trace.exists():
            lines = self._trace.read_text("utf-8").splitlines()
            self.deaths = [line.removeprefix("killed ") for line in lines if line.startswith("killed ")]
        self.left = [one for machine in self._machines for one in await asyncio.to_thread(machine.clear)]

    def keep_logs(self, seed: int) -> str:
        place = Path(tempfile.gettempdir(), f"chaos-cluster-{seed}")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for server in self.servers:
            shutil.copy(server.log, place)
        return str(place)


async def _measured(front: Front) -> str:
    return (await front.done("GET", "/metrics", random.Random(0))).text


def _is_done(user: User) -> bool:
    return user.state == "finished" and all(user.is_answered(word) for word in user.words)


def _situation(user: User) -> str:
    unanswered = [word for word in user.words if not user.is_answered(word)]
    last = [frame for _, frame in user.frames[-3:]]
    return f"state {user.state!r}, {unanswered} of {user.words} left, {user.connections} connections, last {last}"


@asynccontextmanager
async def house(
    machines: Sequence[Machine],
    database: Cluster,
    *,
    steps: int = STEPS,
    lease_seconds: float = LEASE_SECONDS,
    redis: bool = False,
) -> AsyncIterator[House]:
    folder = Path(tempfile.mkdtemp(prefix="drydock-cluster-"))
    name = await database.new_database()
    addresses = [f"{machine.address}:{PORT}" for machine in machines]
    try:
        async with AsyncExitStack() as stack:
            scripted = await stack.enter_async_context(ModelServer(model(folder, steps), host=HOME))
            await stack.enter_async_context(haproxy_before_several(folder, addresses, PROXY_PORT))
            server = stack.enter_context(RedisServer(HOME)) if redis else None
            made = House(folder, machines, database, name, scripted.url, lease_seconds, server)
            try:
                await made.begin()
                yield made
            finally:
                await made.end()
    finally:
        await database.drop(name)
        shutil.rmtree(folder, ignore_errors=True)


async def carry_out_all(plans: Sequence[ClusterPlan], *, keep: bool, redis: bool) -> int:
    """All of them, in one house or in one each; returns 1 where something was found."""
    machines, database, bad = [Machine(number) for number in range(SERVERS)], Cluster(HOME), 0
    try:
        await asyncio.to_thread(database.start)
        for some in [plans] if keep else [[plan] for plan in plans]:
            async with house(machines, database, redis=redis) as here:
                for plan in some:
                    began = time.perf_counter()
                    await here.arm(plan)
                    found = await here.carry_out(plan)
                    _say(f"{'FOUND' if found else 'ok'} {plan.text} [{time.perf_counter() - began:.1f} s]")
                    for one in found:
                        _say(f"    {one}")
                    if found:
                        bad += 1
                        _say(f"    its servers' logs: {here.keep_logs(plan.seed)}")
                        options = " --redis" if redis else ""
                        _say(f"    to repeat it: python -m tests.chaos.cluster --seeds {plan.seed}{options}")
            if here.left:
                bad += 1
                _say(f"FOUND processes that stayed: {'; '.join(here.left)[:1000]}")
            for death in here.deaths:
                _say(f"    killed at {death}")
    finally:
        database.close()
        for machine in machines:
            machine.close()
    return 1 if bad else 0


async def carry_out_together(seeds: Sequence[int], together: int, *, redis: bool) -> int:
    """Have processes do so, each a part of them, since each has a network of its own; returns the exit status."""
    began, counted = time.perf_counter(), Counter[str]()

    async def some(part: Sequence[int]) -> None:
        command = [sys.executable, "-m", "tests.chaos.cluster", "--seeds", *map(str, part)]
        command += ["--redis"] if redis else []
        pipe = asyncio.subprocess.PIPE
        lane = await asyncio.create_subprocess_exec(*command, stdout=pipe, limit=_LINE, start_new_session=True)
        assert lane.stdout is not None
        try:
            async for line in lane.stdout:
                text = line.decode("utf-8", "replace").rstrip()
                counted[text.split()[0] if text[:1] not in ("", " ") else ""] += 1
                killed.update([text.split("killed at ")[1]] if "killed at " in text else [])
                _say(text)
            counted["broken off"] += await lane.wait() not in (0, 1)
        finally:
            if lane.returncode is None:
                lane.terminate()
                await lane.wait()

    killed = Counter[str]()
    async with asyncio.TaskGroup() as group:
        for number in range(together):
            group.create_task(some(seeds[number::together]))
    places = {pass_name(number, side) for number, side in cluster_places()}
    _say(
        f"{counted['ok'] + counted['FOUND']} runs, {killed.total()} kills at {len(places & killed.keys())} of "
        f"{len(places)} places, {counted['FOUND']} with findings ({time.perf_counter() - began:.0f} s)"
    )
    return 1 if counted["FOUND"] or counted["broken off"] else 0


async def until_told_to_end(work: Coroutine[Any, Any, int]) -> int:
    """The work's exit status, or that of an end by signal, when all that was made is gone."""
    task = asyncio.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cluster", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--together", type=int, default=2, help="how many at the same time (default: 2)")
    parser.add_argument("--seeds", type=int, nargs="+", help="only these")
    parser.add_argument("--keep", action="store_true", help="the same servers for all of them")
    parser.add_argument("--redis", action="store_true", help="with a Redis, which is disturbed, too")
    chosen = parser.parse_args()
    if chosen.seeds is None:
        seeds = range(chosen.start, chosen.start + chosen.runs)
        sys.exit(asyncio.run(until_told_to_end(carry_out_together(seeds, chosen.together, redis=chosen.redis))))
    leave_the_network()
    plans = [cluster_plan_of(one, redis=chosen.redis) for one in chosen.seeds]
    sys.exit(asyncio.run(until_told_to_end(carry_out_all(plans, keep=chosen.keep, redis=chosen.redis))))
