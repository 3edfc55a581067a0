"""Forks of conversations: a new record, the beginning of the log, and the files as they were."""

from __future__ import annotations

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from agent_core.errors import SandboxError
from agent_core.events.event import utc_now
from agent_core.runtime.snapshots import packed
from agent_core.session.rewind import StoredLog, fork_log
from agent_core.tools.context import SandboxAccess
from server.conversation_manager.conversation_manager import ConversationManager, ConversationStatus
from server.db.database import Database
from server.db.repositories.conversations import ConversationRecord
from server.errors import status_of
from server.session.agents.agent_sessions import OWN_SERVERS, opened_servers, sealed_servers
from server.session.agents.models import LLM_PROFILE
from server.session.agents.programs import PROGRAM, ProgramSettings, opened_program, sealed_program
from server.session.crash_guard import HELD_BACK, LIFE
from server.session.sandboxes import OTHER_SANDBOXES
from server.session.titles import default_title
from server.session.unfinished import seed_of, unfinished_conversation, waiting_files

START_SECONDS = 90.0
LOOK_SECONDS = 0.05
_writing = ThreadPoolExecutor(1, thread_name_prefix="forks")

_NOT_CARRIED = frozenset({LIFE, OTHER_SANDBOXES})
"""Options that belong to one conversation alone."""


async def fork_conversation(
    database: Database,
    manager: ConversationManager,
    source: ConversationRecord,
    new_id: str,
    *,
    upto: int | None,
    reset_metrics: bool,
    copy_files: bool,
    program: ProgramSettings | None = None,
    llm_profile: str | None = None,
) -> None:
    """Make the conversation `new_id`, which begins as `source` did up to that event; it is not started.

    `program` takes the place of the one that `source` is of, `llm_profile` that of the profile that it names. Files are
    copied; the first start puts them into the workspace. `NoSuchEventError` or another `DrydockError`: nothing is left
    of it.
    """
    now = utc_now()
    record = replace(
        source,
        id=new_id,
        title=f"{source.title or default_title(source.id)} (fork)",
        created_at=now,
        last_updated_at=now,
        agent_state=None,
        waiting_number=None,
        sandbox=None,
        pr_number=(),
        options=_options(database, source, new_id, program),
    )
    if llm_profile is not None:
        record = replace(record, options={**record.options, LLM_PROFILE: llm_profile})
    if reset_metrics:
        record = replace(record, accumulated_cost=0.0, prompt_tokens=0, completion_tokens=0)
    seed = seed_of(database.data_dir, new_id)
    with manager.keeping(source.id):
        async with unfinished_conversation(database, new_id):
            logs = StoredLog(database.events, source.id), StoredLog(database.events, new_id)
            prompt = None if program is None else program.opening_prompt(new_id)
            moments = await fork_log(*logs, upto=upto, reset_metrics=reset_metrics, prompt=prompt)
            if copy_files and source.sandbox is not None:
                await _copy_files(manager, source, moments, seed)
            elif copy_files and (waiting := await waiting_files(database, source.id)) is not None:
                await asyncio.get_running_loop().run_in_executor(_writing, _copy_waiting, waiting, seed)
            await database.waiting_files.keep(new_id, seed)
            # Last, so that nobody ever sees a fork that is not whole, not even when this process is killed.
            await database.conversations.create(record)


def _options(
    database: Database, source: ConversationRecord, new_id: str, program: ProgramSettings | None
) -> dict[str, Any]:
    options = {key: value for key, value in source.options.items() if key not in _NOT_CARRIED}
    servers = opened_servers(database.secrets, source)
    if servers is not None:  # sealed for one conversation only
        options[OWN_SERVERS] = sealed_servers(database.secrets, new_id, servers)
    program = program or opened_program(database.secrets, source)
    if program is not None:
        options[PROGRAM] = sealed_program(database.secrets, new_id, program)
    return options


async def _copy_files(manager: ConversationManager, source: ConversationRecord, moments: list[int], to: Path) -> None:
    sandbox = await sandbox_of(manager, source.id)
    loop = asyncio.get_running_loop()
    file = await loop.run_in_executor(_writing, _made, to)
    try:
        async for part in packed(sandbox, source.id, moments):
            await loop.run_in_executor(_writing, file.write, part)
    finally:
        await loop.run_in_executor(_writing, file.close)


def _copy_waiting(files: BinaryIO, to: Path) -> None:
    with files, _made(to) as copy:
        shutil.copyfileobj(files, copy)


def _made(path: Path) -> BinaryIO:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return path.open("wb")


async def sandbox_of(manager: ConversationManager, conversation_id: str) -> SandboxAccess:
    """The sandbox of a conversation, which is started if need be; `SandboxError`: it does not come up in time."""
    if (present := manager.sandbox(conversation_id)) is not None:
        return present
    if (live := manager.live(conversation_id)).runtime_status == HELD_BACK:
        problem = f"The sandbox of conversation {conversation_id} is not started. {live.runtime_warning}"
        raise SandboxError(problem, code="held_back", fix="Start it first, or fork it without its files.")
    await manager.maybe_start_agent_loop(conversation_id)
    problem, code = "", ""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while (sandbox := manager.sandbox(conversation_id)) is None:
                live = manager.live(conversation_id)
                if live.status is not ConversationStatus.STARTING:
                    is_over = live.status is ConversationStatus.STOPPED
                    problem, code = "could not be started; its log says why", ""
                    if is_over:
                        problem = "was stopped meanwhile"
                    if live.failure is not None and status_of(live.failure) != 500:
                        problem, code = f"could not be started: {live.failure}", getattr(live.failure, "code", "")
                    break
                problem, code = f"did not come up within {START_SECONDS:g} s", ""
                if live.place is not None:
                    problem, code = f"{problem} ({live.place.text.rstrip('.')})", "waits_for_turn"
                await asyncio.sleep(LOOK_SECONDS)
            else:
                return sandbox
    raise SandboxError(
        f"The sandbox of conversation {conversation_id} {problem.removesuffix('.')}.",
        code=code or "sandbox",
        fix="Fork it without its files, or try again.",
    )
