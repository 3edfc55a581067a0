"""The sandbox's browser: requests to it in turn, its process started at first use and ended when nobody uses it."""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from ..core import arguments
from ..core.connection import Request
from ..core.helper_processes import DriverProcess, HelperMessage
from ..core.loop import Loop, Plan
from ..tunnels.ports import OWN_MARK

_CALLS_LIMIT = 100
_OWN_PYTHON = "/opt/drydock-browser/bin/python3"
_LIBRARY = "DRYDOCK_BROWSER_LIBRARY"  # variable: a folder with Playwright, where the sandbox's own Python has none
_BOOT = (
    "import sys, runpy; sys.path.insert(0, sys.argv.pop(1)); sys.path += [p for p in [sys.argv.pop(1)] if p];"
    " runpy.run_module('browser_driver', run_name='__main__', alter_sys=True)"
)

_QUEUE_LIMIT = 64
_FIX = (
    "Use a sandbox with one: the image drydock/sandbox:browser (drydock image browser, then"
    " DRYDOCK_SANDBOX_IMAGE=drydock/sandbox:browser); for local sandboxes install Chromium on the host"
    " (apt-get install chromium) and Playwright in the server's environment (pip install 'playwright>=1.65')."
)


class BrowserOrder(NamedTuple):
    """The checked arguments of one ``browser.run``; times in seconds."""

    calls: List[Dict[str, Any]]
    look: Dict[str, bool]
    timeout: float
    start_seconds: float
    navigation_seconds: float
    idle_seconds: float
    allowed_domains: List[str]


class Browser:
    """Serves one order at a time. A browser that hangs or dies costs the order at hand, never the next one."""

    def __init__(self, loop: Loop, workspace: str, state_directory: str) -> None:
        self._loop = loop
        self._workspace = workspace
        self._log = os.path.join(state_directory, "browser.log")
        self._process: Optional[DriverProcess] = None
        self._is_ready = False
        self._queue: Deque[Tuple[BrowserOrder, Request]] = deque()
        self._turn: Optional[Tuple[BrowserOrder, Request]] = None
        self._number = 0
        self._limit = Plan(loop)
        self._notice = ""

    def run(self, order: BrowserOrder, request: Request) -> None:
        if len(self._queue) >= _QUEUE_LIMIT:
            request.fail("busy", f"{_QUEUE_LIMIT} calls are waiting for the browser already: wait for their results")
            return
        self._queue.append((order, request))
        if self._turn is None:
            self._next()

    def cancel(self, request: Request) -> bool:
        """Cancel an order: it is answered as interrupted, after a few seconds at the latest."""
        for turn in self._queue:
            if turn[1] is request:
                self._queue.remove(turn)
                request.finish(_result("interrupted", "It was stopped by the user before it began."))
                return True
        if self._turn is None or self._turn[1] is not request or self._process is None:
            return False
        if self._is_ready:
            self._process.send({"cancel": self._number})
        words = "It was stopped by the user; the browser did not react and was ended."
        self._limit.at(4.0 if self._is_ready else 0.0, lambda: self._give_up("interrupted", words))
        return True

    def close(self) -> None:
        self._limit.cancel()
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _next(self) -> None:
        self._limit.cancel()
        if not self._queue:
            self._turn = None
            return
        self._turn = self._queue.popleft()
        if self._process is not None:
            self._send()
            return
        self._is_ready = False
        python = _OWN_PYTHON if os.access(_OWN_PYTHON, os.X_OK) else sys.executable
        folder, library = os.path.dirname(os.path.abspath(__file__)), os.environ.get(_LIBRARY, "")
        command = [python, "-I", "-c", _BOOT, folder, library, self._workspace]
        environment = dict(os.environ, PW_TEST_SCREENSHOT_NO_FONTS_READY="1", NODE_OPTIONS="", **{OWN_MARK: "browser"})
        try:
            self._process = DriverProcess(self._loop, command, environment, self._log, self._received, self._gone)
        except OSError as error:
            self._answer(_result("unavailable", f"The browser cannot be started: {error}."))
            return
        words = "The browser's program did not start in time."
        self._limit.at(30.0, lambda: self._give_up("unavailable", words))

    def _send(self) -> None:
        turn, process = self._turn, self._process
        if turn is None or process is None:
            return
        self._number += 1
        process.send({"id": self._number, **turn[0]._asdict()})
        limit = turn[0].timeout + turn[0].start_seconds + 15.0
        words = "The browser did not react within its time limit and was ended; the next call starts it anew."
        self._limit.at(limit, lambda: self._give_up("timeout", words))

    def _received(self, message: HelperMessage) -> None:
        if "unavailable" in message:
            self.close()
            why = f"There is no browser in this sandbox: {message['unavailable']}. {_FIX}"
            self._answer(_result("unavailable", why))
        elif "ready" in message:
            self._is_ready = True
            self._send()
        elif message.get("id") == self._number:
            self._answer({**_result(message["result"]["status"], ""), **message["result"]})

    def _gone(self) -> None:
        words = self._process.last_words() if self._process is not None else ""
        self._process = None
        self._limit.cancel()
        if self._turn is not None:
            status = "crashed" if self._is_ready else "unavailable"
            why = f" Its last words: {words}" if words else ""
            anew = "; the next call starts it anew, without its pages, cookies and logins" if self._is_ready else ""
            self._answer(_result(status, f"The browser's program ended unexpectedly{anew}.{why}"))
        else:
            self._notice = "The browser had ended: it was started anew, its pages, cookies and logins are gone."

    def _give_up(self, status: str, words: str) -> None:
        self.close()
        self._answer(_result(status, words))

    def _answer(self, result: Dict[str, Any]) -> None:
        turn, self._turn = self._turn, None
        self._limit.cancel()
        if turn is None:
            return
        if self._notice:
            result["notices"], self._notice = [self._notice, *result["notices"]], ""
        order, request = turn
        request.finish(result)
        if self._turn is None:
            self._next()

        def idle() -> None:
            self.close()
            self._notice = "The browser had been idle and was closed: its pages, cookies and logins are gone."

        if self._turn is None and self._process is not None:
            self._limit.at(order.idle_seconds, idle)


def _result(status: str, error: str) -> Dict[str, Any]:
    texts = dict.fromkeys(("text", "url", "focused", "tree", "screenshot", "screenshot_path", "marks"), "")
    return {**texts, "status": status, "error": error, "notices": [], "downloads": [], "tabs": [], "active": -1}


def browser_order(args: Dict[str, Any]) -> BrowserOrder:
    """Check the arguments of ``browser.run`` (`BadRequestError`); the calls are the browser's to judge."""
    is_call = lambda one: (  # noqa: E731
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("args", {}), dict)
    )
    calls = args.get("calls")
    if not isinstance(calls, list) or not 0 < len(calls) <= _CALLS_LIMIT or not all(map(is_call, calls)):
        raise arguments.BadRequestError(
            f"calls must be a list of 1 to {_CALLS_LIMIT} objects with name and, if needed, args"
        )
    look = args.get("look") or {}
    if not isinstance(look, dict) or not all(isinstance(value, bool) for value in look.values()):
        raise arguments.BadRequestError("look must be an object of true and false")
    domains = args.get("allowed_domains")
    return BrowserOrder(
        calls=calls,
        look=look,
        timeout=arguments.seconds_or(args, "timeout", 300.0),
        start_seconds=arguments.seconds_or(args, "start_seconds", 30.0),
        navigation_seconds=arguments.seconds_or(args, "navigation_seconds", 30.0),
        idle_seconds=arguments.seconds_or(args, "idle_seconds", 1800.0),
        allowed_domains=[] if domains is None else arguments.texts(args, "allowed_domains"),
    )
