"""Runs hooks in their order, through whatever can run a command (agent-core 8.10)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from agent_core.errors import DrydockError
from agent_core.security.hooks import (
    CommandHook,
    HookConfig,
    HookDecision,
    HookInput,
    HookResult,
    decide,
    read_result,
)

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


class Hooks:
    """The hooks of one conversation; leaving the context ends those that are still running in the background."""

    def __init__(self, config: HookConfig, runner: CommandRunner) -> None:
        self._config = config
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

        A hook that fails or is late blocks nothing, and is named in the decision's errors. Hooks that need a model are
        passed over in the same way: such hooks fail open.
        """
        results: list[HookResult] = []
        for hook in self._config.for_event(told.event_type, told.tool_name or ""):
            if not isinstance(hook, CommandHook):
                results.append(HookResult(error=f"hooks of type {hook.type} cannot be run here; it was passed over"))
            elif hook.is_async:
                results.extend(self._start(hook, told))
            else:
                results.append(await self._run(hook, told))
            if results and results[-1].blocked and told.event_type.can_block:
                break
        return decide(told.event_type, results)

    async def _run(self, hook: CommandHook, told: HookInput) -> HookResult:
        try:
            async with asyncio.timeout(hook.timeout):
                outcome = await self._runner.run(
                    hook.command,
                    stdin=told.model_dump_json(),
                    environment=told.environment(),
                    limit_seconds=hook.timeout,
                )
        except TimeoutError:
            return HookResult(error=f"the hook was not done after {hook.timeout:g} s and was ended")
        except (DrydockError, OSError) as error:
            return HookResult(error=f"the hook could not be run: {error}")
        return read_result(outcome.exit_code, outcome.stdout, outcome.stderr)

    def _start(self, hook: CommandHook, told: HookInput) -> list[HookResult]:
        if len(self._background) >= MAX_BACKGROUND_HOOKS:
            return [HookResult(error=f"{MAX_BACKGROUND_HOOKS} hooks are running in the background; it was passed over")]
        task = asyncio.create_task(self._run_unwatched(hook, told), name=f"hook:{told.event_type}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return []

    async def _run_unwatched(self, hook: CommandHook, told: HookInput) -> None:
        result = await self._run(hook, told)
        if result.error:
            logger.warning("background hook for %s: %s", told.event_type, result.error)
