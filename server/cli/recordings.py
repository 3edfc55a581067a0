"""``drydock import`` and ``drydock export``: conversations into a running server, and out of it, whole or recorded."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tarfile
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar

from agent_core.errors import DrydockError
from drydock_client import ClientError, DrydockClient
from server.db.temporary_files import temporary_file
from server.settings.running_server import client_of, words_of

T = TypeVar("T")

STANDARD = Path("-")
"""Stands for standard input or output."""

PIECE = 1024 * 1024
BEGINNING = 64 * 1024
"""Bytes that hold what a whole conversation's file says of itself."""

CALL_SECONDS = 300.0
"""A recording may be large."""

_UNFINISHED = "drydock-export"
"""The temporary file beside an export that is being made: the next one there sweeps it, whatever its own name."""


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

    With `replay` it is done again, else only shown. A file that `export_whole` has written is told by its beginning.
    """
    if _is_whole(file):
        if replay or title is not None:
            raise DrydockError(
                f"{file} is a whole conversation: --replay and --title are for recorded ones; leave them out"
            )
        client = client_of(url, key_file, environment, timeout=CALL_SECONDS)
        out.write(f"{_answer(client, client.import_archive(_pieces(file))).id}\n")
        return 0
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
        if file.exists() and not file.is_file():  # a pipe, for one
            file.write_text(text, encoding="utf-8")
            return 0
        file = file.resolve()
        with temporary_file(file.parent, file.name) as (path, target):
            target.write(text.encode())
            target.flush()
            os.fsync(target.fileno())
            path.replace(file)
    except OSError as error:
        raise DrydockError(f"{file} cannot be written: {error.strerror or error}") from error
    return 0


def export_whole(
    url: str | None, key_file: Path | None, environment: Mapping[str, str], *, conversation_id: str, file: Path
) -> int:
    """Write a conversation with its workspace into a file, which must not exist; nothing is left of a failure."""
    client = client_of(url, key_file, environment, timeout=CALL_SECONDS)
    try:
        if file == STANDARD:
            _tell(_answer(client, _write(client.export(conversation_id), sys.stdout.buffer)))
            return 0
        if os.path.lexists(file):
            raise FileExistsError
        with temporary_file(file.parent, _UNFINISHED) as (path, target):
            beginning = _answer(client, _write(client.export(conversation_id), target))
            os.fsync(target.fileno())
            if os.path.lexists(file):  # made meanwhile
                raise FileExistsError
            path.replace(file)
        _tell(beginning)
    except FileExistsError as error:
        raise DrydockError(f"{file} exists; name another file") from error
    except OSError as error:
        raise DrydockError(f"{file} cannot be written: {error.strerror or error}") from error
    return 0


async def _write(pieces: AsyncIterator[bytes], target: BinaryIO) -> bytes:
    """Write them; returns the beginning."""
    beginning = b""
    async for piece in pieces:
        beginning += piece[: BEGINNING - len(beginning)]
        target.write(piece)
    target.flush()
    return beginning


def _tell(beginning: bytes) -> None:
    """Say what is not in a whole conversation, whose file begins so."""
    header: dict[str, Any] = {}
    with suppress(tarfile.TarError, ValueError), tarfile.open(fileobj=io.BytesIO(beginning), mode="r:") as tar:
        member = tar.next()
        content = tar.extractfile(member) if member is not None else None
        header = json.loads(content.read()) if content is not None else {}
    if reason := header.get("without_files"):
        sys.stderr.write(f"The files of its workspace are not in it: {reason}.\n")
    if number := header.get("left_out"):
        names = header.get("left_out_names", [])
        more = f" and {number - len(names)} more" if number > len(names) else ""
        sys.stderr.write(f"{number} files could not be read, and are not in it: {', '.join(names)}{more}\n")


def _is_whole(file: Path) -> bool:
    if file == STANDARD:
        text = getattr(sys.stdin, "buffer", None)
        return isinstance(text, io.BufferedReader) and text.peek(1)[:1] == b"d"  # its first file's name; no JSON does
    try:
        return tarfile.is_tarfile(file)
    except OSError:
        return False  # whoever reads it says why


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    with nullcontext(sys.stdin.buffer) if file == STANDARD else file.open("rb") as source:
        while piece := await asyncio.to_thread(source.read, PIECE):
            yield piece


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
