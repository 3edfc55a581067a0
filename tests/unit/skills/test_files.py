"""One skill from one file: header, kind, and what is wrong with it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import SkillValidationError
from agent_core.skills.files import MAX_DEPTH, skill_from_text, split_frontmatter, third_party_skill
from agent_core.skills.skill import KeywordTrigger, PathTrigger, TaskTrigger


def headed(header: str, body: str = "Do it so.") -> str:
    return f"---\n{header}\n---\n{body}\n"


def test_a_file_without_a_header_is_always_on_and_named_after_itself() -> None:
    skill = skill_from_text("/w/.openhands/microagents/repo.md", "# Rules\n\nUse tabs.\n")
    assert (skill.name, skill.content, skill.get_skill_type()) == ("repo", "# Rules\n\nUse tabs.", "repo")
    assert skill.is_always_on
    assert skill.version == "1.0.0"
    assert skill.source == "/w/.openhands/microagents/repo.md"


@pytest.mark.parametrize("triggers", ["triggers:\n- git\n- pull request", "triggers: git, pull request"])
def test_triggers_make_it_knowledge_whatever_its_type_says(triggers: str) -> None:
    skill = skill_from_text("git.md", headed(f"name: git\ntype: repo\nagent: CodeActAgent\nversion: 1.5\n{triggers}"))
    assert skill.trigger == KeywordTrigger(keywords=["git", "pull request"])
    assert skill.get_skill_type() == "knowledge"
    assert skill.version == "1.5"


def test_inputs_make_it_a_task_that_is_called_by_its_name_and_asks_for_what_is_missing() -> None:
    skill = skill_from_text("t.md", headed("name: fix\ntriggers: [please]\ninputs:\n- {name: where}", "Fix ${where}."))
    assert skill.trigger == TaskTrigger(triggers=["please", "/fix"])
    assert skill.extract_variables() == ["where"]
    assert skill.requires_user_input()
    assert skill.content.startswith("Fix ${where}.\n\n")
    assert "ask for it" in skill.content
    assert skill.get_skill_type() == "knowledge"


def test_paths_come_before_inputs_and_triggers() -> None:
    skill = skill_from_text("p.md", headed("paths: src/**/*.py\ninputs: [{name: a}]\ntriggers: [b]"))
    assert skill.trigger == PathTrigger(paths=["src/**/*.py"])
    assert not skill.is_always_on
    assert not skill.is_listed


def test_a_skill_md_has_the_agentskills_format_with_all_its_fields() -> None:
    header = (
        "name: pdf-tools\ndescription: Handle PDF files\nlicense: MIT\ncompatibility: any\nmetadata: {author: me, n: 1}"
        "\nallowed-tools: terminal  think\ndisable-model-invocation: true"
    )
    skill = skill_from_text("/s/pdf-tools/SKILL.md", headed(header))
    assert skill.get_skill_type() == "agentskills"
    assert not skill.is_always_on
    assert not skill.is_listed
    assert skill.allowed_tools == ["terminal", "think"]
    assert skill.metadata == {"author": "me", "n": "1"}
    assert (skill.license, skill.compatibility, skill.description) == ("MIT", "any", "Handle PDF files")


def test_keys_may_be_written_with_underscores_and_the_file_in_lower_case() -> None:
    header = "name: pdf\nallowed_tools: [terminal]\ndisable_model_invocation: true"
    skill = skill_from_text("/s/pdf/skill.md", headed(header))
    assert (skill.get_skill_type(), skill.allowed_tools, skill.is_listed) == ("agentskills", ["terminal"], False)


def test_a_rule_for_files_is_not_offered_even_where_its_format_would_be() -> None:
    skill = skill_from_text("/s/pdf/SKILL.md", headed("name: pdf\npaths: '*.pdf'"))
    assert (skill.get_skill_type(), skill.is_listed) == ("agentskills", False)
    assert skill.match_path("a/b.pdf") == "*.pdf"


def test_a_task_that_needs_to_know_nothing_is_called_by_its_name_too() -> None:
    skill = skill_from_text("t.md", headed("name: fix\ninputs: []", "Fix it."))
    assert (skill.trigger, skill.content) == (TaskTrigger(triggers=["/fix"]), "Fix it.")


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("a.md", headed("name: [unclosed"), "no valid YAML: "),
        ("a.md", headed("- just\n- a list"), "must be a YAML mapping"),
        ("a.md", headed("1: x"), "no text: 1"),
        ("a.md", headed("type: magic"), "type: 'magic' is none of"),
        ("a.md", headed("name: {a: b}"), "name: "),
        ("a.md", headed("triggers: {a: b}"), "triggers: must be a list"),
        ("a.md", headed("triggers: ['']"), "must not hold an empty text"),
        ("a.md", headed("inputs: [{description: d}]"), "name: Field required"),
        ("a.md", headed("metadata: text"), "metadata: must be a mapping"),
        ("a.md", headed(f"description: {'d' * 1025}"), "description: "),
        ("a.md", headed("a: &x [1]\nb: *x"), "aliases"),
        ("a.md", headed("a: " + "[" * 5000), "nested more than"),
        ("a.md", headed("a: " + "x" * 70_000), "at most 65536"),
        ("a/SKILL.md", headed("name: b"), "name of its folder, 'a'"),
        ("A_b/SKILL.md", headed("name: A_b"), "lower-case letters"),
        (f"{'a' * 65}/SKILL.md", headed("description: d"), "at most 64"),
    ],
)
def test_a_broken_file_is_refused_with_its_path_and_the_field(path: str, text: str, problem: str) -> None:
    with pytest.raises(SkillValidationError) as failure:
        skill_from_text(path, text)
    line = failure.value.line
    assert str(failure.value).startswith(f"{path}: " if line is None else f"{path}, line {line}: ")
    assert failure.value.path == path
    assert problem in str(failure.value)


def test_a_line_of_dashes_alone_is_no_header() -> None:
    assert skill_from_text("a.md", "---\njust text").content == "---\njust text"
    assert split_frontmatter("\ufeff---\r\nname: n\r\n---\r\nbody\r\n") == ({"name": "n"}, "body")
    assert split_frontmatter("---\n---\nbody") == ({}, "body")


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_a_skill_or_refused_in_words(header: str, body: str) -> None:
    with suppress(SkillValidationError):
        assert skill_from_text("x.md", f"---\n{header}\n---\n{body}").name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("AGENTS.md", "agents"),
        ("agent.md", "agents"),
        ("Claude.MD", "claude"),
        ("GEMINI.md", "gemini"),
        (".cursorrules", "cursorrules"),
        (".openhands_instructions", "repo_legacy"),
    ],
)
def test_files_of_other_programs_are_always_on_skills(path: str, name: str) -> None:
    skill = third_party_skill(path, "---\nnot: a header for us\n---\nx")
    assert (skill.name, skill.is_always_on) == (name, True)
    assert "not: a header" in skill.content


def test_such_a_file_in_a_folder_is_a_rule_for_that_folder() -> None:
    skill = third_party_skill("lib/core/AGENTS.md", "x")
    assert skill.name == "agents:lib/core"
    assert skill.match_path("lib/core/deep/a.py") == "lib/core/**"
    assert skill.match_path("lib/other/a.py") is None
    with pytest.raises(SkillValidationError, match="README"):
        third_party_skill("README.md", "x")


def test_a_header_may_be_nested_so_deeply_and_no_more_whatever_stands_before() -> None:
    limit = MAX_DEPTH
    many = "".join(f"key{number}: [[a]]\n" for number in range(30))

    def header(levels: int) -> str:
        return f"---\n{many}last: {'[' * levels}{']' * levels}\n---\nText."

    assert split_frontmatter(header(limit - 1))[1].strip() == "Text."
    with pytest.raises(ValueError, match=f"nested more than {limit} levels deep"):
        split_frontmatter(header(limit + 1))


def test_a_key_without_a_value_counts_as_left_out() -> None:
    skill = skill_from_text("a.md", "---\nname:\nversion:\ndescription:\nmetadata:\ntriggers:\n---\nText.")
    assert (skill.name, skill.version, skill.description, skill.trigger) == ("a", "1.0.0", None, None)


def test_what_is_wrong_with_a_header_is_said_with_its_line_in_the_file() -> None:
    with pytest.raises(SkillValidationError, match=r"a\.md, line 3: its header is no valid YAML: "):
        skill_from_text("a.md", "---\nname: a\nversion: @\n---\nText")


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("name: a\n\ntriggers: {a: b}", 4),
        ("name: a\nallowed-tools: {a: b}", 3),
        ("name: a\ndisable-model-invocation: perhaps", 3),
        ("name: a\r\nmetadata: text", 3),
        ("name: a\ninputs:\n  - description: d", 3),
        ("- a list", None),
    ],
)
def test_a_wrong_field_is_told_with_the_line_in_which_it_stands(header: str, line: int | None) -> None:
    with pytest.raises(SkillValidationError) as failure:
        skill_from_text("a.md", f"\ufeff---\n{header}\n---\nText")
    assert failure.value.line == line
