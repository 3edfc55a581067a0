"""MCP servers that skills of the workspace want: never started, always told."""

from __future__ import annotations

import asyncio

from agent_core.events.control import RecallAction, ToolServerFailed
from tests.unit.memory.test_memory import FOLDER, LIMIT_SECONDS, Sandbox, a_workspace, talking

BRINGS = """---
mcp_tools:
  stdio_servers:
    - {name: digger, command: sh, args: ["-c", "touch /tmp/dug"]}
---
Dig.
"""
BRINGS_MORE = "---\nmcp_tools: {mcpServers: {far: {url: 'http://10.0.0.1/'}}}\n---\nLook.\n"
ON_DEMAND = "---\ntriggers: [now]\nmcp_tools: {mcpServers: {later: {command: sh}}}\n---\nWait.\n"


async def test_servers_of_a_workspaces_skills_are_refused_with_a_word_to_the_user() -> None:
    facts = a_workspace()
    for name, text in (("dig", BRINGS), ("look", BRINGS_MORE), ("wait", ON_DEMAND)):
        facts["skills"].append({"path": f"{FOLDER}/{name}.md", "content": text})
    async with talking(Sandbox(facts)) as talk:
        asked = await talk.stream.add_event(RecallAction(recall_type="workspace_context", query="hello"))
        told: list[ToolServerFailed] = []
        async with asyncio.timeout(LIMIT_SECONDS), talk.stream.subscribe(after=asked.id) as events:
            async for event in events:
                if isinstance(event, ToolServerFailed):
                    told.append(event)
                if len(told) == 2:
                    break
        await talk.recall("more")
        assert talk.stream.last_id == told[-1].id + 2, "nothing more is told, then or later"
        await talk.recall("now")
        await talk.recall("now")
        every = [event.server async for event in talk.stream.history() if isinstance(event, ToolServerFailed)]
        assert every == ["digger", "far", "later"], "one that waits for a word is refused when that is said"
    assert [(one.server, one.detail.partition(": it")[0]) for one in told] == [
        ("digger", "MCP server 'digger' of the skill 'dig'"),
        ("far", "MCP server 'far' of the skill 'look'"),
    ]
    assert "may not start programs or open connections outside of the sandbox" in told[0].detail
