"""Plugins of a sandbox: what can be one, and that the usual ones cost nothing."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from agent_core.agent.codeact import CodeActAgent
from agent_core.llm.llm import LLM
from agent_core.tools.plugins import DEFAULT_PLUGINS, AgentSkillsRequirement, PluginRequirement, PluginService


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"name": "A name"}, "small letters"),
        ({"name": ""}, "small letters"),
        ({"name": "x; rm"}, "small letters"),
        ({"name": "x", "env": {"A-B": "c"}}, "cannot name variables"),
        ({"name": "x", "env": {"DRYDOCK_MARK": "c"}}, "cannot name variables"),
        ({"name": "x", "env": {"A": "b\0"}}, "without NUL"),
        ({"name": "x", "env": {"A": 3}}, "have to be texts"),
        ({"name": "x", "files": {"../x": ""}}, "leads out"),
        ({"name": "x", "files": {"/etc/x": ""}}, "leads out"),
        ({"name": "x", "files": {"a": "b" * 600_000}}, "more than 524288 bytes"),
        ({"name": "x", "setup": "make"}, "give a tuple"),
        ({"name": "x", "limit_seconds": 0}, "above zero"),
        ({"name": "x", "limit_secs": 1}, "limit_seconds"),
    ],
)
def test_what_cannot_be_a_plugin_is_refused_where_it_is_written(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises((ValueError, TypeError), match=problem):
        PluginRequirement(**wrong)


@pytest.mark.parametrize(
    ("plugins", "problem"),
    [
        (("shop",), "sandbox_plugins of Wrong: 'shop' is no PluginRequirement"),
        ((AgentSkillsRequirement,), "is no PluginRequirement, such as JupyterRequirement"),
        ((PluginRequirement(name="a"), PluginRequirement(name="a")), "two are called 'a'"),
    ],
)
def test_what_an_agent_class_cannot_have_brought_up_is_refused_where_the_class_is_written(
    plugins: Any, problem: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        type("Wrong", (CodeActAgent,), {"sandbox_plugins": plugins, "__module__": __name__})
    assert "Wrong" not in CodeActAgent.list_agents()


def test_the_usual_plugins_ask_the_sandbox_for_nothing() -> None:
    assert all(plugin.is_there_already for plugin in DEFAULT_PLUGINS)
    assert not PluginRequirement(name="x", service=PluginService("true")).is_there_already


class Kernelless(CodeActAgent):
    sandbox_plugins: ClassVar[tuple[PluginRequirement, ...]] = (AgentSkillsRequirement(),)


def test_a_class_without_a_kernel_has_no_cells_and_says_so_where_they_are_asked_for() -> None:
    llm = LLM(model="openai/x")
    assert "execute_ipython_cell" in CodeActAgent(llm=llm).initialize()
    assert "execute_ipython_cell" not in Kernelless(llm=llm).initialize()
    with pytest.raises(ValueError, match="sandbox_plugins of Kernelless have no kernel"):
        Kernelless(llm=llm, enable_jupyter=True)
