"""Hook commands in the sandbox of a conversation."""

from __future__ import annotations

import logging
import secrets
import shlex
from collections.abc import Mapping
from typing import Final

from agent_core.errors import SandboxError, ToolError
from agent_core.security.hook_runner import CommandOutcome
from agent_core.tools.spec import SandboxAccess

MAX_OUTPUT: Final = 200_000
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
