"""Reads OpenAI-compatible answers: server-sent events, or the one JSON object of a server that does not stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from agent_core.errors import LLMBadRequestError, LLMError, LLMInternalError
from agent_core.llm.exchange import CallDelta, Chunk, Endpoint
from agent_core.llm.failures import build, from_status, readable

MAX_ANSWER_BYTES = 64 * 1024 * 1024
_DONE = b"[DONE]"


class AnswerReader:
    """Turns the bytes of an answer with status 200 into chunks: `feed` it what comes, `end` it once.

    `is_done` says that ``[DONE]`` came and nothing more needs to be read; `has_finished` that the answer itself is
    complete. `is_page` says that the content type is that of a web page.

    Both methods raise an `LLMError` when the body is no answer (a web page, an error object, invalid JSON); `end` also
    when it broke off: an answer without a finish reason or ``[DONE]`` is not complete.
    """

    def __init__(self, endpoint: Endpoint, *, is_page: bool = False, secret: str = "") -> None:
        self._endpoint = endpoint
        self._is_page = is_page
        self._secret = secret
        self._rest: list[bytes] = []
        self._size = 0
        self._loose = bytearray()
        self._finish_reason: str | None = None
        self._has_events = False
        self.is_done = False

    @property
    def has_finished(self) -> bool:
        """Whether all of the answer is there."""
        return self.is_done or self._finish_reason is not None

    def feed(self, data: bytes) -> list[Chunk]:
        """The chunks that `data` completes."""
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            raise self._broken(f"sent more than {MAX_ANSWER_BYTES // 2**20} MiB")
        if b"\n" not in data:
            self._rest.append(data)
            return []
        *lines, rest = b"".join([*self._rest, data]).split(b"\n")
        self._rest = [rest] if rest else []
        return [chunk for line in lines for chunk in self._line(line.strip())]

    def end(self) -> list[Chunk]:
        """The chunks of what is left; raises when the answer broke off."""
        chunks = list(self._line(b"".join(self._rest).strip()))
        self._rest = []
        if not self._has_events and self._loose:
            chunks += self._whole(bytes(self._loose))
        elif not self.has_finished:
            self._raise_loose_error()
            what = "cut its answer off before the end" if self._has_events else "sent an empty answer"
            raise self._broken(what)
        return chunks

    def _line(self, line: bytes) -> Iterator[Chunk]:
        if self.is_done or not line or line.startswith((b":", b"event:", b"id:", b"retry:")):
            return
        if not line.startswith(b"data:"):
            self._loose += line + b"\n"
            return
        self._has_events = True
        data = line[5:].strip()
        if data == _DONE:
            if self._finish_reason is None:
                self._raise_loose_error()
            self.is_done = True
        elif data:
            yield self._chunk(self._parsed(data))

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise self._broken(f"sent a piece that is not JSON ({_excerpt(data)})") from None
        if not isinstance(value, dict):
            raise self._broken(f"sent a piece that is not an object ({_excerpt(data)})")
        return value

    def _chunk(self, value: dict[str, Any]) -> Chunk:
        if value.get("error"):
            raise error_of(self._endpoint, value["error"], secret=self._secret)
        chunk = chunk_of(value, "delta")
        self._finish_reason = chunk.finish_reason or self._finish_reason
        return chunk

    def _whole(self, body: bytes) -> list[Chunk]:
        """A body that is no stream of events."""
        start = body[:2000].lstrip().lower()
        if self._is_page or start.startswith((b"<!doctype", b"<html")):
            what = (
                f"{self._endpoint.label} answered with {readable(body.decode(errors='replace'))} instead of an answer"
            )
            raise build(self._endpoint, LLMBadRequestError, f"{what}: is the base URL right?", secret=self._secret)
        value = self._parsed(body.strip())
        if value.get("error"):
            raise error_of(self._endpoint, value["error"], secret=self._secret)
        chunk = chunk_of(value, "message")
        self.is_done = True
        return [chunk]

    def _raise_loose_error(self) -> None:
        """Raise the error object that a server wrote into its stream without the form of an event, if it did."""
        if self._loose.startswith(b"{"):
            error = self._parsed(bytes(self._loose).strip()).get("error")
            if error:
                raise error_of(self._endpoint, error, secret=self._secret)

    def _broken(self, what: str) -> LLMError:
        return build(self._endpoint, LLMInternalError, f"Model {self._endpoint.label} {what}", secret=self._secret)


def chunk_of(value: Mapping[str, Any], part: str) -> Chunk:
    """One chunk (`part` "delta") or one whole answer ("message") of the OpenAI wire form."""
    usage = value.get("usage")
    usage = usage if isinstance(usage, dict) else None
    cost = usage.get("cost") if usage else None
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    delta = choice.get(part) if choice else None
    if not isinstance(delta, dict):
        delta = {}
    content = delta.get("content")
    return Chunk(
        text=_text(content),
        reasoning=_text(delta.get("reasoning_content") or delta.get("reasoning")),
        calls=tuple(_calls(delta)),
        finish_reason=choice.get("finish_reason") if choice else None,
        has_choice=choice is not None,
        usage=usage,
        model=value.get("model"),
        cost=float(cost) if isinstance(cost, int | float) else None,
    )


def _text(content: Any) -> str:
    """Text content, also where a server sends it in parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _calls(delta: Mapping[str, Any]) -> Iterator[CallDelta]:
    for item in delta.get("tool_calls") or ():
        if not isinstance(item, dict):
            continue
        function = item.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = orjson.dumps(arguments).decode()
        index = item.get("index")
        yield CallDelta(
            index=index if isinstance(index, int) else None,
            id=str(item["id"]) if item.get("id") else None,
            name=function.get("name") or None,
            arguments=arguments or "",
        )


def error_of(endpoint: Endpoint, error: Any, *, secret: str = "") -> LLMError:
    """The error for an error object (or text) inside an answer with status 200."""
    if not isinstance(error, dict):
        return from_status(endpoint, 500, str(error), secret=secret)
    code = error.get("code", error.get("status"))
    try:
        status = int(code) if code is not None else 500
    except (TypeError, ValueError):
        status = 500
    words = [str(error[key]) for key in ("message", "type", "code") if error.get(key)]
    kinds = " ".join(words[1:]).lower()
    if "rate_limit" in kinds:
        status = 429
    elif "overloaded" in kinds:
        status = 503
    return from_status(endpoint, status if status >= 400 else 500, " ".join(words), secret=secret)


def _excerpt(data: bytes) -> str:
    text = data[:80].decode(errors="replace")
    return f"{text!r}{'…' if len(data) > 80 else ''}"
