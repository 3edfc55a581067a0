"""OAuth 2.1 as the protocol's chapter on authorization has it: from a server's refusal to its tokens, step by step.

Nothing is kept here and nobody is waited for: `OAuthClient` makes what a person opens in a browser, and goes on with
what came of it, perhaps in another process.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

from pydantic import SecretStr, ValidationError

from agent_core.destinations import DestinationError, Destinations, DirectClient, is_loopback
from agent_core.mcp.client import load
from agent_core.mcp.config import McpAuth
from agent_core.mcp.grants import (
    OFFLINE,
    SIGN_IN_SECONDS,
    Challenge,
    Endpoints,
    Grant,
    PendingSignIn,
    RegisteredClient,
    canonical,
    challenge_of,
)
from agent_core.mcp.program import McpServerError
from agent_core.version import VERSION

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

CLIENT_NAME: Final = f"Drydock {VERSION}"
LIMIT_SECONDS: Final = 15.0
"""For each request."""
BEGIN_LIMITS: Final = 4
"""So many times as long as one request may all those take with which a sign-in begins."""
MAX_ANSWER_BYTES: Final = 256 * 1024
MAX_TOKEN_SECONDS: Final = 10 * 365 * 86_400

_METHODS: Final = ("client_secret_basic", "client_secret_post", "none")
"""How a client may show who it is at the token endpoint, the best first."""
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,60}")
_ENDING: Final = ("invalid_grant", "invalid_client")
"""What is said of a sign-in, or of a registration, that counts no more (RFC 6749, section 5.2): all else may pass."""


class SignInError(McpServerError):
    """A sign-in cannot begin or go on; the message says why, without any secret."""


class SignInOverError(SignInError):
    """The server of tokens gives no new token for this sign-in any more: a person has to sign in again."""


class OAuthClient:
    """Asks for the tokens of one server of tools. A context manager; all methods raise `SignInError`.

    Addresses that others name must be public, be the server's own host, or be among `hosts` (`loopback`: this machine
    too), and encrypted unless they stay on this machine, or on an unencrypted server's own host.
    """

    def __init__(
        self,
        server: str,
        *,
        hosts: Collection[str] = (),
        loopback: bool = False,
        limit_seconds: float = LIMIT_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._server = canonical(server)
        self._own = urlsplit(self._server)
        own_host = self._own.hostname or ""
        self._destinations = Destinations(hosts={*hosts, own_host}, loopback=loopback or is_loopback(own_host))
        self._client = DirectClient(self._destinations, limit_seconds)
        self._limit_seconds = limit_seconds
        self._now = now

    async def __aenter__(self) -> Self:
        await load()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def begin(
        self,
        *,
        redirect_uri: str,
        auth: McpAuth,
        challenge: Challenge | None = None,
        known: Grant | None = None,
        document_url: str | None = None,
    ) -> PendingSignIn:
        """Find out where to sign in, and who we are there.

        `challenge` is what the server wanted; without one it is asked. `known` is an earlier sign-in: its registration
        is used again where it still fits, and where more rights are wanted, those it has are asked for again.
        `document_url` is where this client describes itself to everybody.
        """
        limit = BEGIN_LIMITS * self._limit_seconds
        try:
            async with asyncio.timeout(limit):
                return await self._begun(redirect_uri, auth, challenge, known, document_url)
        except TimeoutError:
            raise SignInError(f"after {limit:g} s it was not found out where to sign in; try again later") from None

    async def _begun(
        self,
        redirect_uri: str,
        auth: McpAuth,
        challenge: Challenge | None,
        known: Grant | None,
        document_url: str | None,
    ) -> PendingSignIn:
        challenge = challenge or await self._probe()
        described = await self._described(challenge.metadata_url)
        resource = self._server
        if described is not None:
            resource = self._resource(str(described.resource))
        issuer = str(described.authorization_servers[0]) if described is not None else None
        endpoints, rights = await self._endpoints(issuer)
        scope = _scope(challenge, auth.scope, described, rights, known.scope if known is not None else None)
        client = await self._client_at(
            endpoints, auth, known.client if known is not None else None, redirect_uri, document_url, scope
        )
        return PendingSignIn(
            server=self._server,
            resource=resource,
            endpoints=endpoints,
            client=client,
            state=SecretStr(secrets.token_urlsafe(32)),
            verifier=SecretStr(secrets.token_urlsafe(64)),
            scope=scope,
            expires_at=self._now() + SIGN_IN_SECONDS,
        )

    async def finish(self, pending: PendingSignIn, answer: Mapping[str, str]) -> Grant:
        """The tokens for what the browser came back with: the parameters of its request to the redirect address."""
        if not hmac.compare_digest(pending.state.get_secret_value().encode(), answer.get("state", "").encode()):
            raise SignInError("the browser came back from another sign-in than was begun; begin again")
        if self._now() > pending.expires_at:
            raise SignInError(f"it took longer than {SIGN_IN_SECONDS / 60:g} minutes; begin again")
        issuer = answer.get("iss")
        if issuer is None and pending.endpoints.names_itself:
            raise SignInError(
                "the answer does not say whose it is (iss), as the server of tokens had said that it does"
            )
        if issuer is not None and issuer != pending.endpoints.issuer:  # letter by letter (RFC 9207)
            raise SignInError("the answer is of another server of tokens than was asked; nothing was sent to it")
        if (code := answer.get("error")) is not None:
            raise SignInError(f"it was refused there: {_error_code(code)}")
        if not answer.get("code"):
            raise SignInError("the browser came back without a code; begin again")
        values = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": pending.client.redirect_uri,
            "code_verifier": pending.verifier.get_secret_value(),
            "resource": pending.resource,
        }
        return await self._tokens(pending.resource, pending.endpoints, pending.client, values, scope=pending.scope)

    async def refresh(self, grant: Grant) -> Grant:
        """A new token for an old one; `SignInOverError` where only a person can get one."""
        if grant.refresh_token is None:
            raise SignInOverError("its token is over, and cannot be renewed")
        values = {
            "grant_type": "refresh_token",
            "refresh_token": grant.refresh_token.get_secret_value(),
            "resource": grant.resource,
        }
        fresh = await self._tokens(grant.resource, grant.endpoints, grant.client, values, scope=grant.scope)
        return fresh if fresh.refresh_token else fresh.model_copy(update={"refresh_token": grant.refresh_token})

    async def revoke(self, grant: Grant) -> bool:
        """Have the tokens forgotten where they came from; False where that is not offered."""
        if grant.endpoints.revocation is None:
            return False
        refresh = [(grant.refresh_token, "refresh_token")] if grant.refresh_token else []
        for token, hint in (*refresh, (grant.access_token, "access_token")):
            values = {"token": token.get_secret_value(), "token_type_hint": hint}
            status, _ = await self._post_form(grant.endpoints.revocation, grant.client, values)
            if status != 200:
                raise SignInError(f"its tokens were not revoked: HTTP status {status}")
        return True

    async def _probe(self) -> Challenge:
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "drydock", "version": VERSION},
            },
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        status, _, answered = await self._ask(
            "POST", self._server, headers=headers, content=json.dumps(hello).encode(), reads=False
        )
        if status in (404, 405):  # what sends events only
            status, _, answered = await self._ask("GET", self._server, headers=headers, reads=False)
        challenge = challenge_of(status, answered)
        if challenge is None and status < 400:
            raise SignInError("it can be used without signing in")
        if challenge is None:
            raise SignInError(f"it does not ask for a sign-in, but answers with the HTTP status {status}")
        return challenge

    async def _described(self, named: str | None) -> ProtectedResourceMetadata | None:
        """What the server says of itself (RFC 9728): where its refusal said, else at the usual places."""
        from mcp.client.auth.utils import build_protected_resource_metadata_discovery_urls as places
        from mcp.shared.auth import ProtectedResourceMetadata

        trouble: SignInError | None = None
        for url in dict.fromkeys(places(named, self._server)):
            try:
                found = await self._document(url, ProtectedResourceMetadata)
            except SignInError as error:
                trouble = trouble or error
                continue
            if isinstance(found, ProtectedResourceMetadata):
                return found
        if trouble is not None:  # which says nothing about whether there is a description
            raise trouble
        return None

    def _resource(self, named: str) -> str:
        from mcp.shared.auth_utils import check_resource_allowed

        if not check_resource_allowed(requested_resource=self._server, configured_resource=named):
            raise SignInError("the description of the server is of another one: tokens for that are not asked for")
        return named

    async def _endpoints(self, issuer: str | None) -> tuple[Endpoints, list[str]]:
        """The server of tokens (RFC 8414, OpenID Connect), and what rights it says there are."""
        from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls as places
        from mcp.shared.auth import OAuthMetadata

        origin = f"{self._own.scheme}://{self._own.netloc}"
        expected = issuer or origin
        for url in places(issuer, self._server):
            found = await self._document(url, OAuthMetadata)
            if found is not None:
                return await self._checked_endpoints(found, expected), found.scopes_supported or []
        if issuer is not None:
            raise SignInError(f"the server of tokens at {shown(issuer)} does not describe itself")
        # A server of the protocol's first version with authorization, which said nothing about itself.
        return Endpoints(
            issuer=origin,
            authorization=f"{origin}/authorize",
            token=f"{origin}/token",
            registration=f"{origin}/register",
        ), []

    async def _checked_endpoints(self, found: OAuthMetadata, expected: str) -> Endpoints:
        if not _same_issuer(str(found.issuer), expected):
            raise SignInError(f"the server of tokens at {shown(expected)} says that it is another one")
        if "S256" not in (found.code_challenge_methods_supported or []):
            raise SignInError(f"the server of tokens at {shown(expected)} does not say that it knows PKCE with S256")
        authorization = str(found.authorization_endpoint)
        await self._allowed(authorization)
        return Endpoints(
            issuer=str(found.issuer),
            authorization=authorization,
            token=str(found.token_endpoint),
            registration=_text(found.registration_endpoint),
            revocation=_text(found.revocation_endpoint),
            methods=found.token_endpoint_auth_methods_supported,
            takes_documents=found.client_id_metadata_document_supported is True,
            names_itself=found.authorization_response_iss_parameter_supported is True,
        )

    async def _client_at(
        self,
        endpoints: Endpoints,
        auth: McpAuth,
        known: RegisteredClient | None,
        redirect_uri: str,
        document_url: str | None,
        scope: str | None,
    ) -> RegisteredClient:
        ours: dict[str, Any] = {"issuer": endpoints.issuer, "redirect_uri": redirect_uri}
        if auth.client_id:
            secret = SecretStr(auth.client_secret) if auth.client_secret else None
            return RegisteredClient(
                client_id=auth.client_id, secret=secret, method=_method(endpoints, has_secret=bool(secret)), **ours
            )
        if document_url is not None and endpoints.takes_documents:
            return RegisteredClient(client_id=document_url, **ours)
        if known is not None and known.issuer == endpoints.issuer and known.redirect_uri == redirect_uri:
            return known
        if endpoints.registration is None:
            raise SignInError(
                f"the server of tokens at {shown(endpoints.issuer)} lets no client register itself; register one there"
                f" with the redirect address {redirect_uri}, and give its client_id"
            )
        return await self._registered(endpoints, endpoints.registration, redirect_uri, scope)

    async def _registered(
        self, endpoints: Endpoints, url: str, redirect_uri: str, scope: str | None
    ) -> RegisteredClient:
        from mcp.shared.auth import OAuthClientInformationFull

        wish = client_document(redirect_uri)
        wished = _method(endpoints, has_secret=True) if endpoints.methods is not None else None
        wish |= {"token_endpoint_auth_method": wished} if wished else {}
        wish |= {"scope": scope} if scope else {}
        headers = {"Content-Type": "application/json"}
        status, body, _ = await self._ask("POST", url, headers=headers, content=json.dumps(wish).encode())
        if status not in (200, 201):
            raise SignInError(f"this client could not be registered: {_error_in(status, body)}")
        try:
            found = OAuthClientInformationFull.model_validate_json(body)
        except ValidationError:
            raise SignInError("this client could not be registered: the answer is no registration") from None
        if found.redirect_uris and redirect_uri not in map(str, found.redirect_uris):
            raise SignInError("this client could not be registered: its redirect address was replaced")
        secret = found.client_secret
        method = found.token_endpoint_auth_method or (wished if secret else None) or (_METHODS[0] if secret else "none")
        if method not in _METHODS or (method != "none" and not secret):
            raise SignInError(f"this client was registered for {method[:60]!r}, with which it cannot show who it is")
        return RegisteredClient(
            client_id=found.client_id,
            secret=SecretStr(secret) if secret else None,
            method=method,
            issuer=endpoints.issuer,
            redirect_uri=redirect_uri,
        )

    async def _tokens(
        self,
        resource: str,
        endpoints: Endpoints,
        client: RegisteredClient,
        values: Mapping[str, str],
        *,
        scope: str | None,
    ) -> Grant:
        from mcp.shared.auth import OAuthToken

        asked_at = self._now()
        status, body = await self._post_form(endpoints.token, client, values)
        code = _code_in(body)
        if code or status not in (200, 201):  # some have the status 200 for their errors, too
            text = f"the server of tokens gave none: {_error_in(status, body)}"
            raise SignInOverError(text) if code in _ENDING and status < 500 else SignInError(text)
        try:
            found = OAuthToken.model_validate_json(body)
        except ValidationError:
            raise SignInError(
                "the server of tokens gave none: its answer is not of the form that it has to be"
            ) from None
        if not found.access_token.isascii() or not found.access_token.isprintable() or " " in found.access_token:
            raise SignInError("the server of tokens gave one that cannot be sent")
        lasts = None if found.expires_in is None else max(0, min(found.expires_in, MAX_TOKEN_SECONDS))
        return Grant(
            resource=resource,
            endpoints=endpoints,
            client=client,
            access_token=SecretStr(found.access_token),
            refresh_token=SecretStr(found.refresh_token) if found.refresh_token else None,
            expires_at=None if lasts is None else asked_at + lasts,
            scope=found.scope or scope,
        )

    async def _post_form(self, url: str, client: RegisteredClient, values: Mapping[str, str]) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        data = {**values, "client_id": client.client_id}
        secret = client.secret.get_secret_value() if client.secret is not None else ""
        if client.method == "client_secret_basic":
            pair = f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif client.method == "client_secret_post":
            data["client_secret"] = secret
        status, body, _ = await self._ask("POST", url, headers=headers, content=urlencode(data).encode())
        return status, body

    async def _document(self, url: str, kind: type[Any]) -> Any:
        """The document at an address; None where there is none of this kind."""
        status, body, _ = await self._ask("GET", url, headers={"MCP-Protocol-Version": "2025-11-25"})
        if status >= 500 or status == 429:
            raise SignInError(f"{shown(url)} answers with the HTTP status {status}; try again later")
        try:
            return kind.model_validate_json(body) if status == 200 else None
        except ValidationError:
            return None

    async def _ask(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes = b"", reads: bool = True
    ) -> tuple[int, bytes, Mapping[str, str]]:
        import httpx

        sent = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": CLIENT_NAME, **headers}
        try:
            async with asyncio.timeout(self._limit_seconds):
                await self._allowed(url)
                async with self._client.stream(method, url, headers=sent, content=content) as answer:
                    body = await _whole(url, answer.aiter_raw()) if reads else b""
                    return answer.status_code, body, answer.headers
        except DestinationError as error:
            raise SignInError(_not_allowed(url, error)) from None
        except TimeoutError:
            raise SignInError(f"{shown(url)} did not answer within {self._limit_seconds:g} s") from None
        except httpx.HTTPError as error:
            raise SignInError(f"{shown(url)} cannot be reached: {type(error).__name__}") from None

    async def _allowed(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, has_user = parts.hostname or "", "@" in parts.netloc
        except ValueError:
            raise SignInError("it names an address that is none") from None
        is_own = (parts.scheme, host) == (self._own.scheme, self._own.hostname)
        if parts.scheme not in ("https", "http") or has_user or not host:
            raise SignInError(f"it names an address that is not taken: {shown(url)}")
        if parts.scheme == "http" and not is_own and not is_loopback(host):
            raise SignInError(f"{shown(url)} is not encrypted; a sign-in goes over https only")
        try:
            await self._destinations.find(url)
        except DestinationError as error:
            raise SignInError(_not_allowed(url, error)) from None


async def _whole(url: str, pieces: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise SignInError(f"{shown(url)} answers with more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def client_document(redirect_uri: str) -> dict[str, Any]:
    """What this client says of itself (RFC 7591), without its id."""
    is_here = is_loopback(urlsplit(redirect_uri).hostname or "")
    return {
        "client_name": "Drydock",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "native" if is_here else "web",
    }


def _scope(
    challenge: Challenge,
    configured: str,
    described: ProtectedResourceMetadata | None,
    rights: Sequence[str],
    granted: str | None,
) -> str | None:
    """What rights to ask for: those that were configured, else what the server wanted, else all that it has."""
    own = described.scopes_supported if described is not None else None
    chosen = (configured or challenge.scope or " ".join(own or ())).split()
    if challenge.is_step_up:  # what was granted is asked for again, so that it is not lost
        chosen = [*(granted or "").split(), *chosen, *(challenge.scope or "").split()]
    if chosen and OFFLINE in rights:
        chosen.append(OFFLINE)
    return " ".join(dict.fromkeys(chosen)) or None


def _method(endpoints: Endpoints, *, has_secret: bool) -> str:
    if not has_secret:
        return "none"
    offered = endpoints.methods
    return next((one for one in _METHODS if offered is None or one in offered), _METHODS[0])


def _same_issuer(one: str, other: str) -> bool:
    """Whether two names are the same, letter by letter, but for the slash that an address without a path may end in."""
    from mcp.client.auth.utils import issuers_match

    return issuers_match(one, other)


def _code_in(body: bytes) -> str:
    """The code of the error that an answer tells of; empty where it tells of none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    code = value.get("error") if isinstance(value, dict) else None
    return code if isinstance(code, str) else ""


def _error_in(status: int, body: bytes) -> str:
    code = _code_in(body)
    return f"{_error_code(code)} (HTTP status {status})" if code else f"HTTP status {status}"


def _error_code(text: str) -> str:
    """The code of an error, which is all that is shown of it: other words may repeat what was sent."""
    return text if _ERROR_CODE.fullmatch(text) else "an error without a known name"


def _not_allowed(url: str, error: DestinationError) -> str:
    if error.not_public:
        return f"{shown(url)} has no public address, so no sign-in leads there"
    return f"{shown(url)} cannot be reached: {error}"


def shown(url: str) -> str:
    """An address without what may be secret in it."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:300]
    except ValueError:
        return "an address that is none"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
