"""What a name was meant to be: who misspells an option is told the nearest one that there is."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

_UNKNOWN = "extra_forbidden"
_LISTED = 12

ClassT = TypeVar("ClassT", bound=type[Any])


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `name` most probably means, whatever its case; None where none is like it."""
    by_plain = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), list(by_plain), n=1, cutoff=0.6)
    return by_plain[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence about a name that there is not: the nearest one of `known`, or else all, where they are few."""
    names = sorted(known)
    if (one := nearest(name, names)) is not None:
        return f"did you mean {one!r}?"
    if not names:
        return "there are none"
    rest = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"there are {', '.join(names[:_LISTED])}{rest}"


class SpelledModel(ModelMetaclass):
    """Metaclass of models: one that is made with an option that it does not have says which was meant.

    So does a model that ignores unknown fields: what is ignored are those of data that are read
    (`model_validate`), such as a newer version's.
    """

    if not TYPE_CHECKING:  # for type checkers, who know the options, a model is made as any other

        def __call__(cls, *args: Any, **options: Any) -> Any:  # noqa: N805 - it is a metaclass
            """The model; raises `ValidationError`, which names every unknown option and the nearest known one."""
            if cls.model_config.get("extra") == "ignore" and (unknown := options.keys() - set(_options_of(cls))):
                raise _refusal(cls, [(name, options[name]) for name in sorted(unknown)], [])
            try:
                return super().__call__(*args, **options)
            except ValidationError as error:
                problems = error.errors()
                # Only what was written here: the same name may be wrong, or right, in a model within.
                unknown_here = [one for one in problems if one["type"] == _UNKNOWN and one["loc"][1:] == ()]
                unknown_here = [one for one in unknown_here if one["loc"][0] in options]
                if not unknown_here:
                    raise
                others = [one for one in problems if one not in unknown_here]
                raise _refusal(cls, [(str(one["loc"][0]), one["input"]) for one in unknown_here], others) from None


def _options_of(model: type[BaseModel]) -> list[str]:
    names = [*getattr(model, "other_options", ())]
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        others = alias.choices if isinstance(alias, AliasChoices) else [alias]
        names += [name, *(one for one in (field.alias, *others) if isinstance(one, str))]
    return names


def _refusal(model: type[BaseModel], unknown: list[tuple[str, object]], others: list[Any]) -> ValidationError:
    known = _options_of(model)
    lines = [
        InitErrorDetails(
            type=_told(_UNKNOWN, f"unknown option: {did_you_mean(name, known)}"),
            loc=(name,),
            input=value,
        )
        for name, value in unknown
    ]
    lines += [
        InitErrorDetails(type=_told(one["type"], one["msg"]), loc=one["loc"], input=one["input"]) for one in others
    ]
    return ValidationError.from_exception_data(model.__name__, lines, hide_input=True)


def _told(kind: Any, text: Any) -> PydanticCustomError:
    """An error of this kind and text (pydantic wants literals of both); without a context it is no template."""
    return PydanticCustomError(kind, text)


def spelled(cls: ClassT) -> ClassT:
    """Class decorator: a constructor that is given an option that it does not have says which was meant."""
    made = cls.__init__

    @functools.wraps(made)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        if options and not known.issuperset(options) and takes_no_others:
            name = min(options.keys() - known)
            raise TypeError(f"{type(self).__name__} has no option {name!r}: {did_you_mean(name, known)}")
        made(self, *args, **options)

    known, takes_no_others = _parameters(cls)
    cls.__init__ = checked
    return cls


def _parameters(cls: type[Any]) -> tuple[set[str], bool]:
    """The names of a constructor's options, and whether these are all; ``**options`` are those of its bases."""
    known: set[str] = set()
    for base in cls.__mro__[:-1]:
        if "__init__" in base.__dict__:
            parameters = inspect.signature(base.__dict__["__init__"]).parameters.values()
            known.update(one.name for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD))
            if not any(one.kind is one.VAR_KEYWORD for one in parameters):
                return known - {"self"}, True
    return known - {"self"}, False
