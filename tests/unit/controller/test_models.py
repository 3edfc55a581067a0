"""More than one model behind an agent: routers and fallbacks in a whole session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_core.agent.agent import Agent
from agent_core.controller.usage import metrics_of
from agent_core.errors import LLMUnavailableError
from agent_core.events.control import AgentState
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import ImageContent, Message, TextContent
from agent_core.llm.llm import LLM
from agent_core.llm.profiles import FallbackStrategy
from agent_core.llm.registry import ProfileStore
from agent_core.llm.router import MultimodalRouter
from agent_core.llm.transport.exchange import CompletionRequest
from tests.unit.controller.stage import REPLIES, Stage, StageModel
from tests.unit.controller.test_answers import is_in, until

FINISHED = is_in(AgentState.FINISHED)
PRICE: dict[str, Any] = {"input_cost_per_token": 0.01, "output_cost_per_token": 0.01, "num_retries": 1}


async def test_a_router_chooses_for_each_step_and_each_model_is_counted_apart_also_after_reopening() -> None:
    stage = Stage()
    router = MultimodalRouter(
        llms_for_routing={
            "primary": LLM(model="openai/seeing", usage_id="seeing", **PRICE).using(stage.model),
            "secondary": LLM(model="openai/cheap", usage_id="cheap", **PRICE).using(stage.model),
        }
    )
    stage.settings["agent"] = Agent(llm=router)
    await stage.begin()
    await stage.say()
    await until(stage, FINISHED, [REPLIES["one"], REPLIES["finish"]])
    await stage.crash()
    for model in router.llms_for_routing.values():
        model.reset_metrics()
    await stage.begin()
    try:
        picture = ImageContent(image_urls=["data:image/png;base64,AA=="])
        shown = Message(role="user", content=[TextContent(text="See"), picture])
        await stage.session.send(MessageEvent(source="user", llm_message=shown))
        done = lambda log: FINISHED(log) and len(stage.model.prompts) == 3  # noqa: E731 - said once
        log = await until(stage, done, [REPLIES["finish"]])
    finally:
        await stage.end()
    assert [request.endpoint.model for request in stage.model.requests] == ["openai/cheap"] * 2 + ["openai/seeing"]
    figures = [metrics for event in log if (metrics := metrics_of(event)) is not None][-1]
    by_id = {usage_id: round(one.accumulated_cost, 6) for usage_id, one in figures.by_usage_id.items()}
    assert by_id == {"cheap": 0.3, "seeing": 0.15}
    assert round(router.llms_for_routing["secondary"].metrics.accumulated_cost, 6) == 0.3, "as the log says"


class Down(StageModel):
    """A provider that is not there."""

    async def stream(self, request: CompletionRequest) -> Any:
        self.requests.append(request)
        if self.requests:
            raise LLMUnavailableError("nobody is there")
        yield


async def test_a_fallback_takes_over_for_the_step_and_its_cost_is_the_failed_models(
    tmp_path: Path, monkeypatch: Any
) -> None:
    ProfileStore(tmp_path).save("spare", LLM(model="openai/spare", **PRICE))
    stage, down = Stage(), Down()
    spare = stage.model
    monkeypatch.setattr("agent_core.llm.llm.transport_of", lambda model, record_to: spare)
    fallback = FallbackStrategy(fallback_llms=("spare",), profile_store_dir=tmp_path)
    stage.settings["agent"] = Agent(llm=LLM(model="openai/main", fallback_strategy=fallback, **PRICE).using(down))
    await stage.begin()
    try:
        await stage.say()
        log = await until(stage, FINISHED, [REPLIES["one"], REPLIES["finish"]])
    finally:
        await stage.end()
    assert len(down.requests) == len(spare.requests) == 2, "each step tries the model itself first"
    figures = [metrics for event in log if (metrics := metrics_of(event)) is not None][-1]
    assert {usage_id: round(one.accumulated_cost, 6) for usage_id, one in figures.by_usage_id.items()} == {
        "default": 0.3
    }
