"""The system prompt: who the agent is, its sections in their order, notes for a kind of model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent_core.agent.codeact import CodeActAgent
from agent_core.agent.system_prompt import IDENTITY_FILE, ModelFamily, PromptManager, family_of
from agent_core.events.control import RecalledKnowledge, RecallObservation
from agent_core.llm.llm import LLM
from agent_core.skills.context import AgentContext
from agent_core.tools.spec import Tool


def prompt(model: str = "openai/x", **fields: Any) -> str:
    return CodeActAgent(llm=LLM(model=model), **fields).static_system_message


def sections(text: str) -> list[str]:
    return re.findall(r"^<([A-Z_]+)>$", text, re.MULTILINE)


def test_the_sections_stand_in_their_order_and_the_conditional_ones_where_they_belong() -> None:
    order = ["ROLE", "MEMORY", "EFFICIENCY", "FILES", "CODE_QUALITY", "VERSION_CONTROL", "PULL_REQUESTS"]
    order += ["PROBLEM_SOLVING", "SELF_DOCUMENTATION", "SECURITY", "RISK", "BROWSER", "EXTERNAL_SERVICES"]
    order += ["ENVIRONMENT_SETUP", "TROUBLESHOOTING", "PROCESSES", "NOTES", "STYLE"]
    full = prompt(
        "anthropic/claude-x",
        agent_context=AgentContext(load_memory=True),
        tools=[Tool(name="BrowserToolSet")],
        enable_plan_mode=False,
    )
    assert sections(full) == order
    plain = sections(prompt(enable_plan_mode=False, tools=[], system_prompt_kwargs={"llm_security_analyzer": False}))
    assert plain == [name for name in order if name not in {"MEMORY", "RISK", "BROWSER", "NOTES"}]


def test_the_users_own_file_says_who_the_agent_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prompt().startswith("You are Drydock")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / IDENTITY_FILE).parent.mkdir()
    (tmp_path / IDENTITY_FILE).write_text("You are Ada, {{ not a template }}.\n")
    assert prompt().startswith("You are Ada, {{ not a template }}.\n")
    assert "You are Drydock" not in prompt()
    (tmp_path / IDENTITY_FILE).write_bytes(b"\xff\xfe\xff")
    assert prompt().startswith("You are Drydock"), "what cannot be read is no identity"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("anthropic/claude-sonnet-4-5-20250929", ("anthropic_claude", "")),
        ("bedrock/anthropic.claude-3-7-sonnet-thinking", ("anthropic_claude", "thinking")),
        ("gemini/gemini-2.5-pro", ("google_gemini", "")),
        ("gpt-5-codex", ("openai_gpt", "codex")),
        ("openai/gpt-5.1", ("openai_gpt", "gpt-5")),
        ("openai/o3-mini", ("openai_gpt", "reasoning")),
        ("litellm_proxy/qwen3-coder", ("qwen", "")),
        ("openai/x", ("", "")),
        ("demo/tour", ("", "")),
        ("foo/proto3", ("", "")),
    ],
)
def test_a_model_is_known_by_its_name(model: str, expected: tuple[str, str]) -> None:
    assert family_of(model) == ModelFamily(*expected)


def test_a_variant_has_its_own_notes_or_those_of_its_family_and_a_folder_may_bring_others(tmp_path: Path) -> None:
    family, variant, other = prompt("openai/gpt-4o"), prompt("gpt-5-codex"), prompt("openai/gpt-5.1")
    notes = [text[text.index("<NOTES>") : text.index("</NOTES>")] for text in (family, variant, other)]
    assert notes[0] == notes[2] != notes[1]
    (tmp_path / "system_prompt.j2").write_text("{{ model_family }}/{{ model_variant }}: {{ model_notes }}")
    (tmp_path / "model_specific").mkdir()
    (tmp_path / "model_specific/openai_gpt.j2").write_text("own notes")
    told = PromptManager(tmp_path).get_system_message(model_name="openai/gpt-4o")
    assert told == "openai_gpt/: own notes"


def test_a_prompt_manager_renders_the_templates_of_its_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"system_prompt.j2"):
        PromptManager(tmp_path)
    (tmp_path / "mine.j2").write_text("I am {{ who }}.")
    (tmp_path / "user_prompt.j2").write_text("Ask {{ agent_name }} something.")
    manager = PromptManager(tmp_path, "mine.j2")
    assert manager.get_system_message(who="Ada") == "I am Ada."
    assert manager.get_example_user_message() == "Ask Drydock something."
    assert PromptManager().get_example_user_message() == ""
    assert PromptManager().get_system_message(model_name="m") == prompt("m", enable_plan_mode=False, tools=[])


def test_a_template_of_the_host_is_named_in_full_and_may_use_those_of_the_agent(tmp_path: Path) -> None:
    mine = tmp_path / "mine.j2"
    mine.write_text('Mine. {% include "security_policy.j2" %}')
    assert prompt(system_prompt_filename=str(mine)).startswith("Mine. ")
    mine.write_text("Changed.")
    assert prompt(system_prompt_filename=str(mine)) == "Changed."
    for field in ("system_prompt_filename", "security_policy_filename"):
        with pytest.raises(LookupError):
            prompt(**{field: str(mine).removeprefix("/")})


def test_a_prompt_manager_puts_recalled_knowledge_in_words() -> None:
    known = RecalledKnowledge(name="git", trigger="commit", content="Never force.")
    manager = PromptManager()
    assert "Never force." in manager.build_microagent_info([known])
    assert manager.build_microagent_info([]) == ""
    facts = RecallObservation(cause=1, recall_type="workspace_context", working_dir="/w", repo_instructions="Use tabs.")
    assert "Use tabs." in manager.build_workspace_context(facts)
    assert "/w" in manager.build_workspace_context(facts)
