"""The OpenAPI document of the routes, and a page that shows it; what gate and dependencies answer is added here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, Final

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agent_core.version import VERSION
from server.dependencies import conversation_id_of_path, own_conversation, shared_conversation
from server.http.gate import API_PREFIXES
from server.routes.chat_completions import OpenAIError, OpenAIRoute
from server.routes.replies import MEANINGS, ErrorReply

METHODS: Final = ("get", "post", "put", "patch", "delete")
_HEAD: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
summary{{cursor:pointer}}code{{font-size:.95em}}h2{{margin-top:2rem}}td,th{{text-align:left;vertical-align:top;
padding:.1rem .8rem .1rem 0}}</style></head><body><h1>{title}</h1>
<p>The whole document, with the schemas of all bodies: <a href="openapi.json">openapi.json</a>.</p>
"""
_REF: Final = "#/components/schemas/"
_JSON: Final = "application/json"
_DESCRIPTION: Final = """\
Conversations with agents that work in sandboxes of their own: the REST part of the protocol. Live events go over
Socket.IO (`/socket.io`, event `oh_event`).

Fields may be added to answers, and optional ones to requests, at any time: ignore what you do not know."""
_SCHEMES: Final = {
    "SessionApiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Session-API-Key",
        "description": "The access token, where the server has one.",
    },
    "Bearer": {"type": "http", "scheme": "bearer", "description": "The same token."},
}
_RETRY_AFTER: Final = {
    "Retry-After": {"description": "Seconds until the next try.", "required": True, "schema": {"type": "integer"}}
}
_TAGS: Final = {
    "/v1/": "chat completions",
    "/api/conversations/{conversation_id}/git": "git",
    "/api/conversations": "conversations",
    "/api/microagent-management": "conversations",
    "/api/user": "git providers",
    "/api/add-git-providers": "git providers",
    "/api/unset-provider-tokens": "git providers",
    "/api/options": "options",
    "/api/": "settings",
    "/api/secrets": "secrets",
    "/api/webhooks": "webhooks",
    "/": "server",
}
"""The group of a route, by the longest of these that its path begins with."""


def openapi_document(api: FastAPI, base_path: str = "") -> dict[str, Any]:
    """The document of all routes of `api`, which clients find below `base_path`."""
    document = get_openapi(
        title="Drydock",
        version=VERSION,
        summary="A self-hosted agent server",
        description=_DESCRIPTION,
        routes=api.routes,
        license_info={"name": "MIT", "identifier": "MIT"},
        servers=[{"url": base_path}] if base_path else None,
        separate_input_output_schemas=api.separate_input_output_schemas,
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    errors: list[Any] = [(ErrorReply, "serialization"), (OpenAIError, "serialization")]
    schemas.update(models_json_schema(errors, ref_template=_REF + "{model}")[1]["$defs"])
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["securitySchemes"] = _SCHEMES
    for route in iter_route_contexts(api.routes):
        if isinstance(route.original_route, APIRoute) and route.include_in_schema:
            for method in route.methods or ():
                _complete(document["paths"][route.path_format][method.lower()], route)
    return document


def _complete(operation: dict[str, Any], route: RouteContext) -> None:
    path = str(route.path)
    operation["tags"] = [_TAGS[max((prefix for prefix in _TAGS if path.startswith(prefix)), key=len)]]
    is_openai = isinstance(route.original_route, OpenAIRoute)
    responses: dict[str, Any] = operation["responses"]
    for status, extra in _common(operation, route):
        name = "OpenAIError" if is_openai else "ErrorReply"
        content = {_JSON: {"schema": {"$ref": _REF + name}}}
        responses.setdefault(str(status), {"description": MEANINGS[status], "content": content, **extra})
    if path.startswith(API_PREFIXES):
        operation["security"] = [{name: []} for name in _SCHEMES]
    operation["responses"] = {status: responses[status] for status in sorted(responses)}


def _common(operation: dict[str, Any], route: RouteContext) -> Iterator[tuple[int, dict[str, Any]]]:
    """The statuses that a route answers with besides its own, each with what else there is to say of it."""
    called = set(_calls(route.dependant))
    takes_input = operation["responses"].pop("422", None) is not None or "requestBody" in operation
    if isinstance(route.original_route, OpenAIRoute):
        yield 400, {}
    elif takes_input:
        yield 422, {}
    takes_page = any(one["name"] == "page_id" for one in operation.get("parameters", ()))
    conversations = {own_conversation, shared_conversation}
    if takes_page or not called.isdisjoint({conversation_id_of_path, *conversations}):
        yield 400, {}
    if not called.isdisjoint(conversations) or "{" in str(route.path):  # a value with a slash is another address
        yield 404, {}
    yield 403, {}
    if "requestBody" in operation:
        yield 413, {}
    if str(route.path).startswith(API_PREFIXES):
        yield 401, {"headers": {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}}}
        yield 429, {"headers": _RETRY_AFTER}
    yield 500, {}
    yield 503, {}


def _calls(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    for one in dependant.dependencies:
        if one.call is not None:
            yield one.call
        yield from _calls(one)


def docs_endpoint(document: Callable[[], Mapping[str, Any]]) -> Callable[[Request], Response]:
    """Answers with a page for people: every route with what it takes and answers, without scripts and other hosts."""

    def read_docs(request: Request) -> Response:
        found = document()
        operations = (
            _operation(f"{method.upper()} {path}", item[method])
            for path, item in found["paths"].items()
            for method in METHODS
            if method in item
        )
        title = escape(f"{found['info']['title']}: the protocol over REST")
        return HTMLResponse(_HEAD.format(title=title) + "\n".join(operations) + "\n</body></html>\n")

    return read_docs


def _operation(name: str, spec: Mapping[str, Any]) -> str:
    rows = [
        (f"{one['name']} ({one['in']}{', required' if one.get('required') else ''})", one.get("description", ""))
        for one in spec.get("parameters", [])
    ]
    rows += [(f"body: {kind}", "") for kind in spec.get("requestBody", {}).get("content", {})]
    rows += [(status, reply.get("description", "")) for status, reply in spec.get("responses", {}).items()]
    cells = "".join(f"<tr><td><code>{escape(left)}</code></td><td>{escape(right)}</td></tr>" for left, right in rows)
    text = escape(spec.get("description") or spec.get("summary") or "")
    return f"<details><summary><code>{escape(name)}</code></summary><p>{text}</p><table>{cells}</table></details>"
