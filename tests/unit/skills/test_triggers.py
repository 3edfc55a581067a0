"""What brings a skill up."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_core.skills.skill import KeywordTrigger, PathTrigger, TaskTrigger


@given(st.text(max_size=6), st.text(max_size=6), st.sampled_from(["git", "c++", "pull request", "/run", "É"]))
def test_a_keyword_matches_exactly_where_no_letter_or_digit_touches_it(before: str, after: str, word: str) -> None:
    touched = bool(re.search(r"[a-zA-Z0-9]\Z", before) or re.match(r"[a-zA-Z0-9]", after))
    alone = KeywordTrigger(keywords=[word])
    if word.lower() not in f"{before} {after}".lower():
        assert (alone.match(f"{before}{word.swapcase()}{after}") == word) is not touched


def test_the_first_keyword_of_the_list_is_named() -> None:
    trigger = KeywordTrigger(keywords=["nothing", "docker", "git"])
    assert trigger.match("Git in DOCKER") == "docker"
    assert trigger.match("digital dockers") is None


@pytest.mark.parametrize(
    ("message", "matches"),
    [
        ("/fix", True),
        ("please /FIX it", True),
        ("(/fix).", True),
        ("/fixes", False),
        ("/fix-all", False),
        ("see /fix/me", False),
        ("a/fix", False),
    ],
)
def test_a_task_is_called_by_its_name_alone(message: str, *, matches: bool) -> None:
    assert (TaskTrigger(triggers=["/fix"]).match(message) == "/fix") is matches


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b/c.py", True),
        ("*.py", "c.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("src/*.py", "lib/src/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/a/b/c.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "src", False),
        ("**/test_?.py", "x/test_1.py", True),
        ("**/test_?.py", "test_12.py", False),
        ("docs/", "docs/a.md", True),
        ("docs/", "x/docs/a.md", True),
        ("/docs", "docs/a.md", True),
        ("/docs", "x/docs/a.md", False),
        ("a.b", "axb", False),
        ("[a].py", "[a].py", True),
        ("*a*a*.py", "x/bana.py", True),
        ("*a*a*.py", "ba/na.py", False),
        ("*a" * 30 + "b", "a" * 1_000, False),
    ],
    ids=lambda value: str(value)[:30],
)
def test_paths_match_like_those_of_a_gitignore(pattern: str, path: str, *, matches: bool) -> None:
    assert (PathTrigger(paths=[pattern]).match_path(f"./{path}") == pattern) is matches


def test_empty_triggers_are_refused() -> None:
    for make in (
        lambda: KeywordTrigger(keywords=[" "]),
        lambda: TaskTrigger(triggers=[]),
        lambda: PathTrigger(paths=[""]),
    ):
        with pytest.raises(ValidationError):
            make()
