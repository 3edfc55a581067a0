"""`Conversation`: how a program works with an agent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from uuid import uuid4

from agent_core.agent.base import AgentBase
from agent_core.controller.replay import ReplayManager, beginning_of, turns_of
from agent_core.controller.stuck import StuckDetectionThresholds
from agent_core.events.branches import Rewind
from agent_core.events.control import ClientToolResult, ConfirmationPolicyChanged, LoopRecovery
from agent_core.events.folder_store import FolderEventStore
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message, TextContent
from agent_core.events.schema import Action, Observation
from agent_core.events.store import InMemoryEventStore
from agent_core.library import side_questions
from agent_core.library.added_plugins import add_plugin, read_plugin, register_agents
from agent_core.library.callbacks import Callback, Callbacks, functions_in
from agent_core.library.console import ConsoleView
from agent_core.library.conversation_log import ExecutionStatus
from agent_core.library.conversation_state import ConversationState
from agent_core.library.direct_calls import call_tool, rerun, run_command, tool_named
from agent_core.library.mcp_sign_in import user_sign_ins
from agent_core.library.open_session import SandboxUse
from agent_core.library.remote.program import check_for_server
from agent_core.library.remote.run import RemoteRun
from agent_core.library.run_loop import RunLoop
from agent_core.library.side_questions import FOLLOW_UP, GoalVerdict
from agent_core.library.workspace import RemoteWorkspace, Workspace, share_files, workspace_of
from agent_core.library.workspace_access import MAX_DOWNLOAD, MAX_READ, WorkspaceAccess
from agent_core.llm.llm import LLM
from agent_core.llm.metrics import ConversationStats
from agent_core.llm.registry import ProfileStore
from agent_core.mcp.servers import McpRules
from agent_core.runtime.channel.tunnels import OpenPort
from agent_core.runtime.loop_thread import library_loop
from agent_core.runtime.sandbox import Sandbox
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationPolicy, NeverConfirm, is_confirmation_mode_active
from agent_core.security.hooks import HookConfig
from agent_core.security.secrets import SecretValue, check_secrets
from agent_core.session.factory import with_full_context
from agent_core.session.repository import GitSetup
from agent_core.session.settings import ConfirmSubagents, SessionSettings
from agent_core.skills.plugin import Plugin
from agent_core.spelling import spelled
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool
from agent_core.tools.terminal import TerminalObservation

T = TypeVar("T")


@spelled
class Conversation:
    """One conversation with an agent, from an ordinary or an asynchronous program.

    Nothing happens before the first call. The work is done in an event loop in a thread of its own. Close it (or use
    ``with`` or ``async with``) to end its sandbox; otherwise the program's end does. All methods but `run` may be
    called while it runs, from any thread; so may a callback, but for `close`, and between the runs a callback may only
    look and send messages. What needs the sandbox raises `SandboxError` where it cannot be had, and a closed
    conversation raises `RuntimeError`. The constructor raises `TypeError`, `ValueError` or `SkillValidationError`,
    whose message names the argument or the plugin's file.

    Args:
        agent: who works.
        workspace: a folder of this host, which commands see under its own path and nothing beside it (needs
            bubblewrap); or a `LocalWorkspace`, a `DockerWorkspace` (as a text ``docker:IMAGE``), or a sandbox of the
            caller's. With a `RemoteWorkspace`, or the http address of a server, that runs the agent, too.
        callbacks: get every event once it is stored, in order; `run` waits for them.
        token_callbacks: get pieces of the model's text as it comes (`TextDelta`), before the event that has all of it.
        max_iteration_per_run: answers of the model until a run ends with the status error; the next one counts anew.
        conversation_id: a new one if None; one that `persistence_dir` has goes on.
        persistence_dir: folder for the log; None keeps it in memory.
        secrets: values by name, for the commands that name them; hidden wherever they appear in the log.
        max_budget_per_run: US dollars until a run ends with the status error, over all runs; then as much again.
        stuck_detection: whether an agent that only repeats itself is stopped.
        stuck_detection_thresholds: after how many repetitions; the usual number by default.
        hook_config: hooks that are run before those of the project and of the user's home.
        plugins: folders of plugins to begin with; see `load_plugin`.
        tags: words about the conversation for its program; names of lower-case letters and digits.
        visualizer: shows the events, before the callbacks hear of them: a function, or what has ``on_event``; on the
            console by default, and None shows nothing.
        delete_on_close: whether the log, and what is kept beside it in `persistence_dir`, is removed at the end.
        confirm_subagents: says whether sub-agents may carry out actions that a user would be asked about; None agrees
            where nobody asks the user here either, and refuses otherwise.
        git: a repository that is cloned into the workspace for the first run, and whose name stands on commits.
    """

    def __init__(
        self,
        agent: AgentBase,
        workspace: str | Path | Workspace | Sandbox = "workspace/project",
        *,
        callbacks: Iterable[Callback] | None = None,
        token_callbacks: Iterable[Callback] | None = None,
        max_iteration_per_run: int = 500,
        conversation_id: object = None,
        persistence_dir: str | Path | None = None,
        secrets: Mapping[str, SecretValue] | None = None,
        max_budget_per_run: float | None = None,
        stuck_detection: bool = True,
        stuck_detection_thresholds: StuckDetectionThresholds | Mapping[str, int] | None = None,
        hook_config: HookConfig | None = None,
        plugins: Sequence[str | os.PathLike[str]] = (),
        tags: Mapping[str, str] | None = None,
        visualizer: object = ConsoleView,
        delete_on_close: bool = False,
        confirm_subagents: ConfirmSubagents | None = None,
        git: GitSetup | None = None,
    ) -> None:
        _check_limits(agent, max_iteration_per_run, max_budget_per_run)
        check_secrets(secrets or {})
        functions = functions_in(callbacks, "callbacks"), functions_in(token_callbacks, "token_callbacks")
        self.id = str(conversation_id or uuid4())
        hooks = HookConfig() if hook_config is None else _checked(hook_config, HookConfig, "hook_config")
        own = agent.model_copy()  # the tools that it makes are this conversation's own
        for extension in [read_plugin(folder) for folder in plugins]:
            own = own.with_additions(extension.plugin.skills, extension.servers)
            hooks = hooks.followed_by(extension.hooks)
            register_agents(extension.plugin)
        self.workspace = workspace_of(workspace)
        data_folder = None if persistence_dir is None else str(persistence_dir)
        settings = SessionSettings(
            llm=agent.llm,
            max_iterations=max_iteration_per_run,
            max_budget=max_budget_per_run,
            limits_per_run=True,
            stuck_detection=stuck_detection,
            stuck_thresholds=_thresholds(stuck_detection_thresholds or {}),
            named_secrets=dict(secrets or {}),
            hooks=hooks,
            confirm_subagents=confirm_subagents,
            missing_parts=self.workspace.missing_parts,
            mcp_rules=McpRules(sign_ins=user_sign_ins()),
            git=GitSetup() if git is None else _checked(git, GitSetup, "git"),
            tags=tuple(f"{name}:{value}" for name, value in (tags or {}).items()),
        )
        told = Callbacks(*functions, visualizer)
        self._work: RunLoop
        if isinstance(self.workspace, RemoteWorkspace):
            check_for_server(own, settings, data_folder)
            self._work = RemoteRun(self.id, agent=own, settings=settings, workspace=self.workspace, callbacks=told)
        else:
            folder = None if data_folder is None else FolderEventStore(data_folder)
            data_dir = "" if folder is None else str(folder.folder_of(self.id))
            self._work = RunLoop(
                self.id,
                store=folder or InMemoryEventStore(),
                data_dir=data_dir,
                persistence_dir=data_folder,
                agent=own,
                settings=settings,
                sandbox=SandboxUse(partial(self.workspace.opened_for, self.id, data_dir)),
                callbacks=told,
            )
        self._is_deleted_on_close = delete_on_close
        self.state = self._work.state = ConversationState(self._work, self.workspace, data_folder, tags or {})
        self._access = WorkspaceAccess(self._work)

    @property
    def agent(self) -> AgentBase:
        return self._work.agent

    # --- talking and running ---

    def send_message(self, message: str | Message, sender: str | None = None) -> None:
        """Store a message of the user, which `run` lets the agent answer; one under way takes it up at once."""
        self._do(self._work.say(_users_message(message, sender)))

    async def asend_message(self, message: str | Message, sender: str | None = None) -> None:
        await self._ado(self._work.say(_users_message(message, sender)))

    def run(self) -> None:
        """Let the agent work until it has finished, waits for its user, or is paused.

        A conversation that was paused or failed goes on; what awaited confirmation is confirmed. Raises
        `ConversationRunError` when the run fails, and `RuntimeError` if it is running already, is closed, or this is
        called in its own loop.
        """
        self._do(self._work.run())

    async def arun(self) -> None:
        """`run` for asynchronous programs; to cancel it is to interrupt the agent.

        What it had called is answered then, it is paused, and this returns. So does a time limit around it:
        `state.execution_status` tells whether it has finished.
        """
        try:
            await self._ado(self._work.run())
        except asyncio.CancelledError:
            await asyncio.wrap_future(library_loop().submit(self._work.until_run_ended()))

    def pause(self) -> None:
        """Stop the agent and its commands until `run`; one that awaits confirmation or has finished is left alone."""
        self._do(self._work.pause())

    def interrupt(self) -> None:
        """`pause`, with a marker of its own in the log."""
        self._do(self._work.interrupt())

    def add_callback(self, callback: Callback) -> None:
        self._work.callbacks.for_events.append(callback)

    def step(self, on_event: Callback | None = None, on_token: Callback | None = None) -> None:
        """Let the agent take one step: what still waits is run, or the model is asked once and its calls are run.

        An agent that would go on is paused then. With nothing to do it does nothing. `on_event` and `on_token` are
        called for this step, like callbacks of the conversation. Raises what `run` does.
        """
        self._do(self._work.step(on_event, on_token))

    async def astep(self, on_event: Callback | None = None, on_token: Callback | None = None) -> None:
        await self._ado(self._work.step(on_event, on_token))

    # --- deciding ---

    @property
    def is_confirmation_mode_active(self) -> bool:
        """Whether an analyzer is set and the policy asks, so that actions may wait for the user."""
        return is_confirmation_mode_active(self.state.security_analyzer, self.state.confirmation_policy)

    @property
    def confirmation_policy_active(self) -> bool:
        return not isinstance(self.state.confirmation_policy, NeverConfirm)

    def set_confirmation_policy(self, policy: ConfirmationPolicy) -> None:
        """Decide by this policy what waits, from the next answer of the model on; the log remembers it."""
        asks = _checked(policy, ConfirmationPolicy, "policy")
        self._do(self._work.say(ConfirmationPolicyChanged(policy=asks.model_dump(mode="json"))))

    def set_security_analyzer(self, analyzer: SecurityAnalyzer | None) -> None:
        """Judge calls by this analyzer, from the next answer of the model on; None: all risks are unknown."""
        judges = None if analyzer is None else _checked(analyzer, SecurityAnalyzer, "analyzer")
        self._do(self._work.sessions.set_analyzer(judges))

    def reject_pending_actions(
        self, reason: str = "User rejected the action", action_ids: Collection[int] | None = None
    ) -> None:
        """Refuse what awaits confirmation (nothing: a warning), for a reason that the agent is told at the next run.

        With `action_ids` only these are refused; the conversation goes on waiting for a word on the others, which `run`
        approves. Otherwise it is idle then.
        """
        self._do(self._work.reject(reason, action_ids))

    def update_secrets(self, secrets: Mapping[str, SecretValue]) -> None:
        """Add secrets, or replace those of the same names; a value that was replaced stays hidden."""
        check_secrets(secrets)
        self._do(self._work.sessions.update_secrets(dict(secrets)))

    def set_client_tools(self, tools: Sequence[Tool]) -> None:
        """Give the agent these tools (`client_tool`) from its next step on, in place of those set before.

        Raises `ValueError` or `TypeError`, and changes nothing, where a tool cannot be made or a running agent has
        another of its name (of an agent at rest the next run says so).
        """
        specs = tuple(_checked(tool, Tool, "tools") for tool in tools)
        for spec in specs:
            resolve_tool(spec)
        self._do(self._work.sessions.set_client_tools(specs))

    def answer_client_call(self, call_id: int, content: str, *, is_error: bool = False) -> None:
        """Answer a waiting call of a `client_tool` by the id of its action, else `ClientToolError` is raised."""
        text = [TextContent(text=content)] if content else []
        self._do(self._work.say(ClientToolResult(cause=call_id, content=list(text), is_error=is_error)))

    # --- acting beside the agent ---

    def execute_tool(self, name: str, action: Action) -> Observation:
        """Call a tool of the agent's in the sandbox, unlogged; one whose state is in the log is called as the user.

        Raises `KeyError` for an unknown tool, `TypeError` for another kind of action, `NotImplementedError` without an
        executor, and `ToolError` or `ValueError` when the call fails.
        """
        self._make_tools()
        definition = tool_named(self.agent.tools_map, name, action)
        return self._do(call_tool(self._work, definition, action))

    def execute_command(self, command: str, *, limit_seconds: float = 600.0) -> TerminalObservation:
        """Run a command in the shell of the agent's terminal, unlogged, also for an agent without one; see `exit_code`.

        Raises `SandboxError` or `ToolError` when it cannot be run.
        """
        return self._do(run_command(self._work, command, limit_seconds))

    def rerun_actions(self) -> list[Observation]:
        """Repeat what the agent's tools did, in the present sandbox; no model is asked, and nothing is logged.

        Stops behind the first call that fails, whose observation is the last one then. Raises `KeyError` when a tool is
        not there any more.
        """
        self._make_tools()
        return self._do(rerun(self._work, self.agent.tools_map))

    def condense(self) -> None:
        """Shorten the history now: at once between runs, before the next answer of the model in a run.

        Raises `ValueError` for an agent whose condenser cannot be asked, and `NoCondensationError` when there is too
        little to shorten or its summary cannot be had.
        """
        condenser = self.agent.condenser
        if condenser is None or not condenser.handles_condensation_requests():
            raise ValueError("condenser: the agent has none that shortens the history when it is asked to; give it one")
        self._do(side_questions.condense(self._work))

    def upload(self, source: str | Path, to: str = "") -> list[str]:
        """Put a file of this host, or a folder with all files in it, into the workspace; returns their paths there.

        `to` is the folder below the workspace, which is made where it is missing. A file that is there is replaced;
        each is there whole or not at all. Links to folders, and those that lead out of the folder, are passed over.
        Raises `OSError` for the source, `ToolError` or `SandboxError` for a file that cannot be stored in the
        workspace.
        """
        return self._do(self._access.upload(Path(source), to))

    def download(self, path: str, target: str | Path, *, max_bytes: int = MAX_DOWNLOAD) -> Path:
        """Save a file of the workspace, or a folder as a ZIP file; returns where it is.

        `target` is the name that it gets, or a folder for it, under the last name of `path`; the sandbox has no say in
        it. It is there whole or not at all, in place of what was there; a link there is replaced, not followed. Only
        its owner may read it. Raises `OSError` where it cannot be written, and `ToolError` or `SandboxError` for a file
        that is not there, changes while it is read, or has more than `max_bytes` (``too_large``).
        """
        return self._do(self._access.download(path, Path(target), max_bytes))

    def read_file(self, path: str, *, max_bytes: int = MAX_READ) -> bytes:
        """What stands in a file of the workspace; raises as `download`."""
        return self._do(self._access.read(path, max_bytes))

    def list_ports(self) -> list[OpenPort]:
        return self._do(self._access.listening())

    def connect_port(self, port: int) -> socket.socket:
        """Connect to a port of the sandbox, whatever its network is; what is returned is the caller's to close.

        A connection that is made between runs ends when the next run begins, one that is made during a run ends with
        it. Raises `ValueError` for an impossible port, `PortError` where nothing takes connections.
        """
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise ValueError(f"port is {port!r}: give a whole number from 1 to 65535")
        return self._do(self._access.connect(port))

    # --- models and plugins ---

    @property
    def stats(self) -> ConversationStats:
        """What the conversation's models have cost, by usage id."""
        return self.state.stats

    conversation_stats = stats

    def ask_agent(self, question: str) -> str:
        """Answer a question about the conversation, unlogged, also while it runs; raises `ValueError` or `LLMError`."""
        own = self.agent.ask_agent(question)
        return own if own is not None else self._do(side_questions.answer(self._work, question))

    def generate_title(self, llm: LLM | None = None, max_length: int = 50) -> str:
        """A title after the user's first message, by this model or the agent's; never fails for the model's sake.

        Raises `ValueError` if the user has said nothing yet, or `max_length` is less than 4.
        """
        return self._do(side_questions.title(self._work, llm or self.agent.llm, max_length))

    def pursue(self, objective: str, *, max_runs: int = 5, judge: LLM | None = None) -> GoalVerdict:
        """Send the objective, and run until a judge (the agent's model, or the given one) finds that it is reached.

        After each run that ended well but is not enough the agent is told what is missing. Returns the last verdict,
        also when `max_runs` were not enough, or the agent came to rest otherwise (it waits, is stuck, at a limit).
        Raises `ValueError` for an empty objective or `max_runs` below 1, `ConversationRunError`, and the judge's
        `LLMError`.
        """
        if not objective.strip() or max_runs < 1:
            raise ValueError("objective must be a text, and max_runs at least 1")
        message = objective
        for left in range(max_runs - 1, -1, -1):
            self.send_message(message)
            self.run()
            verdict = self._do(side_questions.judge_goal(self._work, objective, judge or self.agent.llm))
            if verdict.complete or not left or self.state.execution_status is not ExecutionStatus.FINISHED:
                break
            message = FOLLOW_UP.format(missing=verdict.missing)
        return verdict

    def switch_llm(self, llm: LLM) -> None:
        """Use this model from the next run on, with all else as it is; `RuntimeError` while the agent is at work."""
        model = _checked(llm, LLM, "llm")
        self._make_tools()
        self._do(self._work.use_agent(self.agent.with_model(model)))

    def switch_profile(self, name: str, directory: str | os.PathLike[str] | None = None) -> None:
        """`switch_llm` to a profile in `directory` (None: the user's), else `FileNotFoundError` or `ValueError`."""
        self.switch_llm(ProfileStore(directory).load(name))

    def load_plugin(self, folder: str | os.PathLike[str]) -> Plugin:
        """Take in the plugin in a folder of this host; from the next run on the agent has what it brings.

        Its skills, commands, servers and kinds of sub-agents give way to others of the same name; its hooks come after
        those that are there. An agent that has begun already is told of its new skills. Raises `SkillValidationError`,
        which names the file that cannot be used, and `RuntimeError` while the agent is at work.
        """
        extension = read_plugin(folder)
        self._make_tools()
        self._do(add_plugin(self._work, extension))
        register_agents(extension.plugin)
        return extension.plugin

    # --- going back and branching off ---

    def navigate_to(self, event_id: int | None) -> None:
        """Go back to right behind this event (None: before the first one), with the files of the workspace.

        What came after it counts no more; it stays in the log, and one can go there again. A run that is under way is
        ended. The next `run` goes on from there, if the agent has something to answer. Raises `NoSuchEventError`.
        """
        self._do(self._work.between_runs(Rewind(to=-1 if event_id is None else event_id)))

    def rewind(self, event_id: int | None) -> None:
        self.navigate_to(event_id)

    def recover_from_loop(self, option: Literal[1, 2, 3]) -> None:
        """Decide about an agent that is stuck in a loop, else `NotStuckError` is raised.

        1: go back to before the loop; 2: say the last message again, too, which the next `run` answers; 3: stop.
        """
        self._do(self._work.between_runs(LoopRecovery(option=option)))

    def replay(self, trajectory: list[Any]) -> None:
        """Repeat the events (or their data) of another log in the next `run`, before a model is asked.

        The recorded answers stand for those of the model; what comes of their calls is new. What rewinds have undone
        is left out. Raises `ValueError` where it is no list of events, or does not begin with the user.
        """
        events = beginning_of(turns_of(ReplayManager.get_replay_events(trajectory)))
        self._do(self._work.say(*events))

    def fork(
        self,
        from_event_id: int | None = None,
        *,
        reset_metrics: bool = True,
        agent: AgentBase | None = None,
        workspace: str | Path | Workspace | Sandbox | None = None,
        conversation_id: object = None,
        copy_files: bool = True,
        title: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Self:
        """A new, idle conversation that begins as this one did up to this event (None: to its end).

        Its log has the same events under the same ids, and its workspace is a copy of the files as they were then.
        Raises `NoSuchEventError`; `ValueError` if its log is not empty, or nobody says where it works; `SandboxError`
        when the files cannot be copied.

        Args:
            from_event_id: id of the last event that the fork has in common with this conversation.
            reset_metrics: whether the fork begins without costs; else it goes on from what was spent up to there.
            agent: who works in the fork, with other tools perhaps; None: the same.
            workspace: where the fork works; None: beside this one's folder, or in a container of its own.
            conversation_id: the fork's id; a new one if None.
            copy_files: whether the fork's workspace gets the files.
            title: what the fork is called: its tag ``title``.
            tags: words about the fork, beside those of this conversation or in place of them.
        """
        named = {} if title is None else {"title": title}
        settings, fork_id = self._work.settings, str(conversation_id or uuid4())
        make: Any = type(self)
        fork: Self = make(
            agent or self.agent,
            self.workspace.for_fork(fork_id) if workspace is None else workspace,
            max_iteration_per_run=settings.max_iterations,
            conversation_id=fork_id,
            persistence_dir=self.state.persistence_dir,
            secrets=settings.named_secrets,
            max_budget_per_run=settings.max_budget,
            stuck_detection=settings.stuck_detection,
            stuck_detection_thresholds=settings.stuck_thresholds,
            hook_config=settings.hooks,
            tags={**self.state.tags, **(tags or {}), **named},
            visualizer=self._work.callbacks.kind_of_view,
            confirm_subagents=settings.confirm_subagents,
            git=settings.git,
        )
        fork._work.sessions.settings = replace(fork._work.settings, analyzer=settings.analyzer)
        is_copied = copy_files and not share_files(self.workspace, fork.workspace)
        try:
            fork._make_tools()
            prompt = None if agent is None else fork._do(fork._work.opening_prompt())
            self._do(self._work.copy_to(fork._work, from_event_id, reset_metrics, prompt, with_files=is_copied))
        except BaseException:
            fork.close()
            raise
        return fork

    # --- ending ---

    def close(self) -> None:
        """End the sandbox and the executors of the tools, once; in a callback it raises `RuntimeError`."""
        self._work.callbacks.check_outside("close")
        library_loop().run(self._end())

    async def aclose(self) -> None:
        self._work.callbacks.check_outside("aclose")
        await asyncio.wrap_future(library_loop().submit(self._end()))

    async def _end(self) -> None:
        await self._work.close()
        if self._is_deleted_on_close:
            await self._work.delete()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._make_tools()
        except BaseException:
            work.close()
            raise
        return library_loop().run(work)

    async def _ado(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            if self.agent.is_initialized or self._work.is_closed:
                self._make_tools()
            else:
                await asyncio.get_running_loop().run_in_executor(self._work.callbacks.thread, self._make_tools)
        except BaseException:
            work.close()
            raise
        return await asyncio.wrap_future(library_loop().submit(work))

    def _make_tools(self) -> None:
        """In the caller's thread: a factory may use a tool itself, and wait for it."""
        if self._work.is_closed:
            raise RuntimeError(f"conversation {self.id} is closed")
        if not self.agent.is_initialized:
            self._work.sessions.use_agent(with_full_context(self.agent))
            self.agent.initialize(self.state)


def _users_message(message: object, sender: str | None) -> MessageEvent:
    parsed = Message.user(message) if isinstance(message, str) else message
    if not isinstance(parsed, Message):
        raise TypeError(f"message is a {type(parsed).__name__}: give a text or a Message")
    if parsed.role != "user":
        raise ValueError(f"role is {parsed.role!r}: only messages of the user can be sent")
    return MessageEvent(source="user", llm_message=parsed, sender=sender)


def _checked(value: object, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}: give a {kind.__name__}")
    return value


def _thresholds(given: StuckDetectionThresholds | Mapping[str, int]) -> StuckDetectionThresholds:
    return given if isinstance(given, StuckDetectionThresholds) else StuckDetectionThresholds(**given)


def _check_limits(agent: object, max_iterations: object, max_budget: object) -> None:
    if not isinstance(agent, AgentBase):
        raise TypeError(f"agent is a {type(agent).__name__}: give an Agent")
    if isinstance(max_iterations, bool) or not isinstance(max_iterations, int) or max_iterations < 1:
        raise ValueError(f"max_iteration_per_run is {max_iterations!r}: give a whole number, at least 1")
    if max_budget is not None and (not isinstance(max_budget, int | float) or not max_budget >= 0):
        raise ValueError(f"max_budget_per_run is {max_budget!r}: give US dollars, at least 0, or None for no limit")
