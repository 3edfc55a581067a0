"""Building blocks of rules for JSON bodies.

A rule takes a value and its key's name and raises `ForbiddenCallError` when the value is not allowed. What no rule
names is refused, so fields of later engines stay out until somebody has thought about them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

Rule = Callable[[object, str], None]

OWN_NAME: Final = re.compile(r"drydock-[A-Za-z0-9.-]{1,200}")
"""Names under which things may be made and asked for; they prove nothing (see `ownership`)."""

ID: Final = re.compile(r"[0-9a-f]{12,64}")
IMAGE: Final = r"[A-Za-z0-9](?!.*(?:\.\.|//))[A-Za-z0-9._/:@-]{0,300}"

INSTANCE_LABEL: Final = "drydock.instance"
_RESERVED_LABELS: Final = "com.docker."


class ForbiddenCallError(Exception):
    """The call is not allowed; the message says which part and becomes the engine-style 403 answer."""


def is_compose_label(name: object) -> bool:
    """Whether a label is one of those with which Docker Compose marks what belongs to a project."""
    return isinstance(name, str) and name.casefold().startswith("com.docker.compose.")


def read_json(body: bytes) -> dict[str, object]:
    """The JSON object in a request's body; raises `ForbiddenCallError` for anything else.

    Also for one that two readers could understand differently: the engine ignores the case of keys, so keys that differ
    only in case count as repeated.
    """

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        if len({key.casefold() for key, _ in items}) != len(items):
            raise ForbiddenCallError("a key is given twice in the body")
        return dict(items)

    def constant(name: str) -> NoReturn:
        raise ForbiddenCallError(f"{name} is not JSON")

    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError):
        raise ForbiddenCallError("the body is not JSON") from None
    if not isinstance(value, dict):
        raise ForbiddenCallError("the body is not a JSON object")
    return value


def is_empty(value: object) -> bool:
    """Whether a value says the same as leaving its key out."""
    return value is None or value is False or value in (0, "", [], {})


def anything(_value: object, _key: str) -> None:
    """Any value; for what has an effect only inside the container."""


def text(value: object, key: str) -> None:
    """A string."""
    if not isinstance(value, str):
        raise ForbiddenCallError(f"{key} must be text")


def number(value: object, key: str) -> None:
    """A whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ForbiddenCallError(f"{key} must be a whole number")


def natural(value: object, key: str) -> None:
    """A whole number that is not negative."""
    number(value, key)
    if isinstance(value, int) and value < 0:
        raise ForbiddenCallError(f"{key} must not be negative")


def flag(value: object, key: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise ForbiddenCallError(f"{key} must be true or false")


def only_null(value: object, key: str) -> None:
    """Nothing; for keys whose empty list means something else than leaving them out."""
    if value is not None:
        raise ForbiddenCallError(f"{key} is not allowed")


def never(value: object, key: str) -> None:
    """Nothing that has a meaning."""
    if not is_empty(value):
        raise ForbiddenCallError(f"{key} is not allowed")


ADDED_RIGHTS: Final = frozenset(["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETFCAP", "SETGID", "SETUID"])
"""Rights that a container may have: over its own files and processes, as package managers need them."""


def one_of(*allowed: str) -> Rule:
    """One of these strings."""

    def rule(value: object, key: str) -> None:
        if value not in allowed:
            raise ForbiddenCallError(f"{key} may only be {', '.join(allowed)}")

    return rule


def like(pattern: str | re.Pattern[str], meaning: str) -> Rule:
    """A string that matches as a whole."""

    def rule(value: object, key: str) -> None:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ForbiddenCallError(f"{key} must be {meaning}")

    return rule


def own_label(value: object, key: str) -> None:
    """The name of a label that says nothing to Docker or its tools."""
    text(value, key)
    if isinstance(value, str) and value.casefold().startswith(_RESERVED_LABELS):
        raise ForbiddenCallError(f"{key} may not be named {_RESERVED_LABELS}…, which is Docker's own")


own_name: Final = like(OWN_NAME, "a name that begins with drydock-")
own_reference: Final = like(rf"{OWN_NAME.pattern}|{ID.pattern}", "a name that begins with drydock-, or an id")
image_name: Final = like(IMAGE, "the name of an image")
absolute_path: Final = like(r"/[^\0]*", "an absolute path")


def list_of(rule: Rule) -> Rule:
    """A list whose items all keep to a rule."""

    def check(value: object, key: str) -> None:
        if not isinstance(value, list):
            raise ForbiddenCallError(f"{key} must be a list")
        for item in value:
            rule(item, key)

    return check


def map_of(key_rule: Rule, value_rule: Rule) -> Rule:
    """An object with free keys that keep to one rule and values that keep to another, or are empty."""

    def check(value: object, key: str) -> None:
        if not isinstance(value, dict):
            raise ForbiddenCallError(f"{key} must be an object")
        for name, item in value.items():
            key_rule(name, key)
            if not is_empty(item):
                value_rule(item, key)

    return check


def object_of(rules: Mapping[str, Rule], without_use: str = "") -> Rule:
    """An object with these keys and no others; those `without_use` may be there but must be empty."""
    known = {**rules, **dict.fromkeys(without_use.split(), never)}

    def check(value: object, key: str) -> None:
        if not isinstance(value, dict):
            raise ForbiddenCallError(f"{key} must be an object")
        for name, item in value.items():
            rule = known.get(name)
            if rule is None:
                raise ForbiddenCallError(f"{key}.{name} is not allowed")
            if rule is only_null or not is_empty(item):
                rule(item, name)

    return check
