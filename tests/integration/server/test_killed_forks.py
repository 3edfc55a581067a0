"""A server that is killed at any line of making a fork, or of removing what is left of one: all of it, or nothing."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, cast

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import to_payload
from agent_core.events.store import NewEvent
from agent_core.runtime.sandbox import RunnerReply
from server.conversation_manager.conversation_manager import ConversationManager
from server.conversation_manager.forks import fork_conversation
from server.db.database import Database, open_database
from server.db.repositories.conversations import ConversationRecord
from server.session.unfinished import remove_unfinished_forks, seed_of

ROOT = Path(__file__).parents[3]
WATCHED = ("session/unfinished.py", "conversation_manager/forks.py", "session/rewind.py")
EVENTS = 250
TAIL = 150
PARTS = [b"a" * 200_000, b"b" * 100_000]
KILLS = int(os.environ.get("CHAOS_KILLS", "4"))
LIMIT_SECONDS = 120


class Files:
    """As much of a manager and its sandbox as a copy of files needs."""

    def sandbox(self, _conversation_id: str) -> Files:
        return self

    def keeping(self, _conversation_id: str) -> AbstractContextManager[None]:
        return nullcontext()

    async def request(self, _op: str, args: dict[str, Any], **_options: Any) -> RunnerReply:
        number = 0 if args["offset"] == 0 else 1
        return RunnerReply({"eof": number == 1}, PARTS[number])


async def prepare(database: Database) -> None:
    message = MessageEvent(source="user", llm_message=Message.user("x" * 100))
    one = NewEvent(message.kind, message.source, None, message.timestamp, to_payload(message))
    epoch = await database.events.claim("source")
    await database.events.append("source", [one] * EVENTS, epoch=epoch)
    await database.conversations.create(ConversationRecord(id="source", sandbox={"provider": "fake"}))


async def fork(database: Database) -> None:
    source = await database.conversations.get("source")
    assert source is not None
    manager = cast(ConversationManager, Files())
    await fork_conversation(database, manager, source, "new", upto=None, reset_metrics=True, copy_files=True)


async def check(database: Database) -> None:
    await remove_unfinished_forks(database)
    folder = seed_of(database.data_dir, "new").parent
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    last = await database.events.last_id("new")
    if "new" in await database.conversations.ids():
        assert names == {"new.tar"}, names
        assert seed_of(database.data_dir, "new").read_bytes() == b"".join(PARTS)
        assert last > EVENTS, last
    else:
        assert (names, last) == (set(), -1), (names, last)
    assert await database.events.last_id("source") == EVENTS - 1


def process(data: Path, work: Callable[[Database], Coroutine[Any, Any, None]], line: int | None = None) -> int:
    """Do it in a process of its own, which is killed at this line of what is watched; returns how that ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    passed = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal passed
        if not frame.f_code.co_filename.endswith(WATCHED):
            return None
        passed += event == "line"
        if line and passed == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    async def run() -> None:
        async with open_database(data) as database:
            if line is not None:
                threading.settrace(trace)
                sys.settrace(trace)
            await work(database)
            sys.settrace(None)
        if line == 0:
            (data / "lines").write_text(str(passed))

    try:
        asyncio.run(run())
    except BaseException as error:  # noqa: BLE001 - it ends here, and says why
        sys.stderr.write(f"{error!r}\n")
        os._exit(1)
    os._exit(0)


def main(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    template = folder / "template"
    assert process(template, prepare) == 0
    lines: list[int] = []
    for work in (fork, remove_unfinished_forks):
        data = folder / f"counted-{work.__name__}"
        shutil.copytree(template, data)
        if work is remove_unfinished_forks:
            assert process(data, fork, lines[0] * 2 // 3) == -signal.SIGKILL
        assert process(data, work, 0) == 0
        lines.append(int((data / "lines").read_text()))
    for number in range(KILLS):
        data = folder / str(number)
        shutil.copytree(template, data)
        # Most lines are passed with the events, which are copied first: every second time it is one of the last.
        tail = 0 if number % 2 else max(0, lines[0] - TAIL)
        line = tail + 1 + int((lines[0] - tail) / KILLS * (number + chance.random()))
        assert process(data, fork, line) == -signal.SIGKILL, line
        cleaning = chance.randint(1, lines[1])
        killed = process(data, remove_unfinished_forks, cleaning) == -signal.SIGKILL
        assert process(data, check) == 0, (line, cleaning, killed)
        shutil.rmtree(data)
    sys.stdout.write(f"{lines[0]} and {lines[1]} lines, {KILLS} kills: whole, or gone\n")


def test_a_fork_that_is_killed_is_whole_or_gone_also_when_its_removal_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(10_000)))
    program = f"from pathlib import Path; from {__name__} import main; main(Path({str(tmp_path)!r}), {seed})"
    # In a process that has no threads and no loop, which can be forked.
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, f"CHAOS_SEED={seed}\n{done.stdout}\n{done.stderr[-3000:]}"
    assert "whole, or gone" in done.stdout
