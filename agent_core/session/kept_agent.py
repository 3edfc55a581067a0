"""Beside a library's log: which agent the conversation was begun with."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from agent_core.agent.base import AgentBase
from agent_core.agent.resume import AgentMark

AGENT_FILE: Final = "agent.json"

logger = logging.getLogger(__name__)


async def check_kept_agent(agent: AgentBase, folder: str, pool: Executor) -> None:
    """Whether the agent may go on with the conversation in this folder; from now on the folder says that it does.

    Without a folder (an empty name) nothing is kept, and nothing compared.

    Raises:
        ValueError: its class or its tools are others; the message says which.
        OSError: the folder cannot be written.
    """
    if folder:
        await asyncio.get_running_loop().run_in_executor(pool, _check, agent, Path(folder))


def _check(agent: AgentBase, folder: Path) -> None:
    path = folder / AGENT_FILE
    now = AgentMark.of(agent)
    before = _kept(path)
    if before == now:
        return
    if before is not None:
        now.check(before)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(now.model_dump_json())
    fresh.replace(path)


def _kept(path: Path) -> AgentMark | None:
    try:
        return AgentMark.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        logger.warning("%s cannot be read, so the agent is not compared with the earlier one: %s", path, error)
        return None
