"""Critics and security analyzers that ask a model, on conversations of the server: which one, and who pays for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from agent_core.agent.critic import CriticBase
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, CriticResult
from agent_core.events.messages import Message
from agent_core.events.risk import SecurityRisk
from agent_core.events.schema import Tagged
from agent_core.llm.llm import AnyLLM
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from tests.contract.rest.conftest import MakeServer, Server
from tests.contract.rest.test_llm_profiles import at, until_asked, until_finished

PURPOSES = ("critic", "security_analyzer")


@pytest.fixture(autouse=True)
def no_judges() -> Iterator[pytest.MonkeyPatch]:
    """Of the critics and analyzers that were defined here nobody else knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecurityAnalyzer, "classes", dict(SecurityAnalyzer.classes))
        patch.setattr(Tagged, "classes", dict(Tagged.classes))
        patch.setattr(Tagged, "namesakes", dict(Tagged.namesakes))
        yield patch


@pytest.fixture
def judges(no_judges: pytest.MonkeyPatch) -> None:
    """There are an `AskingCritic` and an `AskingAnalyzer`."""

    class AskingCritic(CriticBase):
        """Asks a model what it thinks."""

        llm: AnyLLM | None = None

        def evaluate(self, events: Sequence[Event], git_patch: str | None = None) -> CriticResult:
            assert self.llm is not None
            return CriticResult(score=1.0, message=self.llm.completion([Message.user("Good?")]).message.text)

    class AskingAnalyzer(SecurityAnalyzer):
        """Asks a model how risky it is."""

        llm: AnyLLM | None = None

        def security_risk(self, action: ActionEvent) -> SecurityRisk:
            raise NotImplementedError

        async def asecurity_risk(self, action: ActionEvent) -> SecurityRisk:
            assert self.llm is not None
            return SecurityRisk[(await self.llm.acompletion([Message.user("Risky?")])).message.text]


def judging(request: ModelRequest) -> Turn:
    if not request.json.get("tools"):
        return say("LOW" if "Risky?" in str(request.messages) else "Well done.")
    if any(message["role"] == "tool" for message in request.messages):
        return finish("Done.")
    return call("terminal", {"command": "ls"})


@pytest.mark.usefixtures("judges")
async def test_critics_and_analyzers_that_ask_a_model_are_given_theirs_and_the_conversation_pays(
    make_server: MakeServer,
) -> None:
    own = {"agent_options": {"critic": "AskingCritic"}, "security_analyzer": "AskingAnalyzer"}
    async with ModelServer(judging) as model:
        costs = {"input_cost_per_token": 0.01, "output_cost_per_token": 0.0, "litellm_extra_body": {"metadata": {}}}
        profiles = {name: at(model, name, **costs) for name in ("strong", *PURPOSES)}
        chosen = {"llm_profiles": profiles, "llm_profile": "strong", "llm_purposes": {one: one for one in PURPOSES}}
        async with make_server(generate_titles=False, confirmation_mode=True, **chosen, **own) as server:
            conversation = await server.create(initial_user_msg="hi")
            await until_finished(server, conversation)
            for purpose in PURPOSES:
                request = await until_asked(server, model, purpose)
                assert request.api_key == f"key-of-{purpose}"
                assert request.json["metadata"]["session_id"] == conversation
                assert purpose in str(request.json["metadata"]["tags"])
            events = await server.events(conversation)
            paid = [event["llm_metrics"]["accumulated_cost"] for event in events if "llm_metrics" in event]
        assert paid[-1] == pytest.approx(1.0 * len(model.requests)), "a hundred tokens each"
        assert {request.model for request in model.requests} == {"strong", *PURPOSES}


@pytest.mark.parametrize("purpose", PURPOSES)
async def test_a_model_that_nothing_would_ask_is_refused(make_server: MakeServer, purpose: str) -> None:
    with pytest.raises(ValueError, match=rf"llm_purposes.{purpose}\s+no .* here asks a model"):
        async with make_server(llm_profiles={"p": {"model": "openai/p"}}, llm_purposes={purpose: "p"}):
            pass
    async with make_server(llm_profiles={"p": {"model": "openai/p"}}) as server:
        response = await server.post("/api/settings", json={"llm_purposes": {purpose: "p"}})
        assert response.status_code == 422
        assert response.json()["detail"][0]["loc"] == ["body", "llm_purposes", purpose]


@pytest.mark.usefixtures("judges")
async def test_no_users_options_bring_a_model_of_their_own_to_a_critic(server: Server) -> None:
    critic = {"kind": "AskingCritic", "llm": {"model": "openai/x", "record_to": "/tmp/x"}}
    response = await server.post("/api/settings", json={"agent_options": {"critic": critic}})
    assert (response.status_code, "leave out llm" in response.text) == (422, True)
