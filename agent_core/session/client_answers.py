"""Answers of a program to the calls of the tools that it carries out itself."""

from __future__ import annotations

from agent_core.events.control import ClientToolResult
from agent_core.events.messages import TextContent
from agent_core.session.conversation_loop import ConversationLoop


async def answer_call(work: ConversationLoop, call_id: int, content: str, *, is_error: bool) -> None:
    """Pass on what came of a call.

    Raises:
        ClientToolError: it does not wait for an answer, or got another one before.
    """
    said = [TextContent(text=content)] if content else []
    async with work.session() as session:
        await session.send(ClientToolResult(cause=call_id, content=list(said), is_error=is_error))
