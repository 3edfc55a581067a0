"""The git program: one order from the runner, in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

from ..core.arguments import RequestError


def main(order: str) -> int:
    """Carry out a JSON order and print the result; ``error`` and ``code`` say what is wrong."""
    asked = json.loads(order)
    # The order may hold a password: nobody who looks at this process is to find it there.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        result = _done(asked)
    except RequestError as error:
        result = {"error": str(error), "code": error.code}
    sys.stdout.write(json.dumps(result))
    return 0


def _done(asked: Dict[str, Any]) -> Dict[str, Any]:
    if asked["what"] in ("clone", "identity"):
        from .clone import clone, identify  # each order loads only what it needs

        return clone(asked) if asked["what"] == "clone" else identify(asked)
    from .views import diff, log, status  # likewise

    workspace, directory = asked["workspace"], asked["directory"]
    if asked["what"] == "status":
        return status(directory, workspace, asked["since"])
    if asked["what"] == "diff":
        return diff(directory, asked["path"], workspace, asked["since"])
    return log(directory, asked["path"], asked["limit"], asked["skip"], workspace, asked["start"])
