"""The OpenAPI document as a page for people: whole in itself, without scripts and other hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

METHODS: Final = ("get", "post", "put", "patch", "delete")
_HEAD: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
summary{{cursor:pointer}}code{{font-size:.95em}}h2{{margin-top:2rem}}td,th{{text-align:left;vertical-align:top;
padding:.1rem .8rem .1rem 0}}</style></head><body><h1>{title}</h1>
<p>The whole document, with the schemas of all bodies: <a href="/openapi.json">/openapi.json</a>.</p>
"""


def docs_endpoint(document: Callable[[], Mapping[str, Any]]) -> Callable[[Request], Response]:
    """Answers with the page of this document."""

    def read_docs(request: Request) -> Response:
        return HTMLResponse(docs_page(document()))

    return read_docs


def docs_page(document: Mapping[str, Any]) -> str:
    """Every route with what it takes and answers."""
    title = escape(f"{document['info']['title']}: the protocol over REST")
    return _HEAD.format(title=title) + "\n".join(_operations(document)) + "\n</body></html>\n"


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield _operation(f"{method.upper()} {path}", item[method])


def _operation(name: str, spec: Mapping[str, Any]) -> str:
    rows = [
        (f"{one['name']} ({one['in']}{', required' if one.get('required') else ''})", one.get("description", ""))
        for one in spec.get("parameters", [])
    ]
    rows += [(f"body: {kind}", "") for kind in spec.get("requestBody", {}).get("content", {})]
    rows += [(status, reply.get("description", "")) for status, reply in spec.get("responses", {}).items()]
    cells = "".join(f"<tr><td><code>{escape(left)}</code></td><td>{escape(right)}</td></tr>" for left, right in rows)
    said = escape(spec.get("description") or spec.get("summary") or "")
    return f"<details><summary><code>{escape(name)}</code></summary><p>{said}</p><table>{cells}</table></details>"
