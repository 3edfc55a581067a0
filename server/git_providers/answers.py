"""What providers answer with, and how it is read."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_origin

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator, model_validator

from agent_core.json_values import TooManyValuesError, check_values
from server.git_providers.errors import GitProviderError

T = TypeVar("T")

MAX_VALUES = 100_000
"""More would be parsed for so long that everybody else had to wait."""

_MAX_DEPTH = 3
"""How deep the details of an error are looked into."""


class Shape(BaseModel):
    """Base of what a provider answers: what is not named is ignored. Built when it is first needed.

    Null is as good as absent: which of the two stands for nothing differs between providers, and their releases.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class Reply(NamedTuple, Generic[T]):
    """An answer and its headers, whose names are in lower case."""

    data: T
    headers: Mapping[str, str]

    @property
    def total(self) -> int | None:
        """How many there are in all, where a header says so."""
        text = self.headers.get("x-total") or self.headers.get("x-total-count") or ""
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


class Nodes(Shape, Generic[T]):
    """A list as GraphQL gives it: null stands for what the account may not see."""

    nodes: tuple[T, ...] = ()

    @field_validator("nodes", mode="before")
    @classmethod
    def _seen(cls, nodes: Any) -> Any:
        return [node for node in nodes if node is not None] if isinstance(nodes, list) else nodes


class Values(Shape, Generic[T]):
    """A list in a frame of its own; which of these it has, and how it goes on, differs."""

    values: tuple[T, ...] = ()
    value: tuple[T, ...] = ()
    next: str | None = None
    size: int | None = None


class EncodedFile(Shape):
    """A file within JSON."""

    content: str

    def text(self, provider: str) -> str:
        """The file's text.

        Raises:
            GitProviderError: it cannot be read.
        """
        try:
            return base64.b64decode(self.content).decode("utf-8", "replace")
        except (binascii.Error, ValueError) as error:
            raise GitProviderError(f"{provider} gives the file in an unknown form") from error


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wait(NamedTuple):
    """How long a provider wants to be left alone; None: it does not say."""

    seconds: float | None


class GraphQl(Shape):
    """The frame around every answer of GraphQL."""

    data: dict[str, Any] | None = None
    errors: tuple[GraphQlError, ...] = ()


class GraphQlError(Shape):
    """What GraphQL could not do."""

    message: str = ""
    type: str | None = None


def read(kind: type[T], body: bytes, provider: str) -> T:
    """The JSON in `body` as a `kind`.

    Raises:
        GitProviderError: it is no JSON, holds more than `MAX_VALUES` values, or is of another form.
    """
    try:
        check_values(body, most=MAX_VALUES)
        value = orjson.loads(body)
    except TooManyValuesError as error:
        raise GitProviderError(f"{provider} answers with {error}: ask for less at a time") from error
    except orjson.JSONDecodeError as error:
        raise GitProviderError(f"{provider} answers with something that is no JSON: is it its host?") from error
    return validated(kind, value, provider)


def validated(kind: type[T], value: Any, provider: str) -> T:
    """`value` as a `kind`.

    Raises:
        GitProviderError: it has another form.
    """
    try:
        adapter: TypeAdapter[T] = _adapter(cast(Any, kind))
        is_no_list = value is None and get_origin(kind) is list  # an empty one, as Gitea writes it
        found = adapter.validate_python([] if is_no_list else value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise GitProviderError(f"{provider} answers in an unknown form: {place}: {first['msg']}") from error
    return found


def wished_wait(answer: Answer) -> Wait | None:
    """How long the provider wants to be left alone, where that is its answer."""
    headers = answer.headers
    none_left = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
    if answer.status != 429 and not (answer.status == 403 and none_left):
        return None
    text = headers.get("retry-after", "")
    return Wait(float(text) if re.fullmatch(r"[0-9]{1,6}", text) else seconds_until_reset(answer))


def seconds_until_reset(answer: Answer) -> float | None:
    """When the limit of requests begins anew, where the provider says so; None: it does not, or it already has."""
    headers = answer.headers
    text = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
    left = float(text) - time.time() if re.fullmatch(r"[0-9]{9,11}", text) else 0.0
    return left if left > 0 else None


def message(body: bytes) -> str:
    """What the provider says about an error, in the usual places; what it finds wrong with which field comes last."""
    try:
        check_values(body, most=MAX_VALUES)
        value = orjson.loads(body)
    except ValueError:
        return ""
    if not isinstance(value, dict):
        return ""
    error = value.get("error")
    first = error.get("message") if isinstance(error, dict) else error
    details = error.get("fields") if isinstance(error, dict) else value.get("errors")
    return "; ".join(dict.fromkeys([*_sentences(first or value.get("message")), *_sentences(details)]))


def _sentences(said: Any, depth: int = 0) -> list[str]:
    """The texts in what a provider says: one, several, or several for each field."""
    if isinstance(said, str):
        return [said] if said else []
    if depth > _MAX_DEPTH:
        return []
    if isinstance(said, list):
        return [text for one in said for text in _sentences(one, depth + 1)]
    if isinstance(said, dict):
        if isinstance(said.get("message"), str):
            return [said["message"]]
        if isinstance(said.get("field"), str) and isinstance(said.get("code"), str):
            return [f"{said['field']}: {said['code']}"]
        return [f"{name}: {text}" for name, one in said.items() for text in _sentences(one, depth + 1)]
    return []


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
