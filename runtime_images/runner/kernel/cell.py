"""The cell that runs in a kernel: what it shows, kept with a bound, and what its asker is told."""

from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple

from ..core import arguments, processes
from ..core.loop import Loop
from ..core.request import Asker, Result
from ..terminal.output import BoundedText, LiveFeed
from ..terminal.terminal_text import TerminalText

IMAGES_LIMIT = 10
IMAGES_SIZE = 8 * 1024 * 1024
_CODE_LIMIT = 8 * 1024 * 1024
_CELL_OUTPUT_LIMIT = 64 * 1024
_UPDATES_LIMIT = 20
_NO_INPUT = "A cell cannot ask for input: put the value into the code."


class CellOrder(NamedTuple):
    """The checked arguments of one ``kernel.run``; times in seconds, ``max_output`` in characters."""

    code: str
    timeout: float = 120.0
    max_output: int = 30000
    env: Dict[str, str] = {}  # noqa: RUF012 - a NamedTuple's default, never changed
    init_code: str = ""


class Cell:
    """One cell and who has asked for it."""

    def __init__(self, loop: Loop, order: CellOrder, asker: Asker, number: int) -> None:
        self.order = order
        self.asker = asker
        self.number = number
        self.began = time.monotonic()
        self.ticks = processes.now_in_ticks()
        self.stopped_as = ""
        self.error = ""
        self.images: List[str] = []
        self.notices: List[str] = []
        self._images_left_out = 0
        self._updates: Dict[str, str] = {}
        self._clear_next = False
        self._feed = LiveFeed(loop, asker.live)
        self._begin_text()

    def take(self, message: Dict[str, Any]) -> None:
        """Take what the kernel shows (``kernel_driver.outputs``)."""
        if "clear" in message:
            self._clear_next = message["clear"] == "next"
            if not self._clear_next:
                self._clear()
            return
        if self._clear_next:
            self._clear_next = False
            self._clear()
        if "error" in message:
            self.error = message["error"]
            if self.stopped_as and self.error in ("KeyboardInterrupt", "CancelledError"):
                return  # that it was stopped is said in words
            if self.error == "StdinNotImplementedError":
                self.notices.append(_NO_INPUT)
        if "stream" in message:
            self._write(f"\n{message['stream']}" if self._is_behind_display else message["stream"])
        elif "omitted" in message:
            self._text.flush()
            self._transcript.leave_out(message["omitted"])
        elif "image" in message:
            self._take_image(message["image"])
        elif "too_large" in message:
            self._images_left_out += 1
        elif "update" in message:
            if message["update"] in self._updates or len(self._updates) < _UPDATES_LIMIT:
                self._updates[message["update"]] = message["text"]
        else:
            self._write_apart(message.get("display") or message.get("traceback") or "")

    def result(self, status: str, directory: str, python: str) -> Result:
        """End it; what ``kernel.run`` answers."""
        self._feed.close()
        for text in self._updates.values():
            self._write_apart(text)
        self._text.flush()
        cut = self._transcript.take()
        said = list(self.notices)
        if self._images_left_out:
            said.append(
                f"Pictures left out: {self._images_left_out}; of a cell at most {IMAGES_LIMIT} are shown, of at most"
                f" {IMAGES_SIZE // 1048576} MB in all."
            )
        return make_result(status, directory, python, cut.text, cut.omitted, self.images, said)

    def _begin_text(self) -> None:
        self._transcript = BoundedText(self.order.max_output)
        self._text = TerminalText(self._transcript.append)
        self._is_at_start = True
        self._is_behind_display = False

    def _clear(self) -> None:
        self._begin_text()
        self.images.clear()
        self._updates.clear()

    def _write(self, text: str) -> None:
        self._is_at_start = text.endswith("\n")
        self._is_behind_display = False
        self._text.feed(text)
        self._feed.append(text)

    def _write_apart(self, text: str) -> None:
        if text:
            self._write(text if self._is_at_start else f"\n{text}")
            self._is_behind_display = not self._is_at_start

    def _take_image(self, url: str) -> None:
        room = IMAGES_SIZE - sum(map(len, self.images))
        if len(self.images) < IMAGES_LIMIT and len(url) <= room:
            self.images.append(url)
        else:
            self._images_left_out += 1


def make_result(
    status: str,
    directory: str = "",
    python: str = "",
    output: str = "",
    omitted: int = 0,
    images: "List[str] | None" = None,
    said: "List[str] | None" = None,
) -> Result:
    """Return the result of ``kernel.run``."""
    return {
        "status": status,
        "output": output,
        "omitted": omitted,
        "images": images or [],
        "working_dir": directory,
        "python": python,
        "notice": " ".join(said or []),
    }


def cell_order(given: Dict[str, Any]) -> CellOrder:
    """Check the arguments of ``kernel.run``; what is wrong with the code is the kernel's to say.

    Raises:
        BadRequestError: one is missing, of the wrong type or out of its range.
    """
    return CellOrder(
        code=arguments.characters(given, "code", _CODE_LIMIT),
        timeout=arguments.seconds_or(given, "timeout", 120.0),
        max_output=arguments.integer(given, "max_output", 30000, 0, _CELL_OUTPUT_LIMIT),
        env=arguments.variables(given, "env"),
        init_code=arguments.text_or_none(given, "init_code") or "",
    )
