"""`OidcProvider`: people are sent to an OpenID provider to sign in, by the code flow with PKCE, and come back known.

Nothing is kept of a sign-in here: `begin` makes what `finish` has to be given again.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel, SecretStr

from agent_core.destinations import is_loopback
from agent_core.errors import DrydockError
from agent_core.version import VERSION
from server.auth.id_token import IdTokenError, Keys, KeySet, check_id_token
from server.settings.text_fields import shown_address

if TYPE_CHECKING:
    import httpx

SIGN_IN_SECONDS: Final = 600
"""So long may it take from the beginning of a sign-in to the way back."""
REQUEST_SECONDS: Final = 10.0
FINISH_SECONDS: Final = 25.0
METADATA_SECONDS: Final = 600.0
MAX_ANSWER_BYTES: Final = 512 * 1024
MAX_GROUPS: Final = 2_000
MAX_CHARS: Final = 500

_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_CODE: Final = re.compile(r"[a-z_]{1,60}")
_PASSING: Final = frozenset({408, 425, 429})
_METHODS: Final = ("client_secret_basic", "client_secret_post")
_NAMES: Final = ("preferred_username", "nickname", "name")

logger = logging.getLogger(__name__)


class OidcError(DrydockError):
    """Nobody is signed in by this; the message says why, for the person and for the log, without any secret."""

    status: int = 400


class ProviderDownError(OidcError):
    """The provider cannot be asked at present."""

    status = 503


class ProviderRefusedError(OidcError):
    """The provider has said no: to this person, or to this server as its client; `code` is its word for why, or ""."""

    status = 403

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class OidcClient:
    """Who this server is at a provider: what an operator got when they registered it there."""

    issuer: str
    client_id: str
    client_secret: SecretStr | None = None
    scope: str = "openid profile email"
    groups_claim: str = "groups"
    needs_groups: bool = False


class BegunAtProvider(BaseModel, frozen=True):
    """A sign-in on its way: what the browser that began it has to bring back, unread by anybody."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    then: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class Person:
    """Whom a provider vouches for: `issuer` and `subject` together are who it is, all else is what is said of them."""

    issuer: str
    subject: str
    names: tuple[str, ...] = ()
    email: str = ""
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Metadata:
    authorization: str
    token: str
    keys: str
    userinfo: str | None
    methods: tuple[str, ...]
    names_itself: bool


class OidcProvider:
    """Asks one provider. All methods raise `OidcError`; `aclose` ends its connections."""

    def __init__(self, client: OidcClient, *, now: Callable[[], float] = time.time) -> None:
        self._as = client
        self._now = now
        self._http: httpx.AsyncClient | None = None
        self._metadata: tuple[float, _Metadata] | None = None
        self._keys = KeySet(self._read_keys)

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def begin(self, redirect_uri: str, then: str) -> tuple[str, BegunAtProvider]:
        """Where to send the browser, and what it is to bring back; `then` is where the person wanted to be."""
        described = await self._described()
        begun = BegunAtProvider(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(64),
            redirect_uri=redirect_uri,
            then=then,
            expires_at=self._now() + SIGN_IN_SECONDS,
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(begun.verifier.encode()).digest()).decode().rstrip("=")
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._as.client_id,
                "redirect_uri": redirect_uri,
                "scope": self._as.scope,
                "state": begun.state,
                "nonce": begun.nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            }
        )
        return f"{described.authorization}{'&' if '?' in described.authorization else '?'}{query}", begun

    async def finish(self, begun: BegunAtProvider, answer: Mapping[str, str]) -> Person:
        """Who has signed in, by the parameters that the browser came back with."""
        if not hmac.compare_digest(begun.state.encode(), answer.get("state", "").encode("utf-8", "replace")):
            raise OidcError("this browser came back from another sign-in than it began; sign in again")
        if self._now() > begun.expires_at:
            raise OidcError(f"signing in took longer than {SIGN_IN_SECONDS // 60} minutes; sign in again")
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                return await self._finish(begun, answer)
        except TimeoutError:
            raise ProviderDownError(
                f"{self._who} took longer than {FINISH_SECONDS:g} s to say who has signed in; try again later"
            ) from None

    @property
    def _who(self) -> str:
        return f"the OpenID provider at {shown_address(self._as.issuer)}"

    async def _finish(self, begun: BegunAtProvider, answer: Mapping[str, str]) -> Person:
        described = await self._described()
        issuer = answer.get("iss")
        if issuer is None and described.names_itself:
            raise OidcError(f"the answer does not say whose it is (iss), as {self._who} had said it would")
        if issuer is not None and issuer != self._as.issuer:  # letter by letter (RFC 9207)
            raise OidcError("the answer is of another provider than was asked; nothing was sent to it")
        if (code := answer.get("error")) is not None:
            shown = code if _CODE.fullmatch(code) else "an unknown error"
            if code in ("temporarily_unavailable", "server_error"):
                raise ProviderDownError(f"{self._who} cannot sign anybody in at present ({shown}); try again later")
            raise ProviderRefusedError(f"{self._who} refused the sign-in ({shown})", shown)
        if not answer.get("code"):
            raise OidcError("the browser came back without a code; sign in again")
        tokens = await self._tokens(described, begun, answer["code"])
        id_token = tokens.get("id_token")
        if not isinstance(id_token, str):
            raise OidcError(f"{self._who} gave no ID token; is `openid` among the scopes that it allows this client?")
        try:
            claims = await check_id_token(
                id_token, self._keys, issuer=self._as.issuer, client_id=self._as.client_id, nonce=begun.nonce
            )
        except IdTokenError as error:
            raise OidcError(f"{self._who} was not believed: {error}") from None
        return self._person(await self._completed(described, claims, tokens.get("access_token")))

    def _person(self, claims: Mapping[str, Any]) -> Person:
        # Who may write any address there may write somebody else's: only one that was checked says anything.
        email = _text(claims.get("email")) if claims.get("email_verified") in (True, "true") else ""
        names = tuple(dict.fromkeys(name for key in _NAMES if (name := _text(claims.get(key)))))
        groups = groups_in(claims, self._as.groups_claim) or frozenset()
        return Person(self._as.issuer, claims["sub"], names or tuple(filter(None, [email])), email, groups)

    async def _completed(
        self, described: _Metadata, claims: Mapping[str, Any], access_token: object
    ) -> Mapping[str, Any]:
        """The claims, with those of the userinfo endpoint where the token has less than is needed."""
        lacks = not any(key in claims for key in (*_NAMES, "email")) or (
            self._as.needs_groups and groups_in(claims, self._as.groups_claim) is None
        )
        if not lacks or described.userinfo is None or not isinstance(access_token, str):
            return claims
        if not (access_token.isascii() and access_token.isprintable()):
            raise OidcError(f"{self._who} gave an access token that is none")
        further = await self._json("GET", described.userinfo, headers={"Authorization": f"Bearer {access_token}"})
        if further.get("sub") != claims["sub"]:
            raise OidcError(f"{self._who} told of another person (userinfo) than has signed in")
        return {**further, **claims}

    async def _tokens(self, described: _Metadata, begun: BegunAtProvider, code: str) -> dict[str, Any]:
        values = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect_uri,
            "code_verifier": begun.verifier,
        }
        secret = self._as.client_secret.get_secret_value() if self._as.client_secret is not None else ""
        methods = [one for one in _METHODS if one in described.methods] or list(_METHODS)
        for method in methods if secret else ["none"]:
            try:
                return await self._given(described.token, method, secret, values)
            except ProviderRefusedError as error:
                # What a provider takes of clients is more than what it takes of each.
                if error.code != "invalid_client" or method in (methods[-1], "none"):
                    raise
        raise AssertionError("there is a last method")

    async def _given(self, url: str, method: str, secret: str, values: Mapping[str, str]) -> dict[str, Any]:
        headers, own = {"Content-Type": "application/x-www-form-urlencoded"}, {"client_id": self._as.client_id}
        if method == "client_secret_basic":
            pair = f"{quote(self._as.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            own = {}
        elif method == "client_secret_post":
            own["client_secret"] = secret
        return await self._json("POST", url, headers=headers, content=urlencode({**values, **own}).encode())

    async def _described(self) -> _Metadata:
        if self._metadata is not None and time.monotonic() - self._metadata[0] < METADATA_SECONDS:
            return self._metadata[1]
        data = await self._json("GET", self._as.issuer.rstrip("/") + _WELL_KNOWN)
        if data.get("issuer") != self._as.issuer:
            shown = shown_address(str(data.get("issuer")))[:MAX_CHARS]
            raise OidcError(
                f"{self._who} says that its issuer is {shown!r}; if that is the right one, oidc_issuer has to be that,"
                " letter by letter"
            )
        challenges = data.get("code_challenge_methods_supported")
        if isinstance(challenges, list) and "S256" not in challenges:  # some that know it do not say so
            raise OidcError(f"{self._who} does not know PKCE with S256, without which nobody is signed in here")
        methods = data.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        described = _Metadata(
            authorization=self._endpoint(data, "authorization_endpoint"),
            token=self._endpoint(data, "token_endpoint"),
            keys=self._endpoint(data, "jwks_uri"),
            userinfo=self._endpoint(data, "userinfo_endpoint") if data.get("userinfo_endpoint") else None,
            methods=tuple(str(one) for one in methods) if isinstance(methods, list) else (),
            names_itself=data.get("authorization_response_iss_parameter_supported") is True,
        )
        self._metadata = time.monotonic(), described
        return described

    def _endpoint(self, data: Mapping[str, Any], name: str) -> str:
        address = data.get(name)
        problem = address_problem(address) if isinstance(address, str) else "it is missing"
        if problem or not isinstance(address, str):
            raise OidcError(f"{self._who} does not describe itself rightly: {name}: {problem}")
        return address

    async def _read_keys(self) -> Keys:
        keys = (await self._json("GET", (await self._described()).keys)).get("keys")
        if not isinstance(keys, list):
            raise OidcError(f"{self._who} publishes no keys")
        return [key for key in keys if isinstance(key, dict)]

    async def _json(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> dict[str, Any]:
        import httpx

        if self._http is None:
            made = await asyncio.to_thread(_new_client)  # beside the loop: it reads certificates
            self._http = self._http or made
        where = shown_address(url)
        body = bytearray()
        try:
            async with (
                asyncio.timeout(REQUEST_SECONDS),
                self._http.stream(method, url, headers=headers, content=content) as answer,
            ):
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > MAX_ANSWER_BYTES:
                        raise OidcError(f"{self._who} answers at {where} with more than {MAX_ANSWER_BYTES} bytes")
                status = answer.status_code
        except TimeoutError:
            raise ProviderDownError(f"{self._who} did not answer within {REQUEST_SECONDS:g} s at {where}") from None
        except httpx.HTTPError as error:
            raise ProviderDownError(f"{self._who} cannot be reached at {where}: {type(error).__name__}") from None
        if status >= 500 or status in _PASSING:
            raise ProviderDownError(f"{self._who} answered with the HTTP status {status} at {where}; try again later")
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        if status != 200:
            code = data.get("error") if isinstance(data, dict) else None
            code = code if isinstance(code, str) and _CODE.fullmatch(code) else ""
            shown = f" ({code})" if code else ""
            raise ProviderRefusedError(f"{self._who} answered with the HTTP status {status} at {where}{shown}", code)
        if not isinstance(data, dict):
            raise OidcError(f"{self._who} answered at {where} with something else than a JSON object")
        return data


def address_problem(address: str) -> str:
    """Why a provider cannot be asked there; "" where it can: over TLS, or on this machine."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "it is no address"
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or parts.fragment:
        return "it is no address such as https://sign-in.example.com"
    if parts.scheme == "http" and not is_loopback(host):
        return "it is not encrypted; signing in goes over https, except on this machine itself"
    return ""


def groups_in(claims: Mapping[str, Any], claim: str) -> frozenset[str] | None:
    """The groups that claims name; None where they say nothing. `claim` is a name, or a path with dots between."""
    found: Any = claims.get(claim)
    if found is None and "." in claim:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        return None
    listed = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return frozenset(group for group in listed[:MAX_GROUPS] if isinstance(group, str) and group)


def _text(value: object) -> str:
    return value.strip()[:MAX_CHARS] if isinstance(value, str) and value.isprintable() else ""


def _new_client() -> httpx.AsyncClient:
    import httpx  # only where people sign in by a provider

    return httpx.AsyncClient(
        timeout=REQUEST_SECONDS,
        limits=httpx.Limits(max_connections=20, max_keepalive_connections=2, keepalive_expiry=30),
        headers={"User-Agent": f"Drydock/{VERSION}", "Accept": "application/json"},
        follow_redirects=False,
    )
