"""Requests of the server: checked, sent to whoever serves them, answered once."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from . import facts
from .arguments import BadRequest, shell_order, text
from .connection import Connection
from .loop import Loop
from .session import Asker, Session
from .wire import Frame

Result = Dict[str, Any]


class Requests:
    """Knows the operations and the sessions."""

    def __init__(self, loop: Loop, state_directory: str, workspace: str) -> None:
        self._loop = loop
        self._workspace = workspace
        self._sessions: Dict[str, Session] = {}
        self._operations: Dict[str, Callable[[Any, Dict[str, Any]], None]] = {
            "ping": lambda request, _arguments: request.finish({}),
            "shell.run": self._shell_run,
            "workspace.facts": lambda request, _arguments: request.finish(facts.workspace(self._workspace)),
        }

    def receive(self, connection: Connection, frame: Frame) -> None:
        message = frame.message
        number = message.get("id")
        arguments = message.get("args") or {}
        operation = self._operations.get(message.get("op"))
        request = _Request(connection, number)
        try:
            if operation is None:
                raise BadRequest("unknown op; known: " + ", ".join(sorted(self._operations)))
            operation(request, arguments)
        except BadRequest as error:
            request.fail("bad_request", str(error))

    def child_changed(self) -> None:
        for session in list(self._sessions.values()):
            session.child_changed()

    def close(self) -> None:
        for session in self._sessions.values():
            session.destroy("The runner has ended.")

    def _shell_run(self, request: Any, arguments: Dict[str, Any]) -> None:
        order = shell_order(arguments)
        name = text(arguments, "session", "default")
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(self._loop, name, self._workspace)
        session.run(order, Asker(request.finish, request.fail, request.live))


class _Request:
    def __init__(self, connection: Connection, number: Optional[int]) -> None:
        self._connection = connection
        self._number = number

    def finish(self, result: Result) -> None:
        self._connection.send({"id": self._number, "ok": True, "result": result})

    def fail(self, code: str, message: str) -> None:
        self._connection.send({"id": self._number, "ok": False, "error": {"code": code, "message": message}})

    def live(self, output: str) -> bool:
        return self._connection.send_live({"id": self._number, "output": output})
