"""ID tokens of an OpenID provider: its keys, and what a token that they have signed has to say to be believed."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent_core.errors import DrydockError

if TYPE_CHECKING:
    from jwt import PyJWK

ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""What a token may be signed with, and the kind of key and curve for it: never `none`, nor the client's own secret."""

LEEWAY_SECONDS: Final = 60
"""So much may the provider's clock differ from this machine's."""
KEYS_SECONDS: Final = 3600.0
"""After that keys are read again: one that was taken back counts no longer than that."""
REREAD_SECONDS: Final = 30.0
"""A key that is not known has them read again, but no more often than that."""
MAX_KEYS: Final = 100
MAX_SUBJECT_CHARS: Final = 255

Keys = Sequence[Mapping[str, Any]]


class IdTokenError(DrydockError):
    """The token is not believed; the message says why, and holds nothing of it."""


class KeySet:
    """The provider's public keys, as `read` gives them; kept for `KEYS_SECONDS`."""

    def __init__(self, read: Callable[[], Awaitable[Keys]], *, now: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._now = now
        self._keys: Keys = ()
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> PyJWK:
        """The one key that this token may be signed with; `IdTokenError` where there is none."""
        for seconds in (KEYS_SECONDS, REREAD_SECONDS):
            await self._renew(seconds)
            fitting = [key for key in self._keys if _fits(key, kid, algorithm)]
            if len(fitting) == 1:
                return _usable(fitting[0], algorithm)
        if fitting:
            raise IdTokenError("the ID token does not say which of several keys has signed it")
        raise IdTokenError(f"the ID token is signed ({algorithm}) with a key that the provider does not publish")

    async def _renew(self, seconds: float) -> None:
        async with self._reading:
            if self._read_at is None or self._now() - self._read_at > seconds:
                self._keys = (await self._read())[:MAX_KEYS]
                self._read_at = self._now()


async def check_id_token(token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str) -> dict[str, Any]:
    """The claims of a token that this provider has made for this client and this sign-in; else `IdTokenError`."""
    import jwt  # only where people sign in by a provider

    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise IdTokenError("the ID token cannot be read") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        taken = ", ".join(ALGORITHMS)
        raise IdTokenError(f"the ID token is signed with {str(algorithm)[:20]!r}; taken is one of {taken}")
    if "crit" in header:
        raise IdTokenError("the ID token has conditions (crit) that are not known here")
    key = await keys.find(kid if isinstance(kid, str) else None, algorithm)
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            issuer=issuer,
            audience=client_id,
            leeway=LEEWAY_SECONDS,
            options={"require": ["iss", "sub", "aud", "exp", "iat"], "enforce_minimum_key_length": True},
        )
    except jwt.ExpiredSignatureError:
        raise IdTokenError(f"the ID token is over; {_CLOCKS}") from None
    except jwt.ImmatureSignatureError:
        raise IdTokenError(f"the ID token counts from later on; {_CLOCKS}") from None
    except jwt.InvalidIssuerError:
        raise IdTokenError("the ID token is of another issuer") from None
    except jwt.InvalidAudienceError:
        raise IdTokenError("the ID token is for another client") from None
    except jwt.MissingRequiredClaimError as error:
        raise IdTokenError(f"the ID token does not say what {error.claim} is") from None
    except jwt.InvalidSignatureError:
        raise IdTokenError("the signature of the ID token is wrong") from None
    except (jwt.PyJWTError, ValueError, OverflowError, RecursionError) as error:
        raise IdTokenError(f"the ID token is wrong ({type(error).__name__})") from None
    _check_sign_in(claims, client_id, nonce)
    return claims


_CLOCKS: Final = f"compare the clocks of both machines, which may differ by {LEEWAY_SECONDS} s"


def _check_sign_in(claims: Mapping[str, Any], client_id: str, nonce: str) -> None:
    """What the library does not: for whom of several it was made, for which sign-in, and of whom it can be."""
    party = claims.get("azp")
    if party is None and isinstance(claims["aud"], list) and len(claims["aud"]) > 1:
        raise IdTokenError("the ID token is for several clients, and does not say which one asked for it (azp)")
    if party is not None and party != client_id:
        raise IdTokenError("the ID token was made for another client (azp)")
    shown = claims.get("nonce")
    if not isinstance(shown, str) or not hmac.compare_digest(shown.encode("utf-8", "replace"), nonce.encode()):
        raise IdTokenError("the ID token is of another sign-in (nonce)")
    subject = claims["sub"]
    if not 0 < len(subject) <= MAX_SUBJECT_CHARS or not subject.isprintable():
        raise IdTokenError(f"the ID token names its user (sub) by no text of 1 to {MAX_SUBJECT_CHARS} characters")


def _fits(key: Mapping[str, Any], kid: str | None, algorithm: str) -> bool:
    kind, curve = ALGORITHMS[algorithm]
    return (
        key.get("kty") == kind
        and (curve is None or key.get("crv") == curve)
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (kid is None or key.get("kid") == kid)
    )


def _usable(key: Mapping[str, Any], algorithm: str) -> PyJWK:
    import jwt

    try:
        return jwt.PyJWK(dict(key), algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise IdTokenError("the provider publishes a key that is none") from None
