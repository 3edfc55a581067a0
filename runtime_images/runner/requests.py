"""Requests of the server: checked, carried out once however often they are asked, and answered."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any, Dict, Optional

from .browser.browser import Browser, browser_order
from .core import arguments
from .core.arguments import BadRequestError, RequestError
from .core.connection import Connection, Operation, Request
from .core.disk_limit import DiskLimiter
from .core.freezer import Freezer
from .core.journal import Journal, JournaledAnswer
from .core.loop import Loop
from .core.workers import Reply, TooMuchWorkError, Workers
from .files.disk import FileError
from .files.requests import FileRequests
from .files.snapshots import Snapshots
from .files.transfers import Transfers
from .git.requests import GitRequests
from .kernel.kernel import Kernel, cell_order
from .terminal.output import LentSecrets, WholeOutputs
from .terminal.session import TerminalSession, fresh_answer, fresh_directory, shell_order
from .tunnels.ports import SandboxPorts
from .wire import Frame

_IN_FLIGHT_LIMIT = 512
_KEY_LIMIT = 512
_SESSION_LIMIT = 64
_SESSION_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_EDITS = ("file.edit", "file.range", "file.whole", "file.write", "patch.apply")
_CARRIED_OUT_ONCE = (*_EDITS, "browser.run", "kernel.run", "shell.run", "shell.kill")
_TRANSFERS = ("transfer.keep", "transfer.put", "transfer.write")
_WRITING = (*_EDITS, *_TRANSFERS, "git.clone", "git.instructions", "workspace.restore", "workspace.unpack")
_LOOKING = {"file.edit": ("view",), "file.range": ("read",), "file.whole": ("read", "list")}


class Requests:
    """Knows the operations, the terminal sessions, and the requests in progress or done.

    ``mark`` begins the marks of terminals.
    """

    def __init__(
        self,
        loop: Loop,
        workers: Workers,
        disk: DiskLimiter,
        freezer: Freezer,
        ports: SandboxPorts,
        workspace: str,
        state_directory: str,
        mark: str,
    ) -> None:
        self._loop = loop
        self._workspace = workspace
        self._mark = mark
        self._journal = journal = Journal(state_directory)
        journal.open()
        self._browser = browser = Browser(loop, workspace, state_directory)
        self._kernel = kernel = Kernel(loop, workspace, state_directory, mark)
        kernel.current_directory = self._default_directory
        self._snapshots = Snapshots(loop, workers, workspace, state_directory)
        self._lent = LentSecrets()
        self._outputs = WholeOutputs(os.path.join(state_directory, "outputs"), "terminal", lent=self._lent)
        self._disk = disk
        self._freezer = freezer
        self._sessions: Dict[str, TerminalSession] = {}
        self._fresh = 0
        self._pending: Dict[int, Request] = {}
        files = FileRequests(loop, workers, workspace, os.path.join(state_directory, "history"))
        files.current_directory = self._default_directory
        transfers, repositories = Transfers(loop, workers, workspace), GitRequests(loop, workers, workspace)
        self._rooms = (browser, kernel, files, transfers, repositories)
        self._operations: Dict[str, Operation] = {
            **files.operations,
            **self._snapshots.operations,
            **transfers.operations,
            **repositories.operations,
            "browser.run": lambda request, args, _: self._run(browser, browser_order(args), request),
            "cancel": self._cancel,
            "disk.state": lambda request, _, __: request.finish(disk.state()),
            "environment.set": self._environment_set,
            "journal.ack": lambda request, args, _: request.finish(
                {"forgotten": journal.acknowledge(arguments.texts(args, "keys"))}
            ),
            "journal.lookup": lambda request, args, _: request.finish(
                {"state": journal.state(arguments.text(args, "key"))}
            ),
            "log.end": self._log_end,
            "kernel.restart": lambda request, _, __: request.finish(kernel.restart()),
            "kernel.run": lambda request, args, _: self._run(kernel, cell_order(args), request),
            "processes.freeze": lambda request, _, __: request.finish({"frozen": freezer.freeze()}),
            "processes.thaw": self._thaw,
            "ping": lambda request, _, __: request.finish(
                {"journal": journal.trouble or "ok", "sessions": sorted(self._sessions)}
            ),
            "ports.list": lambda request, _, __: workers.serve(request, "ports.list", lambda: Reply(ports.listening())),
            "shell.interrupt": self._shell_interrupt,
            "shell.kill": lambda request, args, _: request.finish({"killed": self._close(_session_name(args))}),
            "shell.run": self._shell_run,
        }

    def receive(self, connection: Connection, frame: Frame) -> None:
        """Serve the request in a frame; all that is wrong with it is answered."""
        message = frame.message
        request = Request(connection, message.get("id"), self._done)
        try:
            operation = self._check(connection, message)
            if "forget" in message:
                self._journal.acknowledge(arguments.texts(message, "forget"))
            key, name, args = message.get("key"), message["op"], message.get("args") or {}
            if key is not None and self._is_repeated(request, key):
                return
            self._pending[id(request)] = request
            variables = args.get("env")
            if variables and isinstance(variables, dict):  # from the first one on outputs may show it in whatever form
                self._lent.add(value for value in variables.values() if isinstance(value, str))
                self._journal.withholds = True
            request.amend = self._disk.remark()
            looks = args.get("command") in _LOOKING.get(name, ())
            if name in _WRITING and not looks:
                refusal = self._disk.refusal(len(frame.blob or b""))
                if refusal:
                    raise FileError("no_space", refusal)
            begin = partial(self._begin, operation, request, args, frame.blob)
            if key is None or name not in _CARRIED_OUT_ONCE or looks:
                begin()
                return
            request.key = key
            self._journal.begin(key)
            if name == "shell.run" and self._is_input(args):  # what runs goes on while files are kept
                begin()
            else:
                self._snapshots.before(request, begin)
        except RequestError as error:
            self._refuse(request, error)

    def _begin(self, operation: Operation, request: Request, args: Dict[str, Any], blob: Optional[bytes]) -> None:
        try:
            operation(request, args, blob)
        except RequestError as error:
            self._refuse(request, error)
        except Exception:
            request.fail("internal", "the runner failed to serve this request; its standard error says how")
            raise

    def close(self) -> None:
        for room in self._rooms:
            room.close()
        for name in list(self._sessions):
            self._close(name, "The runner has ended.")
        self._journal.close()

    def thaw(self) -> None:
        """Let go on what was frozen, and hear what became of it meanwhile."""
        if self._freezer.is_frozen:
            self._freezer.thaw()
            self.child_changed()

    def child_changed(self) -> None:
        """Pass SIGCHLD on to the terminals and collect dead children of terminals that are gone."""
        if self._freezer.is_frozen:  # a terminal would continue its shell
            return
        for session in list(self._sessions.values()):
            session.shell.child_changed()
        shells = {session.shell.pid for session in self._sessions.values()}
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in shells:
                return  # a shell's end is news of its own, which its session collects; a signal for it is on its way
            os.waitpid(ended.si_pid, os.WNOHANG)

    def _check(self, connection: Connection, message: Dict[str, Any]) -> Operation:
        number, key, args = message.get("id"), message.get("key"), message.get("args")
        if isinstance(number, bool) or not isinstance(number, int):
            raise BadRequestError("id must be a whole number, and is needed to answer")
        if any(request.is_from(connection, number) for request in self._pending.values()):
            raise BadRequestError("id is that of a request under way: number each request anew")
        if key is not None and (not isinstance(key, str) or not 0 < len(key) <= _KEY_LIMIT):
            raise BadRequestError(f"key must be a string of 1 to {_KEY_LIMIT} characters, or absent")
        if args is not None and not isinstance(args, dict):
            raise BadRequestError("args must be an object")
        name = message.get("op")
        operation = self._operations.get(name) if isinstance(name, str) else None
        if operation is None:
            raise BadRequestError(f"op is not known; the operations are: {', '.join(sorted(self._operations))}")
        if len(self._pending) >= _IN_FLIGHT_LIMIT and name != "cancel":
            raise TooMuchWorkError(f"{_IN_FLIGHT_LIMIT} requests are under way already")
        return operation

    def _is_repeated(self, request: Request, key: str) -> bool:
        answer = self._journal.answer(key)
        if answer is not None:
            request.answer(answer)
            return True
        for other in self._pending.values():
            if other.key == key:
                other.connection, other.number = request.connection, request.number
                return True
        return False

    def _refuse(self, request: Request, error: RequestError) -> None:
        """Nothing was done: the same key may be asked again."""
        if request.key is not None:
            self._journal.withdraw(request.key)
            request.key = None
        request.fail(error.code, str(error))

    def _done(self, request: Request, answer: JournaledAnswer) -> None:
        self._pending.pop(id(request), None)
        if request.key is not None:
            self._journal.finish(request.key, answer)
            self._snapshots.after(request.key)

    # Operations

    def _cancel(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        number, key = args.get("id"), args.get("key")
        if number is None and key is None:
            raise BadRequestError("cancel needs the id or the key of the request to stop")
        for other in list(self._pending.values()):
            matches = other.key == key if key is not None else other.is_from(request.connection, number)
            if matches and other is not request:
                request.finish({"cancelled": other.cancel()})
                return
        request.finish({"cancelled": False})

    def _environment_set(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        """From now on terminals, kernels and programs begin with these variables; those that run stay as they are."""
        found = arguments.variables(args, "variables")
        if any(name.startswith("DRYDOCK_") for name in found):
            raise BadRequestError("variables holds a name that begins with DRYDOCK_, which is the runner's own")
        os.environ.update(found)
        request.finish({})

    def _thaw(self, request: Request, _args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        self.thaw()
        request.finish({})

    def _log_end(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        """Forget what was done for events behind the end of a log: they were lost, and their numbers come again."""
        is_lost = partial(_is_behind, arguments.text(args, "log"), arguments.integer(args, "last", -1, -1, 2**62))
        for other in list(self._pending.values()):
            if other.key is not None and is_lost(other.key):
                other.key = None
                other.cancel()
        self._journal.forget(is_lost)
        self._snapshots.forget(request, is_lost)

    def _run(self, program: Any, order: Any, request: Request) -> None:
        request.cancel = lambda: program.cancel(request)
        program.run(order, request)

    def _default_directory(self) -> str:
        session = self._sessions.get("default")
        return self._workspace if session is None else session.shell.directory

    def _shell_run(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        order = shell_order(args)
        directory = fresh_directory(args, self._workspace)
        if directory is None:
            name = _session_name(args)
            session = self._sessions.pop(name, None) or self._open(name, self._workspace)
            self._sessions[name] = session  # as the last, so that those not used for longest come first
            self._run(session, order, request)
            return
        self._fresh += 1
        name, amend = f"fresh:{self._fresh}", request.amend
        session = self._open(name, directory)

        def ended(answer: JournaledAnswer) -> JournaledAnswer:
            self._close(name)  # nobody could ask a command any more that is not done yet
            return amend(fresh_answer(answer))

        request.amend = ended
        self._run(session, order, request)

    def _is_input(self, args: Dict[str, Any]) -> bool:
        name = args.get("session", "default")
        session = self._sessions.get(name) if args.get("is_input") is True and isinstance(name, str) else None
        return session is not None and session.runs

    def _shell_interrupt(self, request: Request, args: Dict[str, Any], _blob: Optional[bytes]) -> None:
        session = self._sessions.get(_session_name(args))
        if session is None or not session.interrupt(lambda: request.finish({"interrupted": True})):
            request.finish({"interrupted": False})

    def _close(self, name: str, notice: str = "The terminal was closed.") -> bool:
        session = self._sessions.pop(name, None)
        if session is not None:
            session.close(notice)
        return session is not None

    def _open(self, name: str, directory: str) -> TerminalSession:
        if len(self._sessions) >= _SESSION_LIMIT:
            unused = next((one for one in self._sessions if one != "default" and self._sessions[one].is_unused), None)
            if unused is None:
                raise TooMuchWorkError(
                    f"{_SESSION_LIMIT} terminals are in use: use one of them, or end what runs in one (C-c, or reset)"
                )
            self._close(unused)
        session = self._sessions[name] = TerminalSession(self._loop, f"{self._mark}.{name}", directory, self._outputs)
        return session


def _is_behind(log: str, last: int, key: str) -> bool:
    number = key[len(log) + 1 :].partition(":")[0] if key.startswith(f"{log}:") else ""
    return number.isdigit() and int(number) > last


def _session_name(args: Dict[str, Any]) -> str:
    name = arguments.text(args, "session", "default")
    if _SESSION_NAME.match(name) is None:
        raise BadRequestError("session must be a name of 1 to 64 letters, digits and _.:-")
    return name
