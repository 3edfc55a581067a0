"""The OpenAPI document of the routes, and its operations one by one: what is tested for all is tested for new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from server.app import create_app
from server.settings.settings import Settings


class Operation(NamedTuple):
    """A method of a path, with what the document says of it."""

    method: str
    path: str
    spec: Mapping[str, Any]

    @property
    def name(self) -> str:
        """For lists of tests."""
        return f"{self.method} {self.path}"

    @property
    def takes_json(self) -> bool:
        """Whether its body is JSON."""
        return "application/json" in self.spec.get("requestBody", {}).get("content", {})

    def parameters(self, place: str) -> list[Mapping[str, Any]]:
        """Those in the path, the query or the headers."""
        return [one for one in self.spec.get("parameters", []) if one["in"] == place]


@cache
def document() -> Mapping[str, Any]:
    """The document of a server with settings of no account."""
    return create_app(Settings.model_validate({"data_dir": Path("unused")})).api.openapi()


def operations() -> list[Operation]:
    """Every operation of the document."""
    return list(_operations(document()))


def _operations(whole: Mapping[str, Any]) -> Iterator[Operation]:
    for path, methods in whole["paths"].items():
        for method, spec in methods.items():
            yield Operation(method.upper(), path, spec)


def resolved(schema: Any) -> Mapping[str, Any]:
    """The schema that a reference leads to."""
    while "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    found: Mapping[str, Any] = schema
    return found
