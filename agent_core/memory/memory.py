"""The memory: the subscriber that answers recalls with facts of the workspace (agent-core 7.7)."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any

from agent_core.errors import EventStoreError, SandboxError, StreamClosedError, ToolError
from agent_core.events.control import RecallAction, RecallObservation
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.tools.spec import SandboxAccess

logger = logging.getLogger(__name__)

SUBSCRIBER = "memory"
FACTS_SECONDS = 10.0
STORE_RETRIES = (0.2, 1.0, 5.0, 15.0)


class Memory:
    """Answers each recall of one conversation exactly once, whatever happens; a question is never left open."""

    def __init__(self, stream: EventStream, sandbox: SandboxAccess, *, instructions: str = "") -> None:
        self._stream = stream
        self._sandbox = sandbox
        self._instructions = instructions
        self._open: dict[int, RecallAction] = {}
        self._position = -1

    def observe(self, event: AnyEvent) -> None:
        """Take an event into account, without answering."""
        self._position = event.id
        if isinstance(event, RecallAction):
            self._open[event.id] = event
        elif isinstance(event, RecallObservation):
            self._open.pop(event.cause, None)

    async def run(self) -> None:
        """Answer what an earlier process left open, then follow the log until the stream is closed."""
        await self._answer_open()
        async with self._stream.subscribe(after=self._position) as events:
            async for event in events:
                self.observe(event)  # type: ignore[arg-type] # no notices were asked for
                await self._answer_open()

    async def _answer_open(self) -> None:
        for recall in list(self._open.values()):
            await self._store(await self._answer(recall))
            self._open.pop(recall.id, None)

    async def _store(self, answer: RecallObservation) -> None:
        """Store it however long that takes (a full disk may get room again): the agent waits for it."""
        delays = chain(STORE_RETRIES, repeat(STORE_RETRIES[-1]))
        while not self._stream.closed:
            try:
                await self._stream.add_event(answer)
                return
            except StreamClosedError:
                return
            except EventStoreError as error:
                delay = next(delays)
                logger.error(
                    "recall %s:%s is not answered yet, next try in %s s: %s",
                    self._stream.conversation_id,
                    answer.cause,
                    delay,
                    error,
                )
                self._stream.publish(StatusNotice("STATUS$ERROR_MEMORY", str(error), "error"))
                await asyncio.sleep(delay)

    async def _answer(self, recall: RecallAction) -> RecallObservation:
        if recall.recall_type == "knowledge":
            return RecallObservation(cause=recall.id, recall_type="knowledge")
        facts = await self._facts()
        git = facts.get("git")
        git = git if isinstance(git, dict) else {}
        return RecallObservation(
            cause=recall.id,
            recall_type="workspace_context",
            repo_name=_text(git.get("remote")),
            repo_directory=_text(git.get("root")),
            repo_branch=_text(git.get("branch")),
            repo_instructions="\n\n".join(_instructions(facts)),
            additional_agent_instructions=_machine(facts),
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            conversation_instructions=self._instructions,
            working_dir=_text(facts.get("working_dir")) or self._sandbox.working_dir,
        )

    async def _facts(self) -> dict[str, Any]:
        try:
            return (await self._sandbox.request("workspace.facts", {}, limit_seconds=FACTS_SECONDS)).result
        except (SandboxError, ToolError) as error:
            # The agent can work without them; its first command will say what is wrong with the sandbox.
            logger.warning("no facts of the workspace of %s: %s", self._stream.conversation_id, error)
            return {}


def _text(value: Any) -> str:
    """The value, if it is a text: what comes from a sandbox is not trusted to have its form."""
    return value if isinstance(value, str) else ""


def _instructions(facts: dict[str, Any]) -> list[str]:
    files = facts.get("instructions")
    found = [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    return [f"From {_text(file.get('path'))}:\n{_text(file.get('content'))}" for file in found]


def _machine(facts: dict[str, Any]) -> str:
    system, python, user = (_text(facts.get(name)) for name in ("os", "python", "user"))
    known = [part for part in (system, python and f"Python {python}", user and f"user {user}") if part]
    return f"Machine: {', '.join(known)}" if known else ""
