"""A server's connection: frames in, frames out, a bound on what waits to be sent; and its requests."""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Tuple

from ..wire import Decoder, Frame, ProtocolError, encode
from .journal import JournaledAnswer, failed_answer
from .loop import Loop, read_ready

RequestResult = Dict[str, Any]
Operation = Callable[["Request", Dict[str, Any], Optional[bytes]], None]
"""Serves a request, given its arguments and the attachment of its frame."""

_READ_AT_ONCE = 64 * 1024  # more would be fresh memory from the system each time
_LIVE_LIMIT = 256 * 1024
_READING_LIMIT = 8 * 1024 * 1024
_ROOM = 128 * 1024


class Connection:
    """A stream of frames, on a socket or on the two ``pipes`` that were handed over on one.

    Requests are not read while more than a limit waits to be sent, so memory stays bounded.
    """

    def __init__(
        self,
        loop: Loop,
        control: socket.socket,
        pipes: Optional[Tuple[int, int]],
        received: Callable[["Connection", Frame], None],
        closed: Callable[["Connection"], None],
    ) -> None:
        self._loop = loop
        self._control = control
        self._pipes = pipes
        self._source, self._target = pipes or (control.fileno(), control.fileno())
        os.set_blocking(self._source, False)
        os.set_blocking(self._target, False)
        self._received = received
        self._closed = closed
        self._decoder = Decoder()
        self._out: Deque[memoryview] = deque()
        self._waiting = 0
        self._reading = False
        self._ending = False
        self.is_open = True
        self.on_room: Optional[Callable[[], None]] = None
        """Called when there is room again after there was none."""

    @property
    def has_room(self) -> bool:
        """True while data that can wait may be sent: it would hardly delay what follows."""
        return self._waiting < _ROOM

    def start(self) -> None:
        if self._pipes is not None:
            self._loop.add_reader(self._control.fileno(), self.close)  # it says nothing: it has ended
        self._set_reading(True)

    def send(self, message: Dict[str, Any], blob: Optional[bytes] = None) -> None:
        """Send a frame, in order; no effect once the connection is closed."""
        if not self.is_open:
            return
        data = encode(message, blob)
        idle = not self._out
        self._out.append(memoryview(data))
        self._waiting += len(data)
        if idle:
            self._write()
        if self._waiting > _READING_LIMIT:
            self._set_reading(False)

    def send_live(self, message: Dict[str, Any]) -> bool:
        """Send a frame that may be dropped; False, and nothing sent, when the other side reads too slowly."""
        if not self.is_open:
            return True  # nobody watches: there is no use in keeping it
        if self._waiting > _LIVE_LIMIT:
            return False
        self.send(message)
        return True

    def end(self, message: Dict[str, Any]) -> None:
        self.send(message)
        self._set_reading(False)
        self._ending = True
        if not self._out:
            self.close()

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._target)
        if self._pipes is not None:
            self._loop.remove_reader(self._control.fileno())
            os.close(self._source)
            os.close(self._target)
        self._control.close()
        self._out.clear()
        self._waiting = 0
        self._closed(self)

    def _set_reading(self, enabled: bool) -> None:
        if enabled == self._reading or not self.is_open:
            return
        self._reading = enabled
        if enabled:
            self._loop.add_reader(self._source, self._read)
        else:
            self._loop.remove_reader(self._source)

    def _read(self) -> None:
        data = read_ready(self._source, _READ_AT_ONCE)
        if not data:
            if data is not None:
                self.close()
            return
        try:
            frames = self._decoder.feed(data)
        except ProtocolError as error:
            self.end({"error": {"code": "protocol", "message": str(error)}})
            return
        for frame in frames:
            if self.is_open and not self._ending:
                self._received(self, frame)

    def _writable(self) -> None:
        self._write()
        if self.is_open and self.on_room is not None and self.has_room:
            self.on_room()

    def _write(self) -> None:
        while self._out:
            view = self._out[0]
            try:
                sent = os.write(self._target, view[: 256 * 1024])
            except BlockingIOError:
                self._loop.add_writer(self._target, self._writable)
                return
            except OSError:
                self.close()
                return
            self._waiting -= sent
            if sent == len(view):
                self._out.popleft()
            else:
                self._out[0] = view[sent:]
        self._loop.remove_writer(self._target)
        if self._ending:
            self.close()
        elif self._waiting <= _READING_LIMIT // 2:
            self._set_reading(True)


class Request:
    """One request being served: gets live text, then exactly one result or one error.

    Its answer goes to whoever last asked for the same key.
    """

    def __init__(self, connection: Connection, number: Any, done: Callable[[Request, JournaledAnswer], None]) -> None:
        self.connection = connection
        self.number = number
        self.key: Optional[str] = None
        self.cancel: Callable[[], bool] = lambda: False
        self.amend: Callable[[JournaledAnswer], JournaledAnswer] = lambda answer: answer
        self._answered = False
        self._done = done

    def is_from(self, connection: Connection, number: Any) -> bool:
        return self.connection is connection and self.number == number

    def finish(self, result: RequestResult, blob: Optional[bytes] = None) -> None:
        self.answer({"ok": True, "result": result}, blob)

    def fail(self, code: str, message: str) -> None:
        self.answer(failed_answer(code, message))

    def live(self, output: str) -> bool:
        """Send output while a command runs; False when it cannot be taken now."""
        return self.connection.send_live({"id": self.number, "output": output})

    def answer(self, answer: JournaledAnswer, blob: Optional[bytes] = None) -> None:
        """Answer, once. The journal is written while the answer travels: both are lost only if the runner dies now."""
        if self._answered:
            return
        self._answered = True
        answer = self.amend(answer)
        try:
            self.connection.send({"id": self.number, **answer}, blob)
        except ProtocolError as error:
            self.connection.send({"id": self.number, **failed_answer("too_large", f"the result does not fit: {error}")})
        finally:
            self._done(self, answer)
