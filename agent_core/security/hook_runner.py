"""Runs hooks in their order, through whatever can run a command."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self

from agent_core.errors import DrydockError
from agent_core.security.hook_results import HookDecision, HookExecution, HookResult, decide, read_result
from agent_core.security.hooks import AgentHook, CommandHook, HookConfig, HookInput, PromptHook

MAX_BACKGROUND_HOOKS = 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


class CommandRunner(Protocol):
    """Runs one command: in the sandbox, or on this host."""

    async def run(
        self, command: str, *, stdin: str, environment: Mapping[str, str], limit_seconds: float
    ) -> CommandOutcome:
        """Run a shell command to its end.

        When it is cancelled the command is ended. It need not watch the limit itself; the caller does.

        Raises:
            DrydockError: the command could not be run.
            OSError: likewise.
        """
        ...


class HookJudge(Protocol):
    """Puts the questions of hooks to a model."""

    async def judge(self, hook: PromptHook | AgentHook, told: HookInput) -> HookResult:
        """What the model says. It need not watch the hook's time limit; the caller does.

        Raises:
            DrydockError: the model could not be asked.
            ValueError: its answer cannot be read.
        """
        ...


class Hooks:
    """The hooks of one conversation; leaving the context ends those that are still running in the background."""

    def __init__(self, config: HookConfig, runner: CommandRunner, judge: HookJudge | None = None) -> None:
        """Without a `judge` hooks that need a model are passed over."""
        self._config = config
        self._judge = judge
        self._runner = runner
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def run(self, told: HookInput) -> HookDecision:
        """Run the hooks of an event one after another, until one blocks.

        A hook that fails or is late blocks nothing, and is named in the decision's errors; so those that ask a model
        fail open.
        """
        done: list[HookExecution] = []
        for hook in self._config.for_event(told.event_type, told.tool_name or ""):
            if not isinstance(hook, CommandHook):
                done.append(HookExecution(hook.prompt, await self._judged(hook, told)))
            elif hook.is_async:
                done.extend(self._start(hook, told))
            else:
                done.append(await self._run(hook, told))
            if done and done[-1].result.blocked and told.event_type.can_block:
                break
        decision = decide(told.event_type, [one.result for one in done])
        return replace(decision, executions=tuple(done))

    async def _judged(self, hook: PromptHook | AgentHook, told: HookInput) -> HookResult:
        if self._judge is None:
            return HookResult(error=f"hooks of type {hook.type} cannot be run here; it was passed over")
        try:
            async with asyncio.timeout(hook.timeout):
                return await self._judge.judge(hook, told)
        except TimeoutError:
            return HookResult(error=f"the model did not judge within {hook.timeout:g} s; it was passed over")
        except (DrydockError, ValueError) as error:
            return HookResult(error=f"the model could not judge, so it was passed over: {error}")

    async def _run(self, hook: CommandHook, told: HookInput) -> HookExecution:
        try:
            async with asyncio.timeout(hook.timeout):
                outcome = await self._runner.run(
                    hook.command,
                    stdin=told.to_json(),
                    environment=told.environment(),
                    limit_seconds=hook.timeout,
                )
        except TimeoutError:
            late = HookResult(error=f"the hook was not done after {hook.timeout:g} s and was ended")
            return HookExecution(hook.command, late)
        except (DrydockError, OSError) as error:
            return HookExecution(hook.command, HookResult(error=f"the hook could not be run: {error}"))
        result = read_result(outcome.exit_code, outcome.stdout, outcome.stderr)
        return HookExecution(hook.command, result, outcome.exit_code, outcome.stdout, outcome.stderr)

    def _start(self, hook: CommandHook, told: HookInput) -> list[HookExecution]:
        if len(self._background) >= MAX_BACKGROUND_HOOKS:
            text = f"{MAX_BACKGROUND_HOOKS} hooks are running in the background; it was passed over"
            return [HookExecution(hook.command, HookResult(error=text))]
        task = asyncio.create_task(self._run_unwatched(hook, told), name=f"hook:{told.event_type}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return []

    async def _run_unwatched(self, hook: CommandHook, told: HookInput) -> None:
        result = (await self._run(hook, told)).result
        if result.error:
            logger.warning("background hook for %s: %s", told.event_type, result.error)
