"""aiohttp, for the servers of models that are asked without litellm: the only module that imports it.

Its import takes a fifth of a second and some megabytes, so it happens once, on first use, in a thread. Its connections
cost less than those of httpx, whose pool looks through all of them at each request.
"""

from __future__ import annotations

import os
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import urlsplit

from agent_core.llm.transport.bounded import bounded
from agent_core.llm.transport.once import OnceInThread
from agent_core.version import VERSION

_KEPT_SECONDS: Final = 120.0
_PIECE_BYTES: Final = 16 * 1024
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NO: Final = ("0", "false", "no", "off")


class HttpLibrary:
    """The used part of aiohttp, and the certificates. Constructing it blocks.

    Attributes:
        errors: what a failed request raises; `timeouts` and `disconnections` are among them.
    """

    def __init__(self) -> None:
        import aiohttp
        from yarl import URL

        self.aiohttp = aiohttp
        self.url: Any = URL
        self.certificates = _certificates()
        self.errors = (aiohttp.ClientError, OSError, ValueError)
        self.timeouts = (TimeoutError,)
        self.disconnections = (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)


load_http = OnceInThread(HttpLibrary, "http-import").outcome
"""The library, whose import is begun in a thread if nobody has yet; the loop stays responsive."""


class HttpAnswer:
    """An answer whose body is still to come; it is closed by whoever has it."""

    def __init__(self, response: Any, library: HttpLibrary) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._library = library

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body, unpacked and bounded; raises `HttpLibrary.errors` where it breaks off, or is too large."""
        encoding = self.headers.get("content-encoding", "").strip().lower()
        async with aclosing(bounded(self._raw(), encoding, self._library.aiohttp.ClientPayloadError)) as body:
            async for piece in body:
                yield piece

    async def _raw(self) -> AsyncIterator[bytes]:
        async for piece in self._response.content.iter_chunked(_PIECE_BYTES):
            yield piece

    async def aclose(self) -> None:
        """Give the connection back where the body was read to its end, else close it."""
        self._response.close()


class HttpConnections:
    """One pool of kept connections of the running loop, until `aclose`.

    Proxies of the environment are used, never before this machine itself; no cookie, netrc or redirect is.
    """

    def __init__(self, library: HttpLibrary) -> None:
        aiohttp = library.aiohttp
        self.library = library
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS, ssl=library.certificates),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"user-agent": f"drydock/{VERSION}", "accept-encoding": "gzip, deflate"},
            auto_decompress=False,
        )
        self._proxies: dict[str, str | None] = {}

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | AsyncIterator[bytes] | None = None,
        limit_seconds: float,
        connect_seconds: float,
    ) -> HttpAnswer:
        """The answer as soon as its head is there; `limit_seconds` bounds each silence. Raises `HttpLibrary.errors`."""
        timeout = self.library.aiohttp.ClientTimeout(
            total=None, connect=limit_seconds, sock_connect=connect_seconds, sock_read=limit_seconds
        )
        aiohttp, proxy = self.library.aiohttp, self._proxy(url)
        try:
            response = await self._session.request(
                method,
                self.library.url(url, encoded=True),
                headers=headers,
                data=content,
                timeout=timeout,
                proxy=proxy,
                allow_redirects=False,
            )
        except aiohttp.ClientHttpProxyError as error:
            raise aiohttp.ClientConnectionError(
                f"{_shown(proxy)} does not let it through: {error.status} {error.message}"
            ) from None
        except aiohttp.ClientProxyConnectionError as error:
            raise aiohttp.ClientConnectionError(f"{_shown(proxy)} cannot be reached: {error.strerror}") from None
        return HttpAnswer(response, self.library)

    def _proxy(self, url: str) -> str | None:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._proxies:
            self._proxies[origin] = proxy_before(parts.scheme, parts.hostname or "", parts.netloc)
        return self._proxies[origin]

    async def aclose(self) -> None:
        """Close all connections; a request in progress fails."""
        await self._session.close()


def proxy_before(scheme: str, host: str, place: str) -> str | None:
    """The proxy that the environment wants asked for this host; `place` is the host with its port."""
    if host in _LOOPBACK or urllib.request.proxy_bypass(place):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def _shown(proxy: str | None) -> str:
    parts = urlsplit(proxy or "")
    return f"the proxy {parts.hostname}:{parts.port} of this machine's environment"


def _certificates() -> ssl.SSLContext:
    """Whom to believe, as the environment says (`SSL_CERT_FILE`, `SSL_CERT_DIR`, `SSL_VERIFY`), else certifi.

    `SSL_CERTIFICATE` is a file with the certificate that this server shows, and its key.
    """
    import certifi

    verify = os.environ.get("SSL_VERIFY", "")
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if verify and os.path.exists(verify):
        file, folder = (None, verify) if os.path.isdir(verify) else (verify, None)
    context = ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
    if own := os.environ.get("SSL_CERTIFICATE"):
        context.load_cert_chain(own)
    if verify.lower() in _NO:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
