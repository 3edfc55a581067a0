"""An agent hands its conversation over to another model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.agent.agent import Agent
from agent_core.events.llm_events import AgentErrorEvent
from agent_core.llm.llm import LLM
from agent_core.llm.registry import ProfileStore
from agent_core.tools.spec import Tool
from tests.unit.controller.stage import REPLIES, Reply, Stage
from tests.unit.controller.test_answers import until
from tests.unit.controller.test_confirmation_flow import FINISHED, calls

KEY = "key-of-the-strong-one"
HEADER = "header-of-the-strong-one"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("DRYDOCK_HOME", str(tmp_path))
    stage = Stage()
    fields: dict[str, Any] = {"native_tool_calling": True, "num_retries": 1}
    headers = {"X-Api-Key": HEADER}
    strong = LLM(model="openai/strong", api_key=SecretStr(KEY), extra_headers=headers, usage_id="strong", **fields)
    ProfileStore().save("strong", strong, include_secrets=True)
    monkeypatch.setattr("agent_core.llm.llm.transport_of", lambda model, record_to: stage.model)
    weak = LLM(model="openai/weak", **fields)
    stage.settings = {"agent": Agent(llm=weak, tools=[Tool(name="switch_llm"), Tool(name="terminal")])}
    return stage


def switch(name: str) -> Reply:
    return "", [("switch_llm", f'{{"profile_name": "{name}", "reason": "hard"}}')]


def models(stage: Stage) -> list[str]:
    return [request.endpoint.model for request in stage.model.requests]


async def test_the_model_that_was_switched_to_goes_on_also_after_a_crash(stage: Stage) -> None:
    await stage.begin()
    await stage.say()
    await until(stage, FINISHED, [switch("strong"), calls(f"echo {KEY} {HEADER}"), REPLIES["finish"]])
    assert models(stage) == ["openai/weak", "openai/strong", "openai/strong"]
    assert "From the next step on openai/strong works." in str(stage.model.prompts[1])
    log = "".join([event.model_dump_json() for event in await stage.log()])
    assert KEY not in log
    assert HEADER not in log
    await stage.crash()
    await stage.begin()
    await stage.say()
    await until(stage, lambda log: FINISHED(log) and len(stage.model.requests) == 4, [REPLIES["finish"]])
    assert models(stage)[-1] == "openai/strong"
    await stage.end()


async def test_a_model_that_is_not_stored_is_an_error_that_names_those_there_are(stage: Stage) -> None:
    await stage.begin()
    await stage.say()
    events = await until(stage, FINISHED, [switch("nonesuch"), REPLIES["finish"]])
    (error,) = [event for event in events if isinstance(event, AgentErrorEvent)]
    assert "there are: strong" in error.error
    assert set(models(stage)) == {"openai/weak"}
    await stage.end()


async def test_what_was_switched_is_undone_with_it_and_a_model_that_is_gone_is_not_used(stage: Stage) -> None:
    await stage.begin()
    await stage.say()
    await until(stage, FINISHED, [switch("strong"), REPLIES["finish"]])
    await stage.session.rewinder.rewind(0)
    await stage.say()
    await until(stage, lambda log: FINISHED(log) and len(stage.model.requests) == 3, [REPLIES["finish"]])
    assert models(stage) == ["openai/weak", "openai/strong", "openai/weak"]
    await stage.say()
    await until(
        stage, lambda log: FINISHED(log) and len(stage.model.requests) == 5, [switch("strong"), REPLIES["finish"]]
    )
    await stage.crash()
    ProfileStore().delete("strong")
    await stage.begin()
    await stage.say()
    await until(stage, lambda log: FINISHED(log) and len(stage.model.requests) == 6, [REPLIES["finish"]])
    assert models(stage)[-1] == "openai/weak"
    await stage.end()
