"""Whether the server of this container is alive: asked by HTTP, or by HTTPS where its port speaks that."""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request

SECONDS = 2.0


def ask(scheme: str) -> OSError | None:
    """Why it is not alive; None: it is."""
    # Certificates are for names, and this one is asked by its address.
    context = ssl._create_unverified_context()  # noqa: S323
    address = f"{scheme}://127.0.0.1:{os.environ['DRYDOCK_PORT']}/health"
    try:
        urllib.request.urlopen(address, timeout=SECONDS, context=context).close()  # noqa: S310
    except OSError as error:
        return error
    return None


def main() -> None:
    """Ask, and exit with 1 and a word where it is not alive."""
    problem = ask("http")
    if isinstance(problem, urllib.error.HTTPError) and problem.code == 400:  # so a port says that it speaks HTTPS alone
        problem = ask("https")
    if problem is not None:
        sys.exit(f"the server is not alive: {problem}")


if __name__ == "__main__":
    main()
