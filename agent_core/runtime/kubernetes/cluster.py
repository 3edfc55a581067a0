"""One namespace of a Kubernetes cluster: calls, watches and execs, with limits and our own errors.

The only module that imports the client. It is asked for paths and gets objects as they are in JSON: its generated
classes would say nothing more, and its resources of other groups have none.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from agent_core.errors import SandboxError
from agent_core.runtime.kubernetes.exec_stream import PROTOCOLS, PodStream, PodTransport
from agent_core.runtime.workspace_archive import WritableFile

logger = logging.getLogger(__name__)

CALL_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 10.0
_HEARTBEAT_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 120.0
_RELOAD_SECONDS: Final = 60.0
_MOST_WAITS: Final = 8
_LONGEST_WAIT: Final = 10.0
_MOST_BYTES: Final = 64 * 1024**2
_PAGE: Final = 500
_EXPIRED: Final = 410
_MOST_AT_ONCE: Final = 100
_WORDS: Final = 1000
_AUTH: Final = ["BearerToken"]
_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_FIX: Final = "Is it up, and does this machine reach it? To find out: kubectl get --raw /version"
_NOT_INSTALLED: Final = "Install it: pip install 'drydock[kubernetes]'"


class ClusterUnavailableError(SandboxError):
    """No API server answers, or not in time (code ``engine_unavailable``)."""

    def __init__(self, message: str, fix: str = _FIX) -> None:
        super().__init__(message, code="engine_unavailable", fix=fix)


class ClusterRefusedError(SandboxError):
    """The API server's answer is an error: its HTTP `status`, and its own words as `explanation`."""

    def __init__(self, what: str, status: int, explanation: str) -> None:
        words = explanation.strip().rstrip(".")[:_WORDS]
        code, text, fix = "engine_refused", f"The cluster could not {what}: {words}.", ""
        if status == 401:
            code, text = "cluster_forbidden", f"The cluster does not know who this server is (to {what}): {words}."
            fix = "Mend the credentials in its kubeconfig, or give its pod a service account."
        elif status == 403 and "exceeded quota" in words:
            code, text = "quota_exceeded", f"The namespace's quota leaves no room (to {what}): {words}."
            fix = "Delete conversations, or have the quota raised: kubectl describe resourcequota"
        elif status == 403 and "violates PodSecurity" in words:
            text = f"The namespace's security level does not admit the sandbox: {words}."
            fix = "Sandboxes keep to the level `restricted`, unless their settings give them more."
        elif status == 403:
            code, text = "cluster_forbidden", f"The cluster does not let this server {what}: {words}."
            fix = "Give its account the rights that docs/kubernetes.md lists."
        super().__init__(text, code=code, fix=fix)
        self.status = status
        self.explanation = words


class ExecRefusedError(SandboxError):
    """No exec could be opened in a pod that runs (code ``exec_refused``)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="exec_refused")


class _Library:
    """The used part of the client. Constructing it blocks: its import takes a second, and some memory."""

    def __init__(self) -> None:
        import aiohttp
        from kubernetes_asyncio import client, config

        self.aiohttp = aiohttp
        self.client = client
        self.config = config
        self.failures = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


class Cluster:
    """Where sandboxes are made; nothing is connected, nor imported, before the first call.

    `context` is one of the kubeconfig (empty: its current one, or in a pod that pod's service account); `namespace`
    empty is the context's, the pod's, or ``default``.
    """

    def __init__(self, context: str = "", namespace: str = "") -> None:
        self._context = context
        self._wanted = namespace
        self._namespace = ""
        self._library: _Library | None = None
        self._client: Any = None
        self._connecting = asyncio.Lock()
        self._streams: set[PodTransport] = set()
        self._replaced: list[Any] = []
        self._made_at = 0.0
        self.has_answered = False
        self.where = ""

    @property
    def namespace(self) -> str:
        """Known after the first call."""
        return self._namespace

    async def path(self, kind: str, name: str = "", *more: str, group: str = "") -> str:
        """The path of the namespace's objects of a kind, such as ``pods``, or of one of them."""
        await self._connected()
        root = f"/apis/{group}" if group else "/api/v1"
        parts = [root, "namespaces", self._namespace, kind, *([quote(name)] if name else []), *more]
        return "/".join(parts)

    async def call(
        self,
        what: str,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        limit: float = CALL_SECONDS,
    ) -> dict[str, Any]:
        """The answer, in JSON; `what` completes "could not …" in an error.

        Where the server is too busy (429) it is asked again when it says. Raises `ClusterUnavailableError` or
        `ClusterRefusedError`.
        """
        try:
            async with asyncio.timeout(limit):
                for left in reversed(range(_MOST_WAITS)):
                    status, headers, data = await self._asked(what, method, path, body, query)
                    if status != 429 or not left:
                        break
                    await asyncio.sleep(_wait_of(headers.get("Retry-After", "")))
        except TimeoutError:
            raise ClusterUnavailableError(
                f"The API server {self.where} did not answer within {limit:g} s ({what})."
            ) from None
        found = _decoded(data)
        if 200 <= status < 300:
            self.has_answered = True
            return found
        words = str(found.get("message") or data[:_WORDS].decode("utf-8", "replace") or f"status {status}")
        if status >= 500 or status == 429:
            raise ClusterUnavailableError(f"The API server {self.where} could not {what} ({status}): {words.strip()}.")
        self.has_answered = True
        if status == 401:
            self._forget()
        raise ClusterRefusedError(what, status, words)

    async def call_unless(
        self, what: str, method: str, path: str, *statuses: int, **options: Any
    ) -> dict[str, Any] | None:
        """As `call`; None where the answer is one of these statuses, which are no failure."""
        try:
            return await self.call(what, method, path, **options)
        except ClusterRefusedError as error:
            if error.status not in statuses:
                raise
            return None

    async def items(self, what: str, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """All objects that there are, asked for page by page; anew where that took longer than the server remembers."""
        for left in reversed(range(_MOST_WAITS)):
            found: list[dict[str, Any]] = []
            page: dict[str, str] = {}
            try:
                while True:
                    answer = await self.call(what, "GET", path, query={**query, "limit": str(_PAGE), **page})
                    found += answer.get("items") or ()
                    if not (following := str((answer.get("metadata") or {}).get("continue") or "")):
                        return found
                    page = {"continue": following}
            except ClusterRefusedError as error:
                if error.status != _EXPIRED or not left:
                    raise
        raise AssertionError("unreachable")

    async def watch(
        self, what: str, path: str, *, query: Mapping[str, str], seconds: float
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """``(type, object)`` of each event, for so long at most; ends early where the server wants to be asked anew."""
        library, client = await self._connected()
        order = {**query, "watch": "true", "timeoutSeconds": str(max(1, round(seconds)))}
        limit = library.aiohttp.ClientTimeout(total=seconds + _CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS)
        try:
            response = await client.call_api(
                path,
                "GET",
                query_params=list(order.items()),
                auth_settings=_AUTH,
                _preload_content=False,
                _request_timeout=limit,
            )
            async with response:
                if response.status in (429, 500, 502, 503, 504, 410):
                    return
                if response.status != 200:
                    raise ClusterRefusedError(what, response.status, _words_of(await response.content.read(_WORDS)))
                async for line in response.content:
                    event = _decoded(line)
                    if event.get("type") in (None, "ERROR"):  # 410: what it was asked from is too old
                        return
                    yield str(event["type"]), dict(event.get("object") or {})
        except library.failures as error:
            logger.debug("a watch ended: %s", error)

    async def open_exec(self, pod: str, container: str, command: Sequence[str]) -> PodStream:
        """Start a command in a container, and the stream to it; raises as `call` does, or `ExecRefusedError`."""
        socket = await self._exec(pod, container, command, has_input=True)
        stream = PodStream(asyncio.get_running_loop())
        transport = PodTransport(socket, stream)
        self._streams.add(transport)
        transport.task.add_done_callback(lambda _: self._streams.discard(transport))
        return stream

    async def run(
        self, pod: str, container: str, command: Sequence[str], *, limit: float, file: WritableFile | None = None
    ) -> tuple[int, bytes, str]:
        """Run a command: its exit code, what it printed (or nothing, where it goes into `file`), its last errors."""
        socket = await self._exec(pod, container, command, has_input=False)
        stream = PodStream(asyncio.get_running_loop())
        printed = bytearray()
        try:
            async with asyncio.timeout(limit):
                while True:
                    async with asyncio.timeout(_SILENT_SECONDS):
                        message = await socket.receive()
                    if message.type not in (1, 2):
                        break
                    channel, piece = stream.received(message.data)
                    if channel == 1 and file is not None:
                        await asyncio.to_thread(file.write, piece)
                    elif channel == 1:
                        printed += piece
                        if len(printed) > _MOST_BYTES:
                            raise ExecRefusedError("A command in the sandbox prints without end.")
                    if stream.exit_code is not None:
                        break
        except TimeoutError:
            most = f"{limit:g} s, or said nothing for {_SILENT_SECONDS:g} s"
            raise ExecRefusedError(f"A command in the sandbox did not end within {most}.") from None
        finally:
            with suppress(Exception):
                await socket.close()
        if stream.exit_code is None:
            raise ExecRefusedError("The stream of a command in the sandbox broke off.")
        return stream.exit_code, bytes(printed), stream.errors.decode("utf-8", "replace").strip()

    async def close(self) -> None:
        """Let go of the cluster; what runs in it goes on."""
        streams = set(self._streams)
        for transport in streams:
            transport.abort()
        if streams:
            await asyncio.wait({transport.task for transport in streams}, timeout=_CLOSE_SECONDS * 2)
        if self._client is not None:
            self._replaced.append(self._client)
            self._client = None
        while self._replaced:
            await self._replaced.pop().close()

    async def _exec(self, pod: str, container: str, command: Sequence[str], *, has_input: bool) -> Any:
        library, client = await self._connected()
        order = [
            *(("container", container), ("stdin", str(has_input).lower()), ("stdout", "true"), ("stderr", "true")),
            *(("command", word) for word in command),
        ]
        path = await self.path("pods", pod, "exec")
        headers: dict[str, str] = {}
        try:
            await client.update_params_for_auth(headers, None, _AUTH)
            connecting = client.rest_client.pool_manager.ws_connect(
                f"{client.configuration.host}{path}?{urlencode(order)}",
                protocols=PROTOCOLS,
                headers=headers,
                heartbeat=_HEARTBEAT_SECONDS,
                timeout=library.aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
                max_msg_size=0,
                proxy=client.rest_client.proxy,
                server_hostname=client.rest_client.server_hostname,
            )
            async with asyncio.timeout(CALL_SECONDS):
                socket = await connecting
        except library.aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise ClusterRefusedError("enter the sandbox (pods/exec)", error.status, error.message) from error
            raise ExecRefusedError(f"The cluster refused a stream to the sandbox ({error.status}).") from error
        except library.failures as error:
            raise self._silent("open a stream to the sandbox", error) from error
        if socket.protocol not in PROTOCOLS:
            await socket.close()
            raise ExecRefusedError("The cluster speaks no version of exec streams that is known here.")
        return socket

    async def _asked(
        self, what: str, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, str] | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        library, client = await self._connected()
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        try:
            response = await client.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=_AUTH,
                _preload_content=False,
                _request_timeout=library.aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=_CONNECT_SECONDS),
            )
            async with response:
                data = bytearray()
                async for piece in response.content.iter_any():
                    data += piece
                    if len(data) > _MOST_BYTES:
                        raise ClusterUnavailableError(f"The API server {self.where} answers without end ({what}).")
                return int(response.status), response.headers, bytes(data)
        except library.failures as error:
            raise self._silent(what, error) from error

    def _silent(self, what: str, error: Exception) -> ClusterUnavailableError:
        words = str(error).strip().rstrip(".")[:300] or "it took too long"
        return ClusterUnavailableError(f"No API server answers at {self.where} ({what}): {words}.")

    async def _connected(self) -> tuple[_Library, Any]:
        library, client = self._library, self._client
        if library is None or client is None:
            async with self._connecting:
                if self._library is None:
                    try:
                        self._library = await asyncio.to_thread(_Library)
                    except ImportError as error:
                        raise ClusterUnavailableError(
                            f"The client for Kubernetes is not installed ({error.name}).", _NOT_INSTALLED
                        ) from error
                library = self._library
                if self._client is None:
                    self._client = await self._made(library)
                client = self._client
        return library, client

    async def _made(self, library: _Library) -> Any:
        configuration = library.client.Configuration()
        try:
            namespace = await self._configure(library, configuration)
        except Exception as error:
            where = os.environ.get("KUBECONFIG") or "~/.kube/config"
            raise ClusterUnavailableError(
                f"The way to the cluster is not known: {str(error).strip().rstrip('.')}.",
                f"Have a kubeconfig in {where} (KUBECONFIG names another file), or run this server in a pod.",
            ) from error
        self._made_at = time.monotonic()
        configuration.connection_pool_maxsize = _MOST_AT_ONCE
        self.where = str(configuration.host)
        self._namespace = self._wanted or namespace or "default"
        client = library.client.ApiClient(configuration)
        client.user_agent = "drydock"
        return client

    async def _configure(self, library: _Library, configuration: Any) -> str:
        """Fill it in; returns the namespace that goes with it."""
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
        if in_pod and not self._context and "KUBECONFIG" not in os.environ:
            library.config.load_incluster_config(client_configuration=configuration)
            with suppress(OSError):
                return _OWN_NAMESPACE.read_text("utf-8").strip()
            return ""
        file = os.environ.get("KUBECONFIG")  # the client has looked at it when it was imported
        context = self._context or None
        await library.config.load_kube_config(file, context, configuration, persist_config=False)
        contexts, current = library.config.list_kube_config_contexts(file)
        named = next((one for one in contexts if one["name"] == context), current)
        return str((named or {}).get("context", {}).get("namespace") or "")

    def _forget(self) -> None:
        """Have the credentials read anew, which may have been replaced since, but not again and again."""
        if self._client is not None and time.monotonic() - self._made_at > _RELOAD_SECONDS:
            self._replaced.append(self._client)  # others may wait for its answers yet
            self._client = None


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _words_of(data: bytes) -> str:
    return str(_decoded(data).get("message") or data.decode("utf-8", "replace"))


def _wait_of(retry_after: str) -> float:
    return min(_LONGEST_WAIT, float(retry_after)) if retry_after.isdigit() else 1.0
