"""Reads OpenAI-compatible answers: server-sent events, or the one JSON object of a server that does not stream."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from agent_core.errors import LLMBadRequestError, LLMError, LLMInternalError, LLMNoResponseError
from agent_core.llm.transport.exchange import CallDelta, Chunk, Endpoint, encoded
from agent_core.llm.transport.failures import build, from_status, readable

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_SPLIT_EVENT_BYTES = 1024 * 1024
_DONE = b"[DONE]"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def chunk_of(value: Mapping[str, Any], part: str) -> Chunk:
    """One chunk (`part` "delta") or one whole answer ("message"); of several choices the first."""
    usage = value.get("usage")
    usage = usage if isinstance(usage, dict) else None
    choices = value.get("choices")
    choices = [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
    choice = next((one for one in choices if one.get("index") in (0, None, "0")), None)
    candidates = (choice.get(part), choice.get("message")) if choice else ()
    delta = next((one for one in candidates if isinstance(one, dict)), {})
    model, blocks = value.get("model"), delta.get("thinking_blocks")
    reason = choice.get("finish_reason") if choice else None
    return Chunk(
        text=_text(delta.get("content")) or _text(delta.get("refusal")),
        reasoning=_text(delta.get("reasoning_content") or delta.get("reasoning")),
        thinking_blocks=tuple(
            block
            for block in (blocks if isinstance(blocks, list) else ())
            if isinstance(block, dict)
            and all(isinstance(block.get(key) or "", str) for key in ("thinking", "signature"))
        ),
        calls=tuple(_calls(delta)),
        finish_reason=str(reason) if reason and reason != "null" else None,
        has_choice=choice is not None,
        usage=usage,
        model=model if isinstance(model, str) else None,
        cost=money(usage.get("cost")) if usage else None,
    )


def money(value: Any) -> float | None:
    """An amount that can be added up; None for anything else (nothing, a text, less than nothing, infinity)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    amount = float(value)
    return amount if math.isfinite(amount) and amount >= 0 else None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _calls(delta: Mapping[str, Any]) -> Iterator[CallDelta]:
    calls = delta.get("tool_calls")
    if not calls and isinstance(delta.get("function_call"), dict):
        calls = [{"index": 0, "function": delta["function_call"]}]  # the form that came before tool calls
    for item in calls if isinstance(calls, list) else ():
        if not isinstance(item, dict):
            continue
        function = item.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = encoded(arguments).decode()
        index, name = item.get("index"), function.get("name")
        if isinstance(index, str) and re.fullmatch("[0-9]{1,6}", index):
            index = int(index)
        yield CallDelta(
            index=index if isinstance(index, int) else None,
            id=str(item["id"]) if item.get("id") else None,
            name=name if isinstance(name, str) and name else None,
            arguments=arguments or "",
        )


def error_of(endpoint: Endpoint, error: Any, *, secret: str = "") -> LLMError:
    """The error for an error object (or text) inside an answer with status 200."""
    if not isinstance(error, dict):
        return from_status(endpoint, 500, str(error), secret=secret)
    code = error.get("status") if error.get("code") is None else error["code"]
    try:
        status = int(code) if code is not None else 500
    except (TypeError, ValueError, OverflowError):
        status = 500
    words = [str(error[key]) for key in ("message", "type", "code") if error.get(key)]
    kinds = " ".join(words[1:]).lower()
    if "rate_limit" in kinds:
        status = 429
    elif "overloaded" in kinds:
        status = 503
    return from_status(endpoint, status if 400 <= status < 600 else 500, " ".join(words), secret=secret)


class AnswerReader:
    """Turns the bytes of an answer with status 200 into chunks: `feed` it what comes, `end` it once.

    `is_done`: ``[DONE]`` came. `is_page`: the content type is that of a web page; `read` makes a chunk of an event
    ("delta") or of a whole answer ("message"). Both methods raise an `LLMError` when the body is no answer; `end` also
    when it broke off, without a finish reason or ``[DONE]``.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        is_page: bool = False,
        secret: str = "",
        read: Callable[[Mapping[str, Any], str], Chunk] = chunk_of,
    ) -> None:
        self._endpoint = endpoint
        self._read = read
        self._is_page = is_page
        self._secret = secret
        self._rest: list[bytes] = []
        self._size = 0
        self._after_return = False
        self._loose = bytearray()
        self._event = b""
        self._split: list[bytes] = []
        self._split_size = 0
        self._finish_reason: str | None = None
        self._has_events = False
        self.is_done = False

    @property
    def has_finished(self) -> bool:
        return self.is_done or self._finish_reason is not None

    def feed(self, data: bytes) -> list[Chunk]:
        if not self._size:
            data = data.removeprefix(_BYTE_ORDER_MARK)
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            raise self._broken(f"sent more than {MAX_ANSWER_BYTES // 2**20} MiB")
        # Each of the line ends that events may have (CR, LF, both) becomes a newline.
        if self._after_return:
            data = data.removeprefix(b"\n")
            self._after_return = False
        if b"\r" in data:
            self._after_return = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            self._rest.append(data)
            return []
        *lines, rest = b"".join([*self._rest, data]).split(b"\n")
        self._rest = [rest] if rest else []
        return [chunk for line in lines for chunk in self._line(line.strip())]

    def end(self) -> list[Chunk]:
        """The chunks of what is left; raises when the answer broke off."""
        chunks = list(self._line(b"".join(self._rest).strip()))
        chunks += self._line(b"")
        self._rest = []
        if not self._has_events and self._loose:
            chunks += self._whole(bytes(self._loose))
        elif not self.has_finished:
            self._raise_loose_error()
            what = "cut its answer off before the end" if self._has_events else "sent an empty answer"
            raise self._broken(what)
        return chunks

    def _line(self, line: bytes) -> Iterator[Chunk]:
        if self.is_done:
            return
        if not line:
            yield from self._split_event()
            self._event = b""
        elif line.startswith(b"event:"):
            self._event = line[6:].strip()
        elif line.startswith(b"data:"):
            self._has_events = True
            yield from self._data(line[5:].strip())
        elif not line.startswith((b":", b"id:", b"retry:")):
            self._loose += line + b"\n"

    def _data(self, data: bytes) -> Iterator[Chunk]:
        if data == _DONE:
            yield from self._split_event()
            if self._finish_reason is None:
                self._raise_loose_error()
            self.is_done = True
        elif self._split:
            self._keep(data)
        elif data:
            try:
                value = _loaded(data)
            except ValueError:
                self._keep(data)
            else:
                yield self._chunk(value, data)

    def _keep(self, data: bytes) -> None:
        """Keep a line of an event that may have several: read once, at its end, for a row of them may be long."""
        self._split.append(data)
        self._split_size += len(data)
        if self._split_size > MAX_SPLIT_EVENT_BYTES:
            raise self._no_json(self._split[0])

    def _split_event(self) -> Iterator[Chunk]:
        if self._split:
            data = b"\n".join(self._split)
            self._split.clear()
            self._split_size = 0
            try:
                value = _loaded(data)
            except ValueError:
                raise self._no_json(data) from None
            yield self._chunk(value, data)

    def _chunk(self, value: Any, data: bytes) -> Chunk:
        if self._event == b"error":
            raise self._reported(value)
        value = self._object(value, data)
        chunk = self._read(value, "delta")
        self._finish_reason = chunk.finish_reason or self._finish_reason
        return chunk

    def _whole(self, body: bytes) -> list[Chunk]:
        start = body[:2000].lstrip().lower()
        if self._is_page or start.startswith((b"<!doctype", b"<html")):
            page = readable(body.decode(errors="replace"))
            what = f"{self._endpoint.label} answered with {page} instead of an answer: is the base URL right?"
            raise build(self._endpoint, LLMBadRequestError, what, secret=self._secret)
        body = body.strip()
        try:
            value = self._object(_loaded(body), body)
        except ValueError:
            raise self._no_json(body) from None
        chunk = self._read(value, "message")
        if not chunk.has_choice:
            raise self._broken(f"answered without any choice ({_excerpt(body)})", LLMNoResponseError)
        self.is_done = True
        return [chunk]

    def _object(self, value: Any, data: bytes) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._broken(f"sent a piece that is not an object ({_excerpt(data)})")
        if value.get("error") or value.get("object") == "error":
            raise self._reported(value)
        return value

    def _raise_loose_error(self) -> None:
        """Raise the error object that a server wrote into its stream without the form of an event, if it did."""
        loose = bytes(self._loose).strip()
        if loose.startswith(b"{"):
            try:
                self._object(_loaded(loose), loose)
            except ValueError:
                raise self._no_json(loose) from None

    def _reported(self, value: Any) -> LLMError:
        error = value.get("error") or value if isinstance(value, dict) else value
        return error_of(self._endpoint, error, secret=self._secret)

    def _no_json(self, data: bytes) -> LLMError:
        return self._broken(f"sent a piece that is not JSON ({_excerpt(data)})")

    def _broken(self, what: str, kind: type[LLMError] = LLMInternalError) -> LLMError:
        return build(self._endpoint, kind, f"Model {self._endpoint.label} {what}", secret=self._secret)


def _loaded(data: bytes) -> Any:
    """The JSON value, else `ValueError`; bytes that are no UTF-8 and halves of characters are let pass."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data.decode("utf-8", "replace"))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def _excerpt(data: bytes) -> str:
    text = data[:80].decode(errors="replace")
    return f"{text!r}{'…' if len(data) > 80 else ''}"
