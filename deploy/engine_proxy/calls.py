"""The calls of the Engine API that pass, each with what its path, query and body may be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, urlencode

from deploy.engine_proxy import bodies
from deploy.engine_proxy.errors import RefusedError
from deploy.engine_proxy.rules import OWN_NAME, Rule

Owner = Literal["containers", "networks"]

_VERSION: Final = re.compile(r"(/v1\.(?:2[4-9]|[3-9][0-9]))?(/.*)")
_OWN: Final = r"(?P<own>[A-Za-z0-9][A-Za-z0-9.-]{0,220})"
_EXEC: Final = r"[0-9a-f]{64}"
_IMAGE: Final = r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,300}"
_ID: Final = re.compile(r"[0-9a-f]{12,64}")


@dataclass(frozen=True, slots=True)
class Route:
    """One allowed call.

    Attributes:
        path: what the path without the API version must match as a whole; its group ``own`` is a reference to a thing
            that must be Drydock's.
        query: names of parameters, each with a pattern for its value.
        needs: parameters that must be there.
        body: rule for a JSON body; ``stream`` for bytes passed on as they come; None for no body.
        owner: the kind of thing that ``own`` refers to, where it may be an id.
        upgrade: whether the connection may become a byte stream.
    """

    methods: str
    path: str
    query: str = ""
    needs: str = ""
    body: Rule | Literal["stream"] | None = None
    owner: Owner | None = None
    upgrade: bool = False


ROUTES: Final = (
    # What the engine is, and what there is on it.
    Route("GET HEAD", r"/_ping"),
    Route("GET", r"/(version|info)"),
    Route("GET", r"/containers/json", "all limit size filters since before trunc_cmd"),
    Route("GET", r"/images/json", "all filters digests shared-size manifests only_ids filter"),
    Route("GET", r"/volumes", "filters"),
    Route("GET", r"/networks", "filters"),
    Route("GET", rf"/images/{_IMAGE}/json", "manifests platform"),
    Route("GET", rf"/distribution/{_IMAGE}/json"),
    # Pulling an image. Importing one is the same call without fromImage.
    Route("POST", r"/images/create", "fromImage tag platform", needs="fromImage"),
    # Containers of ours.
    Route("POST", r"/containers/create", "name platform", needs="name", body=bodies.container),
    Route("GET", rf"/containers/{_OWN}/json", "size", owner="containers"),
    Route("GET", rf"/containers/{_OWN}/logs", "stdout stderr tail timestamps since until follow details",
          owner="containers"),
    Route("POST", rf"/containers/{_OWN}/(start|pause|unpause)", owner="containers"),
    Route("POST", rf"/containers/{_OWN}/(stop|kill|wait)", "t signal condition", owner="containers"),
    Route("DELETE", rf"/containers/{_OWN}", "v force link", owner="containers"),
    Route("GET HEAD", rf"/containers/{_OWN}/archive", "path", needs="path", owner="containers"),
    Route("PUT", rf"/containers/{_OWN}/archive", "path noOverwriteDirNonDir copyUIDGID", needs="path", body="stream",
          owner="containers"),
    # Execs. Only who made an exec knows its id, and it can be made only in a container of ours.
    Route("POST", rf"/containers/{_OWN}/exec", body=bodies.exec_in_container, owner="containers"),
    Route("POST", rf"/exec/{_EXEC}/start", body=bodies.exec_start, upgrade=True),
    Route("POST", rf"/exec/{_EXEC}/resize", "h w"),
    Route("GET", rf"/exec/{_EXEC}/json"),
    # Volumes and networks of ours.
    Route("POST", r"/volumes/create", body=bodies.volume),
    Route("GET", rf"/volumes/{_OWN}"),
    Route("DELETE", rf"/volumes/{_OWN}", "force"),
    Route("POST", r"/networks/create", body=bodies.network),
    Route("GET", rf"/networks/{_OWN}", "verbose scope", owner="networks"),
    Route("DELETE", rf"/networks/{_OWN}", owner="networks"),
    Route("POST", rf"/networks/{_OWN}/connect", body=bodies.connect, owner="networks"),
    Route("POST", rf"/networks/{_OWN}/disconnect", body=bodies.disconnect, owner="networks"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """A call that passes as far as its path and query tell.

    Attributes:
        target: path and query, written anew.
        unproven: an id in the path whose thing has yet to be shown to be Drydock's.
    """

    route: Route
    method: str
    target: str
    version: str
    unproven: str | None = None


def find_call(method: str, target: str) -> Call:
    """The allowed call that a request line asks for.

    Raises:
        RefusedError: there is none.
    """
    raw_path, _, raw_query = target.partition("?")
    path = raw_path.replace("%3A", ":").replace("%3a", ":").replace("%40", "@").replace("%2F", "/").replace("%2f", "/")
    versioned = _VERSION.fullmatch(path)
    if versioned is None or "%" in path or "//" in path or ".." in path:
        raise RefusedError("this path is not allowed")
    version, call_path = versioned[1] or "", versioned[2]
    for route in ROUTES:
        matched = re.fullmatch(route.path, call_path)
        if matched is None or method not in route.methods.split():
            continue
        query = _checked_query(route, raw_query)
        own = matched.groupdict().get("own")
        unproven = None
        if own is not None and OWN_NAME.fullmatch(own) is None:
            if route.owner is None or _ID.fullmatch(own) is None:
                raise RefusedError("only things whose names begin with drydock- can be touched")
            unproven = own
        rewritten = version + quote(call_path, safe="/:@") + (f"?{query}" if query else "")
        return Call(route, method, rewritten, version, unproven)
    raise RefusedError(f"{method} {call_path} is not allowed")


def _checked_query(route: Route, raw_query: str) -> str:
    try:
        pairs = parse_qsl(raw_query, keep_blank_values=True, strict_parsing=bool(raw_query), errors="strict")
    except ValueError:
        raise RefusedError("the query is malformed") from None
    values = dict(pairs)
    if len(values) != len(pairs):
        raise RefusedError("a query parameter is given twice")
    for name, value in values.items():
        if name not in route.query.split():
            raise RefusedError(f"the query parameter {name} is not allowed")
        if name == "name" and OWN_NAME.fullmatch(value) is None:
            raise RefusedError("name must begin with drydock-")
        if name == "fromImage" and re.fullmatch(_IMAGE, value) is None:
            raise RefusedError("fromImage is not the name of an image")
    for name in route.needs.split():
        if not values.get(name):
            raise RefusedError(f"the query parameter {name} is missing")
    return urlencode(pairs)
