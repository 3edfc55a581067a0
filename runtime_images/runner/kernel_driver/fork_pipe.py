"""What forked processes of a cell print, on its way to the kernel: through a socket in the kernel's own folder.

The library takes a TCP port for it, which would be one of the sandbox's ports that users see and open.
"""

from __future__ import annotations

from typing import Any, Tuple

import zmq
from ipykernel.iostream import IOPubThread


class PortlessThread(IOPubThread):  # type: ignore[misc] # the library has no types
    """The library's own, which listens to forks at `address`."""

    address = ""

    def _setup_pipe_in(self) -> None:
        super()._setup_pipe_in()
        if self._pipe_flag:
            pipe = self._pipe_in.socket
            pipe.unbind(pipe.last_endpoint)
            pipe.bind(self.address)

    def _setup_pipe_out(self) -> Tuple[Any, Any]:
        context = zmq.Context()  # the fork's own
        pipe = context.socket(zmq.PUSH)
        pipe.linger = 3000
        pipe.connect(self.address)
        return context, pipe
