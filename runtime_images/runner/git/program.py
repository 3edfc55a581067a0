"""The git program: one order from the runner, in a process of its own."""

from __future__ import annotations

import json
import os
import sys

from ..core.arguments import RequestError


def main(order: str) -> int:
    """Carry out a JSON order and print the result; ``error`` and ``code`` say what is wrong."""
    request = json.loads(order)
    # The order may hold a password: nobody who looks at this process is to find it there.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        if request["what"] in ("clone", "identity", "instructions"):
            from . import clone  # each loads only what it needs

            work = {"clone": clone.clone, "identity": clone.identify, "instructions": clone.instructions}
            result = work[request["what"]](request)
        else:
            from .views import diff, log, status  # likewise

            workspace, directory = request["workspace"], request["directory"]
            if request["what"] == "status":
                result = status(directory, workspace, request["since"])
            elif request["what"] == "diff":
                result = diff(directory, request["path"], workspace, request["since"])
            else:
                page = request["limit"], request["skip"]
                result = log(directory, request["path"], *page, workspace, request["start"])
    except RequestError as error:
        result = {"error": str(error), "code": error.code}
    sys.stdout.write(json.dumps(result))
    return 0
