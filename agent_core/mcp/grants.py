"""What is known of signing in with servers of tools: what they want, what was begun, and what it has led to."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    SecretStr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    field_serializer,
)

from agent_core.events.masking import EXPOSE_SECRETS

OFFLINE: Final = "offline_access"
"""The right to renew tokens, where a server of tokens has one for that."""

SIGN_IN_SECONDS: Final = 600.0
"""For a person to sign in."""

_PARAMETER: Final = re.compile(r'(?<![\w-])([\w-]++)\s*+=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


class Challenge(NamedTuple):
    """What a server wants when it refuses a request for want of a token, or of rights.

    `metadata_url` says where it describes itself, `scope` what rights it wants; `is_step_up`: more than the token has.
    """

    metadata_url: str | None = None
    scope: str | None = None
    is_step_up: bool = False


def challenge_of(status: int, headers: Mapping[str, str]) -> Challenge | None:
    """What an answer asks for; None where it is no matter of signing in."""
    found = {match[1]: match[2] or match[3] for match in _PARAMETER.finditer(headers.get("www-authenticate", ""))}
    is_step_up = status == 403 and found.get("error") == "insufficient_scope"
    if status != 401 and not is_step_up:
        return None
    return Challenge(found.get("resource_metadata"), found.get("scope"), is_step_up)


class Kept(BaseModel):
    """What may be written down and read by a later version: unknown fields are dropped, values never quoted."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    def to_text(self) -> str:
        """All of it as JSON, secrets too."""
        return self.model_dump_json(context={EXPOSE_SECRETS: True})

    @field_serializer("*", mode="wrap", check_fields=False)
    def _written(self, value: Any, write: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        exposed = info.context and info.context.get(EXPOSE_SECRETS)
        return value.get_secret_value() if exposed and isinstance(value, SecretStr) else write(value)


class Endpoints(Kept):
    """What is known of the server that gives out tokens. `names_itself`: its answers to browsers say who it is."""

    issuer: str
    authorization: str
    token: str
    registration: str | None = None
    revocation: str | None = None
    methods: list[str] | None = None
    takes_documents: bool = False
    names_itself: bool = False


class RegisteredClient(Kept):
    """Who we are to one such server; `redirect_uri` is the only address that it sends browsers back to."""

    client_id: str
    secret: SecretStr | None = None
    method: str = "none"
    issuer: str
    redirect_uri: str


class Grant(Kept):
    """A sign-in: tokens for `resource`, which is the server of tools or what it belongs to. Times are Unix seconds."""

    resource: str
    endpoints: Endpoints
    client: RegisteredClient
    access_token: SecretStr
    refresh_token: SecretStr | None = None
    expires_at: float | None = None
    scope: str | None = None

    @property
    def secrets(self) -> list[str]:
        """What nobody else may see."""
        values = (self.access_token, self.refresh_token, self.client.secret)
        return [value.get_secret_value() for value in values if value is not None]


class PendingSignIn(Kept):
    """A sign-in that a person has to go on with: at `url`, until `expires_at`, once."""

    server: str
    resource: str
    endpoints: Endpoints
    client: RegisteredClient
    state: SecretStr
    verifier: SecretStr
    scope: str | None = None
    expires_at: float

    @property
    def url(self) -> str:
        """What to open in a browser."""
        challenge = hashlib.sha256(self.verifier.get_secret_value().encode()).digest()
        values = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.client.redirect_uri,
            "state": self.state.get_secret_value(),
            "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
            "resource": self.resource,
        }
        if self.scope:
            values["scope"] = self.scope
            if OFFLINE in self.scope.split():
                values["prompt"] = "consent"  # OpenID Connect wants it said
        parts = urlsplit(self.endpoints.authorization)
        query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in values]
        return urlunsplit(parts._replace(query=urlencode([*query, *values.items()])))


def sign_in_id(server: str) -> str:
    """By what a sign-in with the server at this address is known, which may itself hold a key."""
    return hashlib.sha256(canonical(server).encode()).hexdigest()[:32]


def canonical(url: str) -> str:
    """The address of a server as tokens are kept for it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower(), fragment=""))


class ServerSignIn(Kept):
    """What is known of a sign-in with one server.

    `is_wanted`: the server refused what it was shown, and wants what its last challenge says.
    """

    server: str
    grant: Grant | None = None
    is_wanted: bool = False
    metadata_url: str | None = None
    scope: str | None = None
    is_step_up: bool = False

    @property
    def challenge(self) -> Challenge | None:
        return Challenge(self.metadata_url, self.scope, self.is_step_up) if self.is_wanted else None

    def wanting(self, challenge: Challenge) -> ServerSignIn:
        return self.model_copy(
            update={
                "is_wanted": True,
                "metadata_url": challenge.metadata_url,
                "scope": challenge.scope,
                "is_step_up": challenge.is_step_up,
            }
        )
