"""An agent with a browser reads a site and says what is on it.

LLM_API_KEY=… LLM_MODEL=openai/gpt-5 python examples/browser_use.py https://example.com ./project

The browser is Chromium in the conversation's sandbox. A sandbox on a folder, as here, uses the Chromium and the
Playwright of this computer; one in Docker those of its image (DockerWorkspace(image="drydock/sandbox:browser")).
"""

from __future__ import annotations

import os
import sys

from pydantic import SecretStr

from agent_core import LLM, Agent, Conversation, Event, LLMConvertibleEvent, Message, Tool, get_logger
from agent_core.tools import BrowserToolSet, FileEditorTool, TerminalTool

logger = get_logger(__name__)

TASK = "Could you open {site} and sum up the main points of the newest article there?"


def main(site: str, folder: str) -> None:
    """Ask for a summary, and print what the model was told and said."""
    llm = LLM(
        usage_id="agent",
        model=os.environ.get("LLM_MODEL", "demo/tour"),
        base_url=os.environ.get("LLM_BASE_URL"),
        api_key=SecretStr(os.environ.get("LLM_API_KEY", "none")),
    )
    # Tool(name=BrowserToolSet.name, params={"allowed_domains": ["example.com"]}) keeps it to some sites. For a part of
    # the tools, register a factory that returns what BrowserNavigateTool.create(executor) and others give.
    tools = [
        Tool(name=TerminalTool.name),
        Tool(name=FileEditorTool.name),
        Tool(name=BrowserToolSet.name),
    ]
    agent = Agent(llm=llm, tools=tools)

    llm_messages: list[Message] = []

    def conversation_callback(event: Event) -> None:
        if isinstance(event, LLMConvertibleEvent):
            llm_messages.append(event.to_llm_message())

    conversation = Conversation(agent=agent, callbacks=[conversation_callback], workspace=folder)
    conversation.send_message(TASK.format(site=site))
    conversation.run()

    print("=" * 100)
    print("The conversation has ended. What the model was told and said:")
    for i, message in enumerate(llm_messages):
        print(f"Message {i}: {str(message)[:200]}")
    conversation.close()


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0] if given else "https://example.com", given[1] if given[1:] else os.getcwd())
