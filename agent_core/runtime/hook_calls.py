"""Hooks around the calls of an agent's tools, run as commands in its sandbox (agent-core 8.10)."""

from __future__ import annotations

import logging
import secrets
import shlex
from collections.abc import Mapping
from typing import Final

from agent_core.errors import SandboxError, ToolError
from agent_core.events.llm_events import ActionEvent, UserRejectObservation
from agent_core.events.schema import Observation
from agent_core.security.hook_runner import CommandOutcome, Hooks
from agent_core.security.hooks import HOOK_FILE, HookConfig, HookDecision, HookEvent, HookInput
from agent_core.tools.spec import SandboxAccess

MAX_OUTPUT: Final = 200_000
CONFIG_SECONDS: Final = 10.0
END_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)


class SandboxCommandRunner:
    """Runs hook commands in the workspace of the sandbox, each in a shell of its own that ends with it."""

    def __init__(self, sandbox: SandboxAccess) -> None:
        self._sandbox = sandbox

    async def run(
        self, command: str, *, stdin: str, environment: Mapping[str, str], limit_seconds: float
    ) -> CommandOutcome:
        """Run one command.

        Raises:
            TimeoutError: it was not done within the limit.
            SandboxError: the sandbox could not run it.
            ToolError: likewise.
        """
        name = secrets.token_hex(8)
        told, said = f"/tmp/hook-{name}", f"/tmp/hook-{name}.err"  # noqa: S108 - in the sandbox, with a random name
        line = (
            f'"${{BASH:-sh}}" -c {shlex.quote(command)} < {told} 2> {said}; hook_status=$?; printf "\\n%s\\n" {name}; '
            f"cat {said}; rm -f {told} {said}; (exit $hook_status)"
        )
        args = {
            "session": f"hook-{name}",
            "command": line,
            "timeout": limit_seconds,
            "env": dict(environment),
            "max_output": MAX_OUTPUT,
        }
        try:
            blob = stdin.encode("utf-8", "replace")
            await self._sandbox.request("file.write", {"path": told, "mode": 0o600}, blob=blob)
            reply = await self._sandbox.request("shell.run", args, limit_seconds=limit_seconds + END_SECONDS)
        finally:
            await self._end(args["session"])
        result = reply.result
        if (status := result.get("status")) != "completed":
            raise TimeoutError(f"the hook ended as {status}")
        stdout, _, stderr = str(result.get("output", "")).partition(f"{name}\n")
        return CommandOutcome(int(result.get("exit_code", -1)), stdout.removesuffix("\n"), stderr)

    async def _end(self, session: object) -> None:
        try:
            await self._sandbox.request("shell.kill", {"session": session}, limit_seconds=END_SECONDS)
        except (SandboxError, ToolError) as error:
            logger.debug("the shell of a hook was not ended: %s", error)


class ToolHooks:
    """The hooks of one conversation that are told about its agent's calls; leave it with `close`.

    They are those of `config`, and after them those that the project configures in its own folder.
    """

    def __init__(self, config: HookConfig, sandbox: SandboxAccess, conversation_id: str) -> None:
        self._config = config
        self._sandbox = sandbox
        self._conversation_id = conversation_id
        self._hooks: Hooks | None = None

    async def before(self, action: ActionEvent) -> UserRejectObservation | None:
        """Ask the hooks before a call; the refusal of the first that blocks it, None to go on."""
        decision = await self._run(self._told(HookEvent.PRE_TOOL_USE, action))
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
        """Tell the hooks what came of a call; what they have to say about it to the model."""
        told = self._told(HookEvent.POST_TOOL_USE, action)
        response = observation.model_dump(mode="json", exclude={"kind"})
        return (await self._run(told.model_copy(update={"tool_response": response}))).additional_context

    async def close(self) -> None:
        """End the hooks that still run in the background."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            await hooks.__aexit__(None, None, None)

    def _told(self, event: HookEvent, action: ActionEvent) -> HookInput:
        return HookInput(
            event_type=event,
            tool_name=action.tool_name,
            tool_input=action.action.model_dump(mode="json", exclude={"kind"}) if action.action is not None else None,
            session_id=self._conversation_id,
            working_dir=self._sandbox.working_dir,
        )

    async def _run(self, told: HookInput) -> HookDecision:
        if self._hooks is None:
            config = self._config.followed_by(await self._of_project())
            self._hooks = Hooks(config, SandboxCommandRunner(self._sandbox))
        decision = await self._hooks.run(told)
        for error in decision.errors:
            logger.warning("conversation %s, hook for %s: %s", self._conversation_id, told.event_type, error)
        return decision

    async def _of_project(self) -> HookConfig:
        path = f"{self._sandbox.working_dir}/{HOOK_FILE}"
        try:
            reply = await self._sandbox.request("file.read", {"path": path}, limit_seconds=CONFIG_SECONDS)
            return HookConfig.from_json((reply.blob or b"").decode("utf-8", "replace"))
        except (TimeoutError, ToolError, SandboxError) as error:
            logger.debug("no hooks of the project of %s: %s", self._conversation_id, error)
        except ValueError as error:
            logger.warning("the hooks in %s of %s are not used: %s", HOOK_FILE, self._conversation_id, error)
        return HookConfig()
