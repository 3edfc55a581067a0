"""`LocalWork`: a task of ``drydock run`` without a server, in this process, with its commands in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from agent_core.agent.presets import get_default_agent
from agent_core.errors import ConversationRunError, DrydockError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import TextDelta
from agent_core.library.conversation import Conversation
from agent_core.library.conversation_log import ExecutionStatus
from agent_core.library.workspace import DockerWorkspace, LocalWorkspace, SandboxWorkspace
from agent_core.llm.llm import LLM
from agent_core.memory.memory import name_of_remote
from agent_core.runtime.docker.images import DEFAULT_IMAGE
from agent_core.security.analyzers import analyzer_named
from agent_core.security.confirmation import NeverConfirm
from agent_core.session.repository import GitSetup, Repository
from drydock_client import Action, State
from drydock_client.events import Live, read_frame
from server.cli.run_work import Task, home_of_runs, kept_run
from server.git_providers.kinds import clone_url
from server.session.agents.models import ConversationModels, lacks_key, problem_of
from server.session.user_settings import OwnLimits, merge_settings
from server.settings.loading import load_settings
from server.settings.settings import Settings
from server.wire.envelope import to_wire
from server.wire.frames import delta_frame

READ_AHEAD: Final = 10_000
"""Events and pieces of text that may wait to be shown before the agent waits for that."""
RESTING: Final = frozenset(
    {
        AgentState.AWAITING_USER_INPUT,
        AgentState.AWAITING_USER_CONFIRMATION,
        AgentState.FINISHED,
        AgentState.PAUSED,
        AgentState.STOPPED,
        AgentState.REJECTED,
        AgentState.ERROR,
    }
)
SandboxKind = Literal["docker", "local", "unconfined"]


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a task's commands run: `folder` of this host, or (None) in a container of the `image`."""

    kind: SandboxKind
    folder: str | None
    image: str | None = None

    def workspace(self) -> SandboxWorkspace:
        if self.folder is None:
            return DockerWorkspace(self.image or DEFAULT_IMAGE)
        return LocalWorkspace(self.folder, confined=self.kind != "unconfined")


class LocalWork:
    """A task that ends with this process; its log and its files stay, so that it can go on."""

    def __init__(
        self,
        task: Task,
        *,
        folder: Path | None = None,
        sandbox: str | None = None,
        config: Path | None = None,
        environment: Mapping[str, str],
    ) -> None:
        """Raises `DrydockError` where the choices contradict each other, or the settings cannot be used."""
        self._task = task
        self._settings = load_settings({"sandbox": sandbox}, environment, config)
        continued = None if task.continued is None else kept_run(task.continued)
        if task.continued is not None and continued is None:
            raise DrydockError(f"no conversation in {home_of_runs()} has an id that begins with {task.continued!r}")
        self.conversation_id: str | None = continued or uuid.uuid4().hex
        self._folder = home_of_runs() / str(self.conversation_id)
        self._place = self._kept_place() if continued else self._new_place(folder)
        self._llm = _model(task, self._settings)
        self._conversation: Conversation | None = None
        self._items: asyncio.Queue[Live | None] = asyncio.Queue(READ_AHEAD)
        self._running: asyncio.Task[None] | None = None
        self._rests: State | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _new_place(self, folder: Path | None) -> RunPlace:
        kind, image = self._settings.sandbox, self._task.image
        if folder is not None and (image is not None or kind == "docker"):
            raise DrydockError("--workspace is a folder of this computer, which no container sees; leave --image out")
        if image is not None and kind in ("local", "unconfined"):
            raise DrydockError(f"--image is for containers, and --sandbox {kind} has none; leave one of them out")
        in_folder = folder is not None or kind in ("local", "unconfined") or shutil.which("bwrap") is not None
        if image is not None or kind == "docker" or not in_folder:
            return RunPlace("docker", None, image)
        own = folder or self._folder / "workspace"
        return RunPlace("unconfined" if kind == "unconfined" else "local", str(own.expanduser().absolute()))

    def _kept_place(self) -> RunPlace:
        try:
            return RunPlace(**json.loads((self._folder / "place.json").read_text("utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise DrydockError(f"{self._folder / 'place.json'} cannot be read: {error}") from error

    async def begin(self) -> str:
        self._loop = asyncio.get_running_loop()
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            place = {"kind": self._place.kind, "folder": self._place.folder, "image": self._place.image}
            (self._folder / "place.json").write_text(json.dumps(place), "utf-8")
        except OSError as error:
            raise DrydockError(f"{self._folder} cannot be written: {error.strerror or error}") from error
        limits = OwnLimits(
            max_iterations=self._task.max_steps,
            max_budget_per_task=self._task.budget,
            confirmation_mode=self._task.confirm or None,
        )
        chosen = merge_settings(None, self._settings, limits)
        try:
            self._conversation = conversation = Conversation(
                get_default_agent(self._llm),
                self._place.workspace(),
                callbacks=[self._took],
                token_callbacks=[self._took],
                max_iteration_per_run=chosen.max_iterations,
                max_budget_per_run=chosen.max_budget,
                conversation_id=self.conversation_id,
                persistence_dir=self._folder.parent,
                visualizer=None,
                git=_repository(self._task, self._settings),
            )
            await asyncio.to_thread(conversation.set_confirmation_policy, chosen.policy)
            if self._settings.security_analyzer:
                analyzer = analyzer_named(self._settings.security_analyzer)
                await asyncio.to_thread(conversation.set_security_analyzer, analyzer)
        except (TypeError, ValueError) as error:
            raise DrydockError(str(error)) from error
        asks = conversation.state.execution_status is ExecutionStatus.WAITING_FOR_CONFIRMATION
        if self._task.text:
            await conversation.asend_message(self._task.text)
        if asks and not self._task.text:
            await self._items.put(State(state=AgentState.AWAITING_USER_CONFIRMATION.value))
        else:
            self._run()
        where = self._place.folder or f"a container of the image {self._place.image or DEFAULT_IMAGE}"
        without = ", without isolation" if self._place.kind == "unconfined" else ""
        return f"Conversation {self.conversation_id} without a server, model {self._llm.model}, in {where}{without}"

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "conversation_id": self.conversation_id,
            "server": None,
            "page": None,
            "workspace": self._place.folder,
        }

    async def items(self) -> AsyncIterator[Live]:
        while (item := await self._items.get()) is not None:
            yield item

    async def counts(self, state: State) -> bool:
        return True

    async def pending(self) -> list[Action]:
        state = self._opened.state
        waiting = await asyncio.to_thread(lambda: state.get_unmatched_actions(state.events))
        frames = [to_wire(event, live=True) for event in waiting]
        found = [read_frame("oh_event", frame) for frame in frames if frame is not None]
        return [one for one in found if isinstance(one, Action)]

    async def decide(self, *, accept: bool, remember: bool = False, feedback: str = "") -> None:
        await self._rest()
        if remember:
            await asyncio.to_thread(self._opened.set_confirmation_policy, NeverConfirm())
        if not accept:
            await asyncio.to_thread(self._opened.reject_pending_actions, feedback)
        self._run()

    async def stop(self) -> None:
        await asyncio.to_thread(self._opened.interrupt)

    async def save_files(self, file: Path) -> None:
        await asyncio.to_thread(self._opened.download, ".", file)

    async def remove(self) -> None:
        await self.close()
        await asyncio.to_thread(partial(shutil.rmtree, self._folder, ignore_errors=True))

    async def close(self) -> None:
        conversation, self._conversation = self._conversation, None
        if conversation is None:
            return
        draining = asyncio.create_task(self._drain())  # what nobody shows any more is not to hold the agent up
        try:
            await conversation.aclose()
            await self._rest()
        finally:
            draining.cancel()

    def how_to_go_on(self, *, is_at_work: bool, is_asking: bool) -> str:
        if is_asking:
            return f"Answer on a terminal: drydock run --continue {self.conversation_id}"
        files = f"; its files are in {self._place.folder}" if self._place.folder is not None else ""
        lost = "" if files else "; its container, and the files in it, are gone"
        return f'Go on with: drydock run --continue {self.conversation_id} "…"{files}{lost}'

    @property
    def _opened(self) -> Conversation:
        if self._conversation is None:
            raise DrydockError("the task has not begun, or is over")
        return self._conversation

    def _run(self) -> None:
        self._rests = None
        self._running = asyncio.create_task(self._one_run(self._opened), name="run")

    async def _one_run(self, conversation: Conversation) -> None:
        """Let the agent work; the state in which it has come to rest is told when the run is over."""
        try:
            await conversation.arun()
        except ConversationRunError as error:
            if self._rests is None or self._rests.state != AgentState.ERROR:
                reason = str(error).partition(": ")[2]
                kind = f"{type(error.__cause__).__name__}: " if error.__cause__ is not None else ""
                self._rests = State(state=AgentState.ERROR.value, reason=f"{kind}{reason}", detail=reason)
        except DrydockError as error:
            self._rests = State(
                state=AgentState.ERROR.value, reason=f"{type(error).__name__}: {error}", detail=str(error)
            )
        await self._items.put(self._rests or State(state=AgentState.STOPPED.value))

    async def _rest(self) -> None:
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _drain(self) -> None:
        while True:
            await self._items.get()

    async def _took(self, event: AnyEvent | TextDelta) -> None:
        """Hand an event, or a piece of text, over from the library's loop to this one's."""
        frame = delta_frame(event) if isinstance(event, TextDelta) else to_wire(event, live=True)
        if frame is None or self._loop is None:
            return
        item = read_frame("oh_delta" if isinstance(event, TextDelta) else "oh_event", frame)
        if isinstance(event, AgentStateChanged) and event.agent_state in RESTING and isinstance(item, State):
            self._rests = item
            return
        with contextlib.suppress(RuntimeError):  # this loop has ended
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._items.put(item), self._loop))


def _model(task: Task, settings: Settings) -> LLM:
    if task.model is not None and task.model not in settings.llm_profiles:
        settings = settings.model_copy(update={"llm_model": task.model, "llm_profile": None})
    models = ConversationModels(None, settings, task.model if task.model in settings.llm_profiles else None)
    llm = models.present()
    if (problem := problem_of(llm)) is not None:
        raise DrydockError(f"--model: {problem}")
    if lacks_key(llm):
        raise DrydockError(f"the model {llm.model} wants a key: set LLM_API_KEY, or take --model demo/tour for a trial")
    return llm


def _repository(task: Task, settings: Settings) -> GitSetup | None:
    if task.repository is None:
        return None
    given = task.repository
    is_address = given.startswith(("http://", "https://"))
    if "@" in given:
        raise DrydockError(
            f"--repo: {given.rpartition('@')[2]!r} has a user in it; give an https address or owner/name"
        )
    name = name_of_remote(given) if is_address else given.strip("/")
    url = given if is_address else clone_url("github", None, name)
    repository = Repository(name=name, url=url, branch=task.branch or "", limit_seconds=settings.git_clone_seconds)
    if not repository.folder:
        raise DrydockError(f"--repo: {given!r} is no repository; give an https address or owner/name")
    return GitSetup(repository, settings.git_user_name or "", settings.git_user_email or "")
