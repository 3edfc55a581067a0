"""A conversation's calls, those of its agent and those beside it, tell the provider whose they are."""

from __future__ import annotations

from typing import Any

from agent_core import Agent, Tool
from agent_core.memory.condensers import LLMSummarizingCondenser
from tests.unit.library.playing import DONE, Script, conversation, model, run

TOLD = {"litellm_extra_body": {"metadata": {"team": "blue"}}, "request_metadata": ["session_id", "tags"]}


def metadata_of(script: Script) -> list[dict[str, Any]]:
    return [dict(request.extra_body["metadata"]) for request in script.requests]


def test_the_agent_its_condenser_and_questions_beside_it_tell_the_conversation_and_its_tags() -> None:
    script = Script(
        *[run(f"echo {number}") for number in range(5)], DONE, ("A title", []), ("Well.", []), ("Short", [])
    )
    llm = model(script, **TOLD)
    condenser = LLMSummarizingCondenser(llm=model(script, usage_id="condenser", **TOLD), max_size=8, keep_first=2)
    who = Agent(llm=llm, tools=[Tool(name="terminal")], condenser=condenser)
    talk = conversation(who, conversation_id="conv-1", tags={"ticket": "T-12"})
    with talk:
        talk.send_message("Do it.")
        talk.run()
        talk.generate_title()
        talk.ask_agent("How is it?")
    told = metadata_of(script)
    assert len(told) == 9
    assert {one["session_id"] for one in told} == {"conv-1"}
    assert {one["team"] for one in told} == {"blue"}
    assert all("agent:Agent" in one["tags"] and "ticket:T-12" in one["tags"] for one in told)
    assert {tag for one in told for tag in one["tags"] if tag.startswith("usage_id:")} >= {
        "usage_id:agent",
        "usage_id:condenser",
    }


def test_a_conversation_whose_model_has_no_metadata_tells_nothing() -> None:
    script = Script(DONE)
    with conversation(Agent(llm=model(script)), tags={"ticket": "T-12"}) as talk:
        talk.send_message("Do it.")
        talk.run()
    assert [dict(request.extra_body) for request in script.requests] == [{}]
