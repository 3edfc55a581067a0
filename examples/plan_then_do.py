"""Two agents and one folder: the first writes a plan, the second carries it out.

    LLM_API_KEY=… LLM_MODEL=… python examples/plan_then_do.py "Add a command that prints the version" ./project

The first has an editor and no shell, and a prompt of its own; the second is the default agent. What one tells the other
stands in PLAN.md, where a person can read and change it in between.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pydantic import SecretStr

from agent_core import LLM, Agent, Conversation, Tool, get_default_agent
from agent_core.tools import FileEditorTool

PLAN = "PLAN.md"
PLANNER = f"""You plan work that somebody else will do. Read the files that matter with file_editor, and change none.
Then write the plan to {{folder}}/{PLAN}: the goal, what you found, the steps in their order with the files that each
changes, how to test the result, and what may go wrong. Call finish when it is written."""


def model(usage_id: str) -> LLM:
    """The model that the environment names; each agent's costs are counted under its own name."""
    return LLM(
        usage_id=usage_id,
        model=os.environ.get("LLM_MODEL", "demo/tour"),
        base_url=os.environ.get("LLM_BASE_URL"),
        api_key=SecretStr(os.environ.get("LLM_API_KEY", "none")),
    )


def main(task: str, folder: Path) -> None:
    """Plan, show the plan, and do it."""
    planner = Agent(
        llm=model("planner"),
        tools=[Tool(name=FileEditorTool.name)],
        system_prompt=PLANNER.format(folder=folder),
    )
    with Conversation(agent=planner, workspace=folder) as planning:
        planning.send_message(task)
        planning.run()
    plan = folder / PLAN
    if not plan.exists():
        sys.exit("The planner wrote no plan.")
    print(plan.read_text())

    worker = get_default_agent(model("worker"), cli_mode=True)
    with Conversation(agent=worker, workspace=folder) as working:
        working.send_message(f"Carry out the plan in {plan}, step by step.")
        working.run()
        print(f"status: {working.state.execution_status}")
    print(f"cost: {planner.llm.metrics.accumulated_cost + worker.llm.metrics.accumulated_cost}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0] if given else "Improve the README.", Path(given[1] if given[1:] else ".").resolve())
