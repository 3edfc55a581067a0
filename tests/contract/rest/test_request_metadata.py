"""On a server the calls of the agent and those beside it tell a provider, where that is configured, whose they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_core.session.settings import SessionSettings
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import finish, say
from server.session.agents.experiments import ExperimentManager
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server


class WithMetadata(ExperimentManager):
    """Gives each conversation a model whose provider takes metadata."""

    def variant(self, conversation_id: str, user_id: str, settings: SessionSettings) -> SessionSettings:
        told: dict[str, Any] = {"litellm_extra_body": {"metadata": {}}}
        return replace(settings, llm=settings.llm.model_copy(update=told))


async def talk(server: Server, model: ModelServer) -> str:
    choice = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "key-of-the-test"}
    assert (await server.post("/api/settings", json=choice)).status_code == 200
    conversation_id = await server.create(initial_user_msg="Begin.")

    async def both_asked() -> bool:
        return len(model.requests) >= 2

    await server.until(both_asked, seconds=MODEL_SECONDS)
    return conversation_id


async def test_the_agent_and_the_title_tell_the_conversation_and_how_it_was_begun(make_server: MakeServer) -> None:
    made = make_server(experiment_manager_class=f"{__name__}.{WithMetadata.__name__}")
    async with ModelServer(lambda request: finish("One.") if request.json.get("tools") else say("Title")) as model:
        async with made as server:
            conversation_id = await talk(server, model)
        told = [request.json["metadata"] for request in model.requests]
        purposes = {bool(request.json.get("tools")) for request in model.requests}
    assert purposes == {True, False}, "the agent asked, and so did the title"
    assert {one["session_id"] for one in told} == {conversation_id}
    assert all("agent:CodeActAgent" in one["tags"] and "trigger:gui" in one["tags"] for one in told)


async def test_nothing_is_told_where_nobody_configured_it(make_server: MakeServer) -> None:
    async with ModelServer(lambda request: finish("One.") if request.json.get("tools") else say("Title")) as model:
        async with make_server() as server:
            await talk(server, model)
        assert not any("metadata" in request.json for request in model.requests)
