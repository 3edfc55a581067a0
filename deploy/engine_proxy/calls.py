"""Calls of the Engine API that pass, each with its allowed path, query and body."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, urlencode

from deploy.engine_proxy import bodies
from deploy.engine_proxy.rules import ID, IMAGE, OWN_NAME, ForbiddenCallError, Rule, read_json

ObjectKind = Literal["container", "exec", "network", "volume"]
CallStep = Literal["commit", "connect", "create", "forget", "list", "pull", "start"]

_VERSION: Final = re.compile(r"(/v1\.(?:2[4-9]|[3-9][0-9]))?(/.*)")
_OWN: Final = r"(?P<own>[A-Za-z0-9][A-Za-z0-9.-]{0,220})"
_EXEC: Final = r"(?P<own>[0-9a-f]{64})"
_DERIVED: Final = r"drydock/derived:[0-9a-f]{40}"
_FILTERS: Final = ("dangling", "id", "label", "name", "reference", "status")
_NEVER: Final = ("link",)
"""Parameters that Docker's client always sends, but that must say no."""


@dataclass(frozen=True, slots=True)
class Route:
    """One allowed call.

    ``path`` must match the whole path without the API version; its group ``own`` refers to a thing of this Drydock's.
    ``query``: allowed parameters, ``needs``: required ones. ``body``: rule for a JSON body; ``stream`` for bytes passed
    on as they come; None for no body. ``kind`` is the kind of thing, None without one; ``step`` what else matters to
    its owner. ``upgrade``: the connection may become a byte stream.
    """

    methods: str
    path: str
    query: str = ""
    needs: str = ""
    body: Rule | Literal["stream"] | None = None
    kind: ObjectKind | None = None
    step: CallStep | None = None
    upgrade: bool = False


ROUTES: Final = (
    # What the engine is, and what there is on it.
    Route("GET HEAD", r"/_ping"),
    Route("GET", r"/(version|info)"),
    Route("GET", r"/containers/json", "all limit size filters trunc_cmd", kind="container", step="list"),
    Route("GET", r"/volumes", "filters", kind="volume", step="list"),
    Route("GET", r"/networks", "filters", kind="network", step="list"),
    Route("GET", rf"/images/{IMAGE}/json", "manifests platform"),
    Route("GET", rf"/distribution/{IMAGE}/json"),
    # Pulling an image. Importing one is the same call without fromImage; without a tag, all of them are pulled.
    Route("POST", r"/images/create", "fromImage tag platform", needs="fromImage tag", step="pull"),
    # Images that are made of containers of ours, under names of their own; those of others cannot be replaced.
    Route("GET", r"/images/json", "all only_ids filters", step="list"),
    Route("POST", r"/commit", "container repo tag pause", needs="container repo tag", step="commit"),
    Route("DELETE", rf"/images/{_DERIVED}", "force noprune", step="forget"),
    # Containers of ours.
    Route("POST", r"/containers/create", "name platform", needs="name", body=bodies.container, kind="container",
          step="create"),
    Route("GET", rf"/containers/{_OWN}/json", "size", kind="container"),
    Route("GET", rf"/containers/{_OWN}/logs", "stdout stderr tail timestamps since until follow details",
          kind="container"),
    Route("POST", rf"/containers/{_OWN}/start", kind="container", step="start"),
    Route("POST", rf"/containers/{_OWN}/(pause|unpause)", kind="container"),
    Route("POST", rf"/containers/{_OWN}/(stop|kill|wait)", "t signal condition", kind="container"),
    Route("DELETE", rf"/containers/{_OWN}", "v force link", kind="container"),
    Route("GET HEAD", rf"/containers/{_OWN}/archive", "path", needs="path", kind="container"),
    Route("PUT", rf"/containers/{_OWN}/archive", "path noOverwriteDirNonDir copyUIDGID", needs="path", body="stream",
          kind="container"),
    # Execs in containers of ours.
    Route("POST", rf"/containers/{_OWN}/exec", body=bodies.exec_in_container, kind="container"),
    Route("POST", rf"/exec/{_EXEC}/start", body=bodies.exec_start, kind="exec", upgrade=True),
    Route("POST", rf"/exec/{_EXEC}/resize", "h w", kind="exec"),
    Route("GET", rf"/exec/{_EXEC}/json", kind="exec"),
    # Volumes and networks of ours.
    Route("POST", r"/volumes/create", body=bodies.volume, kind="volume", step="create"),
    Route("GET", rf"/volumes/{_OWN}", kind="volume"),
    Route("DELETE", rf"/volumes/{_OWN}", "force", kind="volume"),
    Route("POST", r"/networks/create", body=bodies.network, kind="network", step="create"),
    Route("GET", rf"/networks/{_OWN}", "verbose scope", kind="network"),
    Route("DELETE", rf"/networks/{_OWN}", kind="network"),
    Route("POST", rf"/networks/{_OWN}/connect", body=bodies.connect, kind="network", step="connect"),
    Route("POST", rf"/networks/{_OWN}/disconnect", body=bodies.disconnect, kind="network", step="connect"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineCall:
    """A call allowed as far as path and query tell; ``own`` is "" without a reference, ``filters`` narrow lists."""

    route: Route
    method: str
    version: str
    own: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    filters: Mapping[str, list[str]] = field(default_factory=dict)
    _before: str = ""
    _after: str = ""

    def target(self, own: str = "") -> str:
        """Path and query, written anew, with `own` in place of the reference."""
        query = {**self.query, **({"filters": json.dumps(self.filters)} if self.filters else {})}
        path = f"{self.version}{quote(self._before, safe='/:@')}{quote(own or self.own, safe='')}{self._after}"
        return path + (f"?{urlencode(query)}" if query else "")


def find_call(method: str, target: str) -> EngineCall:
    """The allowed call of a request line; raises `ForbiddenCallError` when there is none."""
    raw_path, _, raw_query = target.partition("?")
    path = raw_path.replace("%3A", ":").replace("%3a", ":").replace("%40", "@").replace("%2F", "/").replace("%2f", "/")
    versioned = _VERSION.fullmatch(path)
    if versioned is None or "%" in path or "//" in path or ".." in path:
        raise ForbiddenCallError("this path is not allowed")
    version, call_path = versioned[1] or "", versioned[2]
    for route in ROUTES:
        matched = re.fullmatch(route.path, call_path)
        if matched is None or method not in route.methods.split():
            continue
        query = _checked_query(route, raw_query)
        filters = _checked_filters(query.pop("filters", ""))
        if "own" not in matched.re.groupindex:
            return EngineCall(route, method, version, query=query, filters=filters, _before=call_path)
        own, (start, end) = matched["own"], matched.span("own")
        if (route.kind == "volume" or ID.fullmatch(own) is None) and OWN_NAME.fullmatch(own) is None:
            raise ForbiddenCallError("only things whose names begin with drydock- can be touched")
        return EngineCall(route, method, version, own, query, filters, call_path[:start], call_path[end:])
    raise ForbiddenCallError(f"{method} {call_path} is not allowed")


def _checked_query(route: Route, raw_query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(raw_query, keep_blank_values=True, strict_parsing=bool(raw_query), errors="strict")
    except ValueError:
        raise ForbiddenCallError("the query is malformed") from None
    values = dict(pairs)
    if len({name.casefold() for name in values}) != len(pairs):
        raise ForbiddenCallError("a query parameter is given twice")
    for name, value in values.items():
        if name not in route.query.split():
            raise ForbiddenCallError(f"the query parameter {name} is not allowed")
        if name in _NEVER and value.lower() not in ("", "0", "false"):
            raise ForbiddenCallError(f"the query parameter {name} is not allowed to be anything but false")
        if name == "name" and OWN_NAME.fullmatch(value) is None:
            raise ForbiddenCallError("name must begin with drydock-")
        if name == "repo" and value != "drydock/derived":
            raise ForbiddenCallError("repo may only be drydock/derived")
        if name == "fromImage" and re.fullmatch(IMAGE, value) is None:
            raise ForbiddenCallError("fromImage is not the name of an image")
        if name == "tag" and route.step == "commit" and re.fullmatch(r"[0-9a-f]{40}", value) is None:
            raise ForbiddenCallError("tag must be 40 hexadecimal digits")
        if name == "tag" and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,200}", value) is None:
            raise ForbiddenCallError("tag is neither a tag nor a digest")
    for name in route.needs.split():
        if not values.get(name):
            raise ForbiddenCallError(f"the query parameter {name} is missing")
    return values


def _checked_filters(text: str) -> dict[str, list[str]]:
    """A list's filters, in the one of their two forms that engines of all ages read."""
    if not text:
        return {}
    filters: dict[str, list[str]] = {}
    for name, values in read_json(text.encode("utf-8")).items():
        items = list(values) if isinstance(values, list | dict) else None
        if name not in _FILTERS or items is None or not all(isinstance(value, str) for value in items):
            raise ForbiddenCallError(f"the filter {name} is not allowed")
        filters[name] = items
    return filters
