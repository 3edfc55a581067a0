"""An agent with the tools of an MCP server: a program of this machine, or an address.

LLM_API_KEY=… LLM_MODEL=openai/gpt-5 python examples/mcp_tools.py "When is noon in Tokyo?" uvx mcp-server-time

WORKSPACE may name another folder, or the address of a server, which starts the program where its settings say.
"""

from __future__ import annotations

import os
import sys

from pydantic import SecretStr

from agent_core import LLM, Agent, Conversation
from agent_core.tools import get_default_tools


def main(task: str, server: list[str]) -> None:
    """Have the agent do the task with the server's tools, and print which of them it had."""
    llm = LLM(
        usage_id="agent",
        model=os.environ.get("LLM_MODEL", "demo/tour"),
        base_url=os.environ.get("LLM_BASE_URL"),
        api_key=SecretStr(os.environ.get("LLM_API_KEY", "none")),
    )
    is_address = server[0].startswith("http")
    config = {"url": server[0]} if is_address else {"command": server[0], "args": server[1:]}
    agent = Agent(llm=llm, tools=get_default_tools(), mcp_config={"mcpServers": {"example": config}})
    with Conversation(agent=agent, workspace=os.environ.get("WORKSPACE", ".")) as conversation:
        conversation.send_message(task)
        own = set(conversation.agent.tools_map)
        conversation.run()
        print(f"tools of the server: {', '.join(sorted(set(conversation.agent.tools_map) - own))}")
        print(f"status: {conversation.state.execution_status}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
