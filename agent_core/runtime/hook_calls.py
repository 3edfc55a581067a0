"""The hooks of a conversation: told of events, asked for permission, and logged."""

from __future__ import annotations

import logging
import secrets
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from agent_core.errors import EventStoreError, SandboxError, StreamClosedError, ToolError
from agent_core.events.control import ForeignEvent, HookExecutionEvent
from agent_core.events.llm_events import ActionEvent, MessageEvent, UserRejectObservation
from agent_core.events.messages import Message
from agent_core.events.schema import Observation
from agent_core.events.stream import EventStream
from agent_core.security.hook_runner import CommandOutcome, HookDecision, HookExecution, HookJudge, Hooks
from agent_core.security.hooks import HOOK_FILE, HookConfig, HookEvent, HookInput
from agent_core.tools.context import SandboxAccess
from agent_core.troubles import Trouble, coded

MAX_OUTPUT: Final = 200_000
END_SECONDS: Final = 5.0


class SandboxCommandRunner:
    """Runs hook commands in the workspace, each in a shell of its own that ends with it."""

    def __init__(self, sandbox: SandboxAccess) -> None:
        self._sandbox = sandbox

    async def run(
        self, command: str, *, stdin: str, environment: Mapping[str, str], limit_seconds: float
    ) -> CommandOutcome:
        name = secrets.token_hex(8)
        file, log = f"/tmp/hook-{name}", f"/tmp/hook-{name}.err"  # noqa: S108 - in the sandbox, with a random name
        line = (
            f'"${{BASH:-sh}}" -c {shlex.quote(command)} < {file} 2> {log}; hook_status=$?; printf "\\n%s\\n" {name}; '
            f"cat {log}; rm -f {file} {log}; (exit $hook_status)"
        )
        args = {
            "fresh": True,  # a shell that ends with its command, also where nobody is there any more to end it
            "command": line,
            "timeout": limit_seconds,
            "env": dict(environment),
            "max_output": MAX_OUTPUT,
        }
        blob = stdin.encode("utf-8", "replace")
        await self._sandbox.request("file.write", {"path": file, "mode": 0o600}, blob=blob)
        reply = await self._sandbox.request("shell.run", args, limit_seconds=limit_seconds + END_SECONDS)
        result = reply.result
        if (status := result.get("status")) != "completed":
            raise TimeoutError(f"the hook ended as {status}")
        stdout, _, stderr = str(result.get("output", "")).partition(f"{name}\n")
        return CommandOutcome(int(result.get("exit_code", -1)), stdout.removesuffix("\n"), stderr)


CONFIG_SECONDS: Final = 10.0
MAX_CONFIG_BYTES: Final = 1024 * 1024
MAX_FIELD_CHARS: Final = 50_000
STOP_PREFIX: Final = "[Stop hook feedback] "
HOOK: Final = "hook"

logger = logging.getLogger(__name__)


class ConversationHooks:
    """The hooks of one session: of `config`, then of the project or else of the user's `home`; logged when executed.

    `load` them once the sandbox is there, `close` ends them.
    """

    def __init__(
        self,
        config: HookConfig,
        sandbox: SandboxAccess,
        stream: EventStream,
        *,
        home: HookConfig | None = None,
        judge: HookJudge | None = None,
    ) -> None:
        self._config = config
        self._home = home or HookConfig()
        self._sandbox = sandbox
        self._stream = stream
        self._judge = judge
        self._hooks: Hooks | None = None

    async def load(self) -> None:
        if self._hooks is None:
            project = await self._of_project()
            self._config = self._config.followed_by(project if project is not None else self._home)
            self._hooks = Hooks(self._config, SandboxCommandRunner(self._sandbox), self._judge)

    def has(self, event: HookEvent) -> bool:
        return self._hooks is not None and any(one.hooks for one in self._config.hooks.get(event, ()))

    async def before(self, action: ActionEvent) -> UserRejectObservation | None:
        """Ask the hooks before a call; returns the refusal of the first that blocks it."""
        if not self.has(HookEvent.PRE_TOOL_USE):
            return None
        decision = await self._run(self._input(HookEvent.PRE_TOOL_USE, action), action_id=action.id)
        if not decision.blocked:
            return None
        return UserRejectObservation(
            cause=action.id,
            tool_name=action.tool_name,
            tool_call_id=action.tool_call_id,
            rejection_reason=decision.reason,
            rejection_source="hook",
        )

    async def after(self, action: ActionEvent, observation: Observation) -> tuple[str, ...]:
        if not self.has(HookEvent.POST_TOOL_USE):
            return ()
        response = observation.model_dump(mode="json", exclude={"kind"})
        payload = self._input(HookEvent.POST_TOOL_USE, action, tool_response=response)
        return (await self._run(payload, action_id=action.id)).additional_context

    async def submitted(self, message_id: int, text: str) -> HookDecision:
        """Ask the hooks about a user's message, and store what they add for the agent.

        Where that cannot be stored it raises `EventStoreError` or `StreamClosedError`, and they have to be asked again.
        """
        payload = self._input(HookEvent.USER_PROMPT_SUBMIT, message=text)
        decision = await self._run(payload, message_id=message_id)
        if decision.additional_context and not decision.blocked:
            added = Message.user("\n\n".join(decision.additional_context))
            await self._stream.add_event(
                MessageEvent(source="environment", sender=HOOK, cause=message_id, llm_message=added)
            )
        return decision

    async def stopping(self, last_words: str) -> HookDecision:
        """Ask the hooks whether the agent may come to rest; a refusal is stored for the agent, which goes on."""
        decision = await self._run(self._input(HookEvent.STOP, message=last_words))
        if decision.blocked:
            word = Message.user(STOP_PREFIX + decision.reason)
            await self._stream.add_event(MessageEvent(source="environment", sender=HOOK, llm_message=word))
        return decision

    async def session_started(self) -> None:
        await self._run(self._input(HookEvent.SESSION_START))

    async def session_ended(self) -> None:
        await self._run(self._input(HookEvent.SESSION_END))

    async def close(self) -> None:
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            await hooks.__aexit__(None, None, None)

    def _input(self, event: HookEvent, action: ActionEvent | None = None, **more: Any) -> HookInput:
        if action is not None:
            called = action.action
            more["tool_name"] = action.tool_name
            more["tool_input"] = called.model_dump(mode="json", exclude={"kind"}) if called is not None else None
        where = {"session_id": self._stream.conversation_id, "working_dir": self._sandbox.working_dir}
        return HookInput(event_type=event, **where, **more)

    async def _run(
        self, payload: HookInput, *, action_id: int | None = None, message_id: int | None = None
    ) -> HookDecision:
        if self._hooks is None or not self.has(payload.event_type):
            return HookDecision()
        decision = await self._hooks.run(payload)
        for error in decision.errors:
            where = self._stream.conversation_id
            extra = coded(Trouble.HOOK_FAILED, where)
            logger.warning("conversation %s, hook for %s: %s", where, payload.event_type, error, extra=extra)
        done = [_recorded(one, payload, action_id=action_id, message_id=message_id) for one in decision.executions]
        try:
            await self._stream.add_events(done)
        except (StreamClosedError, EventStoreError) as error:
            if message_id is not None:  # by the log alone it is known that the agent is not to see the message
                raise
            if not isinstance(error, StreamClosedError):
                where = self._stream.conversation_id
                logger.error("conversation %s: what hooks did is not stored: %s", where, error)
        return decision

    async def _of_project(self) -> HookConfig | None:
        arguments = {"path": f"{self._sandbox.working_dir}/{HOOK_FILE}", "limit": MAX_CONFIG_BYTES}
        where = self._stream.conversation_id
        try:
            reply = await self._sandbox.request("file.read", arguments, limit_seconds=CONFIG_SECONDS)
            return HookConfig.from_json((reply.blob or b"").decode("utf-8", "replace"))
        except (TimeoutError, ToolError, SandboxError) as error:
            logger.debug("no hooks of the project of %s: %s", where, error)
            return None
        except ValueError as error:
            extra = coded(Trouble.HOOK_FAILED, where)
            logger.warning("the hooks in %s of %s are not used: %s", HOOK_FILE, where, error, extra=extra)
            payload = {"content": f"The hooks in {HOOK_FILE} are not used: {error}", "extras": {"error_id": ""}}
            told = ForeignEvent(source="environment", name="error", is_action=False, payload=payload)
            with suppress(StreamClosedError, EventStoreError):
                await self._stream.add_event(told)
            return HookConfig()


def _recorded(
    execution: HookExecution, payload: HookInput, *, action_id: int | None, message_id: int | None
) -> HookExecutionEvent:
    result = execution.result
    return HookExecutionEvent(
        hook_event_type=payload.event_type.value,
        hook_command=_cut(execution.hook),
        tool_name=payload.tool_name,
        success=not result.error,
        blocked=result.blocked and payload.event_type.can_block,
        exit_code=execution.exit_code,
        stdout=_cut(execution.stdout),
        stderr=_cut(execution.stderr),
        reason=result.reason,
        additional_context=result.additional_context,
        error=_cut(result.error),
        action_id=action_id,
        message_id=message_id,
        hook_input=_cut(payload.to_json()),
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_FIELD_CHARS else text[: MAX_FIELD_CHARS - 1] + "…"
