"""Titles of conversations: the beginning of the first message at once, the model's a little later."""

from __future__ import annotations

import asyncio
import logging

from agent_core.errors import DrydockError
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, CallContext

logger = logging.getLogger(__name__)

FALLBACK_CHARS = 30
MAX_TITLE_CHARS = 50
MAX_PROMPT_CHARS = 2000
TITLE_SECONDS = 60.0

_PROMPT = (
    "Name the conversation that begins with the message below. Answer with the name alone: one line of at most "
    f"{MAX_TITLE_CHARS} characters, in the language of the message, no quotation marks, no full stop.\n\n"
)


def default_title(conversation_id: str) -> str:
    """The title of a conversation in which nothing was said yet."""
    return f"Conversation {conversation_id[:5]}"


def title_from_message(text: str) -> str | None:
    """The beginning of a message, on one line; None for a message without text."""
    line = " ".join(text.split())
    if not line:
        return None
    return line if len(line) <= FALLBACK_CHARS else line[:FALLBACK_CHARS].rstrip() + "..."


class TitleWriter:
    """Asks a model for titles."""

    def __init__(self, *, enabled: bool, timeout_seconds: float = TITLE_SECONDS) -> None:
        self._enabled = enabled
        self._timeout_seconds = timeout_seconds

    async def write(self, llm: LLM, message: str, context: CallContext | None = None) -> str | None:
        """The model's title for a conversation that begins with `message`; None when there is none to be had.

        Asks once, without retries: nobody waits for a title. It costs under the usage id `title` of the `context`.
        """
        if not self._enabled or llm.model.startswith("demo/"):
            return None
        llm = llm.model_copy(update={"num_retries": 1, "usage_id": "title", "max_output_tokens": None})
        llm.reset_metrics()
        prompt = llm.render(Message.user(_PROMPT + message[:MAX_PROMPT_CHARS]))
        try:
            async with asyncio.timeout(self._timeout_seconds):
                response = await llm.acompletion([prompt], context=context)
        except (DrydockError, TimeoutError) as error:
            logger.info("no title from %s: %s", llm.model, error or "it took too long")
            return None
        return _cleaned(response.message.text)


def _cleaned(text: str) -> str | None:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return None
    title = lines[0].strip("\"'“”„«»`*# ").rstrip(".").strip()
    return title[:MAX_TITLE_CHARS].rstrip() or None
