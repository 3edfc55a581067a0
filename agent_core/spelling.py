"""What a name was meant to be: who misspells an option is told the nearest one that there is."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import TypeAliasType

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

UNKNOWN_OPTION = "unknown option: "
"""How the text begins of an error that has said already which option was meant."""

_UNKNOWN = "extra_forbidden"
_LISTED = 12
_MAX_NAME = 100

ClassT = TypeVar("ClassT", bound=type[Any])


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The one of `known` that `name` most probably means, whatever its case; None where none is so like it (0 to 1)."""
    if len(name) > _MAX_NAME:
        return None  # to compare megabytes takes seconds, and nobody meant a name by them
    by_plain = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), list(by_plain), n=1, cutoff=likeness)
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


def probably_meant(names: Iterable[object], known: Iterable[str]) -> list[str]:
    """A sentence for each of these unknown names that is like a known one, for as many as anybody reads."""
    by_name = set(known)
    short = [name for name in names if isinstance(name, str) and len(name) <= _MAX_NAME][:_LISTED]
    found = ((name, nearest(name, by_name)) for name in short)
    return [f"{name} is not known and was ignored; did you mean {one!r}?" for name, one in found if one is not None]


def meant_at(form: Any, place: Sequence[str | int]) -> str:
    """A sentence about the last name of `place` in data of this form (any type), which does not know it.

    It says the nearest one that there is, with the whole way to it, or else what may stand there.
    """
    *way, name = place
    known = {one for model in _models_at(form, way) for one in _options_of(model)}
    found = nearest(str(name), known)
    if found is None:
        return did_you_mean(str(name), known) if known else "leave it out"
    return f"did you mean {'.'.join(map(str, [*way, found]))!r}?"


def _models_at(form: Any, way: Sequence[str | int]) -> set[type[BaseModel]]:
    """The models that data of this form may be at a place; what is in `way` beside its names says which of several."""
    forms = _parts_of(form)
    for step in way:
        inner: list[Any] = []
        for one in forms:
            origin, arguments = get_origin(one), get_args(one)
            if isinstance(one, type) and issubclass(one, BaseModel):
                fields = {name: field for name, field in one.model_fields.items() if step in (name, field.alias)}
                inner += [part for field in fields.values() for part in _parts_of(field.annotation)]
            elif isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
                inner += _parts_of(arguments[1])
            elif isinstance(step, int):
                inner += [part for argument in arguments for part in _parts_of(argument)]
        forms = inner or forms
    return {one for one in forms if isinstance(one, type) and issubclass(one, BaseModel)}


def _parts_of(form: Any) -> list[Any]:
    """The types that a type is one of: those of a union, and what is annotated."""
    origin = get_origin(form)
    if isinstance(form, TypeAliasType):
        return _parts_of(form.__value__)
    if origin is Annotated:
        return _parts_of(get_args(form)[0])
    if origin in (Union, UnionType):
        return [part for one in get_args(form) for part in _parts_of(one)]
    return [form]


class SpelledModel(ModelMetaclass):
    """Metaclass of models: one that is made with an option that it does not have says which was meant.

    So does a model that ignores unknown fields: what is ignored are those of data that are read
    (`model_validate`), such as a newer version's.
    """

    if not TYPE_CHECKING:  # for type checkers, who know the options, a model is made as any other

        def __call__(cls, *args: Any, **options: Any) -> Any:  # noqa: N805 - it is a metaclass
            """The model; raises `ValidationError`, which names every unknown option and the nearest known one.

            `TypeError` where options are given without their names.
            """
            if args and cls.__init__ is BaseModel.__init__:
                names = [name for name in cls.model_fields if name != "kind"]
                first = next((name for name in names if cls.model_fields[name].is_required()), "".join(names[:1]))
                raise TypeError(f"{cls.__name__} takes its options by name: {cls.__name__}({first}=…)")
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
            type=_told(_UNKNOWN, f"{UNKNOWN_OPTION}{did_you_mean(name, known)}"),
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


def refuse_elsewhere(form: str, data: Mapping[str, Any], places: Mapping[str, str]) -> None:
    """Raise `ValidationError` where the data of this form has fields that are set elsewhere, each with its place."""
    problems = [
        InitErrorDetails(type=_told("elsewhere", place), loc=(name,), input=None)
        for name, place in places.items()
        if name in data
    ]
    if problems:
        raise ValidationError.from_exception_data(form, problems)


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
