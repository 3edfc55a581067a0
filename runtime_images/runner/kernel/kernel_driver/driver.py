"""The kernel's driver: starts a kernel through jupyter_client, runs one cell at a time, and tells what it shows."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import zmq
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager

from . import OMITTED

_IMAGES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
"""Pictures that models take, and how their data begins."""
_TEXT_LIMIT = 1024 * 1024

_PLAIN_TEXT = {"TERM": "dumb", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
_BOOT = """
import importlib.util, os, site, sys
runner, library, first = sys.argv[1:4]
del sys.argv[1:4]
if site.ENABLE_USER_SITE:
    own = site.getusersitepackages()
    try:
        os.makedirs(own, exist_ok=True)
    except OSError:
        pass
    site.addsitedir(own)
if library:
    sys.path.insert(1 if first else len(sys.path), library)
spec = importlib.util.spec_from_file_location(
    "drydock_runner", runner + "/__init__.py", submodule_search_locations=[runner]
)
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
del importlib, runner, library, first, spec
from drydock_runner.kernel.kernel_driver.inside import main
main()
"""

KernelMessage = Dict[str, Any]


def shown(kind: str, content: Dict[str, Any]) -> List[KernelMessage]:
    """What to report of a message; nothing of irrelevant ones."""
    if kind == "stream":
        return _text(content["text"], "stream")
    if kind in ("execute_result", "display_data"):
        return _display(content)
    if kind == "update_display_data":
        name = content.get("transient", {}).get("display_id", "")
        text = str(content.get("data", {}).get("text/plain", ""))
        return [{"update": str(name)[:200], "text": text[:_TEXT_LIMIT]}] if text else []
    if kind == "error":
        parts = _text("\n".join(content["traceback"]), "traceback")
        return [{"error": str(content["ename"]), **part} for part in parts]
    if kind == "clear_output":
        return [{"clear": "next" if content.get("wait") else "now"}]
    if kind == OMITTED:
        return [{"omitted": int(content["characters"])}]
    return []


def _display(content: Dict[str, Any]) -> List[KernelMessage]:
    data = content.get("data", {})
    items = _text(str(data.get("text/plain", "")), "display")
    for kind in _IMAGES:
        image = data.get(kind)
        if isinstance(image, str) and image.strip():
            image = "".join(image.split())
            if len(image) > 5 * 1024 * 1024:
                return [*items, {"too_large": len(image) * 3 // 4}]
            begin = b""
            with contextlib.suppress(ValueError):
                begin = base64.b64decode(image, validate=True)[:16]
            # By its real kind: a model's server would refuse the whole history for a wrong one.
            for real, magic in _IMAGES.items():
                if begin.startswith(magic):
                    return [*items, {"image": f"data:{real};base64,{image}"}]
            return [*items, {"display": f"[What was to be shown as {kind} is no such picture; it was left out.]"}]
    return items


def _text(text: str, how: str) -> List[KernelMessage]:
    if not text:
        return []
    if not text.isascii():  # half characters are written out: no valid text could hold them
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    over = len(text) - _TEXT_LIMIT
    if over <= 0:
        return [{how: text}]
    half = _TEXT_LIMIT // 2
    return [{how: text[:half]}, {"omitted": over}, {"stream": text[-half:]}]


class _OurKernel(KernelSpecManager):
    """Finds only our kernel, whatever is installed elsewhere."""

    command: List[str] = []  # noqa: RUF012 - replaced in each instance

    def get_kernel_spec(self, kernel_name: str) -> Any:
        return KernelSpec(argv=self.command, display_name=kernel_name, language="python", interrupt_mode="signal")


class KernelProcess:
    """A kernel's process, from its start to its end.

    ``library`` is where ipykernel is when this Python does not have it, else "". The user's packages precede it unless
    ``library_first``.
    """

    def __init__(self, workspace: str, library: str, folder: str, *, library_first: bool = False) -> None:
        if len(folder) <= 90:
            shutil.rmtree(folder, ignore_errors=True)  # of a kernel that could not remove it itself
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._folder = tempfile.mkdtemp(dir=folder)
        else:  # too long for the paths of sockets in it
            self._folder = tempfile.mkdtemp(prefix="kernel-", dir="/tmp")  # nobody else may enter it
        words_in, words_out = os.pipe()
        self.words = words_in
        self._last_words = b""
        os.set_blocking(words_in, False)
        kernels = _OurKernel()
        runner = str(Path(os.path.abspath(__file__)).parents[2])
        command = [sys.executable, "-c", _BOOT, runner, library, "first" if library_first else ""]
        kernels.command = [*command, "-f", "{connection_file}"]
        self._manager = KernelManager(
            transport="ipc",
            ip=os.path.join(self._folder, "s"),
            connection_file=os.path.join(self._folder, "kernel.json"),
            kernel_spec_manager=kernels,
            shutdown_wait_time=0.5,
        )
        try:
            environment = {**os.environ, **_PLAIN_TEXT}
            self._manager.start_kernel(
                cwd=workspace, env=environment, stdout=subprocess.DEVNULL, stderr=words_out, independent=False
            )
        except BaseException:
            self.close()
            raise
        finally:
            os.close(words_out)
        provisioner: Any = self._manager.provisioner  # the local one, which has the process
        self._process = provisioner.process
        self.pid: int = self._process.pid
        self.client: Any = self._manager.blocking_client()
        self.client.context.rcvhwm = 0  # nothing is dropped: the kernel bounds what it sends
        self.client.start_channels(stdin=False, hb=False)

    def exit_code(self) -> Optional[int]:
        """Negative for a signal; None while it runs."""
        return self._process.poll()  # type: ignore[no-any-return] # subprocess's

    def read_words(self) -> bool:
        try:
            data = os.read(self.words, 65536)
        except OSError:
            return True  # nothing there now
        self._last_words = (self._last_words + data)[-2000:]
        return bool(data)

    def last_words(self) -> str:
        self.read_words()
        lines = self._last_words.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][-300:] if lines else ""

    def close(self) -> None:
        try:
            if self._manager.has_kernel:
                self._manager.shutdown_kernel(now=True)
        finally:
            os.close(self.words)
            shutil.rmtree(self._folder, ignore_errors=True)


class KernelError(Exception):
    """There can be no kernel here; the message says why."""


class KernelDriver:
    """One kernel; creating it waits until it answers, and raises `KernelError` when it ends instead."""

    def __init__(self, send: Callable[[KernelMessage], None], workspace: str, library: str, folder: str) -> None:
        self._send = send
        self._poller = zmq.Poller()
        self._orders = bytearray()
        self._is_open = True
        self._cell = ""
        self._number = 0
        self._replied_at = 0.0
        self._is_idle = self._exits = False
        self._silent: Dict[str, bool] = {}
        self.kernel = self._start(workspace, library, folder)

    def serve(self) -> None:
        while self._is_open:
            is_late = bool(self._cell and self._replied_at)
            for ready, _ in self._poller.poll(50 if is_late else 500):
                if ready == 0:
                    self._read_orders()
                elif ready == self.kernel.words:
                    if not self.kernel.read_words():
                        self._poller.unregister(ready)
                else:
                    self._receive(ready)
            if self._cell and self._replied_at and time.monotonic() - self._replied_at > 1.0:
                self._is_idle = True  # the word was lost
                self._finish_if_done()
            code = self.kernel.exit_code()
            if code is not None:
                self._receive(self.kernel.client.iopub_channel.socket)
                self._send({"died": {"code": code, "words": self.kernel.last_words()}})
                return

    def _start(self, workspace: str, library: str, folder: str) -> KernelProcess:
        """Second try without the user's packages, which may not fit together."""
        for library_first in (False, True) if library else (False,):
            kernel = KernelProcess(workspace, library, folder, library_first=library_first)
            if self._answers(kernel):
                break
            words, code = kernel.last_words() or "without a word", kernel.exit_code()
            kernel.close()
        else:
            raise KernelError(f"the kernel ended with exit code {code} as it started ({words})")
        client = kernel.client
        for source in (0, kernel.words, client.shell_channel.socket, client.iopub_channel.socket):
            self._poller.register(source, zmq.POLLIN)
        self._send({"ready": {"pid": kernel.pid}})
        return kernel

    def _answers(self, kernel: KernelProcess) -> bool:
        """Ask until both channels are heard: then nothing that a cell shows is lost."""
        client = kernel.client
        shell, shown_on = client.shell_channel.socket, client.iopub_channel.socket
        has_replied = has_shown = False
        poller = zmq.Poller()
        poller.register(shell, zmq.POLLIN)
        poller.register(shown_on, zmq.POLLIN)
        poller.register(kernel.words, zmq.POLLIN)
        sent_at = 0.0
        while not (has_replied and has_shown):
            if kernel.exit_code() is not None:
                return False
            if not sent_at or (has_replied and time.monotonic() - sent_at > 0.2):
                client.kernel_info()
                sent_at = time.monotonic()
            ready = dict(poller.poll(100))
            if kernel.words in ready:
                kernel.read_words()
                if select.select([kernel.words], [], [], 0)[0]:  # closed: it is ending
                    time.sleep(0.01)
            if shell in ready:
                client.session.recv(shell, zmq.NOBLOCK)
                has_replied = True
            if shown_on in ready:
                _, message = client.session.recv(shown_on, zmq.NOBLOCK)
                has_shown = has_shown or message["parent_header"].get("msg_type") == "kernel_info_request"
        return True

    def _read_orders(self) -> None:
        data = os.read(0, 1024 * 1024)
        if not data:
            self._is_open = False
            return
        self._orders += data
        *lines, rest = bytes(self._orders).split(b"\n")
        self._orders[:] = rest
        client = self.kernel.client
        for order in map(json.loads, lines):
            for code in order["prepare"]:
                self._silent[client.execute(code, silent=True, store_history=False, allow_stdin=False)] = True
            self._number = order["run"]
            self._replied_at, self._is_idle, self._exits, self._failed_with = 0.0, False, False, ""
            self._cell = client.execute(order["code"], allow_stdin=False, stop_on_error=False)

    def _receive(self, socket: Any) -> None:
        session, replies = self.kernel.client.session, self.kernel.client.shell_channel.socket
        while True:
            try:
                _, message = session.recv(socket, zmq.NOBLOCK)
            except ValueError:  # not one of its messages
                continue
            if message is None:
                return
            parent = message["parent_header"].get("msg_id", "")
            if socket is replies:
                self._replied(parent, message["content"])
            elif parent not in self._silent:
                self._shown(parent, message)

    def _replied(self, parent: str, content: KernelMessage) -> None:
        self._silent.pop(parent, None)
        if parent != self._cell:
            return
        self._replied_at, self._failed_with = time.monotonic(), str(content.get("ename") or "")
        for item in content.get("payload", ()):
            self._exits = self._exits or item.get("source") == "ask_exit"
            for display in shown("display_data", item) if item.get("source") == "page" else ():  # of ``name?``
                self._send({"cell": self._number, **display})
        self._finish_if_done()

    def _shown(self, parent: str, message: KernelMessage) -> None:
        number = self._number if parent == self._cell else 0
        kind, content = message["msg_type"], message["content"]
        if kind == "status":
            if number and content["execution_state"] == "idle":
                self._is_idle = True
                self._finish_if_done()
            return
        for item in shown(kind, content):
            self._send({"cell": number, **item})

    def _finish_if_done(self) -> None:
        """The reply and the last output come on two channels: the cell is done when both are here."""
        if self._cell and self._is_idle and self._replied_at:
            self._cell = ""
            self._send({"cell": self._number, "done": True, "exits": self._exits, "error": self._failed_with})
