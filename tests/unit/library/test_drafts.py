"""The model that writes out what an agent has drafted: what it is sent, and what becomes of its failures."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from agent_core.agent.agent import Agent
from agent_core.errors import LimitReachedError, ToolError
from agent_core.llm.llm import LLM, CallContext
from agent_core.session.factory import ConversationDrafts, draft_llm, model_for_drafts

OWN = LLM(model="openai/large", api_key=SecretStr("k-1"))


@pytest.mark.parametrize(
    ("own", "name", "is_given_the_key"),
    [
        (OWN, "openai/small", True),
        (OWN, "small", True),
        (OWN, "anthropic/small", False),
        (OWN.model_copy(update={"base_url": "http://models.example"}), "anthropic/small", True),
    ],
    ids=["one provider", "its default name", "another provider", "one address"],
)
def test_the_key_is_sent_to_the_same_provider_or_address_only(own: LLM, name: str, is_given_the_key: bool) -> None:
    drafts = model_for_drafts(own, name)
    assert (drafts.model, drafts.base_url) == (name, own.base_url)
    assert (drafts.api_key is not None) is is_given_the_key


def test_credentials_of_the_host_go_to_no_address_of_another_provider() -> None:
    own = OWN.model_copy(update={"base_url": "http://models.example"})
    drafts = model_for_drafts(own, "vertex_ai/gemini")
    assert (drafts.base_url, drafts.api_key) == (None, None)
    of_vertex = own.model_copy(update={"model": "vertex_ai/other"})
    assert model_for_drafts(of_vertex, "vertex_ai/gemini").base_url == "http://models.example"


def test_drafts_are_counted_apart_and_not_cached() -> None:
    agent = Agent(llm=OWN)
    drafts = draft_llm(agent)
    assert (drafts.model, drafts.usage_id, drafts.caching_prompt) == (OWN.model, "draft_editor_llm", False)
    assert drafts.metrics is not agent.llm.metrics


async def test_where_no_money_is_left_no_draft_is_asked_for() -> None:
    def check() -> None:
        raise LimitReachedError("no money is left", code="MaxBudgetReached")

    def asked() -> LLM:
        raise AssertionError("it was asked")

    with pytest.raises(ToolError, match="the draft model could not be asked: no money is left"):
        await ConversationDrafts(asked, CallContext(), check).answer([])
