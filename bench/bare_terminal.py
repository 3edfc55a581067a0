"""What a terminal of the kernel takes by itself: a program that fills one, and one that empties it and does no more.

The terminal is set as the sandboxes' are: line ends stay as they are written.
"""

from __future__ import annotations

import shlex
from textwrap import dedent

_PROGRAM = """
import os, pty, sys, termios, time
size = int(sys.argv[1])
mine, its = pty.openpty()
modes = termios.tcgetattr(its)
modes[1] &= ~termios.ONLCR
termios.tcsetattr(its, termios.TCSANOW, modes)
began = time.perf_counter()
if not os.fork():
    os.close(mine)
    text = (b"x" * 98 + b"\\n") * 1000
    left = size
    while left > 0:
        left -= os.write(its, text[:left])
    os._exit(0)
os.close(its)
try:
    while os.read(mine, 65536):
        pass
except OSError:
    pass
print(time.perf_counter() - began)
"""


def command(size: int) -> str:
    """A command that prints the seconds in which so many bytes pass a terminal."""
    return f"python3 -c {shlex.quote(dedent(_PROGRAM).strip())} {size}"
