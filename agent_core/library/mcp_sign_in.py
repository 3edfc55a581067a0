"""Signing in with MCP servers from a program: in the user's browser, once; the tokens are in a file of theirs."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import time
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from agent_core.errors import DrydockError
from agent_core.llm.profiles import HOME_VARIABLE
from agent_core.mcp.config import McpServer
from agent_core.mcp.grants import SIGN_IN_SECONDS, ServerSignIn, sign_in_id
from agent_core.mcp.oauth import SignInError
from agent_core.mcp.sign_in import SignIns

logger = logging.getLogger(__name__)

FILE_NAME: Final = "mcp-sign-ins.json"
CALLBACK: Final = "/callback"
ADVICE: Final = "call agent_core.sign_in_to_mcp_server with its address, once; then open the conversation again"
_HEAD_SECONDS: Final = 10.0
_ALONE_SECONDS: Final = 60.0
_MAX_LINES: Final = 200

TellUser = Callable[[str], object]


class SignInFileError(DrydockError):
    """The file with the sign-ins cannot be read or written; the message names it and the fix."""


class SignInFile:
    """A `SignInStore`: a file (``mcp-sign-ins.json`` in ``DRYDOCK_HOME`` or ``~/.drydock``), for the user alone."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        if path is None:
            path = Path(os.environ.get(HOME_VARIABLE, "").strip() or "~/.drydock") / FILE_NAME
        self.path = Path(path).expanduser()

    async def load(self, server: str) -> ServerSignIn | None:
        return await asyncio.to_thread(self._load, server)

    async def save(self, sign_in: ServerSignIn) -> None:
        await asyncio.to_thread(self._save, sign_in)

    def _load(self, server: str) -> ServerSignIn | None:
        found = self._read().get(sign_in_id(server))
        try:
            return None if found is None else ServerSignIn.model_validate(found)
        except ValueError:
            logger.warning("a sign-in in %s cannot be read, and counts as not there", self.path)
            return None

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """As `SignInStore` has it, but a program that hangs keeps the others for `_ALONE_SECONDS` only."""
        descriptor = self._opened(".renewing")
        try:
            end = time.monotonic() + _ALONE_SECONDS
            while time.monotonic() < end:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                await asyncio.sleep(0.02)
            yield
        finally:
            os.close(descriptor)

    def _save(self, sign_in: ServerSignIn) -> None:
        with self._locked():
            known = self._read() | {sign_in_id(sign_in.server): json.loads(sign_in.to_text())}
            part = self.path.with_suffix(".part")
            part.unlink(missing_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                json.dump(known, file)
            part.replace(self.path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One program at a time writes it."""
        descriptor = self._opened(".lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            os.close(descriptor)

    def _opened(self, suffix: str) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(self.path.with_suffix(suffix), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> SignInFileError:
        return SignInFileError(f"{self.path} cannot be written ({error.strerror or error}); see to its folder")

    def _read(self) -> dict[str, Any]:
        try:
            value = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise SignInFileError(f"{self.path} cannot be read: {error.strerror or error}") from None
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise SignInFileError(f"{self.path} is not what it was written as; remove it, and sign in again")
        return value


def user_sign_ins(path: str | os.PathLike[str] | None = None) -> SignIns:
    """The sign-ins of the user who runs this program."""
    return SignIns(SignInFile(path), advice=ADVICE)


def sign_in_to_mcp_server(
    server: str | McpServer, *, tell: TellUser = print, open_page: TellUser = webbrowser.open
) -> None:
    """Sign in with an MCP server at an address (OAuth 2.1): opens its page in a browser, and waits for its end.

    `tell` is told what to do, with the page's address; `open_page` opens it. Conversations of this user's programs use
    the tokens from then on, and renew them by themselves. A server may be given with its `auth` (``oauth2``), where a
    client was registered by hand. Raises `DrydockError` where it does not succeed within ten minutes.
    """
    asyncio.run(asign_in_to_mcp_server(server, tell=tell, open_page=open_page))


async def asign_in_to_mcp_server(
    server: str | McpServer, *, tell: TellUser = print, open_page: TellUser = webbrowser.open
) -> None:
    """`sign_in_to_mcp_server` for programs with a loop of their own."""
    config = McpServer(url=server) if isinstance(server, str) else server
    if not config.may_sign_in:
        raise SignInError("it is a program, or is shown a key: there is nothing to sign in to")
    sign_ins = user_sign_ins()
    async with _WayBack() as way_back:
        pending = await sign_ins.begin(config, redirect_uri=way_back.url)
        tell(f"Sign in with your browser, within {SIGN_IN_SECONDS / 60:g} minutes: {pending.url}")
        await asyncio.to_thread(open_page, pending.url)
        try:
            async with asyncio.timeout(SIGN_IN_SECONDS):
                answer = await way_back.answer(pending.state.get_secret_value())
        except TimeoutError:
            raise SignInError(f"nobody came back within {SIGN_IN_SECONDS / 60:g} minutes") from None
        try:
            await sign_ins.finish(pending, answer)
        except DrydockError as error:
            await way_back.show(f"The sign-in did not succeed: {error}.")
            raise
        await way_back.show("You are signed in. You can close this window, and go on in your program.")


class _WayBack:
    """Listens on this machine for the browser that comes back."""

    def __init__(self) -> None:
        self.url = ""
        self._state = ""
        self._came: asyncio.Future[tuple[dict[str, str], asyncio.StreamWriter]]
        self._came = asyncio.get_running_loop().create_future()
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> _WayBack:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{CALLBACK}"
        return self

    async def __aexit__(self, *details: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._writer is not None:
            self._writer.close()

    async def answer(self, state: str) -> dict[str, str]:
        """What the browser came back with that has this state; others are sent away."""
        self._state = state
        answer, self._writer = await self._came
        return answer

    async def show(self, text: str) -> None:
        """What the browser shows in the end."""
        if self._writer is not None:
            await _reply(self._writer, 200, text)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_kept = False
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                first = (await reader.readline()).decode("latin-1").split(" ")
                for _ in range(_MAX_LINES):
                    if not (await reader.readline()).strip():
                        break
            parts = urlsplit(first[1] if len(first) == 3 and first[0] == "GET" else "")
            answer = dict(parse_qsl(parts.query, keep_blank_values=True))
            if parts.path != CALLBACK or not self._state or answer.get("state") != self._state:
                await _reply(writer, 404, "There is nothing here.")
            elif not self._came.done():
                is_kept = True
                self._came.set_result((answer, writer))
            else:
                await _reply(writer, 400, "This sign-in was gone on with already.")
        except (OSError, TimeoutError, ValueError):
            pass  # whoever it was is gone, or spoke no HTTP
        finally:
            if not is_kept:
                writer.close()


async def _reply(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = f'<!doctype html><meta charset="utf-8"><title>Sign-in</title><p>{escape(text)}</p>'.encode()
    head = (
        f"HTTP/1.1 {status} \r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n\r\n"
    )
    with contextlib.suppress(OSError):
        writer.write(head.encode() + body)
        await writer.drain()
