"""Whatever a comment or a page points to is in the repository, or published: a standard, a protocol, a paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("agent_core", "bench", "deploy", "docs", "drydock_client", "examples", "migrations", "runtime_images", "scripts"),
    *("server", "tests", "frontend_stub/src", "frontend_stub/tests"),
)
KINDS = frozenset({"", ".css", ".html", ".js", ".json", ".md", ".py", ".sh", ".toml", ".ts", ".tsx", ".yml"})
BUILT = frozenset({"node_modules", "__pycache__", "dist"})

PAGE = re.compile(r"(?<![\w/.-])docs/([\w-]+\.md)")
PLACE = re.compile(r"(?:section|chapter)s?\s*\d|§\s*\d", re.IGNORECASE)
NUMBERED = re.compile(r"(?<!\w)(?P<what>[\w.-]+),?\s+(?:sections?|chapters?|§)\s*\d", re.IGNORECASE)
PUBLISHED = re.compile(r"RFC\s?\d+|ECMA-\d+|ISO \d+|POSIX|HTML|OpenAPI|PEP \d+", re.IGNORECASE)
# Numbers behind the name of a document that is no page of ours; and its paths.
OUTSIDE = re.compile(r"(?:agent[-]core|wire[- ]protocol|style[-]examples|architecture)(?:\.md)?,?\s\d|\.\./shared\b")
# A number in brackets that no document is named with, alone or behind a letter, and numbered ideas and rules. What the
# coverage page calls S0 to S4 it names itself.
BARE = re.compile(
    r"(?<=[a-z`*]\s)\((?:\d{1,2}\.\d{1,2}(?:, \d{1,2}\.\d{1,2})*|[A-RT-Z]\d{1,2}(?:, [A-RT-Z]\d{1,2})*)\)"
    r"|\b(?:ideas?|rules?|rows? of) \d+\b"
)
MADE_UP = frozenset({"docs/a.md", "docs/d.md"})
"""Files that tests make."""


def texts() -> Iterator[tuple[str, str]]:
    files = [
        *ROOT.glob("*.md"),
        *ROOT.glob("*.toml"),
        *(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*")),
    ]
    for path in files:
        name = path.relative_to(ROOT)
        if path.suffix in KINDS and path.is_file() and not BUILT & set(name.parts) and path != Path(__file__):
            yield name.as_posix(), path.read_text("utf-8", "replace")


def dangling(text: str) -> list[str]:
    """What a text refers to that a reader of the repository cannot find."""
    found = [match[0] for match in PAGE.finditer(text) if not (ROOT / match[0]).exists() and match[0] not in MADE_UP]
    found += [match[0] for match in (*OUTSIDE.finditer(text), *BARE.finditer(text))]
    for match in NUMBERED.finditer(text) if PLACE.search(text) else ():  # it tries every word, which takes long
        around = text[max(0, match.start() - 80) : match.end() + 80]
        if not PUBLISHED.search(around):
            found.append(match[0])
    return found


def test_no_reference_dangles() -> None:
    found = {name: missing for name, text in texts() if (missing := dangling(text))}
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "as docs/nowhere.md says",
        "the order of agent-" + "core 6.3",
        "wire protocol" + " 4.1 has it",
        "see the manual, section 5",
        "in ../" + "shared/x.md",
        "what bounds them (4" + ".11)",
        "as reader (8" + ".7, 4.11) has it",
        "a cursor (idea" + " 3)",
        "made again from data (G" + "6)",
    ],
)
def test_references_that_dangle_are_found(text: str) -> None:
    assert dangling(text)


@pytest.mark.parametrize(
    "text", ["docs/protocol.md", "RFC 6455, section 5.5.1", "section 5.2 of RFC 9110", "two sections", "sleep(0.2)"]
)
def test_references_that_can_be_followed_are_left_alone(text: str) -> None:
    assert not dangling(text)
