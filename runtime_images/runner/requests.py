"""Requests of the server: checked, carried out once however often they are asked, and answered."""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, Mapping, Optional

from . import arguments, facts
from .arguments import BadRequestError
from .browser import Browser
from .connection import Connection
from .disk import FileError
from .files import Files, Reply
from .journal import Answer, Journal
from .loop import Loop
from .ports import Ports
from .request import Request
from .searching import Searches
from .session import Session
from .snapshots import Snapshots
from .wire import Frame
from .workers import BusyError

_IN_FLIGHT_LIMIT = 512
_KEY_LIMIT = 512
_SESSION_LIMIT = 64
_PATCH_LIMIT = 1024 * 1024
_SESSION_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_CARRIED_OUT_ONCE = ("browser.run", "shell.run", "shell.kill", "file.edit", "file.whole", "file.write", "patch.apply")


Operation = Callable[[Request, Dict[str, Any], Optional[bytes]], None]


_LOOKING = {"file.edit": ("view",), "file.whole": ("read", "list")}


class Requests:
    """Knows the operations, the terminal sessions, what is under way and what is done."""

    def __init__(
        self,
        loop: Loop,
        workspace: str,
        mark: str,
        journal: Journal,
        files: Files,
        searches: Searches,
        browser: Browser,
        snapshots: Snapshots,
        more: Mapping[str, Operation],
    ) -> None:
        self._loop = loop
        self._workspace = workspace
        self._mark = mark
        self._journal = journal
        self._files = files
        self._searches = searches
        self._browser = browser
        self._snapshots = snapshots
        self._sessions: Dict[str, Session] = {}
        self._under_way: Dict[int, Request] = {}
        self._operations: Dict[str, Operation] = {
            "browser.run": self._browser_run,
            "cancel": self._cancel,
            "file.edit": self._file_edit,
            "file.read": self._file_read,
            "file.whole": self._file_whole,
            "file.write": self._file_write,
            "journal.ack": self._journal_ack,
            "journal.lookup": self._journal_lookup,
            "patch.apply": self._patch_apply,
            "ping": self._ping,
            "ports.list": lambda request, _given, _: self._work(
                request, "ports.list", lambda: Reply(Ports(self._mark).listening())
            ),
            "search.glob": lambda request, given, _: self._search("glob", request, given),
            "search.grep": lambda request, given, _: self._search("grep", request, given),
            "shell.interrupt": self._shell_interrupt,
            "shell.kill": self._shell_kill,
            "shell.run": self._shell_run,
            "workspace.facts": self._workspace_facts,
            **snapshots.operations,
            **more,
        }

    def receive(self, connection: Connection, frame: Frame) -> None:
        """Serve the request in a frame; everything that is wrong with it is answered."""
        message = frame.message
        request = Request(connection, message.get("id"), self._done)
        try:
            operation = self._check(connection, message)
            key, name = message.get("key"), message["op"]
            if key is not None and self._is_repeated(request, key):
                return
            self._under_way[id(request)] = request
            if key is not None and name in _CARRIED_OUT_ONCE and not _only_looks(message):
                request.key = key
                self._journal.begin(key)
                begin = lambda: self._begin(operation, request, message, frame.blob)  # noqa: E731
                self._snapshots.before(request, begin)
            else:
                self._begin(operation, request, message, frame.blob)
        except BadRequestError as error:
            self._refuse(request, "bad_request", str(error))

    def _begin(self, operation: Operation, request: Request, message: Dict[str, Any], blob: Optional[bytes]) -> None:
        try:
            operation(request, message.get("args") or {}, blob)
        except (BadRequestError, BusyError, FileError) as error:
            self._refuse(request, error.code, str(error))
        except Exception:
            request.fail("internal", "the runner failed to serve this request; its standard error says how")
            raise

    def child_changed(self) -> None:
        """Pass SIGCHLD on to the terminals, and collect dead children that are no terminal's any more."""
        for session in list(self._sessions.values()):
            session.child_changed()
        self._collect_orphans()

    def close(self) -> None:
        """Kill what runs in the terminals, the searches and the browser."""
        self._searches.close()
        self._browser.close()
        for session in self._sessions.values():
            session.close("The runner has ended.")

    def _collect_orphans(self) -> None:
        shells = {session.shell_pid for session in self._sessions.values()}
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in shells:
                return  # a shell's end is news of its own, which its session collects; a signal for it is on its way
            os.waitpid(ended.si_pid, os.WNOHANG)

    def _check(self, connection: Connection, message: Dict[str, Any]) -> Operation:
        number, key, given = message.get("id"), message.get("key"), message.get("args")
        if isinstance(number, bool) or not isinstance(number, int):
            raise BadRequestError("id must be a whole number, and is needed to answer")
        if any(request.is_from(connection, number) for request in self._under_way.values()):
            raise BadRequestError("id is that of a request under way: number each request anew")
        if key is not None and (not isinstance(key, str) or not 0 < len(key) <= _KEY_LIMIT):
            raise BadRequestError(f"key must be a string of 1 to {_KEY_LIMIT} characters, or absent")
        if given is not None and not isinstance(given, dict):
            raise BadRequestError("args must be an object")
        name = message.get("op")
        operation = self._operations.get(name) if isinstance(name, str) else None
        if operation is None:
            raise BadRequestError(f"op is not known; the operations are: {', '.join(sorted(self._operations))}")
        if len(self._under_way) >= _IN_FLIGHT_LIMIT and name != "cancel":
            raise BusyError(f"{_IN_FLIGHT_LIMIT} requests are under way already")
        return operation

    def _is_repeated(self, request: Request, key: str) -> bool:
        answer = self._journal.answer(key)
        if answer is not None:
            request.answer(answer)
            return True
        for other in self._under_way.values():
            if other.key == key:
                other.retarget(request)
                return True
        return False

    def _refuse(self, request: Request, code: str, message: str) -> None:
        """Answer with an error without having done anything: the same key may be asked again."""
        if request.key is not None:
            self._journal.withdraw(request.key)
            request.key = None
        request.fail(code, message)

    def _done(self, request: Request, answer: Answer) -> None:
        self._under_way.pop(id(request), None)
        if request.key is not None:
            self._journal.finish(request.key, answer)
            self._snapshots.after(request.key)

    # Operations

    def _ping(self, request: Request, _given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        request.finish({"journal": self._journal.trouble or "ok", "sessions": sorted(self._sessions)})

    def _workspace_facts(self, request: Request, _given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        self._work(request, self._workspace, lambda: Reply(facts.workspace(self._workspace)))

    def _ports_list(self, request: Request, _given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        self._work(request, "ports.list", lambda: Reply(Ports(self._mark).listening()))

    def _journal_lookup(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        request.finish({"state": self._journal.state(arguments.text(given, "key"))})

    def _journal_ack(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        request.finish({"forgotten": self._journal.acknowledge(arguments.texts(given, "keys"))})

    def _cancel(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        number, key = given.get("id"), given.get("key")
        if number is None and key is None:
            raise BadRequestError("cancel needs the id or the key of the request to stop")
        for other in list(self._under_way.values()):
            wanted = other.key == key if key is not None else other.is_from(request.connection, number)
            if wanted and other is not request:
                request.finish({"cancelled": other.cancel()})
                return
        request.finish({"cancelled": False})

    def _browser_run(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        order = arguments.browser_order(given)
        request.cancel = lambda: self._browser.cancel(request)
        self._browser.run(order, request)

    def _shell_run(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        order = arguments.shell_order(given)
        session = self._session(given)
        request.cancel = lambda: session.cancel(request)
        session.run(order, request)

    def _shell_interrupt(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        session = self._sessions.get(self._session_name(given))
        if session is None or not session.interrupt(lambda: request.finish({"interrupted": True})):
            request.finish({"interrupted": False})

    def _shell_kill(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        session = self._sessions.pop(self._session_name(given), None)
        if session is not None:
            session.close("The terminal was closed.")
        request.finish({"killed": session is not None})

    def _file_read(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        path = arguments.path(given)
        offset = arguments.integer(given, "offset", 0, 0, 2**62)
        limit = arguments.integer(given, "limit", 0, 1, 2**26) if given.get("limit") is not None else None
        self._work(request, path, self._files.read(path, offset, limit))

    def _file_write(self, request: Request, given: Dict[str, Any], blob: Optional[bytes]) -> None:
        path = arguments.path(given)
        if blob is None:
            raise BadRequestError("file.write needs the file's content as the frame's attachment (key blob)")
        mode = arguments.integer(given, "mode", 0, 0, 0o7777) if given.get("mode") is not None else None
        self._work(request, path, self._files.write(path, blob, mode))

    def _file_edit(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        edit = arguments.edit(given, self._workspace)
        self._work(request, edit.path, self._files.edit(edit))

    def _file_whole(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        asked = arguments.whole_file(given, self._workspace)
        self._work(request, asked.path, self._files.whole(asked))

    def _patch_apply(self, request: Request, given: Dict[str, Any], _blob: Optional[bytes]) -> None:
        patch = arguments.characters(given, "patch", _PATCH_LIMIT)
        self._work(request, "patch.apply", self._files.patch(patch))  # one patch at a time

    def _search(self, kind: str, request: Request, given: Dict[str, Any]) -> None:
        request.cancel = self._searches.start(kind, given, request)

    def _work(self, request: Request, path: str, work: Callable[[], Reply]) -> None:
        def failed(error: Exception) -> None:
            if isinstance(error, FileError):
                request.fail(error.code, str(error))
            else:
                request.fail("internal", f"{type(error).__name__}: {error}")

        take_back = self._files.start(path, work, lambda reply: _reply(request, reply), failed)

        def cancel() -> bool:
            if not take_back():
                return False
            request.fail("cancelled", "the request was cancelled before it was begun")
            return True

        request.cancel = cancel

    def _session(self, given: Dict[str, Any]) -> Session:
        name = self._session_name(given)
        session = self._sessions.get(name)
        if session is None:
            if len(self._sessions) >= _SESSION_LIMIT:
                raise BusyError(f"there are {_SESSION_LIMIT} terminals already: close one with shell.kill")
            session = self._sessions[name] = Session(self._loop, f"{self._mark}.{name}", self._workspace)
        return session

    def _session_name(self, given: Dict[str, Any]) -> str:
        name = arguments.text(given, "session", "default")
        if _SESSION_NAME.match(name) is None:
            raise BadRequestError("session must be a name of 1 to 64 letters, digits and _.:-")
        return name


def _only_looks(message: Dict[str, Any]) -> bool:
    given = message.get("args")
    return isinstance(given, dict) and given.get("command") in _LOOKING.get(message["op"], ())


def _reply(request: Request, reply: Reply) -> None:
    request.answer({"ok": True, "result": reply.result}, reply.blob)
