"""One server during a conversation: connected in the background, and again when its connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from agent_core.errors import DrydockError
from agent_core.mcp.client import (
    all_tools,
    connected,
    follow_changes,
    is_closed,
    is_refused_session,
    load,
    reason_of,
    was_reached,
)
from agent_core.mcp.config import McpServer
from agent_core.mcp.grants import Challenge, canonical
from agent_core.mcp.program import McpServerError, ProgramPlace
from agent_core.mcp.sign_in import SignIns
from agent_core.mcp.tool import McpTool, MCPToolObservation, failed_observation, observation_of, tool_of
from agent_core.spans import PRESENT

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

MAX_LINES: Final = 1_000
MAX_CHARS: Final = 500


def _progress_to(on_progress: Callable[[str], None]) -> ProgressFnT:
    """Turns a server's progress reports on one call into lines."""
    left, last = MAX_LINES, ""

    async def report(progress: float, total: float | None, message: str | None) -> None:
        nonlocal left, last
        done = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        line = f"[{done}] {' '.join((message or '').split())[:MAX_CHARS]}".rstrip()
        if line != last and left:
            left, last = left - 1, line
            on_progress(f"{line}\n")

    return report


CLOSE_SECONDS = 8.0
CANCEL_SECONDS = 2.0
REFRESH_PAUSE_SECONDS = 0.1
LET_GO_SECONDS = 0.1

UNKNOWN_EFFECT = (
    "the connection was lost before it answered, so it is unknown whether the call took effect; look before you repeat"
    " it. The next call connects again."
)

SIGN_IN_FIRST = "it wants its user to sign in first; the user is told how"


class Link:
    """One connection in a task of its own.

    `settled` is set when it is connected or has failed to; the server's time limit bounds that. `client` is None before
    it is connected and after it has ended; then `reason` has the words. `refusal` is what the server wanted instead of
    the token that it was shown, or why none could be shown, until somebody has taken it; `address` is where it is.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        prepare: Callable[[], Awaitable[McpServer]],
        programs: ProgramPlace,
        sign_ins: SignIns | None = None,
    ) -> None:
        self.client: Client | None = None
        self.tools: list[Any] = []
        self.reason = ""
        self.was_reached = True
        self.on_tools: Callable[[], None] = lambda: None
        self.refusal: Challenge | DrydockError | None = None
        self.address = ""
        self._server = server
        self._prepare = prepare
        self._programs = programs
        self._sign_ins = sign_ins
        self.settled = asyncio.Event()
        self._wake = asyncio.Event()
        self._is_changed = self._is_over = False
        self._limit: asyncio.Timeout | None = None
        self._task = asyncio.create_task(self._live(), name=f"mcp:{name}")

    async def close(self) -> None:
        """End it, and the program behind it, within a bounded time; calling it again is fine."""
        self._end("it was closed")
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(0)  # it is still connecting
        elif not self.settled.is_set():
            self._task.cancel()  # it waits for what it needs before it can
        _, late = await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        if late:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_SECONDS)

    def _end(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._is_over = True
        self._wake.set()

    def look_again(self) -> None:
        """Have the tools listed anew."""
        self._is_changed = True
        self._wake.set()

    def taken_refusal(self) -> Challenge | DrydockError | None:
        refusal, self.refusal = self.refusal, None
        return refusal

    def _refused(self, refusal: Challenge | DrydockError) -> None:
        self.refusal = self.refusal or refusal

    async def _live(self) -> None:
        limit = self._server.connect_seconds
        try:
            await load()  # once for a process, and no fault of the server's
            if self._server.kind == "stdio":
                await self._programs.ready()
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(limit) as self._limit:
                        server = await self._prepare()
                        self.address = canonical(server.url) if server.url is not None else ""
                        sign_ins = self._sign_ins if server.may_sign_in else None
                        auth = sign_ins.auth_for(server, self._refused) if sign_ins is not None else None
                        connecting = connected(
                            server, self._programs, on_change=self.look_again, on_end=self._end, auth=auth
                        )
                        client = await stack.enter_async_context(connecting)
                        self.tools = await all_tools(client)
                finally:
                    self._limit = None
                if not self._is_over:
                    self.client = client
                    self.settled.set()
                    self.on_tools()
                    await self._watch(client)
                self.client = None
        except TimeoutError:
            self.reason = self.reason or f"it was not ready within {limit:g} s"
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - whatever a server does, it is its failure
            self.was_reached = was_reached(error)
            self.reason = reason_of(error)
        finally:
            self.client = None
            self._is_over = True
            self.settled.set()

    async def _watch(self, client: Client) -> None:
        following = asyncio.create_task(follow_changes(client, self.look_again), name=self._task.get_name())
        try:
            while not self._is_over:
                await self._wake.wait()
                self._wake.clear()
                if self._is_changed and not self._is_over:
                    self._is_changed = False
                    with contextlib.suppress(McpServerError, TimeoutError):  # the old ones stay
                        async with asyncio.timeout(self._server.connect_seconds):
                            self.tools = await all_tools(client)
                        self.on_tools()
                    await asyncio.sleep(REFRESH_PAUSE_SECONDS)
        finally:
            following.cancel()
            await asyncio.wait([following])


class McpConnection:
    """One server: its tools, and the calls of them.

    `prepare` gives the server with its references expanded; `on_change` is told of all changes. `tools` stay when the
    connection is lost, since a call connects again; `left_out` says by name why others cannot be offered, and `failure`
    why the server could not be connected at first ("" if it could, or is not through with it). `wants_sign_in`: a
    person has to sign in at its `address` first.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        *,
        prepare: Callable[[McpServer], Awaitable[McpServer]],
        programs: ProgramPlace,
        on_change: Callable[[], None],
        sign_ins: SignIns | None = None,
    ) -> None:
        self.name = name
        self.server = server
        self.tools: list[McpTool] = []
        self.left_out: dict[str, str] = {}
        self.failure = ""
        self.wants_sign_in = False
        self._sign_ins = sign_ins
        self._prepare = prepare
        self._programs = programs
        self._on_change = on_change
        self._link: Link | None = None
        self._is_closed = False
        self._listed: list[Any] | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        # Protects the connection: of several calls that find it lost, one connects again.
        self._linking = asyncio.Lock()

    async def start(self) -> None:
        """Connect; returns when that has succeeded or failed, within the server's time limit."""
        try:
            await self._linked()
        except McpServerError as error:
            self.failure = "" if self.wants_sign_in else str(error)
            self._on_change()
        else:
            self.failure = ""
            await self._rest()

    @property
    def address(self) -> str:
        """Where it was connected last; empty for a program."""
        return self._link.address if self._link is not None else ""

    @property
    def is_connected(self) -> bool:
        return self._link is not None and self._link.client is not None

    def signed_in(self) -> None:
        """Somebody has signed in there: what it is shown is another token from now on."""
        self.wants_sign_in = False
        if self._link is not None:
            self._link.taken_refusal()
            self._link.look_again()

    async def call(
        self,
        tool: McpTool,
        shown: dict[str, Any],
        sent: dict[str, Any],
        limit_seconds: float | None,
        on_progress: Callable[[str], None],
    ) -> MCPToolObservation:
        """Call with the arguments `sent`, cancellably; the observation has `shown`, and `on_progress` hears of it."""
        limit = min(self.server.call_seconds, limit_seconds or self.server.call_seconds)
        try:
            result = await self._result(tool, sent, limit, on_progress)
        except McpServerError as error:
            return failed_observation(tool.name, shown, f"The MCP server {self.name!r} did not do it: {error}")
        finally:
            await self._rest()
        return observation_of(tool.name, shown, result)

    async def close(self) -> None:
        self._is_closed = True
        if self._link is not None:
            await self._link.close()
        if self._calls:  # they have nobody left who could answer
            await asyncio.wait(self._calls, timeout=CANCEL_SECONDS)

    async def _result(
        self, tool: McpTool, sent: dict[str, Any], limit: float, on_progress: Callable[[str], None]
    ) -> Any:
        for is_last in (False, True):
            link = await self._linked()
            client = link.client
            if client is None:  # lost in this moment
                continue
            try:
                async with asyncio.timeout(limit):
                    return await self._call(client, tool.remote_name, sent, on_progress)
            except TimeoutError:
                raise McpServerError(f"it did not answer within {limit:g} s; the call was cancelled") from None
            except Exception as error:
                if (refusal := link.taken_refusal()) is not None:
                    raise McpServerError(self._words_of(refusal)) from error
                is_refused = is_refused_session(error)
                if not is_refused and not is_closed(error):
                    raise McpServerError(reason_of(error)) from error
                await link.close()
                may_repeat = tool.annotations.readOnlyHint or tool.annotations.idempotentHint
                if is_last or not (is_refused or may_repeat or not link.was_reached):
                    raise McpServerError(UNKNOWN_EFFECT) from error
        raise McpServerError("its connection is lost again and again")

    async def _call(
        self, client: Client, name: str, arguments: dict[str, Any], on_progress: Callable[[str], None]
    ) -> Any:
        """The server's answer; when cancelled it lets the server know, but does not wait for one that does not read."""
        present = PRESENT.get()
        host = urlsplit(self.server.url or "").hostname or ""
        told: Any = None if present is None else present.headers_for(host) or None
        request = client.call_tool(name, arguments, progress_callback=_progress_to(on_progress), meta=told)
        calling = asyncio.create_task(request, name=f"mcp-call:{self.name}")
        self._calls.add(calling)
        calling.add_done_callback(self._calls.discard)
        calling.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to raise it
        try:
            return await asyncio.shield(calling)
        finally:
            if not calling.done():
                calling.cancel()
                await asyncio.wait([calling], timeout=LET_GO_SECONDS)

    async def _linked(self) -> Link:
        """An open connection; a lost one is made again, once. Raises `McpServerError`."""
        async with self._linking:
            if self._is_closed:
                raise McpServerError("the conversation with it is over")
            if self._link is not None:
                await self._link.settled.wait()
                if self._link.client is not None:
                    return self._link
                await self._link.close()
            prepare = partial(self._prepare, self.server)
            link = self._link = Link(self.name, self.server, prepare, self._programs, self._sign_ins)
            link.on_tools = lambda: self._take_tools(link)
            await link.settled.wait()
            if link.client is None:
                if (refusal := link.taken_refusal()) is not None:
                    raise McpServerError(self._words_of(refusal))
                raise McpServerError(link.reason or "it ended the connection")
            return link

    def _words_of(self, refusal: Challenge | DrydockError) -> str:
        if isinstance(refusal, DrydockError):
            return f"no token could be had for it: {refusal}"
        self.wants_sign_in = True
        self._on_change()
        return SIGN_IN_FIRST

    async def _rest(self) -> None:
        if not self.server.keep_alive and self._link is not None and not self._linking.locked():
            await self._link.close()

    def _take_tools(self, link: Link) -> None:
        if link is not self._link or link.tools == self._listed:
            return
        self._listed = link.tools
        self.tools, self.left_out = [], {}
        for remote in link.tools:
            try:
                lends = self.server.lends_secrets
                self.tools.append(tool_of(remote, server=self.name, call=self.call, lends_secrets=lends))
            except ValueError as error:
                self.left_out[str(remote.name)] = str(error)
        self._on_change()
