"""Skills from places: a project (also one that only a sandbox can read), a user's home, a folder, a git repository."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Final

from agent_core.errors import SkillValidationError
from agent_core.skills.files import SKILL_FILE, THIRD_PARTY, is_skill_file, skill_from_text, third_party_skill
from agent_core.skills.skill import PathTrigger, Skill, SkillResources

logger = logging.getLogger(__name__)

LeftOutReport = Callable[[SkillValidationError], None]
"""Is told why a file is left out."""


def log_problem(error: SkillValidationError) -> None:
    """What is done about a broken file where nobody else is told."""
    logger.warning("a skill is left out: %s", error)


PROJECT_FOLDERS = (".agents/skills", ".openhands/skills", ".openhands/microagents")
INSTALLED = ".openhands/skills/installed"
MCP_FILE = ".mcp.json"
"""Says the MCP servers of an AgentSkills skill, beside its ``SKILL.md``."""
MAX_FILE_BYTES = 256 * 1024
MAX_FILES = 500
MAX_FOLDERS = 1000
FOREIGN_FOLDERS = frozenset(
    {"__pycache__", "build", "dist", "node_modules", "site-packages", "target", "vendor", "venv"}
)
"""What stands in these is not the project's own."""

_RESOURCES = ("scripts", "references", "assets")
_VENDORS = {"claude": ("claude", "anthropic"), "gemini": ("gemini",)}


def load_skill(path: str | Path) -> Skill:
    """The skill in one file, with the resources beside it; raises `SkillValidationError` naming the file."""
    path = Path(path)
    try:
        text = _read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SkillValidationError(f"{path}: cannot be read: {error}", path=str(path)) from error
    if path.name.lower() in THIRD_PARTY:
        return third_party_skill(path.name, text).model_copy(update={"source": str(path)})
    return _completed(skill_from_text(str(path), text))


def load_skills_from_folder(folder: str | Path, *, report: LeftOutReport = log_problem) -> dict[str, Skill]:
    """The skills in all Markdown files of a folder, by name; a broken file is left out, and `report` told.

    Of two with the same name the first one, by path, is taken. A folder with a ``SKILL.md`` is one skill.
    """
    place = Path(folder).absolute()
    found = skills_in_folder(_texts(_markdown_files(place), report), str(place), report=report)
    return {name: _completed_if_possible(skill, report) for name, skill in found.items()}


def load_skills_from_dir(folder: str | Path) -> tuple[dict[str, Skill], dict[str, Skill], dict[str, Skill]]:
    """`load_skills_from_folder` in three parts: those always on, those with a trigger, those that are folders."""
    found = load_skills_from_folder(folder)
    folders = {name: skill for name, skill in found.items() if skill.is_agentskills_format}
    always_on = {name: skill for name, skill in found.items() if skill.is_always_on}
    triggered = {name: skill for name, skill in found.items() if name not in folders and name not in always_on}
    return always_on, triggered, folders


def load_user_skills(home: str | Path | None = None, *, report: LeftOutReport = log_problem) -> list[Skill]:
    """The skills in the folders of a user's home, the first one of each name; none where there are none."""
    root = Path(home) if home is not None else Path.home()
    own = [
        skill for folder in PROJECT_FOLDERS for skill in load_skills_from_folder(root / folder, report=report).values()
    ]
    installed = f"{(root / INSTALLED).absolute()}/"  # it lies in another one of the folders
    own = [skill for skill in own if not (skill.source or "").startswith(installed)]
    every = _first_of_each([own, load_skills_from_folder(root / INSTALLED, report=report).values()])
    return [skill.at("user") for skill in every]


def load_project_skills(working_dir: str | Path, *, git_root: str | Path | None = None, model: str = "") -> list[Skill]:
    """The skills of a project: of its folders and files, in the working directory, then in its repository's root."""
    roots = list(dict.fromkeys(Path(root).absolute() for root in (working_dir, git_root) if root is not None))
    places = [path for root in roots for path in _third_party_files(root)]
    places += [path for root in roots for folder in PROJECT_FOLDERS for path in _markdown_files(root / folder)]
    found = project_skills(_texts(places, log_problem), map(str, roots), model=model)
    return [_completed_if_possible(skill, log_problem) for skill in found]


def project_skills(
    files: Mapping[str, str], roots: Iterable[str], *, model: str = "", report: LeftOutReport = log_problem
) -> list[Skill]:
    """The skills of a project whose files are given as text by their absolute paths.

    `roots` are the working directory and the root of its repository, the first one winning. Left out are files for
    another vendor's models than `model`, texts told already, and broken files, of which `report` is told.
    """
    by_root: list[Iterable[Skill]] = []
    places = list(dict.fromkeys(root.rstrip("/") or "/" for root in roots))
    for root in places:
        inner = tuple(f"{other}/" for other in places if other.startswith(f"{root.rstrip('/')}/"))
        by_root.append(_third_party({path: files[path] for path in files if not path.startswith(inner)}, root, model))
        folders = [f"{root.rstrip('/')}/{folder}" for folder in PROJECT_FOLDERS]
        by_root.extend(skills_in_folder(files, folder, report=report).values() for folder in folders)
    seen: dict[tuple[str, ...], Skill] = {}
    found: list[Skill] = []
    for skill in _first_of_each(by_root):
        paths = skill.trigger.paths if isinstance(skill.trigger, PathTrigger) else []
        waits = not (skill.is_always_on or paths)
        if waits or seen.setdefault((skill.content, *paths), skill) is skill:
            found.append(skill.at("project"))
    return found


def skills_in_folder(files: Mapping[str, str], folder: str, *, report: LeftOutReport = log_problem) -> dict[str, Skill]:
    """The skills of those `files` (texts by path) that are in `folder`, by name; see `load_skills_from_folder`."""
    folder = folder.rstrip("/")
    inside = sorted(path for path in files if path.startswith(f"{folder}/"))
    homes = {PurePosixPath(path).parent for path in inside if is_skill_file(path)}
    found: dict[str, Skill] = {}
    for path in inside:
        place = PurePosixPath(path)
        is_part = any(parent in homes for parent in place.parents) and not is_skill_file(path)
        if place.suffix.lower() != ".md" or place.name.lower() == "readme.md" or is_part:
            continue
        name = place.relative_to(folder).with_suffix("").as_posix()
        try:
            skill = skill_from_text(path, files[path], name=None if is_skill_file(path) else name)
        except SkillValidationError as error:
            report(error)
            continue
        if skill.name in found:
            logger.warning(
                "the skill %r of %s is left out: %s has that name", skill.name, path, found[skill.name].source
            )
            continue
        found[skill.name] = skill
    return found


def _third_party(files: Mapping[str, str], root: str, model: str) -> list[Skill]:
    found: dict[str, Skill] = {}
    prefix = f"{root.rstrip('/')}/"
    order = list(THIRD_PARTY)
    named = [path for path in files if path.startswith(prefix) and PurePosixPath(path).name.lower() in THIRD_PARTY]
    for path in sorted(named, key=lambda path: (order.index(PurePosixPath(path).name.lower()), path)):
        relative = path.removeprefix(prefix)
        if files[path].strip() and not any(relative.startswith(f"{folder}/") for folder in PROJECT_FOLDERS):
            skill = third_party_skill(relative, files[path]).model_copy(update={"source": path})
            vendor = _VENDORS.get(skill.name.partition(":")[0])
            if vendor is None or not model or any(word in model.lower() for word in vendor):
                found.setdefault(skill.name, skill)
    return list(found.values())


def _first_of_each(groups: Iterable[Iterable[Skill]]) -> list[Skill]:
    found: dict[str, Skill] = {}
    for skill in chain.from_iterable(groups):
        found.setdefault(skill.name, skill)
    return list(found.values())


def _third_party_files(root: Path) -> list[Path]:
    found: list[Path] = []
    for looked, (place, folders, names) in enumerate(os.walk(root)):
        if looked == MAX_FOLDERS or len(found) >= MAX_FILES:
            break
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in FOREIGN_FOLDERS)
        found += [
            Path(place, name) for name in sorted(names) if name.lower() in THIRD_PARTY and Path(place, name).is_file()
        ]
    return found


def _markdown_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".md" and path.is_file())
    if len(found) > MAX_FILES:
        logger.warning("%s holds %s files; only the first %s are read", folder, len(found), MAX_FILES)
    return found[:MAX_FILES]


def _texts(paths: Iterable[Path], report: LeftOutReport) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in paths:
        try:
            texts[str(path)] = _read(path)
        except (OSError, UnicodeDecodeError) as error:
            problem = SkillValidationError(f"{path}: cannot be read: {error}", path=str(path))
            problem.__cause__ = error
            report(problem)
    return texts


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise OSError(f"it is longer than {MAX_FILE_BYTES} bytes")
    return data.decode("utf-8")


def _completed_if_possible(skill: Skill, report: LeftOutReport) -> Skill:
    try:
        return _completed(skill)
    except SkillValidationError as error:  # it is told, but has no servers
        report(error)
        return skill


def _completed(skill: Skill) -> Skill:
    if not skill.is_agentskills_format or skill.source is None:
        return skill
    folder = Path(skill.source).parent
    listed = {
        kind: sorted(str(path.relative_to(folder)) for path in (folder / kind).rglob("*") if path.is_file())
        for kind in _RESOURCES
        if (folder / kind).is_dir()
    }
    beside: dict[str, Any] = {"resources": SkillResources(**listed)}
    if skill.mcp_tools is None and (servers := _servers(folder / MCP_FILE)) is not None:
        beside["mcp_tools"] = servers
    return skill.model_copy(update=beside)


def _servers(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(_read(path))
    except (OSError, ValueError, RecursionError) as error:
        raise SkillValidationError(f"{path}: cannot be read: {error}", path=str(path)) from error
    if not isinstance(found, dict):
        problem = f"must be a JSON object, with mcpServers in it, not {type(found).__name__}"
        raise SkillValidationError(f"{path}: {problem}", path=str(path))
    return found


URL_VARIABLE: Final = "EXTENSIONS_URL"
"""Where the public repository is: an address that git takes, or a folder. Nothing is fetched where it is not set."""
REF_VARIABLE: Final = "EXTENSIONS_REF"
DEFAULT_REF: Final = "main"
CACHE: Final = ".openhands/cache/extensions"
REFRESH_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 300.0
"""After which a repository is asked again that could not be fetched: whoever needs its skills waits for it."""
GIT_SECONDS: Final = 30.0
MAX_LIST_BYTES: Final = 1024 * 1024


def load_public_skills(
    marketplace_path: str,
    others: Iterable[str] = (),
    *,
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    report: LeftOutReport = log_problem,
) -> list[Skill]:
    """The skills of the configured repository and of the `others`, the first of each name; may take a while.

    A repository is fetched at most once a minute; one that cannot be reached is used as it was, and asked again after
    `RETRY_SECONDS`. What is broken is left out, and `report` told.
    """
    first = environment.get(URL_VARIABLE, "").strip()
    ref = environment.get(REF_VARIABLE, "").strip() or DEFAULT_REF
    sources = dict.fromkeys([*([first] if first else []), *others])
    roots = [_root_of(source, ref, cache if cache is not None else Path.home() / CACHE) for source in sources]
    found = _first_of_each(_listed(root, marketplace_path, report) for root in roots if root is not None)
    return [skill.at("public") for skill in found]


def _root_of(source: str, ref: str, cache: Path) -> Path | None:
    if (folder := Path(source).expanduser()).is_dir():
        return folder
    root = cache / hashlib.sha256(f"{source}\n{ref}".encode()).hexdigest()[:24]
    fetched, failed = root / ".git/fetched-at", cache / f"{root.name}.failed"
    try:
        if _is_younger(fetched, REFRESH_SECONDS):
            return root
        if _is_younger(failed, RETRY_SECONDS):
            return root if (root / ".git").is_dir() else None
        if (root / ".git").is_dir():
            _remove_old_locks(root / ".git")
            _git("-C", str(root), "fetch", "-q", "--depth", "1", "origin", ref)
            _git("-C", str(root), "reset", "-q", "--hard", "FETCH_HEAD")
        else:
            root.parent.mkdir(parents=True, exist_ok=True)
            # Whole or not at all, whenever this process ends, and whoever else fetches it at the same time.
            with tempfile.TemporaryDirectory(dir=root.parent) as made:
                _git("clone", "-q", "--depth", "1", "--branch", ref, "--", source, f"{made}/clone")
                Path(made, "clone").rename(root)
        fetched.touch()
        failed.unlink(missing_ok=True)
    except (OSError, subprocess.SubprocessError) as error:
        is_old = (root / ".git").is_dir()
        old = "the skills fetched before are used" if is_old else "its skills are left out"
        reason = str(error)
        if isinstance(error, subprocess.CalledProcessError):
            reason = " ".join(str(error.stderr).split())[:500]
        with suppress(OSError):
            failed.touch()
        logger.warning("the public skills of %s cannot be fetched, %s: %s", source, old, reason)
        return root if is_old else None
    return root


def _is_younger(file: Path, seconds: float) -> bool:
    # A clock that has been set back does not make it young for as long as that.
    return file.exists() and 0 <= time.time() - file.stat().st_mtime < seconds


def _remove_old_locks(folder: Path) -> None:
    """Those that a git has left which was killed: none works as long as they are old."""
    for lock in folder.rglob("*.lock"):
        if time.time() - lock.stat().st_mtime > 2 * GIT_SECONDS:
            lock.unlink(missing_ok=True)


def _git(*arguments: str) -> None:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    subprocess.run(  # noqa: S603 - no shell; the address stands behind "--"
        ["git", *arguments],  # noqa: S607 - the git of whoever runs this
        check=True,
        capture_output=True,
        text=True,
        timeout=GIT_SECONDS,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def _listed(root: Path, marketplace_path: str, report: LeftOutReport) -> list[Skill]:
    path = root / marketplace_path
    if not path.is_file():
        return list(load_skills_from_folder(root / "skills", report=report).values())
    try:
        listed = json.loads(path.read_text("utf-8") if path.stat().st_size <= MAX_LIST_BYTES else "too long")
        entries: list[Any] = list(listed["plugins"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        logger.warning("the list of public skills in %s cannot be used: %r", path, error)
        return []
    skills: list[Skill] = []
    for entry in entries:
        source = entry.get("source") if isinstance(entry, dict) else None
        place = (root / source).resolve() if isinstance(source, str) else root.parent
        if not place.is_relative_to(root.resolve()):
            logger.warning("an entry of %s is left out: its source must be a path in the repository", path)
            continue
        skills.extend(_skills_at(place, report))
    return skills


def _skills_at(place: Path, report: LeftOutReport) -> list[Skill]:
    file = place / SKILL_FILE if place.is_dir() else place
    if place.is_dir() and not file.is_file():
        folder = place / "skills" if (place / "skills").is_dir() else place
        return list(load_skills_from_folder(folder, report=report).values())
    try:
        return [load_skill(file)]
    except SkillValidationError as error:
        report(error)
        return []
