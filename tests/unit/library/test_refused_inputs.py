"""Errors name the field and the problem, and do not quote what was refused: it may be a secret."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pydantic import TypeAdapter, ValidationError

from agent_core import (
    LLM,
    Agent,
    AgentContext,
    AgentDefinition,
    AgentErrorEvent,
    FallbackStrategy,
    GraySwanAnalyzer,
    HookConfig,
    LLMSummarizingCondenser,
    LookupSecret,
    Message,
    StaticSecret,
    Tool,
)
from agent_core.mcp.config import McpServerMap
from server.db.engine import DatabaseSettings
from server.settings.settings import Settings
from tests.unit.library.playing import DONE, Said, Script, agent, conversation

SECRET = "hunter2-secret-value"
MODEL = {"model": 1, "api_key": SECRET}
SERVER = {"url": 1, "headers": {"authorization": SECRET}}
FORMS: dict[str, Callable[[], object]] = {
    "a model": lambda: LLM.model_validate({"model": "m", "api_key": [SECRET]}),
    "headers of a model": lambda: LLM.model_validate({"model": "m", "extra_headers": {"x": [SECRET]}}),
    "an agent": lambda: Agent.model_validate({"llm": MODEL}),
    "servers of an agent": lambda: Agent.model_validate({"llm": {"model": "m"}, "mcp_config": {"a": SERVER}}),
    "servers": lambda: TypeAdapter(McpServerMap).validate_python({"a": {"command": 1, "env": {"KEY": SECRET}}}),
    "a tool": lambda: Tool.model_validate({"name": "", "params": {"key": SECRET}}),
    "a condenser": lambda: LLMSummarizingCondenser.model_validate({"llm": MODEL}),
    "a fallback": lambda: FallbackStrategy.model_validate({"fallback_llms": SECRET}),
    "a static secret": lambda: StaticSecret.model_validate({"value": {"a": SECRET}}),
    "a looked-up secret": lambda: LookupSecret.model_validate({"url": 1, "headers": {"x": SECRET}}),
    "a context": lambda: AgentContext.model_validate({"secrets": {"KEY": [SECRET]}}),
    "a sub-agent": lambda: AgentDefinition.model_validate({"name": "x", "mcp_servers": SECRET}),
    "a monitor": lambda: GraySwanAnalyzer.model_validate({"api_key": [SECRET]}),
    "hooks": lambda: HookConfig.model_validate({"hooks": {"Stop": [{"hooks": [{"command": [SECRET]}]}]}}),
    "a message": lambda: Message.model_validate({"role": SECRET}),
    "settings": lambda: Settings.model_validate({"access_token": [SECRET]}),
    "a database": lambda: DatabaseSettings.model_validate({"url": [SECRET]}),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_what_is_refused_is_not_quoted(form: Callable[[], object]) -> None:
    with pytest.raises(ValidationError) as refused:
        form()
    assert SECRET not in str(refused.value)


def test_a_secret_in_a_call_that_cannot_be_made_is_hidden_from_the_log_and_the_model() -> None:
    calls = [
        ("terminal", json.dumps({SECRET: "x"})),
        ("terminal", json.dumps({"command": [SECRET], "timeout": SECRET})),
        (SECRET, "{}"),
        ("terminal", f'{{"command": "{SECRET}'),
    ]
    answers: list[Said] = [("", [call]) for call in calls]
    script = Script(*answers, DONE)
    with conversation(agent(script), secrets={"KEY": SECRET}, stuck_detection=False) as one:
        one.send_message("Go.")
        one.run()
        assert len([event for event in one.state.log if isinstance(event, AgentErrorEvent)]) == len(calls)
        assert not [event.kind for event in one.state.log if SECRET in event.model_dump_json()]
        assert not [place for place in range(len(calls)) if SECRET in script.prompt(place + 1)]
