"""Skills that somebody publishes in a git repository, with a list of those that are meant."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from agent_core.errors import SkillValidationError
from agent_core.skills.files import SKILL_FILE
from agent_core.skills.loader import load_skill, load_skills_from_folder
from agent_core.skills.skill import Skill

URL_VARIABLE: Final = "EXTENSIONS_URL"
"""Where the public repository is: an address that git takes, or a folder. Nothing is fetched where it is not set."""
REF_VARIABLE: Final = "EXTENSIONS_REF"
DEFAULT_REF: Final = "main"
CACHE: Final = ".openhands/cache/extensions"
REFRESH_SECONDS: Final = 60.0
GIT_SECONDS: Final = 30.0
MAX_LIST_BYTES: Final = 1024 * 1024

logger = logging.getLogger(__name__)


def load_public_skills(
    marketplace_path: str,
    others: Iterable[str] = (),
    *,
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
) -> list[Skill]:
    """The skills of the configured repository and of the `others`, the first of each name; may take a while.

    A repository is fetched at most once a minute; one that cannot be reached is used as it was fetched last. What
    cannot be used is left out with a warning.
    """
    first = environment.get(URL_VARIABLE, "").strip()
    ref = environment.get(REF_VARIABLE, "").strip() or DEFAULT_REF
    found: dict[str, Skill] = {}
    for source in dict.fromkeys([*([first] if first else []), *others]):
        root = _root_of(source, ref, cache if cache is not None else Path.home() / CACHE)
        for skill in _listed(root, marketplace_path) if root is not None else ():
            found.setdefault(skill.name, skill)
    return list(found.values())


def _root_of(source: str, ref: str, cache: Path) -> Path | None:
    """The folder with what the source holds; None when it cannot be had."""
    if (folder := Path(source).expanduser()).is_dir():
        return folder
    root = cache / hashlib.sha256(f"{source}\n{ref}".encode()).hexdigest()[:24]
    fetched = root / ".git/fetched-at"
    try:
        if fetched.exists() and time.time() - fetched.stat().st_mtime < REFRESH_SECONDS:
            return root
        if (root / ".git").is_dir():
            _git("-C", str(root), "fetch", "-q", "--depth", "1", "origin", ref)
            _git("-C", str(root), "reset", "-q", "--hard", "FETCH_HEAD")
        else:
            root.parent.mkdir(parents=True, exist_ok=True)
            _git("clone", "-q", "--depth", "1", "--branch", ref, "--", source, str(root))
        fetched.touch()
    except (OSError, subprocess.SubprocessError) as error:
        is_old = (root / ".git").is_dir()
        old = "the skills fetched before are used" if is_old else "its skills are left out"
        logger.warning("the public skills of %s cannot be fetched, %s: %s", source, old, _said(error))
        return root if is_old else None
    return root


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


def _said(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return " ".join(str(error.stderr).split())[:500]
    return str(error)


def _listed(root: Path, marketplace_path: str) -> list[Skill]:
    """The skills that the repository's list names; without a list all of its folder ``skills``."""
    path = root / marketplace_path
    if not path.is_file():
        return list(load_skills_from_folder(root / "skills").values())
    try:
        listed = json.loads(path.read_text("utf-8") if path.stat().st_size <= MAX_LIST_BYTES else "too long")
        entries: list[Any] = list(listed["plugins"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("the list of public skills in %s cannot be used: %r", path, error)
        return []
    skills: list[Skill] = []
    for entry in entries:
        source = entry.get("source") if isinstance(entry, dict) else None
        place = (root / source).resolve() if isinstance(source, str) else root.parent
        if not place.is_relative_to(root.resolve()):
            logger.warning("an entry of %s is left out: its source must be a path in the repository", path)
            continue
        skills.extend(_skills_at(place))
    return skills


def _skills_at(place: Path) -> list[Skill]:
    file = place / SKILL_FILE if place.is_dir() else place
    if place.is_dir() and not file.is_file():
        return list(load_skills_from_folder(place / "skills" if (place / "skills").is_dir() else place).values())
    try:
        return [load_skill(file)]
    except SkillValidationError as error:
        logger.warning("a public skill is left out: %s", error)
        return []
