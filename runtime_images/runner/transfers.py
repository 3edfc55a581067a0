"""Files of the workspace on their way out and in, opened once and moved in parts; what nobody ends is dropped."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional, Tuple

from . import arguments, disk
from .arguments import BadRequestError
from .beneath import Beneath
from .disk import FileError
from .files import Files, Reply
from .folder_list import FolderList, place_of
from .incoming import Incoming
from .loop import Loop, Timer
from .outgoing import PART, Outgoing
from .request import Request
from .workers import BusyError

IDLE_SECONDS = 600.0
AT_ONCE = 64

Operation = Callable[[Request, Dict[str, Any], Optional[bytes]], None]


class Transfers:
    """Serves ``transfer.*`` and ``folder.list``."""

    def __init__(self, loop: Loop, files: Files, workspace: str) -> None:
        self._loop = loop
        self._files = files
        self._beneath = Beneath(workspace)
        self._list = FolderList(self._beneath)
        self._open: Dict[str, Any] = {}
        self._timers: Dict[str, Timer] = {}
        self.operations: Dict[str, Operation] = {
            "folder.list": self._folder_list,
            "transfer.read": self._begin_outgoing,
            "transfer.next": self._next,
            "transfer.write": self._begin_incoming,
            "transfer.put": self._put,
            "transfer.keep": self._keep,
            "transfer.drop": self._drop,
        }

    def close(self) -> None:
        """Drop all of them."""
        for timer in self._timers.values():
            timer.cancel()
        for transfer in self._open.values():
            transfer.close()
        self._open.clear()

    # Operations

    def _folder_list(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        path = arguments.text(given, "path", "")
        after = arguments.text(given, "after", "")
        place = place_of(arguments.flag(given, "after_folder"), after) if after else None
        self._work(request, "folder.list", lambda: Reply(self._list.of(path, place)))

    def _begin_outgoing(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        path = arguments.text(given, "path", "")

        def work() -> Tuple[Outgoing, Dict[str, Any]]:
            opened = self._beneath.open(path)
            status = opened.status
            facts = {
                "kind": "folder" if opened.is_folder else "file",
                "size": None if opened.is_folder else status.st_size,
                "modified": status.st_mtime_ns,
                "tag": f"{status.st_dev:x}-{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}",
                "name": next(iter(self._beneath.parts(path)[-1:]), ""),
            }
            return Outgoing(opened), facts

        self._begin(request, work)

    def _begin_incoming(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        path = arguments.text(given, "path")
        self._begin(request, lambda: (Incoming(self._beneath, path), {}))

    def _next(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        transfer = self._known(given, Outgoing)
        offset = arguments.integer(given, "offset", 0, 0, 2**62)
        limit = arguments.integer(given, "limit", PART, 1, PART)

        def work() -> Reply:
            data, ended = transfer.part(offset, limit)
            return Reply({"eof": ended}, data)

        self._work(request, str(given["id"]), work)

    def _put(self, request: Request, given: Dict[str, Any], blob: Optional[bytes]) -> None:
        transfer = self._known(given, Incoming)
        offset = arguments.integer(given, "offset", 0, 0, 2**62)
        if blob is None:
            raise BadRequestError("transfer.put needs a part of the file as the frame's attachment (key blob)")
        data = blob

        def work() -> Reply:
            transfer.part(offset, data)
            return Reply({})

        self._work(request, str(given["id"]), work)

    def _keep(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        transfer = self._known(given, Incoming)
        self._work(request, str(given["id"]), lambda: Reply({"size": transfer.keep()}), ends=True)

    def _drop(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        ident = arguments.text(given, "id")
        if ident in self._open:
            self._work(request, ident, lambda: Reply({}), ends=True)
        else:
            request.finish({})  # it is over already

    # The work

    def _known(self, given: Dict[str, Any], kind: type) -> Any:
        transfer = self._open.get(arguments.text(given, "id"))
        if not isinstance(transfer, kind):
            raise FileError("not_found", "there is no such transfer (any more)")
        return transfer

    def _begin(self, request: Request, work: Callable[[], Tuple[Any, Dict[str, Any]]]) -> None:
        if len(self._open) >= AT_ONCE:
            raise BusyError(f"{AT_ONCE} transfers are under way already")
        ident = os.urandom(8).hex()
        made: Dict[str, Any] = {}

        def begin() -> Reply:
            made["transfer"], facts = work()
            return Reply({"id": ident, **facts})

        def done(reply: Reply) -> None:
            self._open[ident] = made["transfer"]
            self._wait_for_use(ident)
            request.finish(reply.result)

        self._files.start(f"transfer {ident}", begin, done, _failing(request))

    def _work(self, request: Request, lane: str, work: Callable[[], Reply], *, ends: bool = False) -> None:
        """Do it behind what is done for the same transfer already."""
        if lane in self._timers:
            self._timers[lane].cancel()

        def done(reply: Reply) -> None:
            self._used(lane, ends=ends)
            request.answer({"ok": True, "result": reply.result}, reply.blob)

        def failed(error: Exception) -> None:
            self._used(lane, ends=ends)
            _failing(request)(error)

        self._files.start(f"transfer {lane}", work, done, failed)

    def _used(self, ident: str, *, ends: bool) -> None:
        if ident not in self._open:
            return
        if ends:
            self._end(ident)
        else:
            self._wait_for_use(ident)

    def _wait_for_use(self, ident: str) -> None:
        if ident in self._timers:
            self._timers[ident].cancel()
        self._timers[ident] = self._loop.call_later(IDLE_SECONDS, lambda: self._end(ident))

    def _end(self, ident: str) -> None:
        """Close it, when what is being done for it is done."""
        transfer = self._open.pop(ident, None)
        timer = self._timers.pop(ident, None)
        if timer is not None:
            timer.cancel()
        if transfer is not None:
            self._files.start(f"transfer {ident}", lambda: _closed(transfer), lambda reply: None, _report)


def _failing(request: Request) -> Callable[[Exception], None]:
    def failed(error: Exception) -> None:
        if isinstance(error, FileError):
            request.fail(error.code, str(error))
        elif isinstance(error, OSError):
            known = disk.failure(error, "the file")
            request.fail(known.code, str(known))
        else:
            request.fail("internal", f"{type(error).__name__}: {error}")

    return failed


def _closed(transfer: Any) -> Reply:
    transfer.close()
    return Reply({})


def _report(error: Exception) -> None:
    raise error  # the loop writes it to the runner's standard error
