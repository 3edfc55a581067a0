"""Plugins of an agent class in a real sandbox: what they bring up, in their order, and what is told of a failure."""

from __future__ import annotations

from typing import ClassVar

import pytest

from agent_core.agent.codeact import CodeActAgent
from agent_core.errors import ToolError
from agent_core.events.control import AgentState, ForeignEvent
from agent_core.events.llm_events import ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.testing.model_turns import Turn, call
from agent_core.tools.context import SandboxAccess
from agent_core.tools.plugins import AgentSkillsRequirement, JupyterRequirement, PluginRequirement, PluginService
from tests.integration.session.conftest import House, finish, run, until_state, user

pytestmark = pytest.mark.docker

SERVER = """
import http.server, os
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["GREETING"].encode())
http.server.HTTPServer(("127.0.0.1", 8077), Answer).serve_forever()
"""
ASK = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8077').read().decode())\""
GREETER = PluginRequirement(
    name="greeter",
    files={"bin/server.py": SERVER},
    env={"GREETING": "it's me"},
    setup=('echo "first $GREETING" >> order', "mkdir -p made"),
    service=PluginService('exec python3 "$PLUGIN_DIR/bin/server.py"', ready=ASK),
)


class Broken(PluginRequirement):
    async def bring_up(self, sandbox: SandboxAccess) -> None:
        raise ToolError("the parts are missing")


class GreetingAgent(CodeActAgent):
    sandbox_plugins: ClassVar[tuple[PluginRequirement, ...]] = (
        GREETER,
        Broken(name="broken"),
        PluginRequirement(name="failing", setup=("echo 'no such tool' >&2; false",)),
        PluginRequirement(name="ended", service=PluginService("echo out of order; exit 3", ready="false")),
        PluginRequirement(name="never", service=PluginService("sleep 600", ready="false"), limit_seconds=2.0),
        PluginRequirement(name="last", setup=("echo last >> order",)),
        JupyterRequirement(),
    )


class CountingAgent(CodeActAgent):
    sandbox_plugins: ClassVar[tuple[PluginRequirement, ...]] = (
        PluginRequirement(name="counting", setup=("echo up >> order",)),
    )


class PlainAgent(CodeActAgent):
    sandbox_plugins: ClassVar[tuple[PluginRequirement, ...]] = (AgentSkillsRequirement(),)


def results(events: list[AnyEvent]) -> list[str]:
    return [event.observation.text for event in events if isinstance(event, ObservationEvent)]


async def test_plugins_are_brought_up_in_order_and_again_with_the_sandbox(house: House) -> None:
    look = f"{ASK}; cat order; echo $GREETING; ls -d made"
    cell = "import os; print('open_file' in globals(), os.environ['GREETING'])"
    turns = [Turn(calls=(run(look),)), call("execute_ipython_cell", {"code": cell}), finish()]
    model = await house.model([*turns, Turn(calls=(run(ASK),)), finish()])
    async with house.running(model, "go", agent_class="GreetingAgent") as session:
        events = await until_state(session, AgentState.FINISHED)
        shown, cell_said, _ = results(events)
        assert shown.splitlines()[:5] == ["it's me", "first it's me", "last", "it's me", "made"]
        assert cell_said.startswith("False it's me"), "without the requirement cells have no skills"
        other = await session.sandbox.request("shell.run", {"command": "echo $GREETING", "session": "other"})
        assert other.result["output"].strip() == "it's me"
        told = [str(event.payload["content"]) for event in events if isinstance(event, ForeignEvent)]
        assert told[0] == "The plugin broken could not be set up: the parts are missing"
        assert told[1].startswith("The plugin failing could not be set up: ")
        assert "ended with exit code 1. no such tool" in told[1]
        assert "it has ended:\nout of order" in told[2]
        assert told[3].startswith("The plugin never could not be set up: ")
        assert len(told) == 4
        await session.sandbox.sandbox.stop()  # type: ignore[union-attr]
        await session.send(user("again"))
        events = await until_state(session, AgentState.FINISHED, after=events[-1].id)
    assert results(events)[0].startswith("it's me"), "the service is there before the command that woke the sandbox"


async def test_plugins_are_brought_up_again_in_a_sandbox_that_a_server_has_left_before_they_were_there(
    house: House,
) -> None:
    async def ups() -> str:
        async with house.running(model, conversation_id="c-counting", agent_class="CountingAgent") as session:
            found = await session.sandbox.request("shell.run", {"command": "cat order", "fresh": True})
            if is_cut_off:
                await session.sandbox.request("shell.run", {"command": "rm ~/.drydock-plugins/.up", "fresh": True})
            return str(found.result["output"])

    model = await house.model([])
    is_cut_off = False
    assert await ups() == "up\n"
    is_cut_off = True
    assert await ups() == "up\n", "the sandbox was at work all the time"
    is_cut_off = False
    assert await ups() == "up\nup\n"


async def test_an_agent_class_without_jupyter_has_no_kernel(house: House) -> None:
    model = await house.model([call("execute_ipython_cell", {"code": "1"}), finish()])
    async with house.running(model, "go", agent_class="PlainAgent") as session:
        events = await until_state(session, AgentState.FINISHED)
        offered = {one["function"]["name"] for one in model.last_request.json["tools"]}
        assert "execute_ipython_cell" not in offered
        assert "terminal" in offered
        assert not any(isinstance(event, ForeignEvent) for event in events)
