"""Requests to a server: one way to make them, with limits, safe repetition and clear errors."""

from __future__ import annotations

import asyncio
import math
import os
import random
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack
from urllib.parse import quote, urlsplit

from drydock_client.errors import ClientError, LimitError, NotDrydockError, UnreachableError, is_wordless, refusal

if TYPE_CHECKING:
    import httpx

DEFAULT_URL: Final = "http://127.0.0.1:3000"
KEY_HEADER: Final = "X-Session-API-Key"
IDEMPOTENCY_HEADER: Final = "Idempotency-Key"
KEY_IN_USE: Final = "key_in_use"
DELAYS: Final = (0.1, 0.4, 1.0)
"""Waits between attempts, in seconds; each varied, so that clients do not come at once."""
MAX_RETRY_AFTER: Final = 10.0
TRY_AGAIN: Final = frozenset({429, 502, 503, 504})
"""Answers after which the same request may do better; of these only 429 says that nothing was done."""
ADDRESS_FIX: Final = "Check that the server runs, and give the address that it prints when it starts."

CERTIFICATE_FIX: Final = (
    "If an authority of your own vouches for the server, name the file with its certificate: ca_file, for commands"
    " DRYDOCK_CA_FILE."
)

Query = Mapping[str, str | int | bool | None]


class RequestOptions(TypedDict, total=False):
    """The options of `Http.request`."""

    query: Query | None
    body: object
    files: list[tuple[str, tuple[str, bytes]]] | None
    content: AsyncIterable[bytes] | None
    key: str | None
    repeatable: bool | None
    limit_seconds: float | None


class Http:
    """The connection pool of one client.

    A request is repeated only where that is safe: it was never sent, the server had no time for it (429), or it does
    the same when it is done twice (`repeatable`: reading, deleting, and whatever bears an idempotency key).
    """

    def __init__(
        self, base_url: str, api_key: str | None, timeout: float, ca_file: str | os.PathLike[str] | None = None
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise ValueError(f"{base_url!r} is no address of a server; give one such as {DEFAULT_URL}")
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout
        self.headers = {KEY_HEADER: api_key} if api_key else {}
        self.trust = _trust_in(ca_file) if ca_file is not None and parts.scheme == "https" else None
        self._pool: httpx.AsyncClient | None = None

    def open(self) -> None:
        """Make the pool; before, and after `close`, requests are refused."""
        import httpx  # late, because it takes longer than all the rest of the package

        # To load the certificates of all authorities takes longer than most calls; without TLS nobody asks for them.
        verify = self.trust or self.base_url.startswith("https:")
        self._pool = httpx.AsyncClient(headers=self.headers, timeout=self.timeout, verify=verify)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def json(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Any:
        """`request` for its JSON, None where it has none."""
        return _body(await self.request(method, path, **options))

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        files: list[tuple[str, tuple[str, bytes]]] | None = None,
        content: AsyncIterable[bytes] | None = None,
        key: str | None = None,
        repeatable: bool | None = None,
        limit_seconds: float | None = None,
    ) -> httpx.Response:
        """Make a request and return its answer, which has JSON or nothing.

        Of the `query` parameters None are left out. `body` is sent as JSON, or `files` as a form (field, name and
        content of each), or `content` as it is, once. `repeatable` is by default true for GET, PUT and DELETE, and with
        an idempotency `key`; `limit_seconds` takes the place of the client's timeout.

        Raises `UnreachableError` after several attempts, `LimitError` where all together took longer than the client's
        timeout, `RefusedError` of the class that says why, `NotDrydockError` where the answer is none of such a server.
        """
        options: dict[str, Any] = {"params": _parameters(query)}
        if body is not None:
            options["json"] = body
        if files is not None:
            options["files"] = files
        if content is not None:
            options["content"] = content
        if key is not None:
            options["headers"] = {IDEMPOTENCY_HEADER: key}
        again = method in ("GET", "PUT", "DELETE") or key is not None if repeatable is None else repeatable
        try:
            limit = self.timeout if limit_seconds is None else limit_seconds
            if limit_seconds is not None:
                options["timeout"] = limit_seconds
            async with asyncio.timeout(limit) as time_limit:
                until = time_limit.when() or math.inf
                response = await self._attempts(method, path, options, repeatable=again, until=until)
        except TimeoutError as error:
            raise self._too_late(method, path, limit) from error
        self._check(response)
        return response

    @asynccontextmanager
    async def stream(self, path: str, query: Query | None = None) -> AsyncIterator[httpx.Response]:
        """The answer to a GET, to be read piece by piece, each within the time limit. Raises as `request`."""
        import httpx  # see __aenter__

        try:
            async with self._open.stream("GET", self.base_url + path, params=_parameters(query)) as response:
                if response.is_error:
                    await response.aread()
                    raise self._refused(response)
                yield response
        except httpx.TimeoutException as error:
            raise self._too_late("GET", path, self.timeout) from error
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    async def _attempts(
        self, method: str, path: str, options: dict[str, Any], *, repeatable: bool, until: float
    ) -> httpx.Response:
        """The answer to the last attempt; there is none for which there would be no time `until` then."""
        import httpx  # see __aenter__

        delays, loop = iter(DELAYS), asyncio.get_running_loop()
        while True:
            # Spreads clients, guards nothing.
            pause = next(delays, math.inf) * random.uniform(1.0, 1.5)  # noqa: S311
            try:
                response = await self._open.request(method, self.base_url + path, **options)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if loop.time() + pause >= until:
                    raise self._unreachable(error) from error
            except httpx.TimeoutException as error:
                raise TimeoutError from error
            except httpx.TransportError as error:
                if loop.time() + pause >= until or not repeatable:
                    raise self._unreachable(error) from error
            else:
                retry_after = response.headers.get("retry-after", "")
                if retry_after.isdigit():
                    pause = max(pause, min(float(retry_after), MAX_RETRY_AFTER))
                if loop.time() + pause >= until or not _may_do_better(response, repeatable=repeatable):
                    return response
            await asyncio.sleep(pause)

    @property
    def _open(self) -> httpx.AsyncClient:
        if self._pool is None:
            raise ClientError("The client is not open.", fix="Use it in an `async with` (or `with`) block.")
        return self._pool

    def _check(self, response: httpx.Response) -> None:
        if response.is_redirect:
            raise NotDrydockError(
                f"{self.base_url} sends elsewhere, to {response.headers.get('location', '')[:200]!r}.", fix=ADDRESS_FIX
            )
        if response.is_error:
            raise self._refused(response)
        if response.status_code == HTTPStatus.NO_CONTENT:
            return
        if response.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            raise NotDrydockError(f"{self.base_url} answered with something that is no JSON.", fix=ADDRESS_FIX)

    def _refused(self, response: httpx.Response) -> ClientError:
        """What the server says; one of ours never answers without a word that it has no such address."""
        body = _body(response)
        if response.status_code == HTTPStatus.NOT_FOUND and is_wordless(body):
            return NotDrydockError(f"{self.base_url} answers, but not as a Drydock server does.", fix=ADDRESS_FIX)
        return refusal(response.status_code, body)

    def _too_late(self, method: str, path: str, limit: float) -> LimitError:
        return LimitError(
            f"{method} {path} was not answered within {limit:g} s.",
            fix="Look whether it was done before you do it again, or give a longer timeout.",
        )

    def _unreachable(self, error: Exception) -> UnreachableError:
        is_strange = "CERTIFICATE_VERIFY_FAILED" in str(error)
        fix = CERTIFICATE_FIX if is_strange else ADDRESS_FIX
        return UnreachableError(f"No answer from {self.base_url}: {error or type(error).__name__}.", fix=fix)


def _trust_in(ca_file: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise ValueError(f"ca_file: {os.fspath(ca_file)} cannot be used: {reason}") from error


def segment(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="")


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields of a request that are given."""
    return {name: value for name, value in fields.items() if value is not None}


def _parameters(query: Query | None) -> dict[str, str]:
    found = without_none(**(query or {}))
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}


def _body(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        is_text = response.headers.get("content-type", "").startswith("text/plain")
        return response.text if is_text and response.is_error else None


def _may_do_better(response: httpx.Response, *, repeatable: bool) -> bool:
    if response.status_code == 409 and IDEMPOTENCY_HEADER in response.request.headers:
        body = _body(response)  # the first attempt may still be under way: its answer is ours
        return isinstance(body, dict) and body.get("code") == KEY_IN_USE
    return response.status_code in TRY_AGAIN and (repeatable or response.status_code == 429)
