"""Plugins: folders with skills, commands, sub-agents, servers and hooks."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_core.agent.agent import Agent
from agent_core.errors import SkillValidationError
from agent_core.events.llm_events import MessageEvent, ObservationEvent, SystemPromptEvent
from agent_core.mcp.config import McpServer
from agent_core.security.hooks import HookConfig, HookEvent
from agent_core.skills.agent_catalog import is_registered, unregister_agent
from agent_core.skills.context import AgentContext
from agent_core.skills.plugin import read_plugin
from agent_core.skills.skill import Skill
from agent_core.tools.spec import Tool
from tests.unit.library.playing import DONE, Said, Sandbox, Script, conversation, model, run

HOOKS = {"hooks": {"PreToolUse": [{"matcher": "terminal", "hooks": [{"command": "check"}]}]}}
SERVERS = {"mcpServers": {"press": {"command": "press"}, "own": {"command": "theirs"}}}
INVOKE: Said = ("", [("invoke_skill", '{"name": "pdf"}')])


def write(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "folder"
    write(folder, ".plugin/plugin.json", {"name": "paper", "version": "2.1", "description": "For papers."})
    write(folder, "skills/pdf/SKILL.md", "---\nname: pdf\ndescription: reads papers\n---\nUse the press.")
    write(folder, "skills/always.md", "Mind the margins.")
    write(folder, "commands/print.md", "Print it all.")
    write(folder, "agents/printer.md", "---\ndescription: prints\n---\nYou print.")
    write(folder, "hooks/hooks.json", HOOKS)
    write(folder, ".mcp.json", SERVERS)
    yield folder
    unregister_agent("printer")


def who(script: Script, **fields: object) -> Agent:
    return Agent(llm=model(script), tools=[Tool(name="terminal")], **fields)


def test_a_folder_is_read_as_a_plugin(plugin: Path) -> None:
    found = read_plugin(plugin)
    assert (found.name, found.version, found.description) == ("paper", "2.1", "For papers.")
    assert {skill.name: skill.get_skill_type() for skill in found.skills} == {
        "pdf": "agentskills",
        "always": "repo",
        "paper:print": "knowledge",
    }
    assert [(agent.name, agent.level) for agent in found.agents] == [("printer", "plugin")]
    assert found.mcp_servers == SERVERS
    assert json.loads(found.hooks) == HOOKS


def test_without_a_manifest_the_folder_gives_the_name_and_another_programs_manifest_will_do(tmp_path: Path) -> None:
    folder = write(tmp_path / "bare", "skills/a.md", "A")
    found = read_plugin(folder)
    assert (found.name, found.version, found.description, found.hooks) == ("bare", "1.0.0", "", "")
    write(folder, ".claude-plugin/plugin.json", {"name": "given"})
    assert read_plugin(folder).name == "given"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.txt", "x", r"is no plugin: it has neither \.plugin/plugin\.json nor skills"),
        (".plugin/plugin.json", "{", r"plugin\.json: is no JSON"),
        (".plugin/plugin.json", "[1]", r"plugin\.json: must be a JSON object, not list"),
        (".mcp.json", "[]", r"\.mcp\.json: must be a JSON object"),
        ("agents/a.md", "x" * (1024 * 1024 + 1), r"a\.md: cannot be read: it has more than"),
    ],
)
def test_what_is_no_plugin_is_refused_with_its_file(tmp_path: Path, name: str, content: str, problem: str) -> None:
    folder = write(tmp_path / "folder", name, content)
    with pytest.raises(SkillValidationError, match=problem):
        read_plugin(folder)


def test_an_agent_has_what_a_plugin_brings_from_the_beginning(plugin: Path) -> None:
    script = Script(INVOKE, DONE)
    own = McpServer(command="mine", enabled=False)
    context = AgentContext(skills=[Skill(name="always", content="My own margins.")])
    with conversation(who(script, agent_context=context, mcp_config={"own": own})) as one:
        assert one.load_plugin(plugin).name == "paper"
        servers = one.agent.mcp_config
        assert (servers["press"].command, servers["own"]) == ("press", own)
        assert is_registered("printer")
        one.send_message("Go.")
        first = next(event for event in one.state.log if isinstance(event, SystemPromptEvent))
        assert first.dynamic_context is not None
        assert "My own margins." in first.dynamic_context.text
        assert "Mind the margins." not in first.dynamic_context.text
        assert "- pdf: reads papers" in first.dynamic_context.text
        assert not [event for event in one.state.log if isinstance(event, MessageEvent) and event.sender == "plugin"]


def test_a_conversation_may_be_made_with_plugins_and_its_fork_has_them_too(plugin: Path) -> None:
    (plugin / ".mcp.json").unlink()
    given = HookConfig.from_json('{"PreToolUse": [{"hooks": [{"command": "first"}]}]}')
    mine = who(Script(INVOKE, DONE))
    with conversation(mine, hook_config=given, plugins=[str(plugin)]) as one:
        assert mine.agent_context is None
        assert is_registered("printer")
        hooks = one.state.hook_config.for_event(HookEvent.PRE_TOOL_USE, "terminal")
        assert [getattr(hook, "command", "") for hook in hooks] == ["first", "check"]
        one.send_message("Go.")
        one.run()
        texts = [event.observation.text for event in one.state.events if isinstance(event, ObservationEvent)]
        assert any("Use the press." in text for text in texts)
        first = next(event for event in one.state.log if isinstance(event, SystemPromptEvent))
        assert first.dynamic_context is not None
        assert "Mind the margins." in first.dynamic_context.text
        assert not [event for event in one.state.log if isinstance(event, MessageEvent) and event.sender == "plugin"]
        with one.fork(workspace=Sandbox(), copy_files=False) as fork:
            assert fork.state.hook_config == one.state.hook_config
            assert fork.agent.agent_context is not None
            assert {skill.name for skill in fork.agent.agent_context.skills} == {"pdf", "always", "paper:print"}


def test_a_conversation_is_not_made_with_what_is_no_plugin(tmp_path: Path) -> None:
    with pytest.raises(SkillValidationError, match="is no folder"):
        conversation(who(Script()), plugins=[tmp_path / "none"])


def test_an_agent_that_has_begun_is_told_of_the_skills_and_can_ask_for_them(plugin: Path) -> None:
    (plugin / ".mcp.json").unlink()
    (plugin / "hooks/hooks.json").unlink()
    script = Script(DONE, INVOKE, DONE)
    with conversation(who(script)) as one:
        one.send_message("Go.")
        one.run()
        one.load_plugin(str(plugin))
        one.send_message("Now this: /paper:print")
        one.run()
        assert "The plugin paper was added" in script.prompt(1)
        assert "Mind the margins." in script.prompt(1)
        assert "Print it all." in script.prompt(1)
        texts = [event.observation.text for event in one.state.events if isinstance(event, ObservationEvent)]
        assert any("Use the press." in text for text in texts)


def test_hooks_of_a_plugin_come_after_those_that_were_given(plugin: Path) -> None:
    given = HookConfig.from_json('{"PreToolUse": [{"hooks": [{"command": "first"}]}]}')
    with conversation(who(Script()), hook_config=given) as one:
        one.load_plugin(plugin)
        hooks = one.state.hook_config.for_event(HookEvent.PRE_TOOL_USE, "terminal")
        assert [getattr(hook, "command", "") for hook in hooks] == ["first", "check"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("hooks/hooks.json", '{"Never": []}', r"plugin 'paper', hooks/hooks\.json: .*Never"),
        (".mcp.json", {"press": {"url": "x", "command": "y"}}, r"plugin 'paper', \.mcp\.json: press"),
    ],
)
def test_a_plugin_that_cannot_be_used_changes_nothing(plugin: Path, name: str, content: object, problem: str) -> None:
    write(plugin, name, content)
    with conversation(who(Script())) as one:
        before = one.agent
        with pytest.raises(SkillValidationError, match=problem):
            one.load_plugin(plugin)
        assert one.agent is before
        assert not is_registered("printer")
        with pytest.raises(SkillValidationError, match="is no folder; give the folder of a plugin"):
            one.load_plugin(plugin / "nonesuch")


def test_a_plugin_that_is_loaded_again_brings_only_what_is_new(plugin: Path) -> None:
    (plugin / ".mcp.json").unlink()
    with conversation(who(Script(DONE))) as one:
        one.load_plugin(plugin)
        one.send_message("Go.")
        one.load_plugin(plugin)
        assert len(one.state.hook_config.for_event(HookEvent.PRE_TOOL_USE, "terminal")) == 1
        assert not [event for event in one.state.log if isinstance(event, MessageEvent) and event.sender == "plugin"]
        write(plugin, "skills/new.md", "Something new.")
        one.load_plugin(plugin)
        (told,) = [event for event in one.state.log if isinstance(event, MessageEvent) and event.sender == "plugin"]
        assert "Something new." in told.llm_message.text
        assert "Mind the margins." not in told.llm_message.text


def test_a_kind_of_sub_agent_that_is_there_stays(plugin: Path, caplog: pytest.LogCaptureFixture) -> None:
    with conversation(who(Script())) as one, caplog.at_level(logging.WARNING):
        one.load_plugin(plugin)
        one.load_plugin(plugin)
        assert "the sub-agent 'printer' of plugin 'paper' is not used" in caplog.text
        assert len(one.agent.agent_context.skills if one.agent.agent_context else []) == 3


def test_a_plugin_waits_until_the_agent_rests(plugin: Path) -> None:
    sandbox = Sandbox()
    sandbox.held.clear()
    with conversation(who(Script(run("ls"), DONE)), workspace=sandbox) as one:
        one.send_message("Go.")
        running = threading.Thread(target=one.run)
        running.start()
        limit = time.monotonic() + 20
        while not sandbox.ran and time.monotonic() < limit:
            time.sleep(0.01)
        with pytest.raises(RuntimeError, match="is running; pause it first"):
            one.load_plugin(plugin)
        sandbox.held.set()
        running.join(60)
        assert not is_registered("printer")
        assert "press" not in one.agent.mcp_config
