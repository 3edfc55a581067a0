"""The invoke_skill tool: the whole text of a skill that the agent was only told of."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from pydantic import Field

from agent_core.errors import SandboxError
from agent_core.events.schema import Action, Observation
from agent_core.skills.skill import Skill
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

_COMMAND = re.compile(r"!`([^`\n]+)`")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")


async def with_outputs(text: str, run: Callable[[str], Awaitable[str]]) -> str:
    """`text` with each ``!`command` `` outside fenced blocks replaced by what `run` gives for it, one after another."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            if found is not None and found.group(1).startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif found is not None:
            fence = found.group(1)
        else:
            parts, end = "", 0
            for command in _COMMAND.finditer(line):
                parts += line[end : command.start()] + await run(command.group(1))
                end = command.end()
            line = parts + line[end:]
        lines.append(line)
    return "\n".join(lines)


COMMAND_SECONDS = 10.0
COMMAND_OUTPUT_CHARS = 50_000
OUTER_MARGIN_SECONDS = 10.0
KILL_SECONDS = 5.0


class InvokeSkillAction(Action):
    """The name of a skill."""

    name: str = Field(description="Name of the skill, as in the list of available skills.")


class InvokeSkillObservation(Observation):
    """The text of a skill, with the outputs of the commands in it; `skill_name` is empty when there is none."""

    skill_name: str = ""


@built_in
class InvokeSkillTool(ToolDefinition[InvokeSkillAction, InvokeSkillObservation]):
    """The `invoke_skill` tool."""

    tool_name = "invoke_skill"
    resources = ("skills",)
    description: str = "Read a skill: instructions for a certain kind of work. Call it before you begin such work."
    annotations: ToolAnnotations = ToolAnnotations(title="Skill", destructiveHint=False, openWorldHint=False)

    @classmethod
    def make_executor(cls, *, skills: Sequence[Any] = ()) -> Callable[..., Any]:
        known = {skill.name: skill for skill in map(Skill.model_validate, skills)}

        async def execute(action: InvokeSkillAction, conversation: ToolContext | None = None) -> InvokeSkillObservation:
            name = action.name.strip()
            skill = known.get(name)
            if skill is None:
                names = ", ".join(sorted(known)) or "none"
                text = f"There is no skill named {name!r}. Available skills: {names}."
                return InvokeSkillObservation.from_text(text, is_error=True)
            text = skill.content
            if conversation is not None:
                text = await with_outputs(text, lambda command: _output(command, conversation))
            if skill.source is not None:
                files = [*skill.resources.scripts, *skill.resources.references, *skill.resources.assets]
                listed = f"; its files: {', '.join(files)}" if files else ""
                location = f"[This skill is in {PurePosixPath(skill.source).parent}{listed}]"
                text = f"{text}\n\n{location}" if text else location
            return InvokeSkillObservation.from_text(text, skill_name=name)

        return execute


async def _output(command: str, conversation: ToolContext) -> str:
    """What the command prints, in a shell of its own, and how it failed if it did."""
    session = f"skill-{conversation.action_id}"
    arguments: dict[str, Any] = {
        "session": session,
        "command": command,
        "timeout": COMMAND_SECONDS,
        "max_output": COMMAND_OUTPUT_CHARS,
    }
    if secrets := await conversation.secrets_for(command):
        arguments["env"] = secrets
    try:
        limit = COMMAND_SECONDS + OUTER_MARGIN_SECONDS
        result = (await conversation.sandbox.request("shell.run", arguments, limit_seconds=limit)).result
    finally:
        with contextlib.suppress(SandboxError):
            await conversation.sandbox.request("shell.kill", {"session": session}, limit_seconds=KILL_SECONDS)
    output: str = result["output"].strip()
    if result["status"] != "completed":
        return f"{output} [the command `{command}` was ended after {COMMAND_SECONDS:g} s]".strip()
    if result["exit_code"] != 0:
        return f"{output} [the command `{command}` failed with exit code {result['exit_code']}]".strip()
    return output
