"""``drydock import`` and ``drydock export``: recorded conversations into a running server, and out of it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TextIO, TypeVar

from agent_core.errors import DrydockError
from drydock_client import ClientError, DrydockClient
from server.settings.running_server import client_of, words_of

T = TypeVar("T")

STANDARD = Path("-")
"""Stands for standard input or output."""

CALL_SECONDS = 300.0
"""A recording may be large."""


def import_recording(
    url: str | None,
    key_file: Path | None,
    environment: Mapping[str, str],
    *,
    file: Path,
    title: str | None,
    replay: bool,
    out: TextIO,
) -> int:
    """Make a conversation of the trajectory in a file and print its id; returns the exit status.

    With `replay` it is done again, else only shown.
    """
    if replay and title is not None:
        raise DrydockError("--title: a conversation that is replayed is named by its first message; leave it out")
    text = _read(file)
    client = client_of(url, key_file, environment, timeout=CALL_SECONDS)
    if replay:
        conversation = _answer(client, client.create_conversation(options={"replay_json": text}))
    else:
        conversation = _answer(client, client.import_conversation(_trajectory(file, text), title=title))
    out.write(f"{conversation.id}\n")
    return 0


def export_recording(
    url: str | None,
    key_file: Path | None,
    environment: Mapping[str, str],
    *,
    conversation_id: str,
    file: Path,
    out: TextIO,
) -> int:
    """Write the trajectory of a conversation into a file, as first-generation servers export it."""
    client = client_of(url, key_file, environment, timeout=CALL_SECONDS)
    text = json.dumps(_answer(client, client.trajectory(conversation_id)), ensure_ascii=False, indent=2) + "\n"
    if file == STANDARD:
        out.write(text)
        return 0
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DrydockError(f"{file} cannot be written: {error.strerror or error}") from error
    return 0


def _answer(client: DrydockClient, call: Coroutine[Any, Any, T]) -> T:
    async def in_session() -> T:
        async with client:
            return await call

    try:
        return asyncio.run(in_session())
    except ClientError as error:
        raise DrydockError(words_of(error)) from error


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if file == STANDARD else file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DrydockError(f"{file} cannot be read: {reason}") from error


def _trajectory(file: Path, text: str) -> list[Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DrydockError(f"{file} is no valid JSON ({error}); give an exported trajectory") from error
    items = data.get("trajectory") if isinstance(data, dict) else data
    if not isinstance(items, list):
        raise DrydockError(f"{file} is no trajectory: it holds no list of events")
    return items
