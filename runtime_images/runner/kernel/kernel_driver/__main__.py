"""Start with ``python -c BOOT`` (see ``runner.kernel``): starts a kernel, says so, then serves until its input ends.

The first line of output is ``{"ready": {...}}``, or ``{"unavailable": WHY}`` when there can be no kernel here.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict


def main(workspace: str, library: str, folder: str) -> None:
    """Serve one runner; ``folder`` is for the kernel's sockets."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    file = os.fdopen(out, "wb")

    def tell(message: Dict[str, Any]) -> None:
        file.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
        file.flush()

    try:
        from .driver import KernelDriver, KernelError
    except ImportError as error:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        tell({"unavailable": f"jupyter_client cannot be loaded by Python {version} at {sys.executable} ({error})"})
        return
    try:
        driver = KernelDriver(tell, workspace, library, folder)
    except KernelError as error:
        tell({"unavailable": str(error)})
        return
    try:
        driver.serve()
    finally:
        driver.kernel.close()


if __name__ == "__main__":
    main(*sys.argv[1:4])
