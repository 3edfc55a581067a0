"""A request as the model server received it; parsed only when somebody looks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class ModelRequest:
    """One request. Header names are lower-case."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes

    @cached_property
    def json(self) -> dict[str, Any]:
        """The body, parsed; {} when there is none."""
        body = json.loads(self.content) if self.content else {}
        if not isinstance(body, dict):
            raise ValueError(f"{self.method} {self.path}: the body is no JSON object")
        return body

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the request."""
        messages: list[dict[str, Any]] = self.json.get("messages", [])
        return messages

    @property
    def model(self) -> str:
        """The model asked for."""
        return str(self.json.get("model", ""))

    @property
    def api_key(self) -> str | None:
        """The bearer token."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else None

    def results_since_user(self) -> int:
        """How many tool results stand after the last user message; counted in the bytes, without parsing."""
        body = self.content
        space = b" " if b'"role": ' in body[:4096] else b""
        start = body.rfind(b'"role":' + space + b'"user"')
        return body.count(b'"role":' + space + b'"tool"', max(start, 0))
