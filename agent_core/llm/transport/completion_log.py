"""One JSON file per model call, for whoever wants to see what was asked and answered."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_core.errors import LLMError
from agent_core.llm.response import LLMResponse
from agent_core.llm.transport.exchange import CompletionRequest
from agent_core.llm.transport.failures import hide_keys
from agent_core.llm.transport.json_text import encoded

logger = logging.getLogger(__name__)


Callback = Callable[[str, str], object]
"""Given the name and the text of a file."""


async def log_completion(
    folder: str, request: CompletionRequest, outcome: LLMResponse | LLMError, callback: Callback | None = None
) -> None:
    """Write what was asked and what came of it, without any key; a file that cannot be written is only warned of.

    The file is ``{model}-{time}-{4 hex digits}.json``, with ``-error`` before the ending when the call failed. With a
    `callback` nothing is written; that it fails is warned of, too.
    """
    mark = "-error" if isinstance(outcome, LLMError) else ""
    model = request.endpoint.model.replace("/", "__")
    name = f"{model}-{time.time():.3f}-{secrets.token_hex(2)}{mark}.json"
    text = hide_keys(encoded(_entry(request, outcome)).decode(), request.endpoint)
    try:
        if callback is None:
            await asyncio.to_thread(_write, folder, name, text)
        else:
            callback(name, text)
    except Exception as error:  # noqa: BLE001 - a program's function raises what it likes
        told = error if isinstance(error, OSError) else type(error).__name__
        logger.warning("the log of a model call could not be written: %s", told)


def _entry(request: CompletionRequest, outcome: LLMResponse | LLMError) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "timestamp": datetime.now(UTC).isoformat(),
        "model": request.endpoint.model,
        "messages": list(request.messages),
        "tools": list(request.tools),
        "parameters": dict(request.parameters),
        "conversation_id": request.context.prompt_cache_key,
        "session_id": request.context.session_id,
    }
    if isinstance(outcome, LLMError):
        return {**entry, "error": f"{type(outcome).__name__}: {outcome}"}
    return {
        **entry,
        "response": outcome.message.model_dump(mode="json", exclude_none=True),
        "response_id": outcome.id,
        "finish_reason": outcome.finish_reason,
        "usage": outcome.usage.model_dump(),
        "cost": outcome.cost,
        "latency": outcome.latency,
    }


def _write(folder: str, name: str, text: str) -> None:
    directory = Path(folder).expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text, encoding="utf-8")
