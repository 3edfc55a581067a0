"""Models of a family whose members are told apart by their `kind`: data are read as the member that they name."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from pydantic import BaseModel
from pydantic_core import from_json

from agent_core.events.messages import Frozen


class Kindred(Frozen):
    """Base of a family. A member reads data of its own members only; what it does not know it reads as itself."""

    @classmethod
    @abstractmethod
    def member(cls, kind: str) -> type[BaseModel] | None:
        """The member of the family that is called so."""

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """The object that plain data describe; those of a member become one of that member's class.

        Raises:
            pydantic.ValidationError: naming the field and the problem.
        """
        found = cls.member(str(obj.get("kind"))) if isinstance(obj, dict) else None
        if found is None or found is cls or not issubclass(found, cls):
            return super().model_validate(obj, **options)
        return found.model_validate(obj, **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """`model_validate` of what the JSON text says."""
        return cls.model_validate(from_json(json_data), **options)
