"""How a runner introduces itself at the beginning of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_core.errors import SandboxError
from agent_core.runtime.channel.answer_checks import without_halves
from runtime_images.runner import wire

MAX_BOOT = 200


@dataclass(frozen=True, slots=True)
class RunnerHello:
    """How a runner introduces itself; `boot` is new for each start, `tunnels` tells that ports can be reached.

    `programs` tells that programs can be spoken to.
    """

    boot: str
    version: str
    python: str
    workspace: str
    user: str
    hostname: str
    tunnels: bool = False
    programs: bool = False

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> RunnerHello:
        """Read the first frame of a stream.

        Raises:
            SandboxError: ``protocol`` when it is no greeting, ``protocol_version`` when it speaks another version.
        """
        hello = message.get("hello")
        if not isinstance(hello, dict) or not isinstance(hello.get("boot"), str) or len(hello["boot"]) > MAX_BOOT:
            raise SandboxError("The sandbox did not begin with a greeting.", code="protocol")
        if hello.get("protocol") != wire.PROTOCOL:
            raise SandboxError(
                f"The program in the sandbox speaks version {str(hello.get('protocol'))[:20]} of the protocol, "
                f"not {wire.PROTOCOL}.",
                code="protocol_version",
                fix="Restart the sandbox.",
            )
        words = {name: _word(hello.get(name), 500) for name in ("python", "workspace", "user", "hostname")}
        return cls(
            boot=hello["boot"],
            version=_word(hello.get("runner"), 100),
            tunnels=hello.get("tunnels") is True,
            programs=hello.get("programs") is True,
            **words,
        )


def _word(value: object, limit: int) -> str:
    return without_halves(value[:limit]) if isinstance(value, str) else ""
