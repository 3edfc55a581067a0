"""The memory: the subscriber that answers recalls with facts of the workspace (agent-core 7.7)."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
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
            try:
                await self._stream.add_event(await self._answer(recall))
                del self._open[recall.id]
            except StreamClosedError:
                return
            except EventStoreError as error:
                logger.error("recall %s:%s was not answered: %s", self._stream.conversation_id, recall.id, error)
                self._stream.publish(StatusNotice("STATUS$ERROR_MEMORY", str(error), "error"))

    async def _answer(self, recall: RecallAction) -> RecallObservation:
        if recall.recall_type == "knowledge":
            return RecallObservation(cause=recall.id, recall_type="knowledge")
        facts = await self._facts()
        git = facts.get("git") or {}
        instructions = [f"From {found['path']}:\n{found['content']}" for found in facts.get("instructions", [])]
        return RecallObservation(
            cause=recall.id,
            recall_type="workspace_context",
            repo_name=git.get("remote") or "",
            repo_directory=git.get("root") or "",
            repo_branch=git.get("branch") or "",
            repo_instructions="\n\n".join(instructions),
            additional_agent_instructions=_machine(facts),
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            conversation_instructions=self._instructions,
            working_dir=facts.get("working_dir") or self._sandbox.working_dir,
        )

    async def _facts(self) -> dict[str, Any]:
        try:
            return (await self._sandbox.request("workspace.facts", {}, limit_seconds=FACTS_SECONDS)).result
        except (SandboxError, ToolError) as error:
            # The agent can work without them; its first command will say what is wrong with the sandbox.
            logger.warning("no facts of the workspace of %s: %s", self._stream.conversation_id, error)
            return {}


def _machine(facts: dict[str, Any]) -> str:
    parts = [facts.get("os"), f"Python {facts['python']}" if facts.get("python") else None]
    user = f"user {facts['user']}" if facts.get("user") else None
    known = [part for part in (*parts, user) if part]
    return f"Machine: {', '.join(known)}" if known else ""
