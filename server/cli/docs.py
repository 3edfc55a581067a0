"""``drydock docs``: the pages that messages point to, wherever Drydock is installed."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from server.errors import ConfigurationError
from server.http.error_pages import documentation, find_sections


def docs(out: TextIO, *, page: str | None = None) -> int:
    """Print a page, named as messages name it (``docs/doors.md``) or in short (``doors``), or else the list of them.

    The code of an error is a name, too, of its section alone.
    """
    pages = _pages()
    if page is None:
        width = max(map(len, pages))
        for name, path in pages.items():
            out.write(f"{name:<{width}}  {_title(path)}\n")
        return 0
    name = page if page in pages else f"docs/{page.removesuffix('.md')}.md"
    if name not in pages and (sections := find_sections(page)):
        out.write("\n".join(f"# {one.code}\n\n{one.text}\n" for one in sections))
        return 0
    if name not in pages:
        raise ConfigurationError(f"there is no page {page!r}; `drydock docs` lists them")
    out.write(pages[name].read_text("utf-8"))
    return 0


def _pages() -> dict[str, Path]:
    folder = documentation()
    images = Path(__file__).parents[2] / "runtime_images" / "README.md"
    return {f"docs/{path.name}": path for path in sorted(folder.glob("*.md"))} | {"runtime_images/README.md": images}


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().strip("# \n")
