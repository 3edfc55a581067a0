"""One Docker engine: the SDK's calls in threads, with limits and our own errors, and execs as byte streams.

The start of an exec is an HTTP upgrade of our own: the SDK may have read the first bytes of the stream together with
the answer, and its TLS sockets cannot be handed on.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
import socket
import ssl
import struct
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from types import ModuleType
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakSet

from agent_core.errors import SandboxAwayError, SandboxError
from agent_core.runtime.call_threads import CallThreads
from agent_core.runtime.channel.runner_stream import RunnerStream
from agent_core.runtime.docker.docker_host import DockerHost, EngineTls
from agent_core.runtime.docker.heartbeat import EngineAddress, Heartbeat
from agent_core.runtime.docker.ssh_tunnel import SshTunnel

_HEADER = struct.Struct(">BxxxL")
_STDOUT = 1
_MAX_HEAD = 16 * 1024
_MAX_ERRORS = 4096
_GUESSING = "charset_normalizer"


class Demultiplexer:
    """Takes the headers out of an exec's stream, without I/O; keeps at most one partial header."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        pieces: list[tuple[int, bytes]] = []
        position = 0
        while position < len(data):
            if self._left:
                piece = data[position : position + self._left]
                position += len(piece)
                self._left -= len(piece)
                pieces.append((self._stream, piece))
                continue
            missing = _HEADER.size - len(self._header)
            self._header += data[position : position + missing]
            position += missing
            if len(self._header) == _HEADER.size:
                self._stream, self._left = _HEADER.unpack(self._header)
                self._header.clear()
        return pieces


class ExecStream(RunnerStream):
    """The connection of one exec: its answer, then what the process writes; `errors` keeps the last kilobytes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._head = bytearray()
        self._demultiplexer = Demultiplexer()
        self.upgraded: asyncio.Future[tuple[int, str]] = loop.create_future()
        self._passing = False

    def data_received(self, data: bytes) -> None:
        if not self._passing:
            data = self._read_head(data)
        for stream, piece in self._demultiplexer.feed(data):
            if stream == _STDOUT:
                super().data_received(piece)
            else:
                self.errors += piece
                del self.errors[:-_MAX_ERRORS]

    def eof_received(self) -> bool | None:
        self._hung_up()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._hung_up()
        super().connection_lost(exc)

    def _hung_up(self) -> None:
        if not self.upgraded.done():
            self.upgraded.set_result((0, "the engine closed the connection"))

    def _read_head(self, data: bytes) -> bytes:
        self._head += data
        head, found, rest = bytes(self._head).partition(b"\r\n\r\n")
        if not found and len(head) < _MAX_HEAD:
            return b""
        status_line = head.split(b"\r\n", 1)[0].split()
        status = int(status_line[1]) if len(status_line) > 1 and status_line[1].isdigit() else 0
        if not self.upgraded.done():
            self.upgraded.set_result(
                (status, rest.decode("utf-8", "replace")[:500] if status not in (101, 200) else "")
            )
        self._passing = status in (101, 200)
        self._head.clear()
        return rest if self._passing else b""


async def open_exec(address: EngineAddress, path: str, limit: float) -> ExecStream:
    """Start a created exec at `path`; raises `SandboxError` (``engine_unavailable``, or ``exec_refused``)."""
    loop = asyncio.get_running_loop()
    stream = ExecStream(loop)
    async with AsyncExitStack() as undo:
        try:
            async with asyncio.timeout(limit):
                if address.socket_path is not None:
                    await loop.create_unix_connection(lambda: stream, address.socket_path)
                else:
                    await loop.create_connection(lambda: stream, address.host, address.port, ssl=address.tls)
                undo.callback(stream.abort)
                body = json.dumps({"Detach": False, "Tty": False}).encode()
                stream.transport.write(
                    f"POST {path} HTTP/1.1\r\nHost: {address.host or 'docker'}\r\nContent-Type: application/json\r\n"
                    f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                status, words = await asyncio.shield(stream.upgraded)
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {limit:g} s"
            raise EngineUnavailableError(
                f"The Docker engine did not open a stream to the sandbox: {reason}.", ""
            ) from error
        if status not in (101, 200):
            raise SandboxError(
                f"The Docker engine refused a stream to the sandbox ({status}): {words.strip()}", code="exec_refused"
            )
        undo.pop_all()
    return stream


T = TypeVar("T")

_FIX = "Start it (for example: sudo systemctl start docker), or set DOCKER_HOST to one that runs."
CALL_SECONDS = 60.0
_ABANDON_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
"""After so long without an answer the engine is asked whether it is there at all, and again and again."""
_THREADS = 16
_MOST_UNDER_WAY = 256
"""Calls that may be under way or wait for a thread, among them those that a hanging engine never answers."""


UNAVAILABLE: Final = "engine_unavailable"


class EngineUnavailableError(SandboxError):
    """No Docker engine answers, or not in time (code ``engine_unavailable``)."""

    def __init__(self, message: str, fix: str = _FIX) -> None:
        super().__init__(message, code=UNAVAILABLE, fix=fix)


class HostAwayError(EngineUnavailableError, SandboxAwayError):
    """The Docker host of this name cannot be reached: what it has waits until it can."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"The Docker host {name!r} cannot be reached: {reason.rstrip('.')}.", "")
        self.reason = reason


class EngineRefusedError(SandboxError):
    """The engine's answer is an error: its HTTP `status`, and its own words as `explanation`."""

    def __init__(self, what: str, status: int, explanation: str) -> None:
        super().__init__(
            f"The Docker engine could not {what}: {explanation.strip().rstrip('.')}.", code="engine_refused"
        )
        self.status = status
        self.explanation = explanation


class DockerEngine:
    """Calls of the SDK in a few threads, and streams to execs on the event loop.

    `host` is as in DOCKER_HOST; None takes the environment's, then the local socket. `connect_seconds` bounds the first
    call, which finds out whether an engine answers, `CALL_SECONDS` the others, unless the caller names another limit.
    An engine that hangs fails them all within ten seconds, and the threads that it keeps are replaced once it is back.

    One of several has a `name`, and of the environment nothing counts for it. It fails with `HostAwayError` then, and
    at once as long as somebody has found that it is `lost`, which says why.
    """

    def __init__(
        self,
        host: str | None,
        connect_seconds: float,
        *,
        name: str = "",
        tls: EngineTls | None = None,
        ssh_config: str | None = None,
    ) -> None:
        self.name = name
        self.lost = ""
        self.full_at = -math.inf
        """When something new found no space on its disk last, by the monotonic clock."""
        self._host = host
        self._tls = tls
        self._tunnel = SshTunnel(host, ssh_config) if host is not None and host.startswith("ssh://") else None
        self._connect_seconds = connect_seconds
        self._threads = CallThreads(_THREADS, "docker")
        self._under_way: set[asyncio.Future[Any]] = set()
        self._streams = WeakSet[ExecStream]()
        self._connecting = asyncio.Lock()
        self._client: Any = None
        self._address: EngineAddress | None = None
        self._heartbeat: Heartbeat | None = None

    @classmethod
    def of_host(cls, host: DockerHost, connect_seconds: float) -> Self:
        """That of one of several hosts."""
        return cls(host.url, connect_seconds, name=host.name, tls=host.tls, ssh_config=host.ssh_config)

    def lose(self, reason: str) -> None:
        """It cannot be reached, for this reason: nothing is asked of it any more, and streams to its execs break."""
        self.lost = reason
        for stream in list(self._streams):
            stream.abort()

    @property
    def has_answered(self) -> bool:
        """Whether there ever was an engine."""
        return self._client is not None

    async def call(
        self,
        what: str,
        work: Callable[[Any], T],
        *,
        limit: float | None = None,
        on_abandon: Callable[[], None] | None = None,
    ) -> T:
        """Run `work` with the SDK's low-level client in a thread; `what` completes "could not …" in an error.

        The caller is let go after `limit` seconds. A cancelled one waits a while for a call under way, so that what it
        does is done before anything else is; `on_abandon` is called then, to let `work` end soon. Raises
        `EngineUnavailableError` or `EngineRefusedError`.
        """
        if self.lost:
            raise HostAwayError(self.name, self.lost)
        with self._told_by_name():
            return await self._call(what, work, limit or CALL_SECONDS, on_abandon)

    async def _call(
        self, what: str, work: Callable[[Any], T], limit: float, on_abandon: Callable[[], None] | None = None
    ) -> T:
        client = await self._connected()
        return await self._in_thread(
            what, functools.partial(_translated, what, work, client, self._where), limit, on_abandon
        )

    async def look(self, what: str, work: Callable[[Any], T], limit: float) -> T:
        """As `call`, also while it is `lost`, and first it is asked whether it is there: this is how that is found."""
        with self._told_by_name():
            await self._connected()
            await self._must_beat(what)
            return await self._call(what, work, limit)

    async def must_answer(self) -> None:
        """Raise `EngineUnavailableError` unless it gives a sign of life, within some seconds."""
        with self._told_by_name():
            await self._connected()
            await self._must_beat("ask whether it is there")

    async def call_unless(
        self, what: str, work: Callable[[Any], T], *statuses: int, limit: float | None = None
    ) -> T | None:
        """As `call`; None where the engine answers with one of these statuses, which are no failure."""
        try:
            return await self.call(what, work, limit=limit)
        except EngineRefusedError as error:
            if error.status not in statuses:
                raise
            return None

    async def open_exec(self, container: str, command: list[str], *, user: str, folder: str) -> ExecStream:
        created = await self.call(
            "create a stream to the sandbox",
            lambda client: client.exec_create(
                container, command, stdin=True, stdout=True, stderr=True, user=user, workdir=folder
            ),
        )
        assert self._address is not None  # noqa: S101 - set together with the client
        path = f"/v{self._client._version}/exec/{created['Id']}/start"
        opening = asyncio.create_task(open_exec(self._address, path, CALL_SECONDS))
        try:
            with self._told_by_name():
                await self._answered("open a stream to the sandbox", opening)
                self._streams.add(opening.result())
                return opening.result()
        except BaseException:
            opening.cancel()
            with suppress(asyncio.CancelledError, SandboxError):
                (await opening).abort()
            raise

    @property
    def is_of_this_host(self) -> bool:
        """Whether it is reached through a socket file of its own; False also before the first call."""
        return self._tunnel is None and self._address is not None and self._address.socket_path is not None

    async def settled(self, limit: float) -> None:
        """Wait until no call is under way, as long as the engine answers, for `limit` seconds at most."""
        if self._under_way and not (self._heartbeat is not None and self._heartbeat.is_silent):
            await asyncio.wait(self._under_way, timeout=max(0.0, limit))

    async def close(self) -> None:
        """Let go of the engine; a call under way that nobody waits for any more gets a moment for its end."""
        self._threads.close()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_CLOSE_SECONDS)
        if self._heartbeat is not None:
            await self._heartbeat.close()
        client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._tunnel is not None:
            await self._tunnel.close()

    @property
    def _where(self) -> str:
        return self._host or "" if self.name else os.environ.get("DOCKER_HOST", "")

    @contextmanager
    def _told_by_name(self) -> Iterator[None]:
        try:
            yield
        except SandboxError as error:
            if not self.name or error.code != UNAVAILABLE or isinstance(error, HostAwayError):
                raise
            reason = str(error).removesuffix(error.fix).strip().removeprefix("No Docker engine answers: ")
            if self._heartbeat is not None and self._heartbeat.is_silent:
                reason = self._heartbeat.problem
            raise HostAwayError(self.name, reason) from error

    async def _connected(self) -> Any:
        host = self._host
        if self._tunnel is not None:
            host = await self._tunnel.opened(self._connect_seconds)
        if self._client is None:
            async with self._connecting:
                if self._client is None:
                    limit, own = self._connect_seconds, bool(self.name)
                    tls, where = self._tls, self._where
                    work = functools.partial(
                        _translated, "answer", lambda host: connect(host, limit, named=own, tls=tls), host, where
                    )
                    client, address = await self._in_thread("connecting", work, limit + 1)
                    self._client, self._address, self._heartbeat = client, address, Heartbeat(address)
        if self._heartbeat is not None and self._heartbeat.is_silent:
            await self._must_beat("ask whether it is there")
            # The threads of before may be kept for ever.
            self._threads.close()
            self._threads = CallThreads(_THREADS, "docker")
        return self._client

    async def _in_thread(
        self, what: str, work: Callable[[], T], limit: float, on_abandon: Callable[[], None] | None = None
    ) -> T:
        if len(self._under_way) >= _MOST_UNDER_WAY:
            raise EngineUnavailableError(
                f"The Docker engine has {_MOST_UNDER_WAY} calls to answer yet ({what}).", "Try again in a moment."
            )
        call = self._threads.submit(work)
        future = asyncio.wrap_future(call)
        self._under_way.add(future)
        future.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(limit):
                await self._answered(what, future)
            return future.result()
        except TimeoutError:
            raise EngineUnavailableError(
                f"The Docker engine did not answer within {limit:g} s ({what}).",
                "Look at its log, and restart it if it hangs.",
            ) from None
        except asyncio.CancelledError:
            if on_abandon is not None:
                on_abandon()
            # What has not begun is never done; what has is waited for, as long as there is hope.
            if not call.cancel() and not (self._heartbeat is not None and self._heartbeat.is_silent):
                await asyncio.wait({future}, timeout=_ABANDON_SECONDS)
            raise
        finally:
            call.cancel()  # nobody waits for it any more

    async def _answered(self, what: str, future: asyncio.Future[Any]) -> None:
        """Wait until it is done; raises `EngineUnavailableError` as soon as the engine gives no sign of life."""
        while not (await asyncio.wait({future}, timeout=_PATIENCE_SECONDS))[0]:
            if self._heartbeat is not None:
                await self._must_beat(what, unless=future)

    async def _must_beat(self, what: str, *, unless: asyncio.Future[Any] | None = None) -> None:
        assert self._heartbeat is not None  # noqa: S101 - there is one once the engine has answered
        if await self._heartbeat.beats() or (unless is not None and unless.done()):
            return
        raise EngineUnavailableError(
            f"The Docker engine does not answer ({what}).", "Look at its log, and restart it if it hangs."
        )

    def _ended(self, call: asyncio.Future[Any]) -> None:
        self._under_way.discard(call)
        if not call.cancelled():
            call.exception()  # perhaps nobody waits any more


def connect(
    host: str | None, connect_seconds: float, *, named: bool = False, tls: EngineTls | None = None
) -> tuple[Any, EngineAddress]:
    """The SDK's low-level client, and where the engine is; blocks. Raises `OSError` or the SDK's errors.

    `named`: of the environment nothing counts.
    """
    _load_sdk()
    from docker.api.client import APIClient
    from docker.constants import DEFAULT_DOCKER_API_VERSION, MINIMUM_DOCKER_API_VERSION
    from docker.errors import DockerException, InvalidVersion
    from docker.tls import TLSConfig
    from docker.utils import kwargs_from_env, parse_host, version_lt

    options: dict[str, Any] = {} if named else dict(kwargs_from_env())
    if host is not None:
        options["base_url"] = host
    if tls is not None:
        pair = (tls.cert, tls.key) if tls.cert and tls.key else None
        options["tls"] = TLSConfig(client_cert=pair, ca_cert=tls.ca, verify=True)
    config = options.get("tls")
    address = _address(parse_host(options.get("base_url"), tls=bool(config)), config)
    if address.socket_path is not None:
        with socket.socket(socket.AF_UNIX) as probe:  # the SDK leaves its socket open when nobody listens
            probe.settimeout(connect_seconds)
            probe.connect(address.socket_path)
    # One probe for the API version per process; newer engines refuse old versions, so none is pinned.
    client = APIClient(version=DEFAULT_DOCKER_API_VERSION, timeout=connect_seconds, max_pool_size=_THREADS, **options)
    client.trust_env = not named
    if address.socket_path is not None:
        # By itself the SDK keeps connections by URL, so that it uses none again and leaves 25 open.
        adapter = client.get_adapter(client.base_url)
        pool_of = adapter.get_connection
        adapter.get_connection = lambda _url, proxies=None: pool_of(client.base_url, proxies)
    try:
        client._version = str(client.version(api_version=False)["ApiVersion"])
        if version_lt(client._version, MINIMUM_DOCKER_API_VERSION):
            raise InvalidVersion(f"its API is {client._version}, and {MINIMUM_DOCKER_API_VERSION} is the least")
    except (DockerException, LookupError, TypeError, ValueError, OSError) as error:
        client.close()
        raise _no_engine(error, options.get("base_url") or "the local socket") from error
    client.timeout = CALL_SECONDS
    client.trust_env = False
    return client, address


def _load_sdk() -> None:
    """Import the SDK, which takes a third of a second: only those who use Docker pay for it, in a thread.

    Its HTTP library does without what guesses the encoding of texts, which takes 3 MB: an engine says JSON in UTF-8.
    """
    if "docker" in sys.modules:
        return
    modules = cast(dict[str, ModuleType | None], sys.modules)
    is_hidden = _GUESSING not in modules
    if is_hidden:
        warnings.filterwarnings("ignore", "Unable to find acceptable character detection")
        modules[_GUESSING] = None
    try:
        import docker  # noqa: F401 - what is imported from it below is there then
    finally:
        if is_hidden:
            modules.pop(_GUESSING, None)


def _address(url: str, tls: Any) -> EngineAddress:
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        return EngineAddress(socket_path=parts.path)
    if parts.scheme not in ("http", "https"):
        raise EngineUnavailableError(
            f"DOCKER_HOST uses {parts.scheme}://, over which no stream can be opened.",
            "Use unix:// or tcp:// (an SSH tunnel that forwards the engine's socket works).",
        )
    context: ssl.SSLContext | None = None
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=tls.ca_cert if tls.verify else None)
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert:
            context.load_cert_chain(*tls.cert)
    return EngineAddress(host=parts.hostname or "localhost", port=parts.port or 2375, tls=context)


def _translated(what: str, work: Callable[[Any], T], client: Any, where: str) -> T:
    _load_sdk()
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    try:
        return work(client)
    except APIError as error:
        raise EngineRefusedError(what, error.status_code or 0, str(error.explanation or error)) from error
    except (DockerException, RequestException, OSError) as error:
        raise EngineUnavailableError(f"No Docker engine answers: {_root_cause(error, where)}.") from error


_OTHER_FIX = "Set DOCKER_HOST to a Docker engine that this server may use."


def _no_engine(error: Exception, where: str) -> EngineUnavailableError:
    """Why what was asked for its version is none that can be used, in words that tell silence from a wrong answer."""
    from docker.errors import APIError, InvalidVersion
    from requests.exceptions import RequestException

    chain = list(_causes(error))
    refusal = next((one for one in chain if isinstance(one, APIError)), None)
    if refusal is not None:
        words = f"{refusal.status_code}: {str(refusal.explanation).strip().rstrip('.')[:300]}"
        fix = "If it does not like the version of the API, update Docker, or this server."
        return EngineUnavailableError(
            f"No Docker engine answers: {where} refused to say its version ({words}).", f"{_OTHER_FIX} {fix}"
        )
    if isinstance(error, InvalidVersion):
        return EngineUnavailableError(f"The Docker engine at {where} is too old: {error}.", "Update Docker.")
    if isinstance(chain[-1], OSError) and not isinstance(chain[-1], RequestException):
        return EngineUnavailableError(f"No Docker engine answers: {_root_cause(error, where)}.")
    return EngineUnavailableError(f"No Docker engine answers: what is at {where} speaks like none.", _OTHER_FIX)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _root_cause(error: BaseException, where: str) -> str:
    *_, seen = _causes(error)
    if isinstance(seen, OSError) and seen.strerror:
        return f"{seen.strerror} ({where or 'the local socket'})"
    return str(seen).rstrip(".")[:300] or type(seen).__name__


def labels_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of a listed object (an engine leaves the key empty when there are none)."""
    return item.get("Labels") or {}


def refusal_of(error: Exception) -> int | None:
    """The status with which the engine has refused a call of the SDK; None: that is no refusal."""
    from docker.errors import APIError

    return error.status_code if isinstance(error, APIError) else None


def unless_gone(call: Callable[..., object], *args: object, also: Collection[int] = (), **options: object) -> None:
    """Make a call of the SDK whose object may be gone, going, in use, or as answered by one of `also`."""
    try:
        call(*args, **options)
    except Exception as error:
        if refusal_of(error) not in (404, 409, *also):
            raise
