"""`Conversation`: the library's way to work with an agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

from agent_core.agent.base import AgentBase
from agent_core.controller.stuck import StuckDetectionThresholds
from agent_core.events.control import ConfirmationPolicyChanged
from agent_core.events.folder_store import FolderEventStore
from agent_core.events.messages import Message
from agent_core.events.store import InMemoryEventStore
from agent_core.runtime.loop_thread import library_loop
from agent_core.runtime.sandbox import Sandbox
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationPolicy, NeverConfirm, is_confirmation_mode_active
from agent_core.security.hooks import HookConfig
from agent_core.security.secrets import GivenSecret
from agent_core.session.acting import Acting
from agent_core.session.asking import Asking
from agent_core.session.branching import Branching
from agent_core.session.callbacks import Callback, Callbacks
from agent_core.session.carrying import Carrying
from agent_core.session.client_answers import answer_call
from agent_core.session.conversation_loop import ConversationLoop
from agent_core.session.conversation_state import ConversationView
from agent_core.session.decisions import reject_pending
from agent_core.session.extending import Extending, with_plugins
from agent_core.session.given import check_given, checked, functions_in, listener, users_message
from agent_core.session.making import with_full_context
from agent_core.session.reaching import Reaching
from agent_core.session.repository import GitSetup
from agent_core.session.settings import ConfirmSubagents, SessionSettings
from agent_core.session.stepping import Stepping
from agent_core.session.tags import checked_tags
from agent_core.session.workspace import Workspace, workspace_of
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool

T = TypeVar("T")


class Conversation(Acting, Carrying, Reaching, Extending, Stepping, Branching, Asking):
    """One conversation with an agent, from an ordinary or an asynchronous program.

    Nothing happens before the first call. The work is done in an event loop in a thread of its own, so it makes no
    difference whether the caller has one. Close it (or use ``with`` or ``async with``) to end its sandbox; otherwise
    the program's end does. All methods but `run` may be called while it runs, from any thread. So may a callback, but
    for `close`; one that hears of an event between the runs may look, and send messages.

    Args:
        agent: who works.
        workspace: a folder of this host, which commands see under its own path and nothing beside it (needs
            bubblewrap); or a `LocalWorkspace`, a `DockerWorkspace`, or a sandbox of the caller's.
        callbacks: get every event once it is stored, in order; `run` waits for them.
        token_callbacks: get pieces of the model's text as it comes (`TextDelta`), before the event that has all of it.
        max_iteration_per_run: answers of the model until a run ends with the status error; the next one counts anew.
        conversation_id: a new one if None; one that `persistence_dir` has goes on.
        persistence_dir: folder for the log; None keeps it in memory.
        secrets: values by name, for the commands that name them; hidden wherever they appear in the log.
        max_budget_per_run: US dollars until a run ends with the status error, over all runs; the next run has as much
            again.
        stuck_detection: whether an agent that only repeats itself is stopped.
        stuck_detection_thresholds: after how many repetitions that is, where it is not after the usual number.
        hook_config: hooks that are run before those of the project and of the user's home.
        plugins: folders with what the agent and the hooks have besides from the beginning; see `load_plugin`.
        tags: words about the conversation for its program; names of lower-case letters and digits.
        visualizer: shows the events, before the callbacks hear of them: a function, or what has ``on_event``.
        delete_on_close: whether the log, and what is kept beside it in `persistence_dir`, is removed at the end.
        confirm_subagents: says whether sub-agents may carry out actions that a user would be asked about; None agrees
            where nobody asks the user here either, and refuses otherwise.
        git: a repository that is cloned into the workspace for the first run, and whose name stands on commits.

    Raises:
        TypeError: `agent` is no agent, or another argument none of what it may be; the message names it.
        ValueError: a limit or a tag is not what it may be.
        SkillValidationError: a plugin is none, or cannot be used; the message names the file.
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
        secrets: Mapping[str, GivenSecret] | None = None,
        max_budget_per_run: float | None = None,
        stuck_detection: bool = True,
        stuck_detection_thresholds: StuckDetectionThresholds | Mapping[str, int] | None = None,
        hook_config: HookConfig | None = None,
        plugins: Sequence[str | os.PathLike[str]] = (),
        tags: Mapping[str, str] | None = None,
        visualizer: object = None,
        delete_on_close: bool = False,
        confirm_subagents: ConfirmSubagents | None = None,
        git: GitSetup | None = None,
    ) -> None:
        check_given(agent, max_iteration_per_run, max_budget_per_run)
        functions = [*listener(visualizer), *functions_in(callbacks, "callbacks")]
        self.id = str(conversation_id or uuid4())
        hooks = HookConfig() if hook_config is None else checked(hook_config, HookConfig, "hook_config")
        # The tools that the copy makes are this conversation's own.
        self.agent, hooks = with_plugins(agent.model_copy(), hooks, plugins)
        self.workspace = workspace_of(workspace)
        folder = None if persistence_dir is None else FolderEventStore(persistence_dir)
        kept = None if persistence_dir is None else str(persistence_dir)
        self._deleted = folder if delete_on_close else None
        self._work = ConversationLoop(
            self.id,
            store=folder or InMemoryEventStore(),
            data_dir="" if folder is None else str(folder.folder_of(self.id)),
            persistence_dir=kept,
            agent=self.agent,
            settings=SessionSettings(
                llm=agent.llm,
                max_iterations=max_iteration_per_run,
                max_budget=max_budget_per_run,
                limits_per_run=True,
                stuck_detection=stuck_detection,
                stuck_thresholds=StuckDetectionThresholds.model_validate(stuck_detection_thresholds or {}),
                named_secrets=dict(secrets or {}),
                hooks=hooks,
                confirm_subagents=confirm_subagents,
                git=GitSetup() if git is None else checked(git, GitSetup, "git"),
            ),
            workspace=self.workspace,
            callbacks=Callbacks(functions, functions_in(token_callbacks, "token_callbacks")),
        )
        self.state = ConversationView(self._work, self.agent, self.workspace, kept, tags=checked_tags(tags or {}))

    # --- talking and running ---

    def send_message(self, message: str | Message, sender: str | None = None) -> None:
        """Store a message of the user; `run` lets the agent answer. A run that is under way takes it up at once.

        Raises:
            TypeError: `message` is neither a text nor a `Message`.
            ValueError: the message's role is not user.
            RuntimeError: the conversation is closed.
        """
        self._do(self._work.say(users_message(message, sender)))

    async def asend_message(self, message: str | Message, sender: str | None = None) -> None:
        """`send_message` for asynchronous programs."""
        await self._ado(self._work.say(users_message(message, sender)))

    def run(self) -> None:
        """Let the agent work until it has finished, waits for its user, or is paused.

        A conversation that was paused or failed goes on; what awaited confirmation is confirmed.

        Raises:
            ConversationRunError: the run failed; its message says why.
            RuntimeError: it is running already, is closed, or this is called in its own loop.
        """
        self._do(self._work.run())

    async def arun(self) -> None:
        """`run` for asynchronous programs.

        To cancel it is to interrupt the agent: what it had called is answered, it is paused, and this returns. So does
        a time limit around it: `state.execution_status` tells whether it has finished.
        """
        try:
            await self._ado(self._work.run())
        except asyncio.CancelledError:
            await asyncio.wrap_future(library_loop().submit(self._work.until_run_ended()))

    def pause(self) -> None:
        """Stop the agent where it is: the model's answer and running commands are ended; `run` goes on from there.

        An agent that waits for confirmation, or has finished, stays as it is.
        """
        self._do(self._work.pause())

    def interrupt(self) -> None:
        """`pause` with a marker of its own in the log; pausing waits for nothing either."""
        self._do(self._work.interrupt())

    def add_callback(self, callback: Callback) -> None:
        """Call this one too, from the next event on."""
        self._work.callbacks.add(callback)

    # --- deciding ---

    @property
    def is_confirmation_mode_active(self) -> bool:
        """Whether actions are analyzed and may wait for the user: an analyzer is set, and the policy does ask."""
        return is_confirmation_mode_active(self.state.security_analyzer, self.state.confirmation_policy)

    @property
    def confirmation_policy_active(self) -> bool:
        """Whether the policy asks at all."""
        return not isinstance(self.state.confirmation_policy, NeverConfirm)

    def set_confirmation_policy(self, policy: ConfirmationPolicy) -> None:
        """From the next answer of the model on, let this policy decide what waits; the log remembers it."""
        asks = checked(policy, ConfirmationPolicy, "policy")
        self._do(self._work.say(ConfirmationPolicyChanged(policy=asks.model_dump(mode="json"))))

    def set_security_analyzer(self, analyzer: SecurityAnalyzer | None) -> None:
        """From the next answer of the model on, have this analyzer judge its calls; None: all risks are unknown."""
        judges = None if analyzer is None else checked(analyzer, SecurityAnalyzer, "analyzer")
        self._do(self._work.sessions.set_analyzer(judges))

    def reject_pending_actions(
        self, reason: str = "User rejected the action", action_ids: Collection[int] | None = None
    ) -> None:
        """Refuse what awaits confirmation, for a reason that the agent is told at the next run.

        Each action gets its refusal at once, and the conversation is idle. With `action_ids` only these are refused;
        the conversation goes on waiting for a word on the others, which `run` approves. Nothing pending is only warned
        of.
        """
        self._do(reject_pending(self._work, reason, action_ids))

    def update_secrets(self, secrets: Mapping[str, GivenSecret]) -> None:
        """Add secrets, or replace those of the same names; a value that was replaced stays hidden."""
        self._do(self._work.sessions.update_secrets(dict(secrets)))

    def set_client_tools(self, tools: Sequence[Tool]) -> None:
        """From its next step on the agent has these tools (`client_tool`) beside its own, in place of those set before.

        Raises:
            ValueError, TypeError: a tool cannot be made, or a running agent has another of its name; nothing has
                changed. Of an agent at rest the next run says so.
        """
        specs = tuple(checked(tool, Tool, "tools") for tool in tools)
        for spec in specs:
            resolve_tool(spec)
        self._do(self._work.sessions.set_client_tools(specs))

    def answer_client_call(self, call_id: int, content: str, *, is_error: bool = False) -> None:
        """Say what came of a call of a tool that this program carries out (`client_tool`), by the id of its action.

        Raises:
            ClientToolError: it does not wait for an answer, or got another one before.
        """
        self._do(answer_call(self._work, call_id, content, is_error=is_error))

    # --- ending ---

    def close(self) -> None:
        """End the sandbox and the executors of the tools; calling it again is fine.

        The log stays, unless the conversation is deleted with its end.

        Raises:
            RuntimeError: this is a callback of the conversation, which would wait for itself.
        """
        self._work.callbacks.check_outside("close")
        library_loop().run(self._end())

    async def aclose(self) -> None:
        """`close` for asynchronous programs."""
        self._work.callbacks.check_outside("aclose")
        await asyncio.wrap_future(library_loop().submit(self._end()))

    async def _end(self) -> None:
        await self._work.close()
        if self._deleted is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._deleted.remove, self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """In the caller's thread: a factory may use a tool itself, and wait for it.

        Raises:
            RuntimeError: the conversation is closed.
        """
        if self._work.is_closed:
            raise RuntimeError(f"conversation {self.id} is closed")
        if not self.agent.is_initialized:
            self._work.sessions.use_agent(with_full_context(self.agent))
            self.agent = self.state.agent = self._work.agent
            self.agent.initialize(self.state)
