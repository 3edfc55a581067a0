"""Searching files by name and content: which are looked at, and what is found.

Each search by content is done twice, with ripgrep and without, and finds the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_images.runner.files import search
from runtime_images.runner.files.patterns import IgnoreRules, compiled
from runtime_images.runner.files.search import Walk

pytestmark = pytest.mark.ripgrep


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    return root


def put(root: Path, path: str, content: str | bytes = "needle\n", *, age: int = 0) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(file, (1_700_000_000 - age, 1_700_000_000 - age))
    return file


def look(kind: str, root: Path, pattern: str, *, limit: int = 100, **more: Any) -> dict[str, Any]:
    order = {"kind": kind, "path": str(root), "pattern": pattern, "include": None, "limit": limit, **more}
    return search.outcome({"ripgrep": True, **order})


def found(root: Path, result: dict[str, Any]) -> list[str]:
    assert "error" not in result, result
    return [os.path.relpath(path, root) for path in result["files"]]


def grep(root: Path, pattern: str, **more: Any) -> list[str]:
    assert shutil.which("rg"), "these tests need ripgrep: scripts/real-parts ripgrep"
    quick, slow = (look("grep", root, pattern, ripgrep=ripgrep, **more) for ripgrep in (True, False))
    assert quick == slow
    return found(root, quick)


def glob(root: Path, pattern: str, **more: Any) -> list[str]:
    return found(root, look("glob", root, pattern, **more))


def test_grep_lists_files_newest_first_whatever_the_case(tree: Path) -> None:
    put(tree, "old.txt", "a NEEDLE here\n", age=30)
    put(tree, "sub/new.txt", "needle", age=10)
    put(tree, "same-age-b", age=20)
    put(tree, "same-age-a", age=20)
    put(tree, "other", "hay\n")
    assert grep(tree, "needle") == ["sub/new.txt", "same-age-a", "same-age-b", "old.txt"]


def test_grep_reads_regular_expressions_line_by_line(tree: Path) -> None:
    put(tree, "a", "first line\nsecond 42\r\nlast")
    put(tree, "b", "-e --files\n")
    for pattern in ("^second", r"\d{2}$", "first|nothing", r"l(as)t\b", "^last$", "second 42$"):
        assert grep(tree, pattern) == ["a"], pattern
    for pattern in (r"line\ssecond", "first.*last", r"42\r", "^line"):
        assert grep(tree, pattern) == [], pattern
    for pattern in ("-e", "--files", "^-e"):
        assert grep(tree, pattern) == ["b"], pattern


@pytest.mark.parametrize("pattern", [r"o(\w)\1er", r"(?<!x)needle(?=s)", "[[a]needle", "needles\\Z"])
def test_grep_takes_what_only_one_engine_knows(tree: Path, pattern: str) -> None:
    put(tree, "a", "[needles\n[offer needles")
    put(tree, "b", "hay")
    assert grep(tree, pattern) == ["a"]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "*x", "(?P<n>", "a{2,1}"])
def test_an_invalid_regex_is_said_to_be_one(tree: Path, pattern: str) -> None:
    assert look("grep", tree, pattern)["error"].startswith("Invalid regex pattern: ")


def test_at_most_so_many_are_listed_and_more_are_told_of_only_where_there_are_more(tree: Path) -> None:
    for number in range(5):
        put(tree, f"{number}.py", age=number)
    for kind in ("grep", "glob"):
        pattern = "needle" if kind == "grep" else "*.py"
        exact, more = look(kind, tree, pattern, limit=5), look(kind, tree, pattern, limit=4)
        assert (len(exact["files"]), exact["truncated"]) == (5, False)
        assert (found(tree, more), more["truncated"]) == (["0.py", "1.py", "2.py", "3.py"], True)


def test_hidden_files_and_folders_are_passed_over_unless_include_names_the_file(tree: Path) -> None:
    for path in ("seen", ".hidden", ".folder/inside", "sub/.env.local"):
        put(tree, path)
    assert grep(tree, "needle") == ["seen"]
    assert grep(tree, "needle", include=".h*") == [".hidden"]
    assert grep(tree, "needle", include=".env*") == ["sub/.env.local"]
    assert grep(tree, "needle", include="inside") == []
    assert grep(tree / ".folder", "needle") == ["inside"]
    assert glob(tree, "*") == ["seen"]
    assert glob(tree, ".env*") == ["sub/.env.local"]
    assert glob(tree, ".folder/*") == [".folder/inside"]
    assert glob(tree, "**/inside") == []


def test_include_chooses_by_name_or_path_or_leaves_out(tree: Path) -> None:
    for path in ("a.py", "b.ts", "c.tsx", "src/d.py", "src/deep/e.py"):
        put(tree, path)
    assert sorted(grep(tree, "needle", include="*.py")) == ["a.py", "src/d.py", "src/deep/e.py"]
    assert grep(tree, "needle", include="*.{ts,tsx}") == ["b.ts", "c.tsx"]
    assert grep(tree, "needle", include="src/*.py") == ["src/d.py"]
    assert sorted(grep(tree, "needle", include="src/**/*.py")) == ["src/d.py", "src/deep/e.py"]
    assert grep(tree, "needle", include="./src/*.py") == ["src/d.py"]
    assert grep(tree, "needle", include="!*.py") == ["b.ts", "c.tsx"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("x{one}*.{ts,tsx}", ["x{one}a.ts", "x{one}b.tsx"]),
        ("x{{a,b}}", ["x{a}", "x{b}"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("a{,.py}", ["a", "a.py"]),
        ("{a}", ["{a}"]),
        ("a.{py", ["a.{py"]),
        ("[{]x,[}]", ["{x,}"]),
        ("{a,[}]b}", ["a", "}b"]),
        ("{!a,b}", ["!a", "b"]),
    ],
)
def test_braces_are_a_choice_where_they_have_a_comma_and_else_themselves(
    tree: Path, pattern: str, names: list[str]
) -> None:
    for name in ("x{one}a.ts", "x{one}b.tsx", "x{a}", "x{b}", "xa", "a", "b", "c", "a.py", "{a}", "!a"):
        put(tree, name)
    for name in ("a.{py", "{x,}", "}b", "x", "one"):
        put(tree, name)
    assert sorted(grep(tree, "needle", include=pattern)) == sorted(names)
    assert sorted(glob(tree, pattern)) == sorted(names)


def test_what_git_ignores_is_passed_over_inside_a_repository_only(tree: Path) -> None:
    put(tree, ".gitignore", "*.log\nbuild/\n!keep.log\n")
    for path in ("a.py", "b.log", "keep.log", "build/c.py", "sub/build/d.py", "sub/e.log"):
        put(tree, path)
    assert len(grep(tree, "needle")) == 6
    (tree / ".git/info").mkdir(parents=True)
    assert grep(tree, "needle") == ["a.py", "keep.log"]
    assert glob(tree, "*") == ["a.py", "keep.log"]
    assert grep(tree, "needle", include="*.log") == ["b.log", "keep.log", "sub/e.log"]
    assert grep(tree / "build", "needle") == ["c.py"]
    put(tree, "sub/.gitignore", "!e.log\n")
    assert grep(tree / "sub", "needle") == ["e.log"]
    put(tree, ".git/info/exclude", "a.*\n")
    assert grep(tree, "needle") == ["keep.log", "sub/e.log"]
    put(tree, ".ignore", "keep.log\n!a.py\n")
    assert grep(tree, "needle") == ["a.py", "sub/e.log"]


def test_a_repository_inside_another_has_its_own_rules(tree: Path) -> None:
    (tree / ".git").mkdir()
    put(tree, ".gitignore", "*.log\n")
    (tree / "inner/.git").mkdir(parents=True)
    put(tree, "inner/a.log")
    put(tree, "outer.log")
    assert grep(tree, "needle") == ["inner/a.log"]


def test_links_devices_and_binary_files_are_no_matter(tree: Path) -> None:
    put(tree, "real/file")
    put(tree, "binary", b"needle\0\1\2\3" * 100)
    put(tree, "late", b"needle\n" * 20_000 + b"\0")
    (tree / "real/loop").symlink_to("..")
    (tree / "link").symlink_to("real/file")
    (tree / "gone").symlink_to("nowhere")
    os.mkfifo(tree / "fifo")
    assert sorted(grep(tree, "needle")) == ["late", "real/file"]
    assert sorted(glob(tree, "**/*")) == ["binary", "late", "real/file"]
    (tree / "root").symlink_to(tree / "real")
    assert found(tree, look("grep", tree / "root", "needle")) == ["root/file"]


def test_texts_in_other_encodings_are_read_as_far_as_they_say_so(tree: Path) -> None:
    put(tree, "utf16", "first\nneedle ä\n".encode("utf-16"))
    put(tree, "mark", "needle ä".encode("utf-8-sig"))
    put(tree, "latin", "needle ä".encode("latin-1"))
    assert grep(tree, "^needle") == ["latin", "mark", "utf16"]
    assert grep(tree, "needle Ä$") == ["mark", "utf16"]


def test_names_that_are_no_text_are_shown_with_escapes(tree: Path) -> None:
    os.close(os.open(os.fsencode(tree) + b"/b\xffd\nname", os.O_CREAT | os.O_WRONLY))
    (tree / os.fsdecode(b"b\xffd\nname")).write_text("needle")
    assert grep(tree, "needle") == [r"b\xffd\nname"]
    assert glob(tree, "b*") == [r"b\xffd\nname"]


def test_folders_that_cannot_be_read_are_counted(tree: Path) -> None:
    put(tree, "open/file")
    # For root everything can be read, so the folder goes away between the look at it and the look into it.
    walked = Walk(str(tree / "nowhere"), lambda entry: True, lambda name: False)
    assert list(walked.files()) == []
    assert walked.unreadable == 1


@pytest.mark.parametrize("kind", ["grep", "glob"])
def test_where_to_search_must_be_a_directory(tree: Path, kind: str) -> None:
    put(tree, "file")
    assert look(kind, tree / "file", "x")["error"] == f"{tree}/file is not a directory; give a directory."
    assert look(kind, tree / "none", "x")["error"] == f"{tree}/none does not exist; give a directory."


def test_glob_finds_files_anywhere_below_unless_the_pattern_says_where(tree: Path) -> None:
    for path in ("a.py", "src/b.py", "src/deep/c.py", "docs/d.md", "docs/src/e.py"):
        put(tree, path)
    assert sorted(glob(tree, "*.py")) == ["a.py", "docs/src/e.py", "src/b.py", "src/deep/c.py"]
    assert sorted(glob(tree, "src/*.py")) == ["docs/src/e.py", "src/b.py"]
    assert sorted(glob(tree, "src/**/*.py")) == ["src/b.py", "src/deep/c.py"]
    assert sorted(glob(tree, "src/**")) == ["src/b.py", "src/deep/c.py"]
    assert sorted(glob(tree, "**/*.{md,txt}")) == ["docs/d.md"]
    assert glob(tree, "?.[!p]*") == ["docs/d.md"]
    assert glob(tree, "none/**/*.py") == []
    assert glob(tree, "./docs//src/*.py") == ["docs/src/e.py"]
    assert sorted(glob(tree, "docs/")) == ["docs/d.md", "docs/src/e.py"]
    assert found(tree, look("glob", Path("/nowhere"), f"{tree}/docs/*.py")) == ["docs/src/e.py"]
    assert "does not exist" in look("glob", tree, f"{tree}/none/*.py")["error"]


def test_a_pattern_may_begin_above_the_folder_or_at_home(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree / "home"))
    for path in ("up.md", "one/two/down.md", "home/own.md"):
        put(tree, path)
    assert glob(tree / "one" / "two", "../../*.md") == ["../../home/own.md", "down.md", "../../up.md"]
    assert glob(tree / "one" / "two", "../*/down.md") == ["down.md"]
    assert glob(tree / "one", "~/*.md") == ["../home/own.md"]
    assert glob(Path("/"), f"../..{tree}/**/down.md") == [f"{tree}/one/two/down.md".removeprefix("/")]


def test_glob_lists_the_newest_first(tree: Path) -> None:
    for number, name in enumerate(["c", "a", "b"]):
        put(tree, name, age=number)
    assert glob(tree, "*") == ["c", "a", "b"]


NAMES = st.text(alphabet="ab.-[]!*\\{},/", max_size=12)


@given(NAMES, NAMES)
def test_every_pattern_can_be_tried_on_every_path(pattern: str, path: str) -> None:
    compiled(pattern).fullmatch(path)
    IgnoreRules([pattern]).ignores(path, is_directory=True)


PARTS = st.sampled_from(["a", "b", "*", "?", "a*", "*b", "**", "[ab]", "[!a]", "[a-c]b", "\\*", "\\!a", "a ", "#"])
LINE = st.tuples(
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(PARTS, min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "/"]),
).map("".join)
PATH = st.lists(st.sampled_from(["a", "b", "ab", "c", "*", "!a"]), min_size=1, max_size=3).map("/".join)


@settings(max_examples=40, deadline=None)
@given(st.lists(LINE, min_size=1, max_size=4), st.lists(PATH, min_size=1, max_size=6, unique=True))
def test_ignore_files_mean_what_git_makes_of_them(lines: list[str], paths: list[str]) -> None:
    repository = _repository()
    (repository / ".gitignore").write_text("".join(f"{line}\n" for line in lines))
    asked = "".join(f"{path}\0" for path in paths)
    said = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=repository,
        input=asked,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    rules = IgnoreRules(lines)
    for path in paths:
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        mine = any(rules.ignores(folder, is_directory=True) for folder in above) or bool(
            rules.ignores(path, is_directory=False)
        )
        assert mine == (path in said), (lines, path)


def _repository() -> Path:
    """An empty repository, made once."""
    if not _MADE:
        import tempfile

        _MADE.append(tempfile.TemporaryDirectory(prefix="ignores-"))
        subprocess.run(["git", "init", "-q", _MADE[0].name], check=True)
    return Path(_MADE[0].name)


_MADE: list[Any] = []


ATOMS = [
    "a",
    "K",
    "i",
    "-",
    "--",
    " ",
    ".",
    "^",
    "$",
    "|",
    r"\b",
    r"\B",
    r"\d",
    r"\w+",
    r"\W",
    r"\s",
    r"\S*",
    r"\.",
    r"\<",
]
ATOMS += ["[a-c]", "[^a]", r"[^\w]", "[k]", "(a)", "(?:a|b)", "(?i:A)", "a*", "a{1,2}", "a{,2}", "a*?", "é", r"(\w)\1"]
PIECES = [
    "a",
    "b",
    "A",
    "k",
    "K",
    "İ",
    "ı",
    "é",
    "e\u0301",
    "1",
    "٣",
    " ",
    "\t",
    "\r",
    "\x1c",
    "\u2028",
    ".",
    "-",
    "<",
    "_",
]


@given(
    st.lists(st.sampled_from(ATOMS), min_size=1, max_size=4).map("".join),
    st.lists(
        st.tuples(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), st.sampled_from(["\n", "\r\n", ""])),
        max_size=6,
    ),
    st.sampled_from([b"", b"\xff", b"\xef\xbb\xbf"]),
)
@settings(max_examples=80, deadline=None)
def test_with_and_without_ripgrep_every_pattern_finds_the_same_in_every_text(
    tmp_path_factory: pytest.TempPathFactory, pattern: str, lines: list[tuple[str, str]], odd: bytes
) -> None:
    try:
        re.compile(pattern)
    except re.error:
        return
    root = tmp_path_factory.mktemp("tree")
    for number, (line, end) in enumerate(lines):
        put(root, f"f{number}", line.encode() + end.encode(), age=number)
    put(root, "odd", odd + "".join(line + end for line, end in lines).encode())
    grep(root, pattern)


@pytest.mark.parametrize(
    ("pattern", "alike"),
    [
        (r"^def \w+\(self", True),
        (r"import (os|sys)$", True),
        ("--option", True),
        (r"""[^\s"']{2,3}?""", True),
        ("é", False),
        ("a++", False),
        (r"\<a", False),
        ("(?=a)", False),
        ("[[:alpha:]]", False),
        ("a{,2}", False),
    ],
)
def test_ripgrep_is_asked_only_about_patterns_that_mean_the_same_to_it(pattern: str, alike: bool) -> None:
    assert search.reads_alike(pattern) is alike
