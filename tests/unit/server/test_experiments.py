from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import SecretStr

from agent_core.llm.llm import LLM
from agent_core.session.settings import SessionSettings
from server.session.agents.experiments import ExperimentManager

SETTINGS = SessionSettings(llm=LLM(model="openai/a", api_key=SecretStr("k")), max_iterations=7)


class Halves(ExperimentManager):
    def variant(self, conversation_id: str, user_id: str, settings: SessionSettings) -> SessionSettings:
        if user_id == "broken":
            raise LookupError("no such experiment")
        even = int(conversation_id, 16) % 2 == 0
        return replace(settings, max_iterations=100) if even else settings


def test_without_an_experiment_the_settings_are_the_users() -> None:
    assert ExperimentManager().chosen("1", "", SETTINGS) is SETTINGS


def test_a_conversation_gets_its_variant() -> None:
    assert Halves().chosen("2", "", SETTINGS).max_iterations == 100
    assert Halves().chosen("3", "", SETTINGS).max_iterations == 7


def test_an_experiment_that_fails_costs_no_conversation(caplog: pytest.LogCaptureFixture) -> None:
    assert Halves().chosen("2", "broken", SETTINGS) is SETTINGS
    assert "no such experiment" in caplog.text
