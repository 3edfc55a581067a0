"""One request of the server: where its answer goes, and that it gets exactly one."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ..wire import ProtocolError
from .connection import Connection
from .journal import Answer

Result = Dict[str, Any]


class Asker:
    """Who has asked for something: gets live text, then exactly one result or one error."""

    def finish(self, result: Result) -> None:
        """Take the result."""
        raise NotImplementedError

    def fail(self, code: str, message: str) -> None:
        """Take an error instead of a result."""
        raise NotImplementedError

    def live(self, output: str) -> bool:
        """Take output while the command runs; False when it cannot be taken now."""
        raise NotImplementedError


class Request(Asker):
    """One request under way. Its answer goes to whoever asked last for the same key."""

    def __init__(self, connection: Connection, number: Any, done: Callable[[Request, Answer], None]) -> None:
        self.connection = connection
        self.number = number
        self.key: Optional[str] = None
        self.cancel: Callable[[], bool] = _cannot_be_cancelled
        self.amend: Callable[[Answer], Answer] = _as_it_is
        self._answered = False
        self._done = done

    def is_from(self, connection: Connection, number: Any) -> bool:
        """True when this connection asked it under this number."""
        return self.connection is connection and self.number == number

    def retarget(self, other: Request) -> None:
        """Let another asking of the same request have the answer."""
        self.connection, self.number = other.connection, other.number

    def finish(self, result: Result) -> None:
        """Answer with a result."""
        self.answer({"ok": True, "result": result})

    def fail(self, code: str, message: str) -> None:
        """Answer with an error."""
        self.answer(_error(code, message))

    def live(self, output: str) -> bool:
        """Send output while the command runs."""
        return self.connection.send_live({"id": self.number, "output": output})

    def answer(self, answer: Answer, blob: Optional[bytes] = None) -> None:
        """Answer, once. The journal is written while the answer travels: both are lost only if the runner dies now."""
        if self._answered:
            return
        self._answered = True
        answer = self.amend(answer)
        try:
            self.connection.send({"id": self.number, **answer}, blob)
        except ProtocolError as error:
            self.connection.send({"id": self.number, **_error("too_large", f"the result does not fit: {error}")})
        finally:
            self._done(self, answer)


def _cannot_be_cancelled() -> bool:
    return False


def _as_it_is(answer: Answer) -> Answer:
    return answer


def _error(code: str, message: str) -> Answer:
    return {"ok": False, "error": {"code": code, "message": message}}
