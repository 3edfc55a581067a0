"""Skills from folders, projects and the texts of a sandbox's files."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from agent_core.errors import SkillValidationError
from agent_core.mcp.servers import servers_with_skills
from agent_core.skills.loader import (
    load_project_skills,
    load_skill,
    load_skills_from_folder,
    load_user_skills,
    project_skills,
    skills_in_folder,
)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_folder_gives_its_markdown_files_without_readmes_and_broken_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, {"a.md": "A", "deep/b.md": "B", "README.md": "R", "deep/readme.MD": "r", "c.txt": "C"})
    write(tmp_path, {"bad.md": "---\ntype: magic\n---\n"})
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe\xff")
    with caplog.at_level(logging.WARNING):
        assert set(load_skills_from_folder(tmp_path)) == {"a", "deep/b"}
    assert {name for name in ("bad.md", "binary.md") if name in caplog.text} == {"bad.md", "binary.md"}


SERVERS = '{"mcpServers": {"press": {"command": "press"}}}'


def test_a_skill_md_may_have_its_servers_beside_it(tmp_path: Path) -> None:
    write(tmp_path, {"pdf/SKILL.md": "Read.", "pdf/.mcp.json": SERVERS, "plain.md": "P", ".mcp.json": SERVERS})
    write(tmp_path, {"own/SKILL.md": "---\nmcp_tools: {mcpServers: {mine: {url: 'http://x/'}}}\n---\n"})
    write(tmp_path, {"own/.mcp.json": SERVERS, "none/SKILL.md": "N"})
    found = load_skills_from_folder(tmp_path)
    assert {name: skill.mcp_server_names for name, skill in found.items()} == {
        "pdf": ["press"],
        "plain": [],
        "own": ["mine"],
        "none": [],
    }
    assert load_skill(tmp_path / "pdf/SKILL.md").mcp_tools == {"mcpServers": {"press": {"command": "press"}}}
    servers, unusable = servers_with_skills({}, found.values())
    assert (set(servers), unusable) == ({"press", "mine"}, {})


@pytest.mark.parametrize(
    ("text", "problem"), [("{", "cannot be read"), ("[]", "must be a JSON object, with mcpServers")]
)
def test_servers_beside_a_skill_that_cannot_be_read_are_an_error_that_names_their_file(
    tmp_path: Path, text: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, {"pdf/SKILL.md": "Read.", "pdf/.mcp.json": text})
    with pytest.raises(SkillValidationError, match=rf"pdf/\.mcp\.json: {problem}"):
        load_skill(tmp_path / "pdf/SKILL.md")
    assert load_skills_from_folder(tmp_path)["pdf"].mcp_tools is None
    assert f"pdf/.mcp.json: {problem}" in caplog.text


def test_one_broken_or_missing_file_asked_for_is_an_error_that_names_it(tmp_path: Path) -> None:
    write(tmp_path, {"bad.md": "---\ntype: magic\n---\n"})
    for name in ("bad.md", "missing.md"):
        with pytest.raises(SkillValidationError, match=name):
            load_skill(tmp_path / name)


def test_a_folder_with_a_skill_md_is_one_skill_with_its_resources(tmp_path: Path) -> None:
    files = {"pdf/SKILL.md": "---\nname: pdf\n---\nx", "pdf/references/more.md": "m", "pdf/scripts/run.py": "r"}
    found = load_skills_from_folder(write(tmp_path, {**files, "pdf/notes.md": "n"}))
    assert set(found) == {"pdf"}
    assert found["pdf"].resources.references == ["references/more.md"]
    assert found["pdf"].resources.scripts == ["scripts/run.py"]
    assert load_skill(tmp_path / "pdf/SKILL.md") == found["pdf"]


def test_of_two_skills_with_one_name_the_first_is_taken_and_the_other_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = {"/s/a.md": "---\nname: same\n---\n1", "/s/b.md": "---\nname: same\n---\n2", "/elsewhere/c.md": "C"}
    found = skills_in_folder(files, "/s/")
    assert [skill.content for skill in found.values()] == ["1"]
    assert "/s/b.md" in caplog.text


def test_the_folders_of_a_project_win_in_their_order_and_the_working_directory_before_its_repository() -> None:
    files = {
        "/w/sub/.openhands/microagents/x.md": "sub microagents",
        "/w/sub/.openhands/skills/x.md": "sub skills",
        "/w/.agents/skills/x.md": "root agents",
        "/w/.agents/skills/y.md": "root only",
        "/w/AGENTS.md": "root agents file",
        "/w/sub/AGENTS.md": "sub agents file",
    }
    found = {skill.name: skill.content for skill in project_skills(files, ["/w/sub", "/w"])}
    assert found["x"] == "sub skills"
    assert found["y"] == "root only"
    assert found["agents"] == "sub agents file"


def test_files_of_one_vendor_are_for_its_models_only() -> None:
    files = {"/w/AGENTS.md": "all", "/w/CLAUDE.md": "for one", "/w/GEMINI.md": "for another", "/w/.cursorrules": "c"}

    def names(model: str) -> set[str]:
        return {skill.name for skill in project_skills(files, ["/w"], model=model)}

    assert names("anthropic/claude-x") == {"agents", "cursorrules", "claude"}
    assert names("openai/gpt-x") == {"agents", "cursorrules"}
    assert names("") == {"agents", "cursorrules", "claude", "gemini"}


def test_a_text_in_two_files_is_told_once_and_nested_ones_become_rules() -> None:
    files = {"/w/AGENTS.md": "same", "/w/CLAUDE.md": "same\n", "/w/lib/AGENTS.md": "same", "/w/AGENT.md": "other"}
    found = project_skills(files, ["/w"])
    assert [(skill.name, skill.get_skill_type()) for skill in found] == [("agents", "repo"), ("agents:lib", "path")]
    links = {"/w/lib/AGENTS.md": "L", "/w/lib/CLAUDE.md": "L", "/w/bin/AGENTS.md": "L"}
    assert [skill.name for skill in project_skills(links, ["/w"])] == ["agents:bin", "agents:lib"]
    brought_up = {f"/w/.agents/skills/{name}.md": f"---\ntriggers: [{name}]\n---\nK" for name in ("a", "b")}
    assert [skill.name for skill in project_skills(brought_up, ["/w"])] == ["a", "b"], "each by its own word"


def test_only_markdown_files_of_a_project_are_skills() -> None:
    files = {"/w/.agents/skills/a.md": "A", "/w/.agents/skills/notes.txt": "N", "/w/.agents/skills/README.md": "R"}
    assert [skill.name for skill in project_skills(files, ["/w"])] == ["a"]


def test_files_beside_the_skills_of_a_project_are_no_rules_for_their_folder() -> None:
    files = {f"/w/{folder}/AGENTS.md": "about skills" for folder in (".agents/skills", ".openhands/microagents")}
    found = project_skills({**files, "/w/lib/AGENTS.md": "L"}, ["/w"])
    assert [skill.name for skill in found if skill.get_skill_type() == "path"] == ["agents:lib"]


def test_what_stands_in_one_root_is_no_rule_for_a_folder_of_the_other() -> None:
    files = {"/w/repo/AGENTS.md": "R", "/w/AGENTS.md": "W", "/w/repo/lib/AGENTS.md": "L"}
    found = project_skills(files, ["/w", "/w/repo"])
    assert [(skill.name, skill.content) for skill in found] == [("agents", "W"), ("agents:lib", "L")]
    found = project_skills({"/w/repo/AGENTS.md": "R"}, ["/w", "/w/repo"])
    assert [(skill.name, skill.get_skill_type()) for skill in found] == [("agents", "repo")]


def test_a_project_on_disk_is_read_the_same_way(tmp_path: Path) -> None:
    write(tmp_path, {"agents.md": "A", ".openhands/microagents/k.md": "---\ntriggers: [k]\n---\nK"})
    (tmp_path / "CLAUDE.md").symlink_to("agents.md")
    write(tmp_path, {"lib/AGENTS.md": "L", "lib/node_modules/x/AGENTS.md": "X", ".hidden/AGENTS.md": "H"})
    os.mkfifo(tmp_path / "lib/GEMINI.md")
    found = load_project_skills(tmp_path, git_root=tmp_path)
    assert [(skill.name, skill.content) for skill in found] == [("agents", "A"), ("agents:lib", "L"), ("k", "K")]


def test_a_users_skills_come_from_the_folders_of_the_home_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, {".openhands/skills/a.md": "later", ".agents/skills/a.md": "first"})
    write(tmp_path, {".openhands/skills/installed/b/SKILL.md": "---\nname: b\n---\nB"})
    write(tmp_path, {".openhands/skills/installed/c.md": "C", ".openhands/microagents/c.md": "own"})
    found = {skill.name: skill.content for skill in load_user_skills(tmp_path)}
    assert found == {"a": "first", "c": "own", "b": "B"}
    assert load_user_skills(tmp_path / "nobody") == []


def test_a_place_may_be_given_as_a_text_and_relative_to_where_the_program_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"AGENTS.md": "A", ".agents/skills/one.md": "1", "home/.agents/skills/two.md": "2"})
    monkeypatch.chdir(tmp_path)
    absolute = load_project_skills(tmp_path)
    assert {skill.name for skill in absolute} == {"agents", "one"}
    for place in (".", "", str(tmp_path)):
        assert load_project_skills(place) == absolute
    assert set(load_skills_from_folder(".agents/skills")) == {"one"}
    assert [skill.name for skill in load_user_skills("home")] == ["two"]
    assert load_skill(".agents/skills/one.md").content == "1"
