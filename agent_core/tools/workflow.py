"""The workflow tool: a script of the model's that puts many sub-agents to work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Final

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.skills.agent_catalog import AgentCatalog
from agent_core.tools.agent_types import list_of_kinds
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.programs import ProgramStarter
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import ToolAnnotations, ToolContext
from agent_core.tools.subagents import SubAgentError, subagents_of
from agent_core.tools.truncation import maybe_truncate
from agent_core.tools.workflow_run import ScriptRun, WorkflowRun

MAX_SCRIPT_CHARS: Final = 20_000
CONCURRENCY: Final = 8
MAX_CONCURRENCY: Final = 64
LIMIT_SECONDS: Final = 3_600.0
SHOWN_RESULT_CHARS: Final = 20_000
SHOWN_RUNS: Final = 50


class WorkflowAction(Action):
    """A script that puts sub-agents to work."""

    script: str = Field(
        min_length=1,
        max_length=MAX_SCRIPT_CHARS,
        description="Python source that defines `async def workflow(agent)`.",
    )
    concurrency: int = Field(
        default=CONCURRENCY, ge=1, le=MAX_CONCURRENCY, description="How many sub-agents may be at work at a time."
    )
    description: str | None = Field(default=None, description="The work in three to five words, for a person to read.")


class WorkflowObservation(Observation):
    """What came of a script.

    Attributes:
        result: what its function returned, as JSON text; empty where it did not return.
        printed: what it printed, cut in the middle.
        runs: the sub-agents that it asked for, in their order.
    """

    result: str = ""
    printed: str = ""
    runs: list[WorkflowRun] = Field(default_factory=list)


async def execute(
    action: WorkflowAction, conversation: ToolContext | None, limit_seconds: float
) -> WorkflowObservation:
    """Have the script run; what the model can mend becomes an error result.

    Raises:
        SandboxError: the sandbox cannot be had, or was lost.
    """
    try:
        subagents, call = subagents_of(conversation)
    except SubAgentError as error:
        return WorkflowObservation.from_text(str(error), is_error=True)
    sandbox = call.sandbox
    if not isinstance(sandbox, ProgramStarter):
        return WorkflowObservation.from_text("no programs can be started in this sandbox", is_error=True)
    run = ScriptRun(call, subagents, action.concurrency)
    await run.carry_out(sandbox, action.script, min(limit_seconds, call.hard_timeout or limit_seconds))
    subagents.stopped_by(call.action_id)  # the script's end stopped those: no call that anybody stopped is to be told
    runs = run.runs
    return WorkflowObservation.from_text(
        _text(run, runs), is_error=bool(run.problem), result=run.result, printed=run.printed.text, runs=runs
    )


def _text(run: ScriptRun, runs: list[WorkflowRun]) -> str:
    counts = Counter(one.status for one in runs)
    listed = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    parts = [run.problem or f"Result: {maybe_truncate(run.result, SHOWN_RESULT_CHARS)}"]
    if printed := run.printed.text:
        parts.append(f"Printed:\n{printed}")
    parts.append(f"Sub-agents: {len(runs)}" + (f" ({listed})" if listed else ""))
    lines = [f"{place}. {one.agent_type}, {one.status}: {one.prompt}" for place, one in enumerate(runs, 1)]
    if len(lines) > SHOWN_RUNS:
        lines[SHOWN_RUNS:] = [f"... and {len(lines) - SHOWN_RUNS} more"]
    return "\n\n".join(parts) + "".join(f"\n{line}" for line in lines)


_DESCRIPTION = f"""Run a Python script, in the sandbox, that puts many sub-agents to work, and wait for its end.

Use it where the same has to be done many times over, or where one round of work decides about the next. The script
defines `async def workflow(agent)`; what that returns (JSON) is the result. In it:

- `await agent(prompt, subagent_type="general-purpose")` has a new sub-agent do something and gives its last word,
  a text. It knows nothing but its prompt. It raises AgentError where it fails; the script may catch that.
- `asyncio.gather` and the like have several work at the same time; more than `concurrency` wait for their turn.
- `print` shows how far it is. The script can read and write the files of the workspace, as the sub-agents can.

Limits: {MAX_SCRIPT_CHARS} characters of script, one hour. A script that was cut short does not go on.

    async def workflow(agent):
        names = ["a.py", "b.py"]
        found = await asyncio.gather(*(agent(f"Review {{name}}; answer in one line.") for name in names))
        return dict(zip(names, found))"""


class WorkflowTool(ToolDefinition[WorkflowAction, WorkflowObservation]):
    """The `workflow` tool."""

    tool_name: ClassVar[str] = "workflow"
    resources: ClassVar[tuple[str, ...] | None] = ()
    description: str = Field(default_factory=lambda: f"{_DESCRIPTION}\n\n{list_of_kinds(AgentCatalog())}")
    annotations: ToolAnnotations = ToolAnnotations(title="Workflow")

    @classmethod
    def make_executor(cls, *, limit_seconds: float = LIMIT_SECONDS) -> Callable[..., Any]:
        """What runs scripts; each is stopped after `limit_seconds`, which is at most an hour.

        Raises:
            ValueError: the limit is not above zero, or longer.
        """
        if not 0 < limit_seconds <= LIMIT_SECONDS:
            raise ValueError(f"limit_seconds is {limit_seconds}; it must be above 0 and at most {LIMIT_SECONDS:g}")

        async def carry_out(action: WorkflowAction, conversation: ToolContext | None = None) -> WorkflowObservation:
            return await execute(action, conversation, limit_seconds)

        return carry_out


register_tool(WorkflowTool.tool_name, WorkflowTool)
