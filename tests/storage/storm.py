"""Faults that come and go while users and agents are at work: ``python -m tests.storage.storm``.

All of it follows from the seed but for the time that things take. Any call below the data folder fails, once, some
times or from then on, everywhere or in one kind of file; another process holds the database locked; the server is ended
or killed, and started while its storage fails. In the end nothing that was confirmed is missing, nothing that was
refused is there, no log has a gap, each action has one answer, no command ran twice, clients were shown what is stored,
all comes to rest by itself, and behind the next start nothing is left.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import socketio.exceptions

from tests.integration.server.conftest import Follower, comparable, stored_events
from tests.storage.faults import NUMBERS, build
from tests.storage.sweep import BIG, CALLS, ERRORS, Sweep, client_of, sweeping

USERS: Final = 4
PARTS: Final = (
    "",
    "",
    "",
    "drydock.db-wal",
    "drydock.db-shm",
    "drydock.db",
    "blobs",
    "forks",
    "sandboxes",
    "secret.key",
)
"""What the paths have in them that fail; "": all."""
_CALLS: Final = (*CALLS, "write,fsync", "write,open,mkdir", "write,open,mkdir,rename,unlink,ftruncate", "read,write")
PASSING: Final = (httpx.TransportError, socketio.exceptions.SocketIOError, OSError)


class Storm:
    """One run of it: `asked` counts what was asked for and how it was answered, `findings` says what is wrong."""

    def __init__(self, sweep: Sweep, seed: int) -> None:
        self.asked = Counter[str]()
        self.faults = Counter[str]()
        self.findings: list[str] = []
        self._sweep = sweep
        self._chance = random.Random(seed)
        self._over = False
        self._confirmed: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._secrets: set[str] = set()
        self._followers: list[Follower] = []
        self._is_up = asyncio.Event()
        self._is_up.set()

    async def run(self, seconds: float, *, kills: bool) -> None:
        users = [asyncio.create_task(self._user(random.Random(self._chance.random()))) for _ in range(USERS)]
        began = time.monotonic()
        while time.monotonic() - began < seconds and not any(user.done() for user in users):
            await self._strike(kills=kills)
            await asyncio.sleep(self._chance.choice([0, 0.05, 0.3, 1.0]))
        self._sweep.faults.switch("")
        self._over = True
        for failure in await asyncio.gather(*users, return_exceptions=True):
            self.findings += [f"a user: {failure!r}"] * (failure is not None)
        await self._judge()

    # --- what fails ---

    async def _strike(self, *, kills: bool) -> None:
        chance = self._chance
        kind = chance.random()
        if kind < 0.1:
            await self._lock(chance.choice([0.2, 1.0, 6.5]))
            return
        call = chance.choice(_CALLS)
        error = chance.choice(ERRORS.get(call, ERRORS["write"]))
        skip, count, part = (
            chance.choice([0, 0, 1, 3, 10, 40]),
            chance.choice([1, 1, 3, 20, -1, -1]),
            chance.choice(PARTS),
        )
        self._sweep.faults.switch(f"{call} {NUMBERS[error]} {skip} {count} {part}")
        self.faults[f"{error} of {call}"] += 1
        if kills and kind > 0.93:
            await asyncio.sleep(chance.random() * 0.3)
            await self._restart()
        else:
            await asyncio.sleep(chance.choice([0.01, 0.1, 0.5, 1.5, 3.0]))
        self._sweep.faults.switch("")

    async def _lock(self, seconds: float) -> None:
        self.faults["locked"] += 1
        file = self._sweep.server.data_dir / "drydock.db"
        with suppress(sqlite3.Error), closing(sqlite3.connect(file, isolation_level=None, timeout=1)) as other:
            other.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(seconds)

    async def _restart(self) -> None:
        server, chance = self._sweep.server, self._chance
        self._is_up.clear()
        name = chance.choice(["kill", "stop"])
        self.faults[name] += 1
        await (server.kill() if name == "kill" else server.stop())
        for attempt in range(2):
            printed = len(server.printed())
            try:
                await server.start()
            except (RuntimeError, httpx.TransportError, AssertionError) as error:
                words = server.printed()[printed:]
                self.asked["start refused"] += 1
                if "Traceback" in words or attempt:
                    self.findings.append(f"a start failed: {words[-3000:] or error!r}")
                self._sweep.faults.switch("")
                if server.returncode is None:
                    await server.kill()
            else:
                break
        self._sweep.client = client_of(server)
        self._is_up.set()

    # --- what users do ---

    async def _user(self, chance: random.Random) -> None:
        conversation = await self._asked_for("new", lambda: self._new(chance), until_done=True)
        follower = Follower(self._sweep.server, conversation)
        self._followers.append(follower)
        deeds: list[Callable[[], Awaitable[str]]] = [
            *[lambda: self._say(conversation, chance)] * 6,
            lambda: self._wish(conversation, chance),
            lambda: self._rewind(conversation, chance),
            lambda: self._post(f"/api/conversations/{conversation}/stop"),
            lambda: self._short_lived(chance),
            lambda: self._fork(conversation),
            lambda: self._secret(),
            lambda: self._post("/api/settings", git_user_name=uuid.uuid4().hex),
            lambda: self._upload(conversation),
            lambda: self._get(f"/api/conversations/{conversation}/archive"),
        ]
        while not self._over:
            await self._is_up.wait()
            deed = chance.choice(deeds)
            await self._asked_for("", deed)
            with suppress(*PASSING, TimeoutError):
                if not follower.is_connected:
                    await follower.connect()
            await asyncio.sleep(chance.choice([0, 0, 0.1, 0.5]))
        with suppress(*PASSING):
            await follower.disconnect()

    async def _asked_for(self, name: str, deed: Callable[[], Awaitable[str]], *, until_done: bool = False) -> str:
        while True:
            try:
                async with asyncio.timeout(60):
                    found = await deed()
            except PASSING as error:
                self.asked[f"{name} {type(error).__name__}".strip()] += 1
                found = ""
            except TimeoutError:
                self.findings.append(f"no answer within 60 s: {name}")
                return ""
            if found or not until_done:
                return found
            await asyncio.sleep(0.2)
            await self._is_up.wait()

    async def _post(self, path: str, **body: Any) -> str:
        return self._taken(await self._sweep.client.post(path, json=body))[1]

    async def _get(self, path: str) -> str:
        return self._taken(await self._sweep.client.get(path))[1]

    def _taken(self, answer: httpx.Response) -> tuple[bool, str]:
        """Whether it was done, and the text; any other answer than a refusal in words is found."""
        what = f"{answer.request.method} {answer.request.url.path.rsplit('/', 1)[-1][:12]}"
        self.asked[f"{answer.status_code}"] += 1
        if not answer.is_success and answer.status_code not in (404, 409, 429, 503, 507):
            self.findings.append(f"{what}: {answer.status_code} {answer.text[:300]}")
        return answer.is_success, "" if "tar" in answer.headers.get("content-type", "") else answer.text

    async def _new(self, chance: random.Random) -> str:
        mark = uuid.uuid4().hex
        answer = await self._sweep.client.post("/api/conversations", json={"initial_user_msg": f"RUN {mark} now"})
        done, text = self._taken(answer)
        if not done:
            self._refused[mark] = text
            return ""
        conversation: str = answer.json()["conversation_id"]
        self._confirmed[mark] = conversation
        return conversation

    async def _say(self, conversation: str, chance: random.Random) -> str:
        mark, long = uuid.uuid4().hex, BIG if chance.random() < 0.1 else ""
        text = f"{chance.choice(['RUN', 'SLOW', 'SAY'])} {mark} {long}"
        done, told = self._taken(
            await self._sweep.client.post(f"/api/conversations/{conversation}/message", json={"message": text})
        )
        (self._confirmed if done else self._refused)[mark] = conversation if done else told
        return mark

    async def _wish(self, conversation: str, chance: random.Random) -> str:
        state = chance.choice(["paused", "running", "stopped"])
        body = {"action": "change_agent_state", "args": {"agent_state": state}}
        return await self._post(f"/api/conversations/{conversation}/events", **body)

    async def _rewind(self, conversation: str, chance: random.Random) -> str:
        found = await self._sweep.client.get(
            f"/api/conversations/{conversation}/events", params={"reverse": True, "limit": 1}
        )
        events = found.json().get("events") if found.is_success else None
        place = chance.randrange(events[0]["id"] + 1) if events else 0
        return await self._post(f"/api/conversations/{conversation}/rewind", event_id=place)

    async def _short_lived(self, chance: random.Random) -> str:
        conversation = await self._new(chance)
        if conversation:
            await asyncio.sleep(chance.random())
            done, _ = self._taken(await self._sweep.client.delete(f"/api/conversations/{conversation}"))
            if done:
                self._confirmed = {mark: where for mark, where in self._confirmed.items() if where != conversation}
        return conversation

    async def _fork(self, conversation: str) -> str:
        identity = str(uuid.uuid4())
        text = await self._post(f"/api/conversations/{conversation}/fork", conversation_id=identity)
        await self._sweep.client.delete(f"/api/conversations/{identity}")
        return text

    async def _secret(self) -> str:
        name = f"S{uuid.uuid4().hex}".upper()
        done, text = self._taken(
            await self._sweep.client.post("/api/secrets", json={"name": name, "value": "value-of-it"})
        )
        self._secrets.update([name] * done)
        return text

    async def _upload(self, conversation: str) -> str:
        answer = await self._sweep.client.post(
            f"/api/conversations/{conversation}/upload-files", files={"files": ("a.txt", b"a" * 5000)}
        )
        return self._taken(answer)[1]

    # --- what came of it ---

    async def _judge(self) -> None:
        sweep, found = self._sweep, self.findings
        try:
            await sweep.until_rest()
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            found.append(f"{type(error).__name__}: {error}")
        found += sweep.wrong_in_the_log() + await sweep.settled()
        texts = {one: sweep.text_of(one) for one in {*self._confirmed.values()}}
        found += [
            f"{mark} was confirmed in {where} and is not there"
            for mark, where in self._confirmed.items()
            if mark not in texts[where]
        ]
        every = sweep.text_of(None)
        found += [
            f"{mark} was refused ({told[:200]}) and is there" for mark, told in self._refused.items() if mark in every
        ]
        names = (await sweep.client.get("/api/secrets")).text
        found += [f"the secret {name} was confirmed and is not there" for name in self._secrets if name not in names]
        for follower in self._followers:
            stored = {
                event["id"]: comparable(event) for event in await stored_events(sweep.server, follower.conversation_id)
            }
            found += [
                f"a client of {follower.conversation_id} was shown another event {ident} than is stored"
                for ident, frame in follower.events.items()
                if (ident in stored and comparable(frame) != stored[ident]) or ident > max(stored)
            ]
        found += sweep.traceback()
        found += [f"behind the next start: {one}" for one in await sweep.begin_again()]


def _keep(folder: str, seed: int, text: str) -> None:
    if folder:
        Path(folder, f"storm-{seed}.log").write_text(text)


async def main(options: argparse.Namespace) -> int:
    failed = 0
    for seed in range(options.seed, options.seed + options.runs):
        with tempfile.TemporaryDirectory(prefix="drydock-storm-") as place:
            async with sweeping(build(Path(place)), Path(place)) as sweep:
                storm = Storm(sweep, seed)
                await storm.run(options.seconds, kills=not options.no_kills)
                sys.stdout.write(
                    f"seed {seed}: asked {dict(storm.asked)}; faults {storm.faults.total()} {dict(storm.faults)}\n"
                )
                sys.stdout.writelines(f"FOUND (seed {seed}) {one}\n" for one in storm.findings)
                sys.stdout.flush()
                failed += bool(storm.findings)
                if storm.findings:
                    _keep(options.keep, seed, sweep.server.printed())
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.storage.storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--no-kills", action="store_true", help="the server is never ended or killed")
    parser.add_argument("--keep", default="", help="a folder for the logs of servers of which something was found")
    sys.exit(asyncio.run(main(parser.parse_args())))
