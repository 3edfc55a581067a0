"""Hook runner: runs hooks in their order, reads what they say, and decides what it comes to."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, Self

from agent_core.errors import DrydockError
from agent_core.security.hooks import AgentHook, CommandHook, HookConfig, HookEvent, HookInput, PromptHook
from agent_core.troubles import Trouble, coded

BLOCKED_EXIT_CODE: Final = 2
MAX_REASON_CHARS: Final = 10_000
UNEXPLAINED: Final = "blocked by a hook"


@dataclass(frozen=True, slots=True)
class HookResult:
    """What one hook came to: whether it blocks, why, and text for the model. A hook with an `error` blocks nothing."""

    blocked: bool = False
    reason: str = ""
    additional_context: str = ""
    error: str = ""


def read_result(exit_code: int, stdout: str, stderr: str) -> HookResult:
    """What a command hook's exit says: 0 is fine, 2 blocks, any other is an error that blocks nothing.

    A JSON object on the standard output of a hook that did not fail may carry ``decision`` (``allow`` or ``deny``),
    ``reason``, ``additionalContext`` and ``continue`` (false blocks as well).
    """
    if exit_code not in {0, BLOCKED_EXIT_CODE}:
        text = _short(stderr.strip() or stdout.strip())
        return HookResult(error=f"the hook ended with exit code {exit_code}: {text}")
    output = _object_in(stdout)
    result = _result_of(output)
    blocked = exit_code == BLOCKED_EXIT_CODE or result.blocked
    reason = result.reason
    if blocked and not reason:
        reason = _short(stderr.strip() or ("" if output else stdout.strip()) or UNEXPLAINED)
    return replace(result, blocked=blocked, reason=reason)


def judgement_in(text: str) -> HookResult:
    """The JSON object in a model's judgement (see `read_result`); ValueError: none is there, or it decides nothing."""
    verdict = _object_in(text[text.find("{") : text.rfind("}") + 1])
    decision = str(verdict.get("decision", "")).lower()
    if decision not in {"allow", "deny"} and not isinstance(verdict.get("continue"), bool):
        raise ValueError("the model's answer is no judgement")
    result = _result_of(verdict)
    return replace(result, reason=result.reason or UNEXPLAINED) if result.blocked else result


def _result_of(fields: Mapping[str, Any]) -> HookResult:
    blocked = str(fields.get("decision", "")).lower() == "deny" or fields.get("continue") is False
    reason, context = str(fields.get("reason") or ""), str(fields.get("additionalContext") or "")
    return HookResult(blocked, _short(reason), _short(context))


def _object_in(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _short(text: str) -> str:
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"


@dataclass(frozen=True, slots=True)
class HookExecution:
    """One hook that was run: its command or question, what came of it, and how a command ended."""

    hook: str
    result: HookResult
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class HookDecision:
    """What all hooks of an event came to: the first block, all context, all errors; and each of those that ran."""

    blocked: bool = False
    reason: str = ""
    additional_context: tuple[str, ...] = ()
    errors: tuple[str, ...] = field(default=())
    executions: tuple[HookExecution, ...] = field(default=(), compare=False)


def decide(event: HookEvent, results: Sequence[HookResult]) -> HookDecision:
    """Put results together in order; the first that blocks wins, if the event can be blocked."""
    context: list[str] = []
    errors: list[str] = []
    for result in results:
        context.extend([result.additional_context] if result.additional_context else [])
        errors.extend([result.error] if result.error else [])
        if result.blocked and event.can_block:
            return HookDecision(True, result.reason, tuple(context), tuple(errors))
    return HookDecision(False, "", tuple(context), tuple(errors))


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
        """Run a shell command to its end, within the caller's limit; DrydockError or OSError: it could not be run."""


class HookJudge(Protocol):
    """Puts the questions of hooks to a model."""

    async def judge(self, hook: PromptHook | AgentHook, payload: HookInput) -> HookResult:
        """What the model says, within the caller's limit. DrydockError: it cannot be asked; ValueError: unreadable."""


class Hooks:
    """The hooks of one conversation; leaving the context ends those in the background. No `judge`: no model hooks."""

    def __init__(self, config: HookConfig, runner: CommandRunner, judge: HookJudge | None = None) -> None:
        self._config = config
        self._judge = judge
        self._runner = runner
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def run(self, payload: HookInput) -> HookDecision:
        """Run the hooks of an event one after another, until one blocks.

        A hook that fails or is late blocks nothing (those that ask a model fail open), and is among the decision's
        errors.
        """
        done: list[HookExecution] = []
        for hook in self._config.for_event(payload.event_type, payload.tool_name or ""):
            if not isinstance(hook, CommandHook):
                done.append(HookExecution(hook.prompt, await self._judged(hook, payload)))
            elif hook.is_async:
                done.extend(self._start(hook, payload))
            else:
                done.append(await self._run(hook, payload))
            if done and done[-1].result.blocked and payload.event_type.can_block:
                break
        decision = decide(payload.event_type, [one.result for one in done])
        return replace(decision, executions=tuple(done))

    async def _judged(self, hook: PromptHook | AgentHook, payload: HookInput) -> HookResult:
        if self._judge is None:
            return HookResult(error=f"hooks of type {hook.type} cannot be run here; it was passed over")
        try:
            async with asyncio.timeout(hook.timeout):
                return await self._judge.judge(hook, payload)
        except TimeoutError:
            return HookResult(error=f"the model did not judge within {hook.timeout:g} s; it was passed over")
        except (DrydockError, ValueError) as error:
            return HookResult(error=f"the model could not judge, so it was passed over: {error}")

    async def _run(self, hook: CommandHook, payload: HookInput) -> HookExecution:
        try:
            async with asyncio.timeout(hook.timeout):
                outcome = await self._runner.run(
                    hook.command, stdin=payload.to_json(), environment=payload.environment(), limit_seconds=hook.timeout
                )
        except TimeoutError:
            late = HookResult(error=f"the hook was not done after {hook.timeout:g} s and was ended")
            return HookExecution(hook.command, late)
        except (DrydockError, OSError) as error:
            return HookExecution(hook.command, HookResult(error=f"the hook could not be run: {error}"))
        result = read_result(outcome.exit_code, outcome.stdout, outcome.stderr)
        return HookExecution(hook.command, result, outcome.exit_code, outcome.stdout, outcome.stderr)

    def _start(self, hook: CommandHook, payload: HookInput) -> list[HookExecution]:
        if len(self._background) >= MAX_BACKGROUND_HOOKS:
            text = f"{MAX_BACKGROUND_HOOKS} hooks are running in the background; it was passed over"
            return [HookExecution(hook.command, HookResult(error=text))]
        task = asyncio.create_task(self._run_unwatched(hook, payload), name=f"hook:{payload.event_type}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return []

    async def _run_unwatched(self, hook: CommandHook, payload: HookInput) -> None:
        result = (await self._run(hook, payload)).result
        if result.error:
            extra = coded(Trouble.HOOK_FAILED, payload.session_id or "")
            logger.warning("background hook for %s: %s", payload.event_type, result.error, extra=extra)
