"""A server whose configuration names a module of somebody's own: all that it registers acts in a conversation."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from tests.integration.server.conftest import MakeProcess, clean_environment, create, following
from tests.integration.server.forks import ROOT

MODULE = '''
"""A house module, as an operator writes one."""
import json
from pathlib import Path

from agent_core import Action, AgentBase, Observation, SecurityRisk, ToolDefinition, ToolExecutor, register_tool
from agent_core.agent.codeact import CodeActAgent
from agent_core.agent.critic import CriticBase, IterativeRefinementConfig
from agent_core.events.llm_events import CriticResult
from agent_core.llm.router import RouterLLM
from agent_core.memory.condenser import Condenser
from agent_core.security.analyzer import SecurityAnalyzer
from server.listeners import EventListener

SEEN = Path(__file__).with_name("seen.jsonl")


class StockAction(Action):
    item: str


class StockObservation(Observation):
    pass


class StockExecutor(ToolExecutor):
    def __call__(self, action, conversation=None):
        return StockObservation.from_text(f"There are 12 of {action.item}.")


class StockTool(ToolDefinition):
    @classmethod
    def create(cls, conv_state=None):
        return [cls(description="Counts the stock.", action_type=StockAction, observation_type=StockObservation,
                    executor=StockExecutor())]


register_tool("stock", StockTool)


class HouseAgent(CodeActAgent):
    @property
    def static_system_message(self):
        return "You work for the house."


class CountingCondenser(Condenser):
    config_types = {"counting": {"unit": "events"}}
    unit: str

    def condense(self, view, agent_llm=None):
        with SEEN.with_name("views").open("a") as file:
            file.write(f"{len(view)} {self.unit}\\n")
        return view


class DozenAnalyzer(SecurityAnalyzer):
    def security_risk(self, action):
        return SecurityRisk.HIGH if action.tool_name == "stock" else SecurityRisk.LOW


class PoliteCritic(CriticBase):
    iterative_refinement: IterativeRefinementConfig | None = IterativeRefinementConfig(max_iterations=1)

    def evaluate(self, events, git_patch=None):
        polite = "please" in str(events[-1].action)
        return CriticResult(score=1.0 if polite else 0.0, message="" if polite else "Say please.")


class HouseRouter(RouterLLM):
    router_name = "house"

    def select_llm(self, messages):
        return "ours"


class Book(EventListener):
    listener_name = "book"

    async def on_event(self, conversation_id, event):
        if type(event).__name__ == "MessageEvent" and event.source == "user":
            raise RuntimeError("the book was closed for a moment")
        with SEEN.open("a") as file:
            file.write(json.dumps([conversation_id, event.id, type(event).__name__]) + "\\n")

    async def close(self):
        with SEEN.open("a") as file:
            file.write(json.dumps("closed") + "\\n")
'''

CONFIG = """
modules = ["house.drydock"]
event_listeners = ["book"]
agent_class = "HouseAgent"
confirmation_mode = true
generate_titles = false

[agent_options]
tools = ["stock"]
condenser = {type = "counting"}
critic = "PoliteCritic"

[llm_profiles.ours]
model = "openai/chosen-by-the-router"
base_url = "http://127.0.0.1:9/v1"
api_key = "key-123456"

[llm_profiles.routed]
router = "house"
models = {ours = "ours"}
"""


@pytest.fixture
def plainly() -> bool:
    return True  # where modules are found is settled when the interpreter starts


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A folder with the module and a configuration that names it."""
    package = tmp_path / "code" / "house"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "drydock.py").write_text(MODULE)
    (tmp_path / "drydock.toml").write_text(CONFIG)
    return tmp_path


@pytest.mark.bubblewrap
async def test_what_a_module_registers_is_named_in_settings_and_acts(make_process: MakeProcess, house: Path) -> None:
    script = [call("stock", {"item": "screws"}), finish("There are 12."), finish("There are 12, please.")]

    def answer(request: ModelRequest) -> Turn:
        return script.pop(0)

    async with ModelServer(answer) as model:
        environment = {
            "PYTHONPATH": str(house / "code"),
            "LLM_MODEL": "openai/scripted",
            "LLM_BASE_URL": model.url,
            "LLM_API_KEY": "key-123456",
        }
        file = house / "drydock.toml"
        file.write_text(file.read_text().replace("http://127.0.0.1:9/v1", model.url))
        server = await make_process(
            "--sandbox", "local", "--config", str(house / "drydock.toml"), environment=environment
        )
        async with server.client() as client:
            assert "DozenAnalyzer" in (await client.get("/api/options/security-analyzers")).json()
            assert "HouseAgent" in (await client.get("/api/options/agents")).json()
            chosen = {"security_analyzer": "DozenAnalyzer", "llm_model": "openai/scripted", "llm_base_url": model.url}
            assert (await client.post("/api/settings", json=chosen)).status_code == 200
        conversation_id = await create(server, initial_user_msg="How many screws?")
        async with following(server, conversation_id) as follower:
            await follower.until(lambda: _state(follower.frames) == "awaiting_user_confirmation")
            await follower.send({"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}})
            await follower.until(lambda: _state(follower.frames) == "finished")
            frames = follower.frames
        first, _, last = model.requests
        assert "You work for the house." in json.dumps(first.messages[0])
        offered = {one["function"]["name"] for one in first.json["tools"]}
        assert "stock" in offered
        assert "terminal" not in offered
        assert "There are 12 of screws." in json.dumps(frames)
        assert "Say please." in json.dumps(last.messages), "the critic has sent it on"
        script.append(finish("Routed, please."))
        routed = await create(server, initial_user_msg="Route it.", llm_profile="routed")
        async with following(server, routed) as follower:
            await follower.until(lambda: _state(follower.frames) == "finished")
        assert model.last_request.model == "chosen-by-the-router"
        await server.stop()

    seen = [json.loads(line) for line in (house / "code/house/seen.jsonl").read_text().splitlines()]
    assert seen.pop() == "closed"
    assert {one[0] for one in seen} == {conversation_id, routed}
    seen = [one for one in seen if one[0] == conversation_id]
    assert (house / "code/house/views").read_text().count(" events\n") == 4, "a view for each step"
    ids = [one[1] for one in seen]
    assert ids == sorted(set(ids))
    assert [one[2] for one in seen].count("ActionEvent") == 3
    assert "the book was closed for a moment" in server.printed()


def _state(frames: list[dict[str, Any]]) -> str:
    states = [frame["extras"]["agent_state"] for frame in frames if "agent_state" in (frame.get("extras") or {})]
    return str(states[-1]) if states else ""


async def test_a_module_that_cannot_be_imported_stops_the_start_by_name(make_process: MakeProcess, house: Path) -> None:
    broken = house / "code/house/drydock.py"
    broken.write_text("import json\n\nvalue = json.loads('nothing')\n")
    with pytest.raises(RuntimeError) as failed:
        await make_process("--config", str(house / "drydock.toml"), environment={"PYTHONPATH": str(house / "code")})
    said = str(failed.value)
    assert "the module 'house.drydock' cannot be imported: json.decoder.JSONDecodeError: Expecting value" in said
    assert "Traceback" not in said
    assert "drydock.toml" in said


async def test_the_doctor_says_what_each_module_has_registered(house: Path) -> None:
    command = [sys.executable, "-m", "server", "doctor", "--sandbox", "unconfined", "--data-dir", str(house / "data")]
    process = await asyncio.create_subprocess_exec(
        *(*command, "--config", str(house / "drydock.toml")),
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(house / "code")},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert (
        "modules     house.drydock: tools stock; agents HouseAgent; condensers counting; "
        "security analyzers DozenAnalyzer; critics PoliteCritic; routers house; event listeners book\n"
    ) in said.decode()
