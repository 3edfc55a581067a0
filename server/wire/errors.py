"""The one error of this package."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ValidationError

from agent_core.errors import DrydockError


class WireError(DrydockError, ValueError):
    """What a client sent cannot be taken; the message names the field, its problem and what to do."""

    code: ClassVar[str] = "invalid_message"


def problem_of(error: ValidationError, *, name: str, where: str) -> str:
    """The first problem, without the value: it may be large, or a secret."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ".".join([where, *(str(part)[:80] for part in first["loc"])])
    match first["type"]:
        case "missing":
            return f"{path} is missing; {name!r} needs it"
        case "extra_forbidden":
            return f"{path} is not known for {name!r}; leave it out"
        case _:
            text = first["msg"].removeprefix("Value error, ")
            return f"{path}: {text[:1].lower()}{text[1:]} for {name!r}"
