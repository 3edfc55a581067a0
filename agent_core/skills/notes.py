"""Notes of earlier conversations: the user's at home, the project's in its workspace."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

NOTES_FILE: Final = ".openhands/MEMORY.md"
"""Relative to the user's home, and to the workspace."""
MAX_NOTES_CHARS: Final = 6_000

logger = logging.getLogger(__name__)


def user_notes(home: Path | None = None) -> str:
    """What stands in the notes of the user's home; empty where there are none."""
    try:
        with ((home or Path.home()) / NOTES_FILE).open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_NOTES_CHARS).strip()
    except FileNotFoundError:
        return ""
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        logger.warning("the user's notes are not used: %s", error)
        return ""
