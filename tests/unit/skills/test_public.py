"""Skills that somebody publishes, and notes of earlier conversations, all on this host."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agent_core.session.factory import completed
from agent_core.skills.context import MARKETPLACE, MAX_NOTES_CHARS, NOTES_FILE, AgentContext, user_notes
from agent_core.skills.loader import REF_VARIABLE, URL_VARIABLE, load_public_skills
from agent_core.skills.skill import Skill


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def repository(root: Path, listed: object = None) -> Path:
    write(root / "skills/fish/SKILL.md", "---\nname: fish\ndescription: About fish.\n---\nFish swim.")
    write(root / "skills/boats.md", "---\ntriggers: [boat]\n---\nBoats float.")
    if listed is not None:
        write(root / MARKETPLACE, listed if isinstance(listed, str) else json.dumps(listed))
    return root


def names(*arguments: object, **environment: str) -> list[str]:
    others = [str(one) for one in arguments]
    return [skill.name for skill in load_public_skills(MARKETPLACE, others, environment=environment)]


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_nothing_is_fetched_where_no_repository_is_configured() -> None:
    assert names() == []


def test_the_list_of_a_repository_says_which_of_its_skills_are_meant(tmp_path: Path) -> None:
    listed = {"plugins": [{"name": "fish", "source": "./skills/fish"}, {"source": "../outside"}, "nonsense", {}]}
    write(tmp_path / "outside/SKILL.md", "---\nname: outside\n---\nNo.")
    of_many = {"plugins": [{"name": "all", "source": "."}, {"source": "./skills/boats.md"}]}
    assert sorted(names(repository(tmp_path / "zero", of_many))) == ["boats", "fish"], "folders of skills, and files"
    assert names(**{URL_VARIABLE: str(repository(tmp_path / "one", listed))}) == ["fish"]
    assert sorted(names(repository(tmp_path / "two"))) == ["boats", "fish"], "without a list all of them"
    assert names(repository(tmp_path / "three", "{")) == []


def test_a_repository_is_cloned_at_its_branch_and_used_as_it_was_when_it_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    origin = repository(tmp_path / "origin")
    git(origin, "init", "-q", "-b", "v2")
    git(origin, "add", "skills")
    git(origin, "commit", "-q", "-m", "skills")
    environment = {URL_VARIABLE: origin.as_uri(), REF_VARIABLE: "v2"}
    cache = tmp_path / "cache"

    def found() -> list[str]:
        return sorted(skill.name for skill in load_public_skills(MARKETPLACE, environment=environment, cache=cache))

    assert found() == ["boats", "fish"]
    write(origin / "skills/nets.md", "Nets hold.")
    git(origin, "add", "skills")
    git(origin, "commit", "-q", "-m", "nets")
    assert found() == ["boats", "fish"], "it was fetched a moment ago"
    monkeypatch.setattr("agent_core.skills.loader.REFRESH_SECONDS", -1.0)
    assert found() == ["boats", "fish", "nets"]
    lock = next(cache.glob("*/.git")) / "index.lock"
    lock.touch()
    write(origin / "skills/oars.md", "Oars row.")
    git(origin, "add", "skills")
    git(origin, "commit", "-q", "-m", "oars")
    assert found() == ["boats", "fish", "nets"], "another git may be at work"
    os.utime(lock, (0, 0))
    assert found() == ["boats", "fish", "nets"], "it was tried a moment ago"
    monkeypatch.setattr("agent_core.skills.loader.RETRY_SECONDS", -1.0)
    assert found() == ["boats", "fish", "nets", "oars"], "one that was killed has left it"
    origin.rename(tmp_path / "moved")
    assert found() == ["boats", "fish", "nets", "oars"]
    assert "fetched before" in caplog.text
    environment[REF_VARIABLE] = "nonesuch"
    assert found() == []
    assert cache.is_dir()
    assert not (tmp_path / "home").exists(), "a cache that was given is the one that is used"


def test_a_repository_that_was_fetched_in_part_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = repository(tmp_path / "origin")
    git(origin, "init", "-q")
    git(origin, "add", "skills")
    git(origin, "commit", "-q", "-m", "skills")
    write(tmp_path / "broken/git", '#!/bin/sh\nfor last; do :; done\nmkdir -p "$last/.git"\nexit 1\n')
    (tmp_path / "broken/git").chmod(0o755)
    environment, cache = {URL_VARIABLE: origin.as_uri()}, tmp_path / "cache"
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path / 'broken'}:/usr/bin:/bin")
        assert load_public_skills(MARKETPLACE, environment=environment, cache=cache) == []
    monkeypatch.setattr("agent_core.skills.loader.RETRY_SECONDS", 0.0)
    found = load_public_skills(MARKETPLACE, environment=environment, cache=cache)
    assert sorted(skill.name for skill in found) == ["boats", "fish"]


def test_a_context_gets_what_it_asks_for_and_what_was_given_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(URL_VARIABLE, str(repository(tmp_path / "public")))
    write(tmp_path / ".agents/skills/boats.md", "The user's boats.")
    write(tmp_path / NOTES_FILE, "Likes tabs.")
    assert completed(None) is None
    plain = AgentContext(memory_context="given")
    assert completed(plain) == plain
    own = AgentContext(
        skills=[Skill(name="fish", content="My fish.")],
        load_user_skills=True,
        load_public_skills=True,
        load_memory=True,
    )
    full = completed(own)
    assert full is not None
    assert {skill.name: skill.content for skill in full.skills} == {"fish": "My fish.", "boats": "The user's boats."}
    assert full.memory_context == "Likes tabs."
    assert completed(full) == full, "nothing is added twice"


def test_a_user_without_a_home_has_no_skills_and_no_notes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    wanted = AgentContext(load_user_skills=True, load_memory=True, load_public_skills=True)
    assert completed(wanted) == wanted
    assert "the user's skills are left out" in caplog.text


def test_notes_are_cut_at_their_limit(tmp_path: Path) -> None:
    assert user_notes(tmp_path) == ""
    write(tmp_path / NOTES_FILE, "n" * (MAX_NOTES_CHARS + 1))
    assert len(user_notes(tmp_path)) == MAX_NOTES_CHARS
