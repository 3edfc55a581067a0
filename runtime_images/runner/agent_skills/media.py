"""What is to be heard or seen, in words, by a model of OpenAI or of a service that speaks its protocol.

Where the variable ``OPENAI_API_KEY`` is set; ``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` say which service and model.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import os
import subprocess
import tempfile
import urllib.error
import urllib.request
import uuid
from typing import Any, Dict, List

from .viewing import is_file

_SECONDS = 120
_SIZE_LIMIT = 25 * 1024 * 1024
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
    if _is_there(file_path):
        with open(file_path, "rb") as file:
            content = file.read()
        _show(lambda: str(_transcribe(os.path.basename(file_path), content, model)["text"]))


def parse_video(file_path: str, task: str = _DESCRIBE_FRAME, frame_interval: int = 30) -> None:
    """Show what is to be seen in a video file, in up to ten frames; needs ffmpeg.

    Args:
        file_path: the file.
        task: what to say about each frame.
        frame_interval: every how many frames to look.
    """
    if not _is_there(file_path):
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "ffmpeg",
            "-v",
            "error",
            "-i",
            file_path,
            "-vf",
            f"select=not(mod(n\\,{max(1, int(frame_interval))}))",
        ]
        command += ["-vsync", "vfr", "-frames:v", str(_FRAMES_LIMIT), os.path.join(folder, "%03d.png")]
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
    if _is_there(file_path):
        _look(file_path, task)


def _look(path: str, task: str) -> None:
    with open(path, "rb") as file:
        encoded = base64.b64encode(file.read()).decode("ascii")
    url = f"data:{mimetypes.guess_type(path)[0] or 'image/png'};base64,{encoded}"
    content: List[Dict[str, Any]] = [{"type": "text", "text": task}, {"type": "image_url", "image_url": {"url": url}}]
    _show(lambda: str(_complete(content)["choices"][0]["message"]["content"]))


def _is_there(path: str) -> bool:
    if not is_file(path):
        return False
    if os.path.getsize(path) > _SIZE_LIMIT:
        print(f"ERROR: {path} is larger than {_SIZE_LIMIT // 1048576} MB.")
        return False
    return True


def _show(ask: Any) -> None:
    try:
        print(ask())
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        print(f"ERROR: The service did not answer as it should: {error}")


def _complete(content: List[Dict[str, Any]]) -> Any:
    asked = {"model": os.environ.get("OPENAI_MODEL", _MODEL), "messages": [{"role": "user", "content": content}]}
    return _post("chat/completions", json.dumps(asked).encode("utf-8"), "application/json")


def _transcribe(name: str, content: bytes, model: str) -> Any:
    line = uuid.uuid4().hex
    head = (
        f'--{line}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n'
        f'--{line}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    body = head.encode("utf-8") + content + f"\r\n--{line}--\r\n".encode()
    return _post("audio/transcriptions", body, f"multipart/form-data; boundary={line}")


def _post(what: str, body: bytes, kind: str) -> Any:
    base = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    if not base.startswith(("http://", "https://")):
        raise ValueError("OPENAI_BASE_URL must begin with http:// or https://")
    headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}", "Content-Type": kind}
    request = urllib.request.Request(f"{base.rstrip('/')}/{what}", body, headers)  # noqa: S310 - checked above
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - likewise
        return json.loads(answer.read())
