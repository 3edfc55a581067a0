"""A model server that answers at once, as a process of its own: its first line of output is its base URL."""

from __future__ import annotations

import argparse
import asyncio
import signal
from dataclasses import replace

from agent_core.testing.model_server import ModelRequest, ModelServer, Script
from agent_core.testing.model_turns import Turn, call, finish, say

_STEP_TEXTS = 1024
_GIST = say("The steps so far.")
_READY = say("Ready.")


def _steps(command_seconds: float) -> tuple[Turn, ...]:
    before = f"sleep {command_seconds:g}; " if command_seconds else ""
    return tuple(
        call("terminal", {"command": f"{before}echo step {number}", "security_risk": "LOW"})
        for number in range(_STEP_TEXTS)
    )


def results_since_user(content: bytes) -> int:
    """How many tool results stand after the last user message of a request; counted without parsing."""
    space = b" " if b'"role": ' in content[:4096] else b""
    start = content.rfind(b'"role":' + space + b'"user"')
    return content.count(b'"role":' + space + b'"tool"', max(start, 0))


def instant(request: ModelRequest) -> Turn:
    """Answers every request with a short text."""
    del request
    return _READY


def echo_steps(count: int, command_seconds: float = 0.0) -> Script:
    """A script that runs `count` commands ``echo step N`` after each user message, one per turn, then finishes.

    Each command sleeps first, where `command_seconds` says so.

    A request without tools, for a summary or a title, is answered by a few words.
    """

    steps = _steps(command_seconds)

    def script(request: ModelRequest) -> Turn:
        if b'"tools":' not in request.content:
            return _GIST
        done = results_since_user(request.content)
        return steps[done % _STEP_TEXTS] if done < count else finish(f"{count} steps done.")

    return script


def thinking(script: Script, seconds: float) -> Script:
    """The same, with so much time before each answer."""
    if not seconds:
        return script
    return lambda request: replace(script(request), delay=seconds)


def named(name: str, command_seconds: float = 0.0) -> Script:
    """The script of that name: ``instant`` or ``steps:N``.

    Raises:
        ValueError: there is no such script.
    """
    if name == "instant":
        return instant
    kind, _, count = name.partition(":")
    if kind == "steps" and count.isdigit():
        return echo_steps(int(count), command_seconds)
    raise ValueError(f"no script named {name!r}: use instant or steps:N")


async def _serve(script: Script) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with ModelServer(script, keep_requests=1) as server:
        print(server.url, flush=True)
        await stop.wait()


def main() -> None:
    """Serve a named script until interrupted; the first line of the output is the base URL."""
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible model server on loopback.")
    parser.add_argument("--script", default="instant", help="instant, or steps:N")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--command-seconds", type=float, default=0.0, help="for how long each command of a step sleeps")
    options = parser.parse_args()
    script = named(options.script, options.command_seconds)
    asyncio.run(_serve(thinking(script, options.delay)))


if __name__ == "__main__":
    main()
