from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.destinations import is_loopback
from server.auth.origin import OriginPolicy, Refusal, check_bind
from server.errors import ConfigurationError
from server.settings.settings import Settings

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound


def why(refusal: Refusal | None) -> str:
    return "" if refusal is None else refusal.text


def policy(**values: object) -> OriginPolicy:
    return OriginPolicy.from_settings(Settings.model_validate(values))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.1:3000", "LOCALHOST:80", "[::1]:3000", "[::1]"])
def test_loopback_names_are_always_ours(host: str) -> None:
    assert policy().refusal(host, None) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:3000", "127.0.0.1.evil.example", "10.0.0.7", "", "localhost:x", "a b", "[::1", "@"],
)
def test_any_other_host_is_refused_against_rebinding(host: str) -> None:
    assert "allowed_hosts" in why(policy().refusal(host, None))


def test_a_request_without_a_host_is_refused() -> None:
    assert policy().refusal(None, None) is not None


def test_a_server_on_all_addresses_takes_plain_addresses_but_no_unknown_names() -> None:
    open_policy = policy(host=EVERYWHERE)
    assert open_policy.refusal("10.1.2.3:3000", None) is None
    assert open_policy.refusal("[fe80::1]:3000", None) is None
    assert open_policy.refusal("evil.example:3000", None) is not None


def test_pages_out_of_a_sandbox_are_refused_whatever_is_allowed() -> None:
    label = "8000-" + "a2" * 13
    open_policy = policy(allowed_origins=("*",), allowed_hosts=("*",), preview_domain="p.example")
    assert open_policy.refusal("drydock.example", "https://evil.example") is None
    assert "sandbox" in why(open_policy.refusal("drydock.example", f"https://{label}.p.example"))
    assert "sandbox" in why(open_policy.refusal("drydock.example", f"HTTP://{label.upper()}.P.EXAMPLE:81"))
    local = policy(allowed_origins=("*",))
    assert "sandbox" in why(local.refusal("localhost:3000", f"http://{label}.localhost:3000"))
    assert local.refusal("localhost:3000", "null") is None
    assert policy().refusal("localhost:3000", "null") is not None


def test_configured_hosts_are_ours() -> None:
    named = policy(allowed_hosts=("Drydock.example",))
    assert named.refusal("drydock.example:3000", None) is None
    assert named.refusal("other.example", None) is not None
    assert policy(allowed_hosts=("*",)).refusal("anything.example", None) is None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:3000", "http://localhost:3000"),
        ("localhost:3000", "https://localhost:3000"),
        ("localhost", "http://localhost:80"),
        ("localhost:443", "https://localhost"),
        ("[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_the_servers_own_page_may_use_it(host: str, origin: str) -> None:
    assert policy().refusal(host, origin) is None


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://localhost:3001", "null", "", "file://", "http://localhost:3000.evil.example", "x"],
)
def test_a_foreign_page_may_not(origin: str) -> None:
    assert "allowed_origins" in why(policy().refusal("localhost:3000", origin))


def test_a_foreign_page_on_the_list_may() -> None:
    listed = policy(allowed_origins=("https://Tools.example",))
    assert listed.refusal("localhost:3000", "https://tools.example") is None
    assert listed.refusal("localhost:3000", "http://tools.example") is not None


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_header_makes_the_check_fail_or_lets_a_strange_host_in(host: str, origin: str) -> None:
    refusal = policy().refusal(host, origin)
    name = host.lower().rpartition(":")[0] or host.lower()
    if refusal is None:
        assert name in {"localhost", "127.0.0.1", "[::1]", "::1"}


@pytest.mark.parametrize(
    ("host", "expected"), [("127.8.9.1", True), ("::1", True), ("[::1]", True), (EVERYWHERE, False)]
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.168.1.5", "drydock.example", "*"])
def test_listening_to_others_needs_a_token_and_says_what_to_set(host: str) -> None:
    with pytest.raises(ConfigurationError, match="DRYDOCK_TOKEN"):
        check_bind(Settings(host=host), None)
    check_bind(Settings(host=host), "a-long-token")
