"""Answers into results, with an error of ours where they have another form."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from drydock_client.errors import NotDrydockError
from drydock_client.events import Tolerant

R = TypeVar("R", bound=Tolerant)


def parsed(kind: type[R], answer: Any) -> R:
    """One result.

    Raises:
        NotDrydockError: the answer lacks what every server sends.
    """
    try:
        return kind.model_validate(answer)
    except ValidationError as error:
        raise NotDrydockError(f"The server's answer is no {kind.__name__}: {_words(error)}") from error


def parsed_list(kind: type[R], answer: Any) -> list[R]:
    """A list of results; see `parsed`."""
    try:
        return TypeAdapter(list[kind]).validate_python(answer)  # type: ignore[valid-type] # a type at run time
    except ValidationError as error:
        raise NotDrydockError(f"The server's answer is no list of {kind.__name__}: {_words(error)}") from error


def _words(error: ValidationError) -> str:
    """The problems without the values, which may be anything."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
