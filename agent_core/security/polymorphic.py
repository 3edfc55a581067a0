"""Polymorphic models: their data names their class, so that they can be stored, sent, and made again."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, ModelWrapValidatorHandler, model_validator

from agent_core.events.messages import Frozen


class Polymorphic(Frozen):
    """A frozen model whose `kind` is its class name.

    A family is a direct subclass with a `classes` of its own; its subclasses register themselves there by name, also
    those that a library user adds. An abstract class of it reads the data of its subclasses. Two `kind`s of one family
    cannot have the same name: the later one is meant.
    """

    model_config = ConfigDict(defer_build=True)  # until `kind` has its default, just below: to build twice takes long

    kind: str = ""

    classes: ClassVar[dict[str, type[Polymorphic]]] = {}
    registering_module: ClassVar[str] = ""
    """A module that imports all of ours: a kind may be asked for before anybody has imported it."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.model_fields["kind"].default = cls.__name__
        cls.model_rebuild(force=True)
        cls.classes[cls.__name__] = cls

    @model_validator(mode="wrap")
    @classmethod
    def _read_by_its_kind(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if inspect.isabstract(cls) and isinstance(data, dict):
            recreated: Self = cls.recreate(data)
            return recreated
        return handler(data)

    @model_validator(mode="after")
    def _is_of_its_kind(self) -> Self:
        if self.kind != type(self).__name__:
            raise ValueError(f"kind is {self.kind!r}, but this is a {type(self).__name__}")
        return self

    @classmethod
    def recreate(cls, data: Any) -> Any:
        """The object that `data` (as from ``model_dump``) describes; anything else is returned as it is.

        Raises:
            ValueError: its `kind` is missing, or no class of this family has that name.
            pydantic.ValidationError: its fields are not those of its kind.
        """
        if not isinstance(data, dict):
            return data
        kind = data.get("kind")
        if str(kind) not in cls.classes and cls.registering_module:
            import_module(cls.registering_module)
        found = cls.classes.get(str(kind))
        if found is None or not issubclass(found, cls) or found is cls:
            known = sorted(name for name, known in cls.classes.items() if issubclass(known, cls) and known is not cls)
            raise ValueError(f"kind {kind!r} is not known; known are {known}")
        return found.model_validate(data)
