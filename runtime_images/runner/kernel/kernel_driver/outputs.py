"""What a kernel shows, in the form that the runner is told."""

from __future__ import annotations

import base64
from typing import Any, Dict, List

OMITTED = "drydock_omitted"
"""The kind of message with which our kernel says how many characters it left out (``inside``)."""
_IMAGES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
"""Pictures that models take, and how their data begins."""
_IMAGE_LIMIT = 5 * 1024 * 1024
_TEXT_LIMIT = 1024 * 1024

Item = Dict[str, Any]


def shown(kind: str, content: Dict[str, Any]) -> List[Item]:
    """What to report of a message; nothing of irrelevant ones."""
    if kind == "stream":
        return _text(content["text"], "stream")
    if kind in ("execute_result", "display_data"):
        return _display(content)
    if kind == "update_display_data":
        name = content.get("transient", {}).get("display_id", "")
        text = str(content.get("data", {}).get("text/plain", ""))
        return [{"update": str(name)[:200], "text": text[:_TEXT_LIMIT]}] if text else []
    if kind == "error":
        return [
            {"error": str(content["ename"]), **item} for item in _text("\n".join(content["traceback"]), "traceback")
        ]
    if kind == "clear_output":
        return [{"clear": "next" if content.get("wait") else "now"}]
    if kind == OMITTED:
        return [{"omitted": int(content["characters"])}]
    return []


def _display(content: Dict[str, Any]) -> List[Item]:
    data = content.get("data", {})
    items = _text(str(data.get("text/plain", "")), "display")
    for kind in _IMAGES:
        image = data.get(kind)
        if isinstance(image, str) and image.strip():
            image = "".join(image.split())
            if len(image) > _IMAGE_LIMIT:
                items.append({"too_large": len(image) * 3 // 4})
            else:
                items.append(_image(image, kind))
            break
    return items


def _image(data: str, said: str) -> Item:
    """A picture by its real kind: a model's server would refuse the whole history for a wrong one."""
    try:
        begin = base64.b64decode(data, validate=True)[:16]
    except ValueError:
        begin = b""
    kind = next((kind for kind, magic in _IMAGES.items() if begin.startswith(magic)), None)
    if kind is None:
        return {"display": f"[What was to be shown as {said} is no such picture; it was left out.]"}
    return {"image": f"data:{kind};base64,{data}"}


def _text(text: str, how: str) -> List[Item]:
    if not text:
        return []
    if not text.isascii():  # half characters are written out: no valid text could hold them
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    over = len(text) - _TEXT_LIMIT
    if over <= 0:
        return [{how: text}]
    half = _TEXT_LIMIT // 2
    return [{how: text[:half]}, {"omitted": over}, {"stream": text[-half:]}]
