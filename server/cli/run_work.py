"""`Work`: a task that an agent works on, wherever it does; `ServerWork`: in a conversation of a running server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agent_core.errors import DrydockError
from agent_core.llm.profiles import HOME_VARIABLE
from drydock_client import Action, AgentState, BusyError, DrydockClient, LimitError, State, UnreachableError
from drydock_client.events import Live
from drydock_client.live import Following
from server.cli.conversations import Finder
from server.db.temporary_files import temporary_file

PENDING_LOOK = 60
"""How many of the last events are looked through for actions that wait for a word."""
RECONNECT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done, and the choices about it; None leaves a choice to the server, or to its settings."""

    text: str
    repository: str | None = None
    branch: str | None = None
    image: str | None = None
    model: str | None = None
    budget: float | None = None
    max_steps: int | None = None
    confirm: bool = False
    continued: str | None = None
    """The id of the conversation that goes on, or its beginning."""


def home_of_runs() -> Path:
    """The folder with the logs of tasks that were done without a server."""
    return Path(os.environ.get(HOME_VARIABLE, "").strip() or "~/.drydock").expanduser() / "runs"


def kept_run(beginning: str) -> str | None:
    """The id of the task here whose id is this, or alone begins so; None: there is none, it is a server's."""
    folder = home_of_runs()
    ids = [path.name for path in folder.iterdir()] if folder.is_dir() and beginning else []
    matches = [one for one in ids if one.startswith(beginning)]
    if beginning in matches or len(matches) == 1:
        return beginning if beginning in matches else matches[0]
    if matches:
        raise DrydockError(f"{beginning!r} is the beginning of {len(matches)} ids in {folder}; type some more of it")
    return None


class Work(Protocol):
    """One task in a conversation. Errors of its calls are `DrydockError` or `ClientError`."""

    conversation_id: str | None

    async def begin(self) -> str:
        """Have the agent begin; returns a sentence for people that says where."""

    @property
    def facts(self) -> dict[str, Any]:
        """What programs are told of it, when it has begun."""

    def items(self) -> AsyncIterator[Live]:
        """What happens from the task on, as it happens; the consumer ends it."""

    async def counts(self, state: State) -> bool:
        """Whether a state in which an agent rests came of this task, and not of something before."""

    async def pending(self) -> list[Action]:
        """The actions that wait for a word."""

    async def decide(self, *, accept: bool, remember: bool = False, feedback: str = "") -> None:
        """Answer what waits for a word; the agent goes on."""

    async def stop(self) -> None:
        """Have the agent stop in order."""

    async def save_files(self, file: Path) -> None:
        """Write the workspace into a ZIP file."""

    async def remove(self) -> None:
        """Delete the conversation."""

    async def close(self) -> None:
        """Give back what is held here; whatever goes on elsewhere goes on."""

    def how_to_go_on(self, *, is_at_work: bool, is_asking: bool) -> str:
        """What a person can do next with the conversation, whose agent may be at work yet, or wait for confirmation."""


class ServerWork:
    """A task in a conversation of a running server, whose agent works on whatever becomes of this process."""

    def __init__(self, client: DrydockClient, task: Task) -> None:
        self.conversation_id: str | None = None
        self._client = client
        self._task = task
        self._begun_after = -1
        self._following: Following | None = None

    async def begin(self) -> str:
        await self._client.__aenter__()
        task = self._task
        if task.continued is not None:
            found = await Finder(self._client).found(task.continued)
            self.conversation_id = found.id
            await self._go_on(found.id)
            return f"Conversation {found.id} goes on, at {self._client.base_url}/conversations/{found.id}"
        options = {
            "sandbox": {"image": task.image} if task.image is not None else None,
            "llm_profile": task.model,
            "max_budget_per_task": task.budget,
            "max_iterations": task.max_steps,
            "confirmation_mode": task.confirm or None,
        }
        made = await self._client.create_conversation(
            message=task.text,
            repository=task.repository,
            branch=task.branch,
            options={name: value for name, value in options.items() if value is not None},
        )
        self.conversation_id = made.id
        return f"Conversation {made.id}, at {self._client.base_url}/conversations/{made.id}"

    async def _go_on(self, conversation_id: str) -> None:
        if self._task.text:
            self._begun_after = (await self._client.send(conversation_id, self._task.text)).id
            return
        state = await self._client.state(conversation_id)
        if state is not None and state.state == AgentState.AWAITING_USER_CONFIRMATION:
            self._begun_after = (state.id or 0) - 1
        else:
            self._begun_after = (await self._client.resume(conversation_id)).id

    @property
    def facts(self) -> dict[str, Any]:
        page = f"{self._client.base_url}/conversations/{self._id}"
        return {"conversation_id": self._id, "server": self._client.base_url, "page": page, "workspace": None}

    async def items(self) -> AsyncIterator[Live]:
        after = self._begun_after - 1 if self._begun_after >= 0 else -1
        self._following = self._client.follow(self._id, after=after, live=True, reconnect_seconds=RECONNECT_SECONDS)
        async with self._following as items:
            async for item in items:
                yield item

    async def counts(self, state: State) -> bool:
        if state.id is not None:
            return state.id > self._begun_after
        # Told on connecting, or when the server ends, without its place: the log knows whether it is from before.
        try:
            stored = await self._client.state(self._id)
        except (UnreachableError, LimitError, BusyError):
            return False  # it is told again when the server is there again
        return stored is not None and (stored.id or 0) > self._begun_after and stored.state == state.state

    async def pending(self) -> list[Action]:
        found: list[Action] = []
        async for event in self._client.events(self._id, limit=PENDING_LOOK, reverse=True):
            if isinstance(event, State):
                continue
            if isinstance(event, Action) and event.args.get("confirmation_state") == "awaiting_confirmation":
                found.append(event)
            elif found:
                break
        return found[::-1]

    async def decide(self, *, accept: bool, remember: bool = False, feedback: str = "") -> None:
        sent = await self._client.confirm(self._id, accept=accept, remember=remember, feedback=feedback)
        self._begun_after = max(self._begun_after, sent.id)

    async def stop(self) -> None:
        await self._client.pause(self._id)

    async def save_files(self, file: Path) -> None:
        with temporary_file(file.parent, file.name) as (path, target):
            async for piece in self._client.files.open(self._id, "."):
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
            path.replace(file)

    async def remove(self) -> None:
        await self._client.delete(self._id)

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)

    def how_to_go_on(self, *, is_at_work: bool, is_asking: bool) -> str:
        if self.conversation_id is None:
            return ""
        if is_at_work:
            return (
                f"The agent works on. `drydock conversations tail -f {self._id}` shows it,"
                f" `drydock conversations stop {self._id}` ends it."
            )
        if is_asking:
            page = f"{self._client.base_url}/conversations/{self._id}"
            return f"Answer on a terminal (drydock run --continue {self._id}) or on its page, {page}"
        return f'Go on with: drydock run --continue {self._id} "…"; its files: drydock export {self._id} FILE'

    @property
    def _id(self) -> str:
        if self.conversation_id is None:
            raise DrydockError("the task has not begun")
        return self.conversation_id
