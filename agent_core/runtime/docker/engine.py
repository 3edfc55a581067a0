"""The Docker engine: the one place that uses its SDK, with a small pool of threads, limits and our own errors."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

from agent_core.errors import SandboxError
from agent_core.runtime.docker.exec_stream import EngineAddress, ExecStream, open_exec

T = TypeVar("T")

_FIX = "Start it (for example: sudo systemctl start docker), or set DOCKER_HOST to one that runs."
_ABANDON_SECONDS = 10.0


class EngineUnavailableError(SandboxError):
    """No Docker engine answers, or not in time (code ``engine_unavailable``)."""

    def __init__(self, message: str, fix: str = _FIX) -> None:
        super().__init__(message, code="engine_unavailable", fix=fix)


class EngineRefusedError(SandboxError):
    """The engine answered a call with an error.

    Attributes:
        status: its HTTP status.
        explanation: its own words.
    """

    def __init__(self, what: str, status: int, explanation: str) -> None:
        super().__init__(
            f"The Docker engine could not {what}: {explanation.strip().rstrip('.')}.", code="engine_refused"
        )
        self.status = status
        self.explanation = explanation


class DockerEngine:
    """One Docker engine: calls of the SDK in threads of its own, and streams to execs on the event loop.

    Args:
        host: address as in DOCKER_HOST; None takes the environment's, then the local socket.
        threads: most calls at the same time.
        call_seconds: limit of one call, unless the caller names another.
        connect_seconds: limit of the first call, which finds out whether an engine answers.
    """

    def __init__(
        self, host: str | None = None, *, threads: int = 8, call_seconds: float = 60.0, connect_seconds: float = 15.0
    ) -> None:
        self._host = host
        self._call_seconds = call_seconds
        self._connect_seconds = connect_seconds
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="docker")
        self._connecting = asyncio.Lock()
        self._client: Any = None
        self._address: EngineAddress | None = None

    async def call(
        self,
        what: str,
        work: Callable[[Any], T],
        *,
        limit: float | None = None,
        on_abandon: Callable[[], None] | None = None,
    ) -> T:
        """Run `work` with the SDK's low-level client in a thread.

        A cancelled caller waits a while for a call under way, so that what it does is done before anything else is.

        Args:
            what: completes "could not …" in an error.
            work: the call; must not touch the event loop.
            limit: seconds until the caller is let go; the thread ends by the client's own limit.
            on_abandon: called when nobody waits for the result any more, to let `work` end soon.

        Raises:
            EngineUnavailableError: no answer.
            EngineRefusedError: an answer that is an error.
        """
        client = await self._connected()
        bound = functools.partial(_translated, what, work, client)
        return await self._in_thread(what, bound, limit or self._call_seconds, on_abandon)

    async def open_exec(
        self, container: str, command: list[str], *, user: str, folder: str
    ) -> tuple[ExecStream, asyncio.Transport]:
        """Start a process in a running container with its standard streams on a connection of its own."""
        created = await self.call(
            "create a stream to the sandbox",
            lambda client: client.exec_create(
                container, command, stdin=True, stdout=True, stderr=True, user=user, workdir=folder
            ),
        )
        assert self._address is not None  # noqa: S101 - set together with the client
        path = f"/v{self._client._version}/exec/{created['Id']}/start"
        return await open_exec(self._address, path, self._call_seconds)

    async def close(self) -> None:
        """Let go of connections and threads; calls under way end by their limits."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _connected(self) -> Any:
        if self._client is None:
            async with self._connecting:
                if self._client is None:
                    connect = functools.partial(_connect, self._host, self._connect_seconds, self._call_seconds)
                    work = functools.partial(_translated, "answer", lambda _: connect(), None)
                    self._client, self._address = await self._in_thread("connecting", work, self._connect_seconds + 1)
        return self._client

    async def _in_thread(
        self, what: str, work: Callable[[], T], limit: float, on_abandon: Callable[[], None] | None = None
    ) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(_retrieve)
        try:
            async with asyncio.timeout(limit):
                return await asyncio.shield(future)
        except TimeoutError:
            raise EngineUnavailableError(
                f"The Docker engine did not answer within {limit:g} s ({what}).",
                "Look at its log, and restart it if it hangs.",
            ) from None
        except asyncio.CancelledError:
            if on_abandon is not None:
                on_abandon()
            await asyncio.wait({future}, timeout=_ABANDON_SECONDS)
            raise


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Look at the outcome of a call that perhaps nobody waits for any more."""
    if not future.cancelled():
        future.exception()


def _connect(host: str | None, connect_seconds: float, call_seconds: float) -> tuple[Any, EngineAddress]:
    # The SDK takes a third of a second to import; only those who use Docker pay for it, in a thread.
    from docker.api.client import APIClient
    from docker.utils import kwargs_from_env, parse_host

    options: dict[str, Any] = dict(kwargs_from_env())
    if host is not None:
        options["base_url"] = host
    tls = options.get("tls")
    address = _address(parse_host(options.get("base_url"), tls=bool(tls)), tls)
    if address.socket_path is not None:
        with socket.socket(socket.AF_UNIX) as probe:  # the SDK leaves its socket open when nobody listens
            probe.settimeout(connect_seconds)
            probe.connect(address.socket_path)
    # One probe for the API version per process; newer engines refuse old versions, so none is pinned.
    client = APIClient(version="auto", timeout=connect_seconds, max_pool_size=16, **options)
    client.timeout = call_seconds
    client.trust_env = False
    return client, address


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


def _translated(what: str, work: Callable[[Any], T], client: Any) -> T:
    """Run `work` and turn the SDK's exceptions into ours."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    try:
        return work(client)
    except APIError as error:
        raise EngineRefusedError(what, error.status_code or 0, str(error.explanation or error)) from error
    except (DockerException, RequestException, OSError) as error:
        raise EngineUnavailableError(f"No Docker engine answers: {_root_cause(error)}.") from error


def _root_cause(error: BaseException) -> str:
    """The innermost reason, which names the socket's trouble rather than the layers above it."""
    seen: BaseException = error
    while True:
        inner = seen.__cause__ or seen.__context__
        if inner is None or inner is seen:
            break
        seen = inner
    if isinstance(seen, OSError) and seen.strerror:
        where = os.environ.get("DOCKER_HOST") or "the local socket"
        return f"{seen.strerror} ({where})"
    return str(seen).rstrip(".")[:300] or type(seen).__name__


def labels_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of a listed container, volume or network (an engine leaves the key empty when there are none)."""
    return item.get("Labels") or {}


def unless_gone(call: Callable[..., object], *args: object, also: Collection[int] = (), **options: object) -> None:
    """Make a call of the SDK (in a thread) that may find its object gone, going, or in use by something else.

    `also`: further answers of the engine that mean no harm.
    """
    from docker.errors import APIError

    try:
        call(*args, **options)
    except APIError as error:
        if error.status_code not in (404, 409, *also):
            raise


@contextlib.contextmanager
def ignoring(*statuses: int) -> Iterator[None]:
    """Take these answers of the engine as success: what was asked for is already so."""
    try:
        yield
    except EngineRefusedError as error:
        if error.status not in statuses:
            raise
