"""What listens in a sandbox, as its runner tells it, which is not believed more than it has to be."""

from __future__ import annotations

from typing import Any, NamedTuple

from agent_core.errors import ToolError
from agent_core.tools.spec import SandboxAccess

LIST_SECONDS = 10.0
_MAX_TEXT = 500


class OpenPort(NamedTuple):
    """A TCP port that something in the sandbox listens on.

    Attributes:
        port: its number.
        addresses: on which it takes connections.
        pid: of the program, in the sandbox; None where it cannot be seen, as are the next two.
        process: its name.
        command: its command line.
    """

    port: int
    addresses: tuple[str, ...] = ()
    pid: int | None = None
    process: str | None = None
    command: str | None = None


async def listening(sandbox: SandboxAccess) -> list[OpenPort]:
    """The ports of a sandbox, lowest first; none where it is older than this list.

    Raises:
        SandboxError: the sandbox cannot be asked.
    """
    try:
        reply = await sandbox.request("ports.list", {}, limit_seconds=LIST_SECONDS)
    except ToolError:
        return []
    given = reply.result.get("ports")
    entries = given if isinstance(given, list) else []
    return [_entry(one) for one in entries if isinstance(one, dict) and _is_port(one.get("port"))]


def _entry(given: dict[str, Any]) -> OpenPort:
    addresses, pid = given.get("addresses"), given.get("pid")
    return OpenPort(
        given["port"],
        tuple(str(one) for one in addresses) if isinstance(addresses, list) else (),
        pid if isinstance(pid, int) else None,
        _text(given.get("process")),
        _text(given.get("command")),
    )


def _text(value: object) -> str | None:
    return value[:_MAX_TEXT] if isinstance(value, str) else None


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536
