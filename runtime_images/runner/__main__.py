"""``python3 -m runner serve`` and ``python3 -m runner attach``: see the package."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # the module typing would cost attach a part of its start
if TYPE_CHECKING:
    from typing import Dict, List

if not __package__:  # the folder itself was given to python3 instead of -m
    __package__ = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    __import__(__package__)

_USAGE = """usage: runner serve --socket PATH --state-dir DIR --workspace DIR [--idle-exit-seconds N]
                    [--disk-bytes N] [--disk-entries N] [--own-workspace no] [--alone yes]
       runner attach --socket PATH [--wait-seconds N]
"""
_SERVE = {
    **{"--socket": "", "--state-dir": "", "--workspace": "", "--idle-exit-seconds": "0"},
    **{"--disk-bytes": "0", "--disk-entries": "0", "--own-workspace": "yes", "--alone": "no"},
}
_ATTACH = {"--socket": "", "--wait-seconds": "10"}


def main(arguments: List[str]) -> int:
    """Run the named command and return its exit code."""
    if arguments in (["search"], ["lint"], ["git"]):  # how the runner calls itself, with an order on its standard input
        if arguments == ["search"]:
            from .files.search import main as work  # each command imports only what it needs
        elif arguments == ["git"]:
            from .core.processes import hide

            hide()  # before the order is read, which may hold a password
            from .git.program import main as work
        else:
            from .files.lint import main as work
        return work(sys.stdin.read())
    # argparse would cost more time than everything that attach does.
    known = {"serve": _SERVE, "attach": _ATTACH}.get(arguments[0] if arguments else "")
    if known is None:
        sys.stderr.write(_USAGE)
        return 2
    try:
        options = _parse(arguments[1:], known)
    except ValueError as error:
        sys.stderr.write(f"{error}\n{_USAGE}")
        return 2
    if arguments[0] == "attach":
        from .attach import bridge  # each command imports only what it needs: attach is started often

        return bridge(options["--socket"], float(options["--wait-seconds"]))
    from .server import serve  # likewise

    return serve(
        options["--socket"],
        options["--state-dir"],
        options["--workspace"],
        float(options["--idle-exit-seconds"]),
        (int(options["--disk-bytes"]), int(options["--disk-entries"])),
        alone=options["--alone"] == "yes",
        own_workspace=options["--own-workspace"] == "yes",
    )


def _parse(arguments: List[str], known: Dict[str, str]) -> Dict[str, str]:
    options = dict(known)
    while arguments:
        name, separator, value = arguments.pop(0).partition("=")
        if name not in known:
            raise ValueError(f"unknown option {name}")
        if not separator:
            if not arguments:
                raise ValueError(f"option {name} needs a value")
            value = arguments.pop(0)
        options[name] = value
    for name, value in options.items():
        if not value:
            raise ValueError(f"option {name} is required")
        if name in ("--disk-bytes", "--disk-entries") and not value.isdigit():
            raise ValueError(f"option {name} must be a whole number, not {value!r}")
        if name.endswith("-seconds"):
            try:
                float(value)
            except ValueError:
                raise ValueError(f"option {name} must be a number of seconds, not {value!r}") from None
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
