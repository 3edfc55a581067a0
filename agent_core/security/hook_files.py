"""The hooks that a user has in his home directory."""

from __future__ import annotations

import logging
from pathlib import Path

from agent_core.security.hooks import HOOK_FILE, HookConfig

MAX_FILE_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


def home_hooks(home: Path | None = None) -> HookConfig:
    """What stands in the user's ``.openhands/hooks.json``; nothing where there is none, or one that cannot be used."""
    try:
        path = (home or Path.home()) / HOOK_FILE
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        logger.debug("no hooks in the home directory: %s", error)
        return HookConfig()
    try:
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"it is longer than {MAX_FILE_BYTES} bytes")
        return HookConfig.from_json(data.decode("utf-8"))
    except ValueError as error:
        logger.warning("the hooks in %s are not used: %s", path, error)
        return HookConfig()
