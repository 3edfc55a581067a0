"""Model calls in files: recordings of exchanges, their replay without any model, and the log of calls.

A recording is a JSON-lines file, one line per exchange: the request, the pieces of the answer with the seconds that
each took to come, and the error if there was one. Keys are masked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from agent_core import errors
from agent_core.errors import LLMBadRequestError, LLMError
from agent_core.events.masking import SecretMasker, StreamingMask
from agent_core.llm.response import LLMResponse
from agent_core.llm.transport.exchange import CallDelta, Chunk, CompletionRequest, Endpoint, Transport, encoded
from agent_core.llm.transport.failures import hide_keys, keys_of

_EXCERPT = 60
VERSION = 1
MAX_CONVERSATIONS = 256
logger = logging.getLogger(__name__)


class RecordingTransport:
    """Passes exchanges through and appends each that was not cancelled to the file `path` at its end."""

    def __init__(self, inner: Transport, path: Path) -> None:
        self._inner = inner
        self._path = path

    async def prepare(self, endpoint: Endpoint) -> None:
        """See `Transport.prepare`; raises `LLMBadRequestError` if the file cannot be written."""
        await asyncio.to_thread(_append, self._path, "")
        await self._inner.prepare(endpoint)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        start = time.monotonic()
        pieces: list[dict[str, Any]] = []
        failure: LLMError | None = None
        try:
            async with aclosing(self._inner.stream(request)) as chunks:
                async for chunk in chunks:
                    piece = _data(chunk)
                    if piece:
                        pieces.append({"at": round(time.monotonic() - start, 4), **piece})
                    yield chunk
        except LLMError as error:
            failure = error
            raise
        finally:
            if failure is not None or any("finish_reason" in piece for piece in pieces):
                line = {
                    "version": VERSION,
                    "model": request.endpoint.model,
                    "request": _request_key(request),
                    "chunks": _masked(pieces, request.endpoint),
                    "error": failure
                    and {
                        "kind": type(failure).__name__,
                        "message": str(failure),
                        "retry_after": failure.retry_after,
                    },
                }
                text = hide_keys(encoded(line).decode(), request.endpoint)
                await asyncio.to_thread(_append, self._path, f"{text}\n")


class ReplayTransport:
    """Answers from a recording, at once.

    A request that no recorded one equals fails, and the error says where the nearest differs. Equal requests are
    answered in the order of their recording, the last of them for ever after; each conversation begins anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._exchanges: list[dict[str, Any]] = []
        self._version: tuple[int, int] | None = None
        self._used: dict[str, set[int]] = {}

    async def prepare(self, endpoint: Endpoint) -> None:
        """Read the recording, again if it has changed; raises `LLMBadRequestError` if there is none."""
        try:
            found = self._path.stat()
            version = (found.st_mtime_ns, found.st_size)
            if version != self._version:
                self._exchanges = await asyncio.to_thread(read_recording, self._path)
                self._used.clear()
                self._version = version
        except (OSError, ValueError) as error:
            raise LLMBadRequestError(f"The recording {self._path} cannot be replayed: {error}") from None

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        if len(self._used) > MAX_CONVERSATIONS:
            self._used.clear()
        used = self._used.setdefault(request.context.prompt_cache_key, set())
        current, exchanges = _request_key(request), self._exchanges
        equal = [number for number, exchange in enumerate(exchanges) if exchange["request"] == current]
        if not equal:
            raise LLMBadRequestError(
                f"The recording {self._path} has no answer to this request. {_nearest(current, exchanges)} "
                "Record it again, or ask exactly as then (with `model_canonical_name` set to the recorded model, "
                "messages are put as they were for it)."
            )
        chosen = next((number for number in equal if number not in used), equal[-1])
        used.add(chosen)
        exchange = exchanges[chosen]
        for piece in exchange["chunks"]:
            values = {name: value for name, value in piece.items() if name != "at"}
            values["calls"] = tuple(CallDelta(**call) for call in values.get("calls", ()))
            values["thinking_blocks"] = tuple(values.get("thinking_blocks", ()))
            yield Chunk(**values)
        failure = exchange["error"]
        if failure is not None:
            kind: type[LLMError] = getattr(errors, failure["kind"], LLMError)
            raise kind(failure["message"], retry_after=failure["retry_after"])


def read_recording(path: Path) -> list[dict[str, Any]]:
    """The exchanges of a recording; raises `OSError`, or `ValueError` for what is none, or of another version."""
    exchanges: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            exchange = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"line {number} is not JSON ({error})") from None
        if not isinstance(exchange, dict) or exchange.get("version") != VERSION:
            raise ValueError(f"line {number} is no exchange of version {VERSION}")
        exchanges.append(exchange)
    return exchanges


def _append(path: Path, text: str) -> None:
    """Write at the end of the file; a new one is for its owner alone, because it holds whole conversations."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
    except OSError as error:
        raise LLMBadRequestError(f"The recording (`record_to`) cannot be written: {error}") from None


def _masked(pieces: list[dict[str, Any]], endpoint: Endpoint) -> list[dict[str, Any]]:
    masker = SecretMasker(keys_of(endpoint))
    masks: dict[object, StreamingMask] = {}
    ends: dict[object, tuple[dict[str, Any], str]] = {}

    def put(stream: object, holder: dict[str, Any], field: str) -> None:
        mask = masks.setdefault(stream, StreamingMask(masker))
        holder[field] = mask.feed(holder[field])
        ends[stream] = (holder, field)

    for piece in pieces:
        for field in ("text", "reasoning"):
            if field in piece:
                put(field, piece, field)
        for call in piece.get("calls", ()):
            put(("call", call["index"]), call, "arguments")
    for stream, (holder, field) in ends.items():
        holder[field] += masks[stream].flush()
    return pieces


def _request_key(request: CompletionRequest) -> dict[str, Any]:
    """What counts about a request: not where it went, nor with which key."""
    lists = {"messages": list(request.messages), "tools": list(request.tools)}
    current: dict[str, Any] = orjson.loads(encoded({**lists, "parameters": dict(request.parameters)}))
    return current


def _nearest(current: dict[str, Any], exchanges: list[dict[str, Any]]) -> str:
    best: tuple[int, int, str] | None = None
    for number, exchange in enumerate(exchanges, start=1):
        recorded = exchange["request"]["messages"]
        same = _same(recorded, current["messages"])
        gap = abs(len(recorded) - len(current["messages"]))
        difference = first_difference(exchange["request"], current) or ""
        if best is None or (same, -gap) > best[:2]:
            best = (same, -gap, f"The nearest, exchange {number}, differs at {difference}.")
    return best[2] if best else "It is empty."


def first_difference(recorded: Any, current: Any, path: str = "") -> str | None:
    """The path of the first difference and what stands there in each; None for equal values."""
    if isinstance(recorded, dict) and isinstance(current, dict):
        for key in {**recorded, **current}:
            here = f"{path}.{key}" if path else key
            if key not in recorded or key not in current:
                side = "only asked now" if key not in recorded else "only recorded"
                return f"{here} ({side})"
            difference = first_difference(recorded[key], current[key], here)
            if difference is not None:
                return difference
        return None
    if isinstance(recorded, list) and isinstance(current, list):
        for index, (old, new) in enumerate(zip(recorded, current, strict=False)):
            difference = first_difference(old, new, f"{path}[{index}]")
            if difference is not None:
                return difference
        if len(recorded) != len(current):
            return f"{path} (recorded {len(recorded)} items, asked {len(current)})"
        return None
    if recorded == current and type(recorded) is type(current):
        return None
    where = ""
    if isinstance(recorded, str) and isinstance(current, str):
        same = _same(recorded, current)
        start = max(0, same - _EXCERPT // 3)
        where, recorded, current = f"from character {same}: ", recorded[start:], current[start:]
    return f"{path} ({where}recorded {_short(repr(recorded))}, asked {_short(repr(current))})"


def _same(recorded: Sequence[Any], current: Sequence[Any]) -> int:
    """How many of their first items are equal."""
    pairs = enumerate(zip(recorded, current, strict=False))
    return next((index for index, (old, new) in pairs if old != new), min(len(recorded), len(current)))


def _short(text: str) -> str:
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def _data(chunk: Chunk) -> dict[str, Any]:
    data = {one.name: value for one in fields(chunk) if (value := getattr(chunk, one.name)) != one.default}
    if "calls" in data:
        data["calls"] = [
            {name: value for name, value in asdict(call).items() if value or name != "item_id"} for call in chunk.calls
        ]
    return data


async def log_completion(
    folder: str,
    request: CompletionRequest,
    outcome: LLMResponse | LLMError,
    callback: Callable[[str, str], object] | None = None,
) -> None:
    """Write a call and its outcome, without any key, or give it to the callback; failures are warned of.

    The file is ``{model}-{time}-{4 hex digits}.json``, with ``-error`` before the ending when the call failed.
    """
    mark = "-error" if isinstance(outcome, LLMError) else ""
    model = request.endpoint.model.replace("/", "__")
    name = f"{model}-{time.time():.3f}-{secrets.token_hex(2)}{mark}.json"
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
        entry["error"] = f"{type(outcome).__name__}: {outcome}"
    else:
        entry |= {
            "response": outcome.message.model_dump(mode="json", exclude_none=True),
            "response_id": outcome.id,
            "finish_reason": outcome.finish_reason,
            "usage": outcome.usage.model_dump(),
            "cost": outcome.cost,
            "latency": outcome.latency,
        }
    text = hide_keys(encoded(entry).decode(), request.endpoint)
    try:
        if callback is None:
            await asyncio.to_thread(_write, folder, name, text)
        else:
            callback(name, text)
    except Exception as error:  # noqa: BLE001 - a program's function raises what it likes
        reason = error if isinstance(error, OSError) else type(error).__name__
        logger.warning("the log of a model call could not be written: %s", reason)


def _write(folder: str, name: str, text: str) -> None:
    directory = Path(folder).expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text, encoding="utf-8")
