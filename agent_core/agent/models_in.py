"""All models in a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from agent_core.llm.llm import LLM


def llms_in(value: Any) -> Iterator[LLM]:
    """Each object in `value` that is an `LLM`, once; of a subclass, such as a router, only what it is made of.

    Fields of models, dictionaries, lists, tuples and sets are entered, cycles too; dataclasses are not. What is yielded
    are the objects themselves.
    """
    seen: set[int] = set()
    waiting: list[Any] = [value]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if type(found) is LLM:
            yield found
        waiting.extend(reversed(list(_parts(found))))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, BaseModel):
        return [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple | set | frozenset) else ()
