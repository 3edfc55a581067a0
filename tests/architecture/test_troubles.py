"""Bad luck has one list of codes: each is used, and has its section where everybody looks it up."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from agent_core import errors
from agent_core.troubles import Trouble, trouble_of
from server.http.error_pages import error_sections, find_sections

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for package in ("agent_core", "server")
    for path in (ROOT / package).rglob("*.py")
    if path.name != "troubles.py" and "testing" not in path.parts
]
TEXT = "\n".join(path.read_text("utf-8") for path in SOURCES)
RUNNER = "\n".join(path.read_text("utf-8") for path in (ROOT / "runtime_images" / "runner").rglob("*.py"))
SECTIONS = error_sections()
CODES = {one.code for one in SECTIONS}

# What is told while all goes well has no page.
GOOD_NEWS = {
    *("STATUS$BUILDING_RUNTIME", "STATUS$STARTING_RUNTIME", "STATUS$RUNTIME_STARTED", "STATUS$SETTING_UP_WORKSPACE"),
    *("STATUS$SETTING_UP_GIT_HOOKS", "STATUS$READY", "STATUS$STOPPED", "STATUS$NETWORK_WARNING"),
}


NEVER_SENT = {"AGENT_ERROR$ACTION_TIMEOUT", "AGENT_ERROR$BAD_ACTION", "CONFIGURATION$SETTINGS_NOT_FOUND"}


def test_each_kind_of_bad_luck_has_its_section_once() -> None:
    assert len(CODES) == len(SECTIONS)
    assert set(Trouble) - CODES == set()


def test_each_code_of_an_error_has_its_section() -> None:
    """Those that errors are raised or answered with: in the server, and in the program in the sandbox."""
    patterns = (
        r'\bcode(?:: ClassVar\[str\] =| =|=)\s*"(\w+)"',
        r'"code": "(\w+)"',
        r'\(409, "(\w+)"\)',
        r'\(422, "(\w+)"\)',
    )
    raised = {code for pattern in patterns for code in re.findall(pattern, TEXT)}
    raised |= set(re.findall(r'Error\("(\w+)", ', RUNNER))
    assert {"key_in_use", "key_reused", "at_work", "run_elsewhere", "no_git", "early"} <= raised
    assert raised - CODES == set()


def test_each_id_that_says_of_bad_luck_is_found() -> None:
    ids = set(re.findall(r'"([A-Z_]{4,}\$[A-Z_]+)"', TEXT)) - GOOD_NEWS
    assert len(ids) > 15
    assert not [one for one in ids if not find_sections(one)]


def test_each_page_that_the_page_leads_to_is_there() -> None:
    """Its ids and its codes; but those of the original's servers, which this one never sends."""
    page = (ROOT / "frontend_stub" / "src" / "protocol" / "status.ts").read_text("utf-8")
    ids = set(re.findall(r"^  ([A-Z_]+\$[A-Z_]+): \{", page, re.MULTILINE)) - NEVER_SENT
    codes = set(re.findall(r'return "(\w+)";', page.partition("function errorCode")[2].partition("\n}")[0]))
    assert len(ids) > 10
    assert len(codes) == 4
    assert not [one for one in ids | codes if not find_sections(one)]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.code)
def test_a_section_says_what_it_means_and_what_to_do(section: object) -> None:
    found = next(one for one in SECTIONS if one is section)
    assert found.summary.endswith((".", ")"))
    assert not found.summary.startswith("-")
    assert "\n- **What to do:** " in found.text
    links = dict(re.findall(r"\[([^\]]+)\]\(#([^)]+)\)", found.text))
    assert set(links) <= CODES
    assert all(anchor == words.lower() for words, anchor in links.items())
    assert f'"{found.code}"' in TEXT + RUNNER + (ROOT / "agent_core" / "troubles.py").read_text("utf-8")


def test_each_code_is_used() -> None:
    """By its name; or as the code of an error or event that somebody raises or stores."""
    named, quoted = set(re.findall(r"Trouble\.(\w+)", TEXT)), set(re.findall(r'"(\w+)"', TEXT))
    kinds = dict(inspect.getmembers(errors, inspect.isclass))
    unused = [code for code in Trouble if code.name not in named and code not in kinds and code not in quoted]
    assert not unused


def test_whatever_a_model_does_has_its_code() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.LLMError)]
    assert len(kinds) > 10
    assert not [kind.__name__ for kind in kinds if trouble_of(kind.__name__) is None]
