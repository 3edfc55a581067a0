"""Signing in by an OpenID provider: with one that others wrote, and what is not believed of one that lies."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.responses import JSONResponse, PlainTextResponse, Response

from server.auth import oidc
from server.auth.id_token import KEYS_SECONDS, LEEWAY_SECONDS, REREAD_SECONDS, IdTokenError, KeySet
from server.auth.oidc import (
    SIGN_IN_SECONDS,
    BegunAtProvider,
    OidcClient,
    OidcError,
    OidcProvider,
    Person,
    ProviderDownError,
    ProviderRefusedError,
    address_problem,
    groups_in,
)
from tests.openid import (
    PlayedProvider,
    RealProvider,
    SigningIn,
    parameters,
    plain_client,
    played_provider,
    real_provider,
)

BACK = "http://127.0.0.1:9/back"
ACCOUNTS = {
    "ann": {"name": "Ann Smith", "email": "Ann@Example.com", "email_verified": True, "groups": ["admins", "all"]},
    "bob": {"name": "Bob", "email": "ann@example.com", "email_verified": False},
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "REQUEST_SECONDS", 60.0)
    monkeypatch.setattr(oidc, "FINISH_SECONDS", 180.0)


@pytest.fixture(scope="module")
def real() -> Iterator[RealProvider]:
    with real_provider(ACCOUNTS) as provider:
        yield provider


@pytest.fixture
async def played() -> AsyncIterator[PlayedProvider]:
    async with played_provider() as provider:
        yield provider


@asynccontextmanager
async def asking(client: OidcClient, **options: Any) -> AsyncIterator[OidcProvider]:
    provider = OidcProvider(client, **options)
    provider._http = plain_client()
    try:
        yield provider
    finally:
        await provider.aclose()


async def way(provider: OidcProvider, login: str = "ann") -> tuple[BegunAtProvider, dict[str, str]]:
    """Begin, and go to the provider and back."""
    url, begun = await provider.begin(BACK, "/")
    async with plain_client() as browser:
        return begun, parameters(await SigningIn(browser).go(url, login, until=BACK))


async def signed_in(provider: OidcProvider, login: str = "ann") -> Person:
    return await provider.finish(*await way(provider, login))


async def refusal(provider: OidcProvider) -> str:
    with pytest.raises(OidcError) as caught:
        await signed_in(provider)
    return str(caught.value)


async def test_a_provider_of_others_says_who_has_signed_in(real: RealProvider) -> None:
    client = await real.register(BACK)
    async with asking(client) as provider:
        assert await signed_in(provider) == Person(
            real.issuer, "ann", ("Ann Smith",), "Ann@Example.com", frozenset({"admins", "all"})
        )
        # An address that nobody has checked may be somebody else's.
        assert await signed_in(provider, "bob") == Person(real.issuer, "bob", ("Bob",))


@pytest.mark.parametrize("method", ["client_secret_post", "none"])
async def test_a_client_shows_who_it_is_as_its_provider_wants_it(real: RealProvider, method: str) -> None:
    async with asking(await real.register(BACK, token_endpoint_auth_method=method)) as provider:
        assert (await signed_in(provider)).subject == "ann"


async def test_a_provider_of_others_takes_a_code_once(real: RealProvider) -> None:
    async with asking(await real.register(BACK)) as provider:
        begun, answer = await way(provider)
        await provider.finish(begun, answer)
        with pytest.raises(ProviderRefusedError, match="invalid_grant"):
            await provider.finish(begun, answer)


async def test_a_provider_of_others_gives_nothing_for_another_verifier(real: RealProvider) -> None:
    async with asking(await real.register(BACK)) as provider:
        begun, answer = await way(provider)
        other = begun.model_copy(update={"verifier": "another" * 8})
        with pytest.raises(ProviderRefusedError, match="invalid_grant"):
            await provider.finish(other, answer)


def lies(now: float) -> dict[str, tuple[dict[str, Any], str]]:
    return {
        "issuer": ({"iss": "https://other.example"}, "of another issuer"),
        "no issuer": ({"iss": None}, "what iss is"),
        "audience": ({"aud": "other"}, "for another client"),
        "no audience": ({"aud": None}, "what aud is"),
        "several, and nobody asked": ({"aud": ["drydock", "other"]}, "azp"),
        "another asked": ({"aud": ["drydock", "other"], "azp": "other"}, "azp"),
        "another alone asked": ({"azp": "other"}, "azp"),
        "over": ({"exp": now - LEEWAY_SECONDS - 2}, "is over; compare the clocks"),
        "never over": ({"exp": None}, "what exp is"),
        "from later on": ({"iat": now + LEEWAY_SECONDS + 60}, "compare the clocks"),
        "not before": ({"nbf": now + LEEWAY_SECONDS + 60}, "compare the clocks"),
        "endless": ({"exp": 1e400}, "is wrong"),
        "nonce": ({"nonce": "other"}, "another sign-in"),
        "no nonce": ({"nonce": None}, "another sign-in"),
        "nonce of another kind": ({"nonce": 5}, "another sign-in"),
        "no subject": ({"sub": None}, "what sub is"),
        "empty subject": ({"sub": ""}, "names its user"),
        "long subject": ({"sub": "x" * 256}, "names its user"),
        "subject of another kind": ({"sub": 5}, "is wrong"),
        "subject that cannot be seen": ({"sub": "ann\u202e"}, "names its user"),
    }


async def test_a_token_that_says_something_else_is_not_believed(played: PlayedProvider) -> None:
    async with asking(played.client()) as provider:
        for name in lies(0):
            played.claims, words = lies(time.time())[name]
            assert re.search(words, await refusal(provider)), name


async def test_clocks_may_differ_a_little_and_a_token_may_be_for_others_too(played: PlayedProvider) -> None:
    async with asking(played.client()) as provider:
        for name, seconds in (("exp", -LEEWAY_SECONDS / 2), ("iat", LEEWAY_SECONDS / 2)):
            played.claims = {name: time.time() + seconds}
            assert (await signed_in(provider)).subject == "ann"
        played.claims = {"aud": ["other", "drydock"], "azp": "drydock"}
        assert (await signed_in(provider)).subject == "ann"


def unsigned(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, "", "none")


def by_the_clients_secret(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, "played secret played secret played secret", "HS256", headers={"kid": "first"})


def by_somebody_else(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "first"})


def by_a_key_that_it_brings(claims: dict[str, Any]) -> str:
    other = PlayedProvider()
    return jwt.encode(claims, other.key, "ES256", headers={"kid": "own", "jwk": other.public_keys()[0]})


def by_another_curve(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, ec.generate_private_key(ec.SECP384R1()), "ES384", headers={"kid": "first"})


def by_no_text(_: dict[str, Any]) -> str:
    return "a.b.c"


def by_a_deep_one(_: dict[str, Any]) -> str:
    import base64

    deep = base64.urlsafe_b64encode(b'{"alg":' + b"[" * 90_000).decode().rstrip("=")
    return f"{deep}.e30.e30"


async def test_a_token_that_the_provider_has_not_signed_is_not_believed(played: PlayedProvider) -> None:
    async with asking(played.client()) as provider:
        for sign, words in (
            (unsigned, "signed with 'none'"),
            (by_the_clients_secret, "signed with 'HS256'"),
            (by_somebody_else, "signature of the ID token is wrong"),
            (by_a_key_that_it_brings, "with a key that the provider does not publish"),
            (by_another_curve, "with a key that the provider does not publish"),
            (by_no_text, "cannot be read"),
            (by_a_deep_one, "cannot be read"),
        ):
            played.sign = sign
            assert words in await refusal(provider), sign


async def test_a_public_key_is_no_secret_that_a_token_may_be_signed_with(played: PlayedProvider) -> None:
    pem = played.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    played.published = [{**played.public_keys()[0], "alg": "HS256"}]
    secret = pem.decode().replace("-----", "")
    played.sign = lambda claims: jwt.encode(claims, secret, "HS256", headers={"kid": "first"})
    async with asking(played.client()) as provider:
        with pytest.raises(OidcError, match="signed with 'HS256'"):
            await signed_in(provider)


COMEBACKS: list[tuple[dict[str, str | None], str]] = [
    ({"state": "other"}, "from another sign-in"),
    ({"state": None}, "from another sign-in"),
    ({"state": "\ud800"}, "from another sign-in"),
    ({"iss": "https://other.example"}, "of another provider"),
    ({"iss": None}, "does not say whose it is"),
    ({"code": None}, "without a code"),
    ({"code": "guessed"}, "invalid_grant"),
    ({"error": "access_denied"}, "refused the sign-in .access_denied."),
    ({"error": "<script>"}, "an unknown error"),
]


async def test_a_browser_that_comes_back_with_something_else_is_nobody(played: PlayedProvider) -> None:
    async with asking(played.client()) as provider:
        for changes, words in COMEBACKS:
            begun, answer = await way(provider)
            changed = {name: value for name, value in {**answer, **changes}.items() if value is not None}
            with pytest.raises(OidcError, match=words) as caught:
                await provider.finish(begun, changed)
            assert "<" not in str(caught.value)


async def test_a_code_counts_once(played: PlayedProvider) -> None:
    async with asking(played.client()) as provider:
        begun, answer = await way(provider)
        await provider.finish(begun, answer)
        with pytest.raises(ProviderRefusedError, match="invalid_grant"):
            await provider.finish(begun, answer)


async def test_a_sign_in_is_over_after_some_minutes(played: PlayedProvider) -> None:
    now = 1_000.0
    async with asking(played.client(), now=lambda: now) as provider:
        begun, answer = await way(provider)
        now += SIGN_IN_SECONDS + 1
        with pytest.raises(OidcError, match="longer than 10 minutes"):
            await provider.finish(begun, answer)
    assert "/token" not in played.asked


DESCRIPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"issuer": "https://other.example"}, "says that its issuer is 'https://other.example'"),
    ({"issuer": None}, "says that its issuer is"),
    ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
    ({"token_endpoint": "http://sign-in.example.com/token"}, "token_endpoint: it is not encrypted"),
    ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri: it is no address"),
    ({"authorization_endpoint": None}, "authorization_endpoint: it is missing"),
]


async def test_a_provider_that_describes_itself_wrongly_is_not_used(played: PlayedProvider) -> None:
    async with asking(played.client()) as provider:
        for played.metadata, words in DESCRIPTIONS:
            with pytest.raises(OidcError, match=words):
                await provider.begin(BACK, "/")


async def test_an_issuer_is_compared_letter_by_letter(played: PlayedProvider) -> None:
    played.issuer += "/"
    played.metadata = {"issuer": played.issuer.rstrip("/")}
    async with asking(played.client()) as provider:
        with pytest.raises(OidcError, match="letter by letter"):
            await provider.begin(BACK, "/")


def too_much() -> Response:
    return PlainTextResponse("[" * 600_000)


TROUBLES: list[tuple[str, Callable[[], Response], type[OidcError], str]] = [
    ("/token", lambda: PlainTextResponse("", 503), ProviderDownError, "HTTP status 503"),
    ("/token", lambda: PlainTextResponse("slow", 429), ProviderDownError, "HTTP status 429"),
    ("/token", lambda: JSONResponse({"error": "invalid_client"}, 401), ProviderRefusedError, "invalid_client"),
    ("/token", lambda: JSONResponse({"access_token": "x"}), OidcError, "no ID token"),
    ("/token", lambda: PlainTextResponse("[" * 60_000), OidcError, "something else than a JSON object"),
    ("/token", too_much, OidcError, "more than"),
    ("/keys", lambda: JSONResponse({"keys": "none"}), OidcError, "publishes no keys"),
    ("/keys", lambda: JSONResponse({"keys": [5, {}]}), OidcError, "does not publish"),
    ("/keys", lambda: PlainTextResponse("", 502), ProviderDownError, "HTTP status 502"),
    ("/userinfo", lambda: JSONResponse({"sub": "bob", "groups": ["admins"]}), OidcError, "another person"),
    ("/userinfo", lambda: PlainTextResponse("", 401), ProviderRefusedError, "HTTP status 401"),
]


async def test_trouble_at_the_provider_is_told_and_signs_nobody_in(played: PlayedProvider) -> None:
    for path, answer, kind, words in TROUBLES:
        played.instead = {path: answer}
        async with asking(played.client(needs_groups=True)) as provider:
            with pytest.raises(kind, match=words) as caught:
                await signed_in(provider)
        assert "secret" not in str(caught.value)


async def test_a_provider_that_is_gone_is_down() -> None:
    async with played_provider() as played:
        client = played.client()
    async with asking(client) as provider:
        with pytest.raises(ProviderDownError, match="cannot be reached"):
            await provider.begin(BACK, "/")


async def test_a_new_key_is_found_and_the_description_is_read_once(played: PlayedProvider) -> None:
    async with asking(played.client()) as provider:
        provider._keys = KeySet(provider._read_keys, now=lambda: now)
        now = 0.0
        await signed_in(provider)
        played.renew_key("second")
        now += REREAD_SECONDS + 1
        await signed_in(provider)
    assert played.asked.count("/.well-known/openid-configuration") == 1
    assert played.asked.count("/keys") == 2


async def test_groups_come_from_where_they_are(played: PlayedProvider) -> None:
    async with asking(played.client(needs_groups=True)) as provider:
        played.userinfo = {"groups": ["from userinfo"]}
        assert (await signed_in(provider)).groups == {"from userinfo"}
        played.claims = {"groups": ["from the token"]}
        assert (await signed_in(provider)).groups == {"from the token"}


async def test_unknown_keys_are_looked_for_now_and_then_and_old_ones_forgotten() -> None:
    reads = 0
    now = 0.0
    keys = PlayedProvider().public_keys()

    async def read() -> list[dict[str, Any]]:
        nonlocal reads
        reads += 1
        return keys

    found = KeySet(read, now=lambda: now)
    for _ in range(50):
        with pytest.raises(IdTokenError, match="does not publish"):
            await found.find("unknown", "ES256")
    assert reads == 1
    now += REREAD_SECONDS + 1
    with pytest.raises(IdTokenError):
        await found.find("unknown", "ES256")
    assert reads == 2
    await found.find("first", "ES256")
    await found.find(None, "ES256")  # of one there is no choice
    keys = []
    now += KEYS_SECONDS + 1
    with pytest.raises(IdTokenError):
        await found.find("first", "ES256")


async def test_of_two_keys_a_token_says_which() -> None:
    keys = [*PlayedProvider().public_keys(), *PlayedProvider(kid="second").public_keys()]

    async def read() -> list[dict[str, Any]]:
        return keys

    with pytest.raises(IdTokenError, match="which of several"):
        await KeySet(read).find(None, "ES256")


@pytest.mark.parametrize(
    ("claims", "claim", "groups"),
    [
        ({"groups": ["a", "", 5, "b"]}, "groups", {"a", "b"}),
        ({"groups": "a"}, "groups", {"a"}),
        ({"groups": []}, "groups", set()),
        ({"groups": {"a": 1}}, "groups", set()),
        ({}, "groups", None),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", {"a"}),
        ({"realm_access": ["roles"]}, "realm_access.roles", None),
        ({"https://example.com/groups": ["a"]}, "https://example.com/groups", {"a"}),
    ],
)
def test_groups_are_read_in_every_form(claims: dict[str, Any], claim: str, groups: set[str] | None) -> None:
    assert groups_in(claims, claim) == groups


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("https://sign-in.example.com/realms/one", ""),
        ("http://localhost:8080", ""),
        ("http://127.0.0.1:8080", ""),
        ("http://sign-in.example.com", "not encrypted"),
        ("http://localhost.example.com", "not encrypted"),
        ("https://user@sign-in.example.com", "no address"),
        ("https://", "no address"),
        ("https://[::1", "no address"),
        ("ftp://localhost", "no address"),
        ("https://sign-in.example.com:99999", "no address"),
    ],
)
def test_a_provider_is_asked_over_tls(address: str, problem: str) -> None:
    assert problem in address_problem(address)
    assert bool(problem) == bool(address_problem(address))
