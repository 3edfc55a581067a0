"""What is wrong with data, for whoever has to mend them: places and reasons, never the values."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails


def problems_in(error: ValidationError, most: int | None = None) -> str:
    """The problems, each with its place. Values are not repeated: they may be long, or secret.

    At most the first `most` of them.
    """
    found = error.errors(include_url=False, include_input=False)[:most]
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {_reason(one)}" for one in found)


def _reason(problem: ErrorDetails) -> str:
    if problem["type"] == "union_tag_invalid":  # the usual text repeats what was given
        return f"Input should be one of {problem['ctx']['expected_tags']}"
    return problem["msg"]
