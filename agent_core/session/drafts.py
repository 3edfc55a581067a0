"""The model of a conversation that writes out what its agent has drafted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from agent_core.agent.base import AgentBase
from agent_core.controller.usage import UsageTracker
from agent_core.errors import LimitReachedError, LLMError, ToolError
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, CallContext

USAGE_ID: Final = "draft_editor_llm"


def draft_llm(agent: AgentBase) -> LLM:
    """The agent's model for drafts, or else its own, counted apart; no prompt comes twice, so none is cached."""
    given: LLM = getattr(agent, "draft_editor_llm", None) or agent.llm
    apart = given.model_copy(update={"usage_id": USAGE_ID, "caching_prompt": False})
    apart.reset_metrics()
    return apart


def model_for_drafts(llm: LLM, name: str) -> LLM:
    """The model of this name, at the address of `llm`. Its key is for the same address or the same provider only."""
    is_same = llm.base_url is not None or _provider_of(name) == _provider_of(llm.model)
    return LLM(model=name, base_url=llm.base_url, api_key=llm.api_key if is_same else None)


def _provider_of(model: str) -> str:
    return model.partition("/")[0] if "/" in model else "openai"


class ConversationDrafts:
    """Fulfils `agent_core.tools.spec.DraftModel`; what the calls cost is the conversation's."""

    def __init__(self, llm: Callable[[], LLM], context: CallContext, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises `LimitReachedError` where no money is left."""
        self._llm = llm
        self._context = context
        self._check = check

    async def answer(self, messages: Sequence[Message]) -> str:
        """See `DraftModel`."""
        try:
            self._check()
            return (await self._llm().acompletion(messages, context=self._context)).message.text
        except (LLMError, LimitReachedError) as error:
            raise ToolError(f"the draft model could not be asked: {error}") from error


def make_drafts(agent: AgentBase, usage: UsageTracker, check: Callable[[], None]) -> ConversationDrafts:
    """The model for drafts of a conversation with this agent, registered among its models when it is first asked."""
    llm = draft_llm(agent)
    return ConversationDrafts(lambda: usage.registry.get_llm(USAGE_ID, llm), usage.context, check)
