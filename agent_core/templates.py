"""Prompt templates: the one place that renders them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def rendered(directory: Path, filename: str, variables: Mapping[str, Any] | None = None) -> str:
    """The template `filename` (relative to `directory`, or absolute), stripped; an unknown variable is an error."""
    return _environment(directory).get_template(filename).render(**dict(variables or {})).strip()


@cache
def _environment(directory: Path) -> Environment:
    # Imported here: only conversations need it, and it would cost every start of the server 30 ms.
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, TemplateNotFound

    class Absolute(FileSystemLoader):
        """Of all files those that are named in full: a relative name must not be one of the whole host."""

        def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
            if not template.startswith("/"):
                raise TemplateNotFound(template)
            return super().get_source(environment, template)

    return Environment(
        loader=ChoiceLoader([FileSystemLoader(str(directory)), Absolute("/")]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - plain text for a model, never HTML
    )
