"""The two blocks of the system message: the same for all conversations, and this one's own."""

from __future__ import annotations

from agent_core.agent.codeact import CodeActAgent
from agent_core.llm.llm import LLM
from agent_core.memory.view import View
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import Skill


def agent(context: AgentContext | None = None) -> CodeActAgent:
    return CodeActAgent(llm=LLM(model="openai/x"), agent_context=context)


def test_without_a_context_there_is_one_block_unless_there_are_secrets() -> None:
    assert agent().dynamic_context is None
    assert agent().system_prompt_event([], version="1").dynamic_context is None
    told = agent().system_prompt_event([], version="1", secrets={"TOKEN": "for the shop"}).dynamic_context
    assert told is not None
    assert "$TOKEN: for the shop" in told.text


def test_the_static_block_is_marked_and_the_same_and_the_dynamic_one_is_neither() -> None:
    one, other = agent(AgentContext(system_message_suffix="one")), agent(AgentContext(system_message_suffix="other"))
    assert one.static_system_message == other.static_system_message == agent().static_system_message
    event = one.system_prompt_event([], version="1").stored_as(0)
    (message,) = View.from_log([event]).messages()
    static, dynamic = message.content
    assert (static.cache_prompt, dynamic.cache_prompt) == (True, False)
    assert dynamic.text.startswith("one")  # type: ignore[union-attr] # it is a text


def test_an_agent_with_a_context_can_be_stored_and_made_again() -> None:
    first = agent(AgentContext(skills=[Skill(name="a", content="b")], current_datetime="today"))
    again = CodeActAgent.model_validate_json(first.model_dump_json())
    assert again.agent_context == first.agent_context
    assert again.dynamic_context == first.dynamic_context
