"""Runs a script that puts sub-agents to work: the program in the sandbox (Python 3.8 or newer, nothing of ours).

It speaks JSON, a line each, with the server, which sends the text of this module to the sandbox and never runs it
itself. It is told ``{"script": text}`` first, says ``{"ask": n, "prompt": text, "type": kind}``, and is answered
``{"answer": n, "text": text}`` or ``{"answer": n, "error": text}``. It may say ``{"cancel": n}`` and
``{"print": text}``, and ends with ``{"done": the result as JSON text}`` or ``{"failed": why}``.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import itertools
import json
import linecache
import os
import sys
import threading
import traceback
from typing import Any, BinaryIO

NAME = "<script>"
FUNCTION = "workflow"
MAX_PROMPT = 100_000
MAX_RESULT = 200_000
MAX_REASON = 10_000
PIECE = 8_000


class AgentError(Exception):
    """A sub-agent did not do what it was asked; says why."""


class Speech:
    """Says things to the server; any thread may."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = threading.Lock()

    def say(self, message: dict[str, Any]) -> None:
        """Send one line."""
        data = json.dumps(message).encode() + b"\n"
        with self._turn:
            while data:
                data = data[os.write(self._descriptor, data) :]


class Printing(io.TextIOBase):
    """The script's standard output: tells the server whole lines."""

    def __init__(self, speech: Speech) -> None:
        super().__init__()
        self._speech = speech
        self._turn = threading.Lock()
        self._text = ""

    def writable(self) -> bool:
        """Return that it is."""
        return True

    def write(self, text: str) -> int:
        """Take a text; it is told at the end of its line."""
        with self._turn:
            self._text += text
            is_due = "\n" in text or len(self._text) > PIECE
        if is_due:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Tell what there is."""
        with self._turn:
            text, self._text = self._text, ""
            for begin in range(0, len(text), PIECE):
                self._speech.say({"print": text[begin : begin + PIECE]})


class Asking:
    """Asks the server for sub-agents, and hands the answers to whoever waits for them."""

    def __init__(self, speech: Speech, loop: asyncio.AbstractEventLoop) -> None:
        self._speech = speech
        self._loop = loop
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[str]] = {}

    async def agent(self, prompt: str, subagent_type: str = "general-purpose") -> str:
        """Have a sub-agent do something, and return its last word; raises AgentError where it fails."""
        if not isinstance(prompt, str) or not isinstance(subagent_type, str):
            raise TypeError("agent(prompt, subagent_type): both must be text")
        if len(prompt) > MAX_PROMPT:
            raise ValueError(f"the prompt has {len(prompt)} characters; at most {MAX_PROMPT} are allowed: use a file")
        number = next(self._numbers)
        answer: asyncio.Future[str] = self._loop.create_future()
        self._waiting[number] = answer
        self._speech.say({"ask": number, "prompt": prompt, "type": subagent_type[:1000]})
        try:
            return await answer
        except asyncio.CancelledError:
            self._speech.say({"cancel": number})
            raise
        finally:
            del self._waiting[number]

    def listen(self, source: BinaryIO) -> None:
        """Read the answers, in a thread of its own; without a server there is nobody to work for."""
        for line in source:
            try:
                self._loop.call_soon_threadsafe(self._answered, json.loads(line))
            except RuntimeError:  # the script has ended
                return
        os._exit(1)

    def _answered(self, message: dict[str, Any]) -> None:
        waiting = self._waiting.get(message["answer"])
        if waiting is None or waiting.done():
            return
        if "error" in message:
            waiting.set_exception(AgentError(message["error"]))
        else:
            waiting.set_result(message["text"])


def outcome(script: str, speech: Speech, source: BinaryIO) -> dict[str, str]:
    """Run the script; the last thing to be said."""
    linecache.cache[NAME] = (len(script), None, script.splitlines(True), NAME)
    module: dict[str, Any] = {"__name__": NAME, "asyncio": asyncio, "AgentError": AgentError}
    try:
        exec(compile(script, NAME, "exec", dont_inherit=True), module)  # noqa: S102 - what this program is for
        function = module.get(FUNCTION)
        if not inspect.iscoroutinefunction(function):
            return {"failed": f"The script must define `async def {FUNCTION}(agent)`."}
        result = asyncio.run(carry_out(function, speech, source))
    except BaseException as error:  # noqa: BLE001 - the end of a script is told, whatever it is
        return {"failed": told(error)}
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return {
            "failed": f"What the function returned is no JSON: {error}. Return texts, numbers, lists, dictionaries."
        }
    if len(text) > MAX_RESULT:
        why = f"What the function returned has {len(text)} characters as JSON; at most {MAX_RESULT} are allowed."
        return {"failed": f"{why} Write it to a file, and return the file's name."}
    return {"done": text}


async def carry_out(function: Any, speech: Speech, source: BinaryIO) -> Any:
    """Run the function of the script, with answers to what it asks."""
    asking = Asking(speech, asyncio.get_running_loop())
    threading.Thread(target=asking.listen, args=(source,), daemon=True).start()
    return await function(asking.agent)


def told(error: BaseException) -> str:
    """Return the traceback without the lines of this program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error.with_traceback(trace), trace)
    return "".join(lines).strip()[-MAX_REASON:]


def main() -> None:
    """Speak over what were the standard input and output; the script has others."""
    source, speech = os.fdopen(os.dup(0), "rb"), Speech(os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.path.append(os.getcwd())  # last: what lies in the workspace takes no library's place
    printing = Printing(speech)
    sys.stdout = printing
    last = outcome(json.loads(source.readline())["script"], speech, source)
    printing.flush()
    speech.say(last)
    os._exit(0)  # whatever threads the script has left


if __name__ == "__main__":
    main()
