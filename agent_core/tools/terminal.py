"""The terminal tool: a shell that is kept, in the conversation's sandbox."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.plain_text import one_line
from agent_core.events.schema import ERROR_NOTE, Action, Observation
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import SandboxExecutor
from agent_core.tools.registry import built_in
from agent_core.tools.spec import DeclaredResources, ToolAnnotations

SOFT_TIMEOUT_SECONDS = 30.0
MAX_OUTPUT_CHARS = 30_000
MAX_HIDDEN_CHARS = 2 * 1024 * 1024
FRESH_SECONDS = 120.0
INPUT_SECONDS = 2.0
"""How long a user who gives input waits for what the command prints then, where nobody else waits for it."""
OUTER_MARGIN_SECONDS = 30.0
RESET_SHOWN_AS = "[RESET]"
DEFAULT_TERMINAL = "default"
IDLE_TIMEOUT_VARIABLE = "OH_RUNTIME_IDLE_TIMEOUT_SECONDS"
IDLE_SHARE = 0.9

TerminalStatus = Literal[
    "completed", "soft_timeout", "hard_timeout", "interrupted", "not_executed", "reset", "shell_lost"
]


class TerminalAction(Action):
    """One command, or input to the one that runs."""

    command: str = Field(
        description="The shell command to run; any script that bash accepts, of any number of lines. While a command"
        " is still running: an empty string to wait for more output, text for its input, or a key such as C-c, C-d,"
        " C-z, ENTER, TAB, ESC, UP, DOWN (both with is_input)."
    )
    is_input: bool = Field(default=False, description="Send `command` as input to the running command.")
    timeout: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Hard limit in seconds. With it the call waits that long even while nothing is printed; without it"
        " the call returns when nothing new was printed for a while.",
    )
    reset: bool = Field(default=False, description="Start a new shell first; environment and state are lost.")

    def __str__(self) -> str:
        return one_line(f"input {self.command!r}" if self.is_input else f"$ {self.command}")


class NamedTerminalAction(TerminalAction):
    """One command in one of several terminals."""

    terminal: str = Field(
        default=DEFAULT_TERMINAL,
        pattern=r"^[A-Za-z0-9_-]{1,32}$",
        description="Name of the terminal. Each is a shell of its own with its own directory, variables and running"
        " command; a new name opens a new one.",
    )


class FreshTerminalAction(TerminalAction):
    """One command in a shell of its own (``is_static``); without `timeout` 120 seconds, no soft limit."""

    cwd: str | None = Field(
        default=None, description="Where it runs: an absolute path, or one in the workspace; the workspace if absent."
    )


class TerminalObservation(Observation):
    """What a command printed, and the state of the shell after it.

    It is an error, told by `notice`, when the command was not run or ended the shell itself. `exit_code` is -1 while it
    runs or when it is unknown. `content` is the output alone; `to_llm_content` adds `prefix` (it continues that of an
    earlier call) and `suffix`.
    """

    command: str = ""
    exit_code: int = -1
    status: TerminalStatus = "completed"
    prefix: str = ""
    working_dir: str = ""
    pid: int = -1
    username: str = ""
    hostname: str = ""
    python: str | None = None
    omitted: int = 0
    notice: str = ""

    def __str__(self) -> str:
        ended = f"exit {self.exit_code}: " if self.exit_code > 0 else ""
        return f"{ended}{super().__str__() if self.text.strip() or not self.notice else one_line(self.notice)}"

    @property
    def suffix(self) -> str:
        ended = self.status == "completed" and self.exit_code != -1
        parts = [f"The command completed with exit code {self.exit_code}."] if ended else []
        parts += [self.notice] if self.notice else []
        lines = [f"[{' '.join(parts)}]"] if parts else []
        if self.working_dir:
            lines.append(f"[Current working directory: {self.working_dir}]")
        if self.python:
            lines.append(f"[Python interpreter: {self.python}]")
        if self.exit_code != -1:
            lines.append(f"[Command finished with exit code {self.exit_code}]")
        return "\n".join(lines)

    @property
    def to_llm_content(self) -> Sequence[TextContent | ImageContent]:
        text = self.prefix + self.text.removesuffix("\n")
        suffix = self.suffix
        content = TextContent(text=f"{text}\n{suffix}" if text and suffix else text or suffix)
        return [ERROR_NOTE, content] if self.is_error else [content]


class TerminalExecutor(SandboxExecutor[TerminalAction, TerminalObservation]):
    """Runs terminal actions in the sandbox of the conversation that asks, or one of its own.

    Tools that share one share the shell named `session`. After `soft_timeout` seconds without output a call returns
    although its command still runs.
    """

    def __init__(
        self, working_dir: str = "", *, session: str = "default", soft_timeout: float = SOFT_TIMEOUT_SECONDS
    ) -> None:
        super().__init__(working_dir)
        self._session = session
        self._soft_timeout = soft_timeout

    async def carry_out(self, action: TerminalAction, context: ToolContext, key: str | None) -> TerminalObservation:
        if action.reset and action.is_input:
            raise ValueError("reset and is_input contradict each other: a new shell runs nothing to give input to")
        if too_long := _longer_than_idle(action.timeout):
            return TerminalObservation.from_text(
                "", is_error=True, command=action.command, status="not_executed", notice=too_long
            )
        limit = action.timeout if action.timeout is not None else context.hard_timeout
        if isinstance(action, FreshTerminalAction):
            limit = FRESH_SECONDS if limit is None else limit
            where: dict[str, Any] = {"fresh": True, "cwd": action.cwd}
        else:
            where = {"session": self._session}
            if isinstance(action, NamedTerminalAction) and action.terminal != DEFAULT_TERMINAL:
                is_plain = self._session == DEFAULT_TERMINAL
                where["session"] = action.terminal if is_plain else f"{self._session}.{action.terminal}"
        arguments: dict[str, Any] = {
            **where,
            "command": action.command,
            "is_input": action.is_input,
            "timeout": limit,
            "soft_timeout": self._soft_timeout,
            "reset": action.reset,
            "max_output": MAX_HIDDEN_CHARS if context.hidden else MAX_OUTPUT_CHARS,
        }
        if context.at_once:
            arguments["at_once"] = True
            arguments["soft_timeout"] = INPUT_SECONDS if action.is_input else self._soft_timeout
        if not action.is_input and (secrets := await context.secrets_for(action.command)):
            arguments["env"] = secrets
        reply = await context.sandbox.request(
            "shell.run",
            arguments,
            key=key,
            # Without a hard limit a command that keeps printing may run for ever; the user can always stop it.
            limit_seconds=None if limit is None else limit + OUTER_MARGIN_SECONDS,
            on_output=context.emit_output,
        )
        result = reply.result
        status: TerminalStatus = result["status"]
        fields = ("exit_code", "working_dir", "pid", "username", "hostname", "python", "omitted", "notice")
        return TerminalObservation.from_text(
            result["output"],
            is_error=status in ("not_executed", "shell_lost") or result.get("shell_ended", False),
            command=action.command if status != "reset" else RESET_SHOWN_AS,
            prefix=result.get("prefix", ""),
            status=status,
            **{name: result[name] for name in fields},
        )


def _longer_than_idle(timeout: float | None) -> str:
    if timeout is None:
        return ""
    try:
        idle = float(os.environ.get(IDLE_TIMEOUT_VARIABLE, ""))
    except ValueError:
        return ""
    if idle <= 0 or timeout <= IDLE_SHARE * idle:
        return ""
    return (
        f"The command was NOT executed: its timeout of {timeout:g} seconds is more than {IDLE_SHARE:.0%} of the"
        f" {idle:g} seconds after which this runtime is stopped as idle. Give a timeout of at most"
        f" {IDLE_SHARE * idle:g} seconds, or run the command in the background with its output in a file."
    )


_DESCRIPTION = """Run a command in a bash shell inside the sandbox.

The shell is kept: working directory, variables, functions and background jobs are there for the next call.
Each result ends with the working directory and the exit status.

- One command runs at a time. If it prints nothing for a while the call returns although it is still running; then send
  an empty command to wait for more, input with is_input, or C-c to interrupt it.
- Give `timeout` for something that is silent for long, such as a build or an installation.
- Start what should go on by itself in the background, with its output in a file: `server > server.log 2>&1 &`.
- Output that is too long is cut in the middle; use head, tail or grep on a file to see a certain part.
- Prefer commands that ask no questions (`-y`, `--no-pager`)."""


_SEVERAL = """

There are several terminals, told apart by name (`terminal`): use another one while a command is still running, or for a
server whose output you want to watch. Input, waiting and reset concern the terminal that you name."""


@built_in
class TerminalTool(ToolDefinition[TerminalAction, TerminalObservation]):
    """The `terminal` tool: one shell or, made with ``several=True``, as many as the model gives names to."""

    journaled = True
    tool_name = "terminal"
    tells_when_busy = True
    resources = ("terminal:session",)
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations(title="Terminal")

    @classmethod
    def create(cls, *args: Any, several: bool = False, **params: Any) -> Sequence[ToolDefinition]:
        (tool,) = super().create(*args, **params)
        if not several:
            return [tool]
        changes = {"action_type": NamedTerminalAction, "description": tool.description + _SEVERAL}
        return [tool.model_copy(update=changes)]

    def declared_resources(self, action: Action) -> DeclaredResources:
        if isinstance(action, FreshTerminalAction):
            return DeclaredResources(declared=True)
        if isinstance(action, NamedTerminalAction) and action.terminal != DEFAULT_TERMINAL:
            return DeclaredResources(keys=(f"terminal:{action.terminal}",), declared=True)
        return super().declared_resources(action)

    def reaches_running(self, action: Action) -> bool:
        return isinstance(action, TerminalAction) and (action.is_input or action.reset)

    @classmethod
    def make_executor(cls, *, soft_timeout: float = SOFT_TIMEOUT_SECONDS) -> TerminalExecutor:
        return TerminalExecutor(soft_timeout=soft_timeout)


BashTool = TerminalTool
"""The terminal tool, as older programs call it."""
BashExecutor = TerminalExecutor
"""The terminal's executor, as older programs call it."""
execute_bash_tool: ToolDefinition = TerminalTool.create()[0]
"""A terminal tool to be given another executor (`ToolDefinition.set_executor`), as older programs do."""
