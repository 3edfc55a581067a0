"""The header of a skill's file: YAML between two lines of three dashes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

MAX_HEADER_CHARS = 64 * 1024
MAX_DEPTH = 20

_HEADER = re.compile(r"\A---[ \t]*\n(.*?)(?:\n|(?<=\n))---[ \t]*(?:\n|\Z)", re.DOTALL)


def split(text: str) -> tuple[dict[str, Any], str]:
    """The values of the header and the text after it; a text without a header has no values.

    Aliases are refused: a header needs none, and a few of them can stand for gigabytes.

    Raises:
        ValueError: the header is no YAML mapping, or too long; the message says where the mistake is.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found = _HEADER.match(text)
    if found is None:
        return {}, text.strip()
    header = found.group(1)
    if len(header) > MAX_HEADER_CHARS:
        raise ValueError(f"its header has {len(header)} characters; at most {MAX_HEADER_CHARS} are allowed")
    values = _parsed(header)
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ValueError("its header must be a YAML mapping of names to values, for example `name: my-skill`")
    if strange := [key for key in values if not isinstance(key, str)]:
        raise ValueError(f"its header has a name that is no text: {strange[0]!r}")
    return values, text[found.end() :].strip()


def _parsed(header: str) -> Any:
    yaml, loader = _yaml()
    try:
        return yaml.load(header, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 2}" if mark is not None else ""  # the dashes are line 1
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ValueError(f"its header is no valid YAML{where}: {problem}") from None
    except (ValueError, OverflowError, RecursionError) as error:  # a date that does not exist, for example
        raise ValueError(f"its header is no valid YAML: {error}") from None


@cache
def _yaml() -> tuple[Any, Any]:
    # Imported here: only conversations with skills need it, and it costs every start of the server 15 ms.
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined,unused-ignore] # the library comes without types
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                problem = "aliases (*name) are not allowed here; write the value out"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.peek_event().start_mark)
            if self.depth > MAX_DEPTH:
                problem = f"it is nested more than {MAX_DEPTH} levels deep"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.peek_event().start_mark)
            self.depth += 1
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

    return yaml, Loader
