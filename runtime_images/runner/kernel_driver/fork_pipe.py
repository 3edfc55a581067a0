"""What forked processes of a cell print, on its way to the kernel: through a socket in the kernel's own folder.

The library takes a TCP port for it, which would be one of the sandbox's ports that users see and open.
"""

from __future__ import annotations

from typing import Any, Tuple

import zmq
from ipykernel.iostream import IOPubThread


class PortlessThread(IOPubThread):  # type: ignore[misc] # the library has no types
    """The library's own, which listens to forks at `address`; a library that does it in another way keeps its port."""

    address = ""
    _is_portless = False

    def _setup_pipe_in(self) -> None:
        super()._setup_pipe_in()
        pipe = getattr(getattr(self, "_pipe_in", None), "socket", None)
        if pipe is not None:
            pipe.unbind(pipe.last_endpoint)
            pipe.bind(self.address)
            self._is_portless = True

    def _setup_pipe_out(self) -> Tuple[Any, Any]:
        if not self._is_portless:
            ends: Tuple[Any, Any] = super()._setup_pipe_out()
            return ends
        context = zmq.Context()  # the fork's own
        pipe = context.socket(zmq.PUSH)
        pipe.linger = 3000
        pipe.connect(self.address)
        return context, pipe
