"""Two agents and one folder: the first writes a plan, the second carries it out.

    LLM_API_KEY=… LLM_MODEL=… python examples/plan_then_do.py "Add a command that prints the version" ./project

The first can look at everything and change nothing but PLAN.md; the second is the default agent. What one tells the
other stands in that file, where a person can read and change it in between.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pydantic import SecretStr

from agent_core import LLM, Conversation, Event, content_to_str, get_default_agent, get_planning_agent
from agent_core.tools.terminal import TerminalAction

TASK = """
Write a Python program that collects the titles and addresses of the articles on a news site:
- tries again, with growing pauses, when a request fails
- writes what it found to a JSON file with the time
- uses requests and BeautifulSoup

Ask nothing: write your plan at once.
"""


def text_of(event: Event) -> str:
    """What an event says: of a message its text, of anything else a short form."""
    message = getattr(event, "llm_message", None)
    return str(event) if message is None else "".join(content_to_str(message.content))


def main(task: str, folder: str) -> None:
    """Plan, show the plan, and do it."""
    llm = LLM(
        usage_id="agent",
        model=os.environ.get("LLM_MODEL", "demo/tour"),
        base_url=os.environ.get("LLM_BASE_URL"),
        api_key=SecretStr(os.environ.get("LLM_API_KEY", "none")),
    )
    print(f"Working in {folder}")

    planning = Conversation(agent=get_planning_agent(llm=llm), workspace=folder)
    planning.send_message(f"Look at this task and write a detailed plan for it:\n\n{task}")
    planning.run()
    doing = Conversation(agent=get_default_agent(llm=llm, cli_mode=True), workspace=folder)
    with tempfile.TemporaryDirectory() as between:
        plan = planning.download("PLAN.md", between)
        print(f"The plan:\n\n{plan.read_text()}")
        doing.upload(plan)  # as it is now; and into a workspace of its own, where there is no common folder
    doing.send_message("Carry out the plan in PLAN.md: read it first, then do all of it, and see that it works.")
    doing.run()

    print(f"The last event: {text_of(doing.state.events[-1])}")
    print("Files in the folder:")
    files = doing.execute_tool("terminal", TerminalAction(command="find . -type f -not -path '*/.*' | sort"))
    for path in files.text.splitlines():
        if path.startswith("./"):
            print(f"  {path[2:]}")
    print(f"Cost: {llm.metrics.accumulated_cost}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0] if given else TASK, given[1] if given[1:] else tempfile.mkdtemp())
