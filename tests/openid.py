"""OpenID providers for tests: a real one, in a process of its own, and one of ours whose answers a test makes wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from server.auth.oidc import OidcClient
from tests.serving import serving

FOLDER = Path(__file__).parent / "oidc_provider"
MAX_STEPS = 12


@dataclass
class RealProvider:
    """`oidc-provider` of npm. Whoever is among its accounts signs in with any password."""

    issuer: str

    async def register(self, redirect_uri: str, **further: Any) -> OidcClient:
        """Register a client, as an operator does on a page."""
        wish = {"redirect_uris": [redirect_uri], "response_types": ["code"], "scope": "openid profile email groups"}
        async with plain_client() as client:
            made = (await client.post(f"{self.issuer}/reg", json=wish | further)).json()
        secret = SecretStr(made["client_secret"]) if "client_secret" in made else None
        return OidcClient(self.issuer, made["client_id"], secret, scope="openid profile email groups")

    async def disable(self, login: str) -> None:
        async with plain_client() as client:
            await client.post(f"{self.issuer}/disable/{login}")


@contextmanager
def real_provider(accounts: Mapping[str, Mapping[str, Any]], *options: str) -> Iterator[RealProvider]:
    """One with these accounts: claims by logins."""
    command = ["node", str(FOLDER / "provider.mjs"), json.dumps(accounts), *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            issuer = process.stdout.readline().strip()
            assert issuer, process.communicate(timeout=10)[1]
            yield RealProvider(issuer)
        finally:
            process.stdin.close()
            process.wait(timeout=10)


def plain_client() -> httpx.AsyncClient:
    # It speaks no TLS, and to load the certificates of all authorities takes longer than most requests.
    return httpx.AsyncClient(timeout=30, verify=False, trust_env=False)  # noqa: S501


class SigningIn:
    """A browser at a provider; `client` has its cookies."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def go(self, url: str, login: str, *, until: str) -> str:
        """From an address of the provider's, by its forms, to the one that begins with `until`, which is not asked."""
        data: dict[str, str] | None = None
        for _ in range(MAX_STEPS):
            if url.startswith(until):
                return url
            answer = await self.client.request("GET" if data is None else "POST", url, data=data)
            data = None
            if answer.is_redirect:
                url = urljoin(url, answer.headers["location"])
                continue
            action = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
            prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
            assert action, answer.text
            assert prompt, answer.text
            url = urljoin(url, action[1])
            data = {"prompt": prompt[1]} | ({"login": login, "password": "any"} if prompt[1] == "login" else {})
        raise AssertionError(f"the provider leads in a circle: {url}")


def parameters(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


@dataclass
class PlayedProvider:
    """A provider that lets in whoever comes, and lies as a test says.

    `claims` and `header` are laid over those of the ID token (None leaves one out), `metadata` over its description,
    `answer` over what the browser comes back with; `instead` answers at a path in its place; `asked` counts by paths.
    """

    issuer: str = ""
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    kid: str = "first"
    published: list[dict[str, Any]] | None = None
    claims: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    sign: Callable[[dict[str, Any]], str] | None = None
    instead: dict[str, Callable[[], Response]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def client(self, **further: Any) -> OidcClient:
        return OidcClient(self.issuer, "drydock", SecretStr("played secret"), **further)

    def renew_key(self, kid: str) -> None:
        self.key, self.kid = ec.generate_private_key(ec.SECP256R1()), kid

    def public_keys(self) -> list[dict[str, Any]]:
        return [
            {**json.loads(ECAlgorithm.to_jwk(self.key.public_key())), "kid": self.kid, "alg": "ES256", "use": "sig"}
        ]

    def app(self) -> Starlette:
        usual: dict[str, Callable[[Request], Any]] = {
            "/.well-known/openid-configuration": self._describe,
            "/authorize": self._authorize,
            "/token": self._token,
            "/keys": self._keys,
            "/userinfo": self._userinfo,
        }

        async def answer(request: Request) -> Response:
            path = request.url.path
            self.asked.append(path)
            if path in self.instead:
                return self.instead[path]()
            answered: Response = await usual[path](request)
            return answered

        return Starlette(routes=[Route(path, answer, methods=["GET", "POST"]) for path in usual])

    async def _describe(self, _: Request) -> Response:
        described = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse(_laid_over(described, self.metadata))

    async def _authorize(self, request: Request) -> Response:
        values = dict(request.query_params)
        code = secrets.token_hex(8)
        self.codes[code] = values
        answer = _laid_over({"code": code, "state": values["state"], "iss": self.issuer}, self.answer)
        return RedirectResponse(f"{values['redirect_uri']}?{urlencode(answer)}", 302)

    async def _token(self, request: Request) -> Response:
        values = {name: found[0] for name, found in parse_qs((await request.body()).decode()).items()}
        asked = self.codes.pop(values.get("code", ""), None)  # each code counts once
        digest = hashlib.sha256(values.get("code_verifier", "").encode()).digest()
        proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        basic = base64.b64encode(b"drydock:played%20secret").decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return JSONResponse({"error": "invalid_client"}, 401)
        if asked is None or proof != asked["code_challenge"] or asked["redirect_uri"] != values["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.issuer, "sub": "ann", "aud": "drydock", "iat": now, "exp": now + 300}
        claims = _laid_over(claims | {"nonce": asked["nonce"], "name": "Ann"}, self.claims)
        return JSONResponse({"access_token": "played", "token_type": "Bearer", "id_token": self._signed(claims)})

    def _signed(self, claims: dict[str, Any]) -> str:
        if self.sign is not None:
            return self.sign(claims)
        return jwt.encode(claims, self.key, "ES256", headers=_laid_over({"kid": self.kid}, self.header))

    async def _keys(self, _: Request) -> Response:
        return JSONResponse({"keys": self.public_keys() if self.published is None else self.published})

    async def _userinfo(self, _: Request) -> Response:
        return JSONResponse({"sub": "ann", **self.userinfo})


def _laid_over(usual: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


@asynccontextmanager
async def played_provider() -> AsyncIterator[PlayedProvider]:
    provider = PlayedProvider()
    async with serving(provider.app(), lifespan="off") as port:
        provider.issuer = f"http://127.0.0.1:{port}"
        yield provider
