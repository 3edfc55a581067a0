"""A whole session with skills and secrets: what the model is told, what commands get, what the log shows."""

from __future__ import annotations

from pydantic import SecretStr

from agent_core.events.control import AgentState
from agent_core.events.llm_events import MessageEvent, ObservationEvent, SystemPromptEvent
from agent_core.events.masking import MASK
from agent_core.events.serialization import to_payload
from agent_core.security.secrets import StaticSecret
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import KeywordTrigger, Skill
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest
from tests.unit.controller.stage import REPLIES, Stage
from tests.unit.controller.test_answers import is_in, until

CONTEXT = AgentContext(
    skills=[
        Skill(name="rules", content="Use tabs."),
        Skill(name="numbers", content="They are numbered.", trigger=KeywordTrigger(keywords=["message"])),
    ],
    user_message_suffix="Think first.",
    secrets={"SHOP_TOKEN": SecretStr("shop-token-value")},
)
"""The stage's user says `message 0.` first."""


class Shop(Stage):
    """A stage whose commands print what they are given."""

    async def _run(self, call: FakeRequest) -> FakeAnswer:
        self.given = dict(call.args.get("env", {}))
        answer = await super()._run(call)
        assert isinstance(answer, dict)
        return {**answer, "output": f"printed {self.given}"}


async def test_skills_reach_the_model_once_and_secrets_reach_commands_only() -> None:
    named = {"DOOR_CODE": StaticSecret(secret=SecretStr("door-code-value"), description="opens the door")}
    stage = Shop(settings={"agent_context": CONTEXT, "named_secrets": named})
    await stage.begin()
    try:
        asks = ("", [("terminal", '{"command": "echo $shop_token", "security_risk": "LOW"}')])
        await stage.say()
        await until(stage, is_in(AgentState.FINISHED), [asks, REPLIES["finish"]])
        await stage.say()
        await until(stage, lambda _: len(stage.model.prompts) == 3)
        log = await stage.log()
    finally:
        await stage.end()
    assert stage.given == {"SHOP_TOKEN": "shop-token-value"}
    (printed,) = [event for event in log if isinstance(event, ObservationEvent) and event.tool_name == "terminal"]
    assert printed.observation.text == f"printed {{'SHOP_TOKEN': '{MASK}'}}"
    assert not any(b"-value" in to_payload(event) for event in log)
    (prompt,) = [event for event in log if isinstance(event, SystemPromptEvent)]
    assert prompt.dynamic_context is not None
    for told in ("Use tabs.", "- $SHOP_TOKEN", "- $DOOR_CODE: opens the door"):
        assert told in prompt.dynamic_context.text
    last = str(stage.model.prompts[-1])
    assert last.count("They are numbered.") == 2  # in the list of skills, and with the first message
    assert last.count("Think first.") == 2  # with each message
    said = [event for event in log if isinstance(event, MessageEvent) and event.source == "user"]
    assert [event.llm_message.text for event in said] == stage.said
