"""The text of documents."""

from __future__ import annotations

import re
import zipfile
from typing import List
from xml.etree import ElementTree

from .reading import read_lines
from .viewing import is_file

_ENTRY_LIMIT = 100 * 1024 * 1024
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SLIDE = re.compile(r"ppt/slides/slide(\d+)\.xml\Z")
_TEX_COMMENT = re.compile(r"(?<!\\)%.*")
_TEX_DROPPED = re.compile(
    r"\\(?:documentclass|usepackage|label|ref|cite[a-z]*|bibliography(?:style)?|includegraphics|vspace|hspace|pagestyle)"
    r"\*?(?:\[[^\]]*\])?(?:\{[^{}]*\})?"
)
_TEX_BLOCK = re.compile(r"\\(?:begin|end)\{[^{}]*\}(?:\[[^\]]*\])?")
_TEX_COMMAND = re.compile(r"\\[A-Za-z]+\*?(?:\[[^\]]*\])?\{([^{}]*)\}")
_TEX_WORD = re.compile(r"\\(?:item|[A-Za-z]+)\b\*?[ \t]?")
_TEX_ESCAPED = re.compile(r"\\([%&$#_{}])")


def parse_pdf(file_path: str) -> None:
    """Show the text of a PDF file, page by page.

    Args:
        file_path: the file.
    """
    if not _is_there(file_path, "PDF"):
        return
    try:
        from pypdf import PdfReader  # its one home; the sandbox may not have it
        from pypdf.errors import PyPdfError
    except ImportError:
        print("ERROR: PDF files cannot be read here: the library pypdf is missing. Install it with: %pip install pypdf")
        return
    try:
        for number, page in enumerate(PdfReader(file_path).pages, 1):
            print(f"@@ Page {number} @@")
            print(page.extract_text())
    except (PyPdfError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"ERROR: {file_path} cannot be read as a PDF file: {error}")


def parse_docx(file_path: str) -> None:
    """Show the text of a Word document (.docx), paragraph by paragraph.

    Args:
        file_path: the file.
    """
    if not _is_there(file_path, "DOCX"):
        return
    try:
        root = _xml(file_path, "word/document.xml")
    except (OSError, KeyError, zipfile.BadZipFile, ElementTree.ParseError, ValueError) as error:
        print(f"ERROR: {file_path} cannot be read as a DOCX file: {error}")
        return
    for paragraph in root.iter(f"{_WORD}p"):
        print(_text(paragraph, _WORD))


def parse_latex(file_path: str) -> None:
    """Show the text of a LaTeX file without its commands.

    Args:
        file_path: the file.
    """
    if not _is_there(file_path, "LaTeX"):
        return
    try:
        text = "\n".join(read_lines(file_path))
    except OSError as error:
        print(f"ERROR: {file_path} cannot be read: {error.strerror or error}")
        return
    print(_without_commands(text))


def parse_pptx(file_path: str) -> None:
    """Show the text of a presentation (.pptx), slide by slide.

    Args:
        file_path: the file.
    """
    if not _is_there(file_path, "PPTX"):
        return
    try:
        with zipfile.ZipFile(file_path) as archive:
            slides = sorted((int(found[1]), found[0]) for found in map(_SLIDE.match, archive.namelist()) if found)
        roots = [(number, _xml(file_path, name)) for number, name in slides]
    except (OSError, KeyError, zipfile.BadZipFile, ElementTree.ParseError, ValueError) as error:
        print(f"ERROR: {file_path} cannot be read as a PPTX file: {error}")
        return
    for number, root in roots:
        print(f"@@ Slide {number} @@")
        for paragraph in root.iter(f"{_DRAWING}p"):
            text = _text(paragraph, _DRAWING)
            if text:
                print(text)


def _is_there(path: str, kind: str) -> bool:
    if is_file(path):
        print(f"[Reading {kind} file from {path}]")
        return True
    return False


def _xml(path: str, name: str) -> ElementTree.Element:
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo(name).file_size > _ENTRY_LIMIT:
            raise ValueError(f"{name} is too large")
        content = archive.read(name)
    if b"<!ENTITY" in content:
        raise ValueError(f"{name} defines entities, which such files never do")
    return ElementTree.fromstring(content)  # noqa: S314 - entities, the danger, are refused above


def _text(paragraph: ElementTree.Element, space: str) -> str:
    parts: List[str] = []
    for element in paragraph.iter():
        if element.tag == f"{space}t":
            parts.append(element.text or "")
        elif element.tag == f"{space}tab":
            parts.append("\t")
        elif element.tag == f"{space}br":
            parts.append("\n")
    return "".join(parts)


def _without_commands(text: str) -> str:
    text = _TEX_COMMENT.sub("", text)
    text = _TEX_BLOCK.sub("", _TEX_DROPPED.sub("", text))
    for _ in range(10):  # commands within commands
        plain = _TEX_COMMAND.sub(r"\1", text)
        if plain == text:
            break
        text = plain
    text = _TEX_WORD.sub("", text).replace("\\\\", "\n")
    text = _TEX_ESCAPED.sub(r"\1", text).replace("~", " ")
    return re.sub(r"\n{3,}", "\n\n", text).strip()
