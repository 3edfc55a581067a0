"""The pages of error codes, made from docs/errors.md: for everybody, without a token, scripts and other hosts."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from server.errors import ERROR_PAGES
from server.http.base_path import base_path_of

_CHECKOUT: Final = Path(__file__).parents[2] / "docs"
_PACKAGED: Final = Path(__file__).parents[1] / "docs"

_GROUP: Final = re.compile(r"^## (.+)\n", re.MULTILINE)
_SECTION: Final = re.compile(r"^### ([\w$]+)\n", re.MULTILINE)
_SEEN_AS: Final = "- **Seen as:**"
_MARKS: Final = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\[(.+?)\]\((.+?)\)")
_MAX_SHOWN: Final = 80

_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title} - Drydock</title>
<style>:root{{color-scheme:light dark}}body{{font:16px/1.55 system-ui,sans-serif;max-width:44rem;margin:2rem auto;
padding:0 1rem}}code{{font-size:.95em}}li{{margin:.35rem 0}}h1,h2{{line-height:1.25;overflow-wrap:anywhere}}</style>
</head><body>{body}</body></html>
"""


class ErrorSection(NamedTuple):
    """What the page says of one code, in Markdown."""

    code: str
    group: str
    text: str

    @property
    def summary(self) -> str:
        """Its first sentence or two, in one line."""
        return self.text.partition("\n")[0]

    def is_seen_as(self, name: str) -> bool:
        """Whether `name` is a public id under which people meet it, such as ``STATUS$ERROR_STORAGE``."""
        return any(line.startswith(_SEEN_AS) and f"`{name}`" in line for line in self.text.splitlines())


def documentation() -> Path:
    """The folder of the pages, wherever Drydock is installed."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


def error_sections() -> list[ErrorSection]:
    """All codes, in the order of the page."""
    page = (documentation() / "errors.md").read_text("utf-8")
    groups = _GROUP.split(page)[1:]
    return [
        ErrorSection(code, group, text.strip())
        for group, content in zip(groups[::2], groups[1::2], strict=True)
        for code, text in _pairs(_SECTION.split(content)[1:])
    ]


def find_sections(name: str) -> list[ErrorSection]:
    """Those of a code, or of a public id, which may stand for several; none: there is no such code."""
    everything = error_sections()
    return [one for one in everything if one.code == name] or [one for one in everything if one.is_seen_as(name)]


def _pairs(parts: list[str]) -> list[tuple[str, str]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


def _show_all(request: Request) -> HTMLResponse:
    base = base_path_of(request.scope)
    parts, group = ["<h1>Error codes</h1>"], ""
    for one in error_sections():
        if one.group != group:
            group = one.group
            parts.append(f"<h2>{escape(group)}</h2>")
        parts.append(f"<p>{_link(one.code, base)}<br>{_inline(one.summary, base)}</p>")
    return HTMLResponse(_PAGE.format(title="Error codes", body="\n".join(parts)))


def _show_one(request: Request) -> HTMLResponse:
    base, name = base_path_of(request.scope), request.path_params["code"][:_MAX_SHOWN]
    found = find_sections(name)
    everything = f'<p><a href="{base}{ERROR_PAGES}">All error codes</a></p>'
    if not found:
        sentence = "There is no page for this code; the sentence beside it says what happened."
        body = f"<h1>{escape(name)}</h1><p>{sentence}</p>{everything}"
        return HTMLResponse(_PAGE.format(title=escape(name), body=body), 404)
    parts = [f'<h1 id="{one.code}">{one.code}</h1>{_blocks(one.text, base)}' for one in found]
    return HTMLResponse(_PAGE.format(title=escape(name), body="\n".join([*parts, everything])))


def _blocks(text: str, base: str) -> str:
    """Paragraphs and lists of one level: of Markdown that is all that the page is written in."""
    shown = []
    for block in text.split("\n\n"):
        if block.startswith("- "):
            items = (f"<li>{_inline(item, base)}</li>" for item in block.removeprefix("- ").split("\n- "))
            shown.append(f"<ul>{''.join(items)}</ul>")
        else:
            shown.append(f"<p>{_inline(block, base)}</p>")
    return "\n".join(shown)


def _inline(text: str, base: str) -> str:
    def shown(match: re.Match[str]) -> str:
        code, strong, words, target = match.groups()
        if code is not None:
            return f"<code>{code}</code>"
        if strong is not None:
            return f"<strong>{strong}</strong>"
        if target.startswith("#"):  # an anchor is in small letters, whatever its heading
            return _link(words, base)
        # The other pages are not served, but are wherever the server is.
        return f"{words} (<code>drydock docs {target.partition('#')[0].removesuffix('.md')}</code>)"

    return _MARKS.sub(shown, escape(text, quote=False))


def _link(code: str, base: str) -> str:
    return f'<a href="{base}{ERROR_PAGES}/{code}"><code>{code}</code></a>'


ERROR_ROUTES: Final = (
    Route(ERROR_PAGES, _show_all, include_in_schema=False),
    Route(f"{ERROR_PAGES}/{{code}}", _show_one, include_in_schema=False),
)
