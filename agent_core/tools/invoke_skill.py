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
            line = await _replaced(line, run)
        lines.append(line)
    return "\n".join(lines)


async def _replaced(line: str, run: Callable[[str], Awaitable[str]]) -> str:
    parts, end = [], 0
    for found in _COMMAND.finditer(line):
        parts += [line[end : found.start()], await run(found.group(1))]
        end = found.end()
    return "".join([*parts, line[end:]])


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
            return await _invoked(known, action.name.strip(), conversation)

        return execute


async def _invoked(known: dict[str, Skill], name: str, conversation: ToolContext | None) -> InvokeSkillObservation:
    skill = known.get(name)
    if skill is None:
        names = ", ".join(sorted(known)) or "none"
        return InvokeSkillObservation.from_text(
            f"There is no skill named {name!r}. Available skills: {names}.", is_error=True
        )
    text = skill.content
    if conversation is not None:
        text = await with_outputs(text, lambda command: _output(command, conversation))
    return InvokeSkillObservation.from_text("\n\n".join(filter(None, [text, _location(skill)])), skill_name=name)


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


def _location(skill: Skill) -> str:
    if skill.source is None:
        return ""
    files = [*skill.resources.scripts, *skill.resources.references, *skill.resources.assets]
    listed = f"; its files: {', '.join(files)}" if files else ""
    return f"[This skill is in {PurePosixPath(skill.source).parent}{listed}]"
