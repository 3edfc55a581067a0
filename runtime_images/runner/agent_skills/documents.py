"""Documents in words: their text, and what a model hears or sees in recordings and pictures.

The model is OpenAI's or of a compatible service: ``OPENAI_API_KEY`` is needed, ``OPENAI_BASE_URL`` and ``OPENAI_MODEL``
choose.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
import uuid
import zipfile
from typing import Any, Callable, Dict, List, Tuple
from xml.etree import ElementTree

from .files import is_file, read_lines

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
    for _, root in _parts(file_path, "DOCX", lambda _: [(0, "word/document.xml")]):
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
    slides = lambda names: sorted((int(found[1]), found[0]) for found in map(_SLIDE.match, names) if found)  # noqa: E731
    for number, root in _parts(file_path, "PPTX", slides):
        print(f"@@ Slide {number} @@")
        for paragraph in root.iter(f"{_DRAWING}p"):
            text = _text(paragraph, _DRAWING)
            if text:
                print(text)


def _parts(
    path: str, kind: str, choose: Callable[[List[str]], List[Tuple[int, str]]]
) -> List[Tuple[int, ElementTree.Element]]:
    found: List[Tuple[int, ElementTree.Element]] = []
    if not _is_there(path, kind):
        return found
    try:
        with zipfile.ZipFile(path) as archive:
            for number, name in choose(archive.namelist()):
                if archive.getinfo(name).file_size > _ENTRY_LIMIT:
                    raise ValueError(f"{name} is too large")
                content = archive.read(name)
                if b"<!ENTITY" in content:
                    raise ValueError(f"{name} defines entities, which such files never do")
                root = ElementTree.fromstring(content)  # noqa: S314 - entities, the danger, are refused above
                found.append((number, root))
        return found
    except (OSError, KeyError, zipfile.BadZipFile, ElementTree.ParseError, ValueError) as error:
        print(f"ERROR: {path} cannot be read as a {kind} file: {error}")
        return []


def _is_there(path: str, kind: str) -> bool:
    if is_file(path):
        print(f"[Reading {kind} file from {path}]")
        return True
    return False


def _text(paragraph: ElementTree.Element, space: str) -> str:
    marks = {f"{space}tab": "\t", f"{space}br": "\n"}
    elements = paragraph.iter()
    return "".join(each.text or "" if each.tag == f"{space}t" else marks.get(each.tag, "") for each in elements)


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


_SECONDS = 120
_SENT_SIZE_LIMIT = 25 * 1024 * 1024
_FRAMES_LIMIT = 10
_MODEL = "gpt-4o"
_DESCRIBE = "Describe this image as precisely as possible."
_DESCRIBE_FRAME = "Describe this frame of a video as precisely as possible."


def parse_audio(file_path: str, model: str = "whisper-1") -> None:
    """Show what is said in an audio file.

    Args:
        file_path: the file.
        model: the model that listens.
    """
    if not _can_be_sent(file_path):
        return
    with open(file_path, "rb") as file:
        content = file.read()

    def transcribed() -> str:
        boundary = uuid.uuid4().hex
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{os.path.basename(file_path)}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        body = head.encode("utf-8") + content + f"\r\n--{boundary}--\r\n".encode()
        return str(_post("audio/transcriptions", body, f"multipart/form-data; boundary={boundary}")["text"])

    _show(transcribed)


def parse_video(file_path: str, task: str = _DESCRIBE_FRAME, frame_interval: int = 30) -> None:
    """Show what is to be seen in a video file, in up to ten frames; needs ffmpeg.

    Args:
        file_path: the file.
        task: what to say about each frame.
        frame_interval: every how many frames to look.
    """
    if not _can_be_sent(file_path):
        return
    with tempfile.TemporaryDirectory() as folder:
        chosen = f"select=not(mod(n\\,{max(1, int(frame_interval))}))"
        command = ["ffmpeg", "-v", "error", "-i", file_path, "-vf", chosen, "-vsync", "vfr"]
        command += ["-frames:v", str(_FRAMES_LIMIT), os.path.join(folder, "%03d.png")]
        try:
            subprocess.run(command, check=True, timeout=_SECONDS, capture_output=True)
        except FileNotFoundError:
            print("ERROR: Videos cannot be read here: the program ffmpeg is missing (apt-get install ffmpeg).")
            return
        except (subprocess.SubprocessError, OSError) as error:
            print(f"ERROR: {file_path} cannot be read as a video: {error}")
            return
        for number, name in enumerate(sorted(os.listdir(folder))):
            print(f"@@ Frame {number * frame_interval} @@")
            _look(os.path.join(folder, name), task)


def parse_image(file_path: str, task: str = _DESCRIBE) -> None:
    """Show what is to be seen in an image file.

    Args:
        file_path: the file.
        task: what to say about it.
    """
    if _can_be_sent(file_path):
        _look(file_path, task)


def _look(path: str, task: str) -> None:
    with open(path, "rb") as file:
        encoded = base64.b64encode(file.read()).decode("ascii")
    url = f"data:{mimetypes.guess_type(path)[0] or 'image/png'};base64,{encoded}"
    content: List[Dict[str, Any]] = [{"type": "text", "text": task}, {"type": "image_url", "image_url": {"url": url}}]
    request = {"model": os.environ.get("OPENAI_MODEL", _MODEL), "messages": [{"role": "user", "content": content}]}
    body = json.dumps(request).encode("utf-8")
    _show(lambda: str(_post("chat/completions", body, "application/json")["choices"][0]["message"]["content"]))


def _can_be_sent(path: str) -> bool:
    if not is_file(path):
        return False
    if os.path.getsize(path) > _SENT_SIZE_LIMIT:
        print(f"ERROR: {path} is larger than {_SENT_SIZE_LIMIT // 1048576} MB.")
        return False
    return True


def _show(ask: Any) -> None:
    try:
        print(ask())
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        print(f"ERROR: The service did not answer as it should: {error}")


def _post(what: str, body: bytes, kind: str) -> Any:
    base = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    if not base.startswith(("http://", "https://")):
        raise ValueError("OPENAI_BASE_URL must begin with http:// or https://")
    headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}", "Content-Type": kind}
    request = urllib.request.Request(f"{base.rstrip('/')}/{what}", body, headers)  # noqa: S310 - checked above
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - likewise
        return json.loads(answer.read())
