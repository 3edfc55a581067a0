"""The smallest program: an agent with a shell and an editor works in a folder.

LLM_API_KEY=… LLM_MODEL=openai/gpt-5 python examples/minimal.py "Write a haiku about docks into haiku.txt" ./project
"""

from __future__ import annotations

import os
import sys

from pydantic import SecretStr

from agent_core import LLM, Agent, Conversation
from agent_core.tools import get_default_tools


def main(task: str, folder: str) -> None:
    """Have the agent do the task in the folder, and print what it says at the end."""
    llm = LLM(
        usage_id="agent",
        model=os.environ.get("LLM_MODEL", "demo/tour"),
        base_url=os.environ.get("LLM_BASE_URL"),
        api_key=SecretStr(os.environ.get("LLM_API_KEY", "none")),
    )
    with Conversation(agent=Agent(llm=llm, tools=get_default_tools()), workspace=folder) as conversation:
        conversation.send_message(task)
        conversation.run()
        print(f"status: {conversation.state.execution_status}")
        print(f"events: {len(conversation.state.events)}")
        print(f"cost: ${llm.metrics.accumulated_cost:.4f}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0] if given else "Look around and say what you see.", given[1] if given[1:] else ".")
