"""How the stream to a runner ends."""

from __future__ import annotations

from agent_core.errors import SandboxError


class ChannelClosedError(SandboxError):
    """The stream to the runner has ended; whether the request took effect is unknown.

    Attributes:
        reason: why, as the end of a sentence.
        replaced: somebody else has attached to the runner since.
    """

    def __init__(self, reason: str, *, replaced: bool = False) -> None:
        super().__init__(f"The stream to the sandbox has ended: {reason}.", code="channel_closed")
        self.reason = reason
        self.replaced = replaced


def protocol_error(problem: str) -> SandboxError:
    """The one error for what no runner of ours sends; with it the stream is over."""
    return SandboxError(f"The sandbox sent something that is no answer ({problem}).", code="protocol")
