"""What an OpenAPI document promises its clients, and what of that another one would break.

A path, a method, an answer and its fields stay; a request that was taken is taken. The comparing of single schemas is
that of the events (`tests.contract.snapshots.compatibility`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.contract.snapshots.compatibility import breaks

Part = Mapping[str, Any]


def document_breaks(old: Part, new: Part) -> Iterator[str]:
    """What a client written for `old` could stumble over in `new`, a line each."""
    for path, methods in old["paths"].items():
        for method, before in methods.items():
            name = f"{method.upper()} {path}"
            after = new["paths"].get(path, {}).get(method)
            if after is None:
                yield f"{name} is gone"
                continue
            for problem in _Operation(old, new, before, after).breaks():
                yield f"{name}: {problem}"


class _Operation:
    def __init__(self, old: Part, new: Part, before: Part, after: Part) -> None:
        self._roots = (old, new)
        self._before = before
        self._after = after

    def breaks(self) -> Iterator[str]:
        if self._before["operationId"] != self._after["operationId"]:
            yield f"its operationId {self._before['operationId']} is gone"
        yield from self._parameters()
        yield from self._body()
        yield from self._responses()
        if self._after.get("security") and not self._before.get("security"):
            yield "it may no longer be asked without a token"

    def _parameters(self) -> Iterator[str]:
        old, new = (
            {(one["in"], one["name"]): one for one in side.get("parameters", [])}
            for side in (self._before, self._after)
        )
        for key, before in old.items():
            if key not in new:
                yield f"parameter {key[1]} is gone"
                continue
            if new[key].get("required") and not before.get("required"):
                yield f"parameter {key[1]} may no longer be left out"
            found = breaks(before["schema"], new[key]["schema"], "taken", roots=self._roots)
            yield from (f"parameter {key[1]}: {problem}" for problem in found)
        for key in new.keys() - old.keys():
            if new[key].get("required"):
                yield f"parameter {key[1]} is new and has to be sent"

    def _body(self) -> Iterator[str]:
        old, new = self._before.get("requestBody"), self._after.get("requestBody")
        if new is not None and new.get("required") and not (old or {}).get("required"):
            yield "a body has to be sent now"
        if old is None:
            return
        if new is None:
            yield "its body is gone"
            return
        for media_type, content in old["content"].items():
            if media_type not in new["content"]:
                yield f"a body of {media_type} is no longer taken"
                continue
            found = breaks(content["schema"], new["content"][media_type]["schema"], "taken", roots=self._roots)
            yield from (f"body: {problem}" for problem in found)

    def _responses(self) -> Iterator[str]:
        """Errors may come and go; what comes when all is well stays, and an error keeps its form."""
        for status, before in self._before["responses"].items():
            after = self._after["responses"].get(status)
            if after is None:
                if status < "400":
                    yield f"the answer {status} is gone"
                continue
            for header in before.get("headers", {}):
                if header not in after.get("headers", {}):
                    yield f"the header {header} of the answer {status} is gone"
            for media_type, content in before.get("content", {}).items():
                if media_type not in after.get("content", {}):
                    yield f"the answer {status} is no longer {media_type}"
                    continue
                schemas = content["schema"], after["content"][media_type]["schema"]
                found = breaks(*schemas, "sent", roots=self._roots)
                yield from (f"answer {status}: {problem}" for problem in found)
