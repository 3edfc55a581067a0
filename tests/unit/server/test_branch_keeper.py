from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_core.errors import SandboxError
from agent_core.events.llm_events import ObservationEvent
from agent_core.events.messages import TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.tools.context import SandboxAccess
from agent_core.tools.terminal import TerminalObservation
from server.db.database import Database, open_database
from server.db.repositories.conversations import ConversationRecord
from server.session.recorder import BranchKeeper


class Sandbox:
    """Answers what branch there is, or fails."""

    def __init__(self) -> None:
        self.branch: str | None = "main"
        self.error: SandboxError | None = None
        self.asked: list[dict[str, Any]] = []
        self.was_asked = asyncio.Event()

    async def request(self, operation: str, args: dict[str, Any], **_: Any) -> Any:
        assert operation == "git.status"
        self.asked.append(args)
        self.was_asked.set()
        if self.error is not None:
            raise self.error
        found = [{"path": "", "branch": self.branch}, {"path": "other", "branch": "x"}, {"odd": 1}, None]
        return SimpleNamespace(result={"repositories": found})


def ran(command: str, exit_code: int = 0) -> AnyEvent:
    observation = TerminalObservation(content=[TextContent(text="")], command=command, exit_code=exit_code)
    return ObservationEvent(source="environment", cause=1, tool_name="terminal", observation=observation)


async def branch_after(database: Database, sandbox: Sandbox, *events: AnyEvent, asks: bool = True) -> str | None:
    record = ConversationRecord(id="c", selected_repository="ann/boat", selected_branch="main")
    await database.conversations.create(record)
    keeper = BranchKeeper("c", database.conversations, lambda: cast(SandboxAccess, sandbox))
    async with keeper.at_work():
        for event in events:
            sandbox.was_asked.clear()
            keeper.observe(event)
            if asks:
                async with asyncio.timeout(30):
                    await sandbox.was_asked.wait()
            for _ in range(200):  # time to ask once too often
                await asyncio.sleep(0)
        async with asyncio.timeout(30):
            while (found := await database.conversations.get("c")) is not None:
                if found.selected_branch != "main" or sandbox.branch in ("main", None) or sandbox.error:
                    return found.selected_branch
    return None


@pytest.mark.parametrize(
    "command",
    [
        "git checkout topic",
        "git switch -c topic",
        "cd boat && git -C . merge topic",
        "git --no-pager rebase main",
        "git reset --hard HEAD~1",
        "git branch -m topic",
    ],
)
async def test_each_command_that_may_change_the_branch_has_it_looked_at(tmp_path: Path, command: str) -> None:
    sandbox = Sandbox()
    sandbox.branch = "topic"
    async with open_database(tmp_path) as database:
        assert await branch_after(database, sandbox, ran(command)) == "topic"
    assert [one["directory"] for one in sandbox.asked] == ["boat"]


@pytest.mark.parametrize(
    "event", [ran("git status"), ran("git checkout topic", 1), ran("echo git; echo checkout"), ran("digit branch")]
)
async def test_other_commands_and_failed_ones_are_passed_over(tmp_path: Path, event: AnyEvent) -> None:
    sandbox = Sandbox()
    async with open_database(tmp_path) as database:
        assert await branch_after(database, sandbox, event, asks=False) == "main"
    assert sandbox.asked == []


async def test_a_detached_head_and_a_sandbox_that_fails_change_nothing(tmp_path: Path) -> None:
    detached, broken = Sandbox(), Sandbox()
    detached.branch = None
    broken.error = SandboxError("gone")
    for n, sandbox in enumerate((detached, broken)):
        async with open_database(tmp_path / str(n)) as database:
            assert await branch_after(database, sandbox, ran("git switch x"), ran("git switch y")) == "main"
        assert len(sandbox.asked) == 2
