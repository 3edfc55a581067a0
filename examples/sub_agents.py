"""One agent has others work for it, at the same time and in the same folder, and puts their reports together.

    LLM_API_KEY=… LLM_MODEL=… python examples/sub_agents.py "Is this project ready for a release?" ./project

The kinds of sub-agents are the built-in ones, those in files (`.agents/agents/*.md` in the folder or in your home), and
the one that is registered here. Each works in a conversation of its own: of what it did, the asking agent gets its last
word, and you get the bill.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pydantic import SecretStr

from agent_core import LLM, Agent, AgentDefinition, Conversation, Event, ObservationEvent, register_agent_definition
from agent_core.tools import get_default_tools, get_delegating_tools

REVIEWER = AgentDefinition(
    name="reviewer",
    description="Reads code and says what is wrong with it; changes nothing.",
    tools=["terminal"],
    max_iteration_per_run=50,
    instructions="You review code for another agent. Report each problem with its file and line, the worst one first.",
)
TASK = "Have one sub-agent review the code of this folder and another one run its tests; tell me what they found."


def show(event: Event) -> None:
    """Print what sub-agents report."""
    if isinstance(event, ObservationEvent) and event.tool_name in ("delegate", "task"):
        print(f"--- {event.observation.text}")


def main(task: str, folder: str) -> None:
    """Ask, and say what it cost whom."""
    llm = LLM(
        usage_id="agent",
        model=os.environ.get("LLM_MODEL", "demo/tour"),
        base_url=os.environ.get("LLM_BASE_URL"),
        api_key=SecretStr(os.environ.get("LLM_API_KEY", "none")),
    )
    register_agent_definition(REVIEWER)
    agent = Agent(llm=llm, tools=[*get_default_tools(), *get_delegating_tools()])
    with Conversation(agent=agent, workspace=folder, callbacks=[show]) as conversation:
        conversation.send_message(task)
        conversation.run()
        print(f"status: {conversation.state.execution_status}")
        for usage_id, metrics in sorted(conversation.state.stats.usage_to_metrics.items()):
            print(f"{usage_id}: {metrics.accumulated_token_usage.prompt_tokens} tokens read")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0] if given else TASK, given[1] if given[1:] else tempfile.mkdtemp())
