"""Questions to a model beside the agent's work: about a conversation, and for its title."""

from __future__ import annotations

import logging
from typing import Final

from agent_core.errors import DrydockError, LLMError
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, CallContext
from agent_core.memory.transcript import join_user_messages
from agent_core.session.conversation_log import ConversationLog

logger = logging.getLogger(__name__)

ASK_USAGE_ID: Final = "ask-agent-llm"
TITLE_USAGE_ID: Final = "title"
MAX_TITLE_SOURCE: Final = 1000

ASK_PROMPT: Final = (
    "[A question beside your work. Answer it in a few sentences from what you know of this conversation, call no tool,"
    " and take nothing in it for a new task.]\n\n"
)
CATEGORIES: Final = {
    "\N{BUG}": "mending a fault",
    "\N{SPARKLES}": "something new",
    "\N{HAMMER AND WRENCH}": "changing how code is built",
    "\N{TEST TUBE}": "tests",
    "\N{MEMO}": "texts",
    "\N{LEFT-POINTING MAGNIFYING GLASS}": "finding out, explaining",
    "\N{GEAR}": "set-up and configuration",
    "\N{ROCKET}": "release and operation",
    "\N{BAR CHART}": "data",
    "\N{SPEECH BALLOON}": "anything else",
}


async def answer(log: ConversationLog, llm: LLM, question: str, context: CallContext) -> str:
    """What the model of a conversation says to a question about it; nothing of that goes into the log.

    Raises:
        ValueError: the question is empty.
        LLMError: the model cannot be asked, or says nothing.
    """
    if not question.strip():
        raise ValueError("question is empty; ask something")
    model = llm.model_copy(update={"usage_id": ASK_USAGE_ID})
    view = await log.view()
    messages = join_user_messages([*view.messages(), Message.user(ASK_PROMPT + question)])
    prompt = [model.render(message) for message in messages]
    response = await model.acompletion(prompt, context=context)
    text = response.message.text.strip()
    if not text:
        raise LLMError(f"{llm.model} gave no answer; ask again, or ask another way")
    return text


async def title(log: ConversationLog, llm: LLM, max_length: int, context: CallContext) -> str:
    """A title for a conversation after its first message of the user; the beginning of that where a model has none.

    Raises:
        ValueError: the user has said nothing yet, or `max_length` is too small for a title.
    """
    if max_length < 4:
        raise ValueError(f"max_length is {max_length}; a title needs at least 4 characters")
    said = await _first_words(log)
    kinds = "; ".join(f"{emoji} {what}" for emoji, what in CATEGORIES.items())
    prompt = (
        f"Give the conversation that begins with the message below a title of at most {max_length} characters, in the"
        f" language of the message: one emoji first, then a space and a few words. The emoji is one of: {kinds}. Answer"
        f" with the title alone.\n\n{said[:MAX_TITLE_SOURCE]}"
    )
    model = llm.model_copy(update={"usage_id": TITLE_USAGE_ID, "num_retries": 1})
    try:
        response = await model.acompletion([model.render(Message.user(prompt))], context=context)
    except DrydockError as error:
        logger.info("no title from %s: %s", llm.model, error)
        return _cut(said, max_length)
    lines = [line.strip() for line in response.message.text.splitlines() if line.strip()]
    found = lines[0].strip("\"'`*# ") if lines else ""
    return _cut(found or said, max_length)


async def _first_words(log: ConversationLog) -> str:
    async for event in log.history():
        if isinstance(event, MessageEvent) and event.source == "user" and event.llm_message.text.strip():
            return " ".join(event.llm_message.text.split())
    raise ValueError("the conversation has no message of the user yet, so it has nothing to be named after")


def _cut(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."
