"""Settings that do not go together: validators of `Settings`, each of the field whose value others before it refuse."""

from __future__ import annotations

from math import inf
from typing import Any, get_args

from pydantic import ValidationInfo

from agent_core.runtime.sandbox import NetworkWish
from server.settings.llm_profiles import (
    LLMProfile,
    missing_profile,
    operators_problem,
    purpose_problem,
    reference_problem,
    router_problem,
    wrong_at,
)


def no_less_than_usual(value: Any, info: ValidationInfo) -> Any:
    """What conversations may choose at most is no less than what they have without a choice."""
    name = str(info.field_name).replace("_max", "")
    usual = info.data.get(name)
    if value is None or usual is None:  # that one is wrong itself
        return value
    order = get_args(NetworkWish)
    most, least = (order.index(value), order.index(usual)) if usual in order else (value or inf, usual or inf)
    if most < least:
        raise ValueError(f"is less than {name}, which is {usual}; set it to that or more, or leave it out")
    return value


def key_of_a_certificate(value: Any, info: ValidationInfo) -> Any:
    """There is a certificate that the key belongs to."""
    if value is not None and info.data.get("tls_certificate", value) is None:
        raise ValueError("is the key of no certificate; set tls_certificate, too, or leave it out")
    return value


def who_says_who_asks(value: Any, info: ValidationInfo) -> Any:
    """One of the two says whose a request is."""
    if value is not None and info.data.get("users") == "accounts":
        raise ValueError('says who asks, and so does users = "accounts"; leave one of the two out')
    return value


def of_accounts(value: Any, info: ValidationInfo) -> Any:
    """Who signs in elsewhere has an account here."""
    if value is not None and info.data.get("users", "accounts") != "accounts":
        raise ValueError('is for a server with accounts; set users = "accounts", too, or leave it out')
    return value


def of_a_provider(value: Any, info: ValidationInfo) -> Any:
    """A provider knows this server by a name."""
    if info.data.get("oidc_issuer") is not None and value is None:
        raise ValueError("is missing; it is what the provider calls this server, told when you register it there")
    return value


def of_a_user_header(value: Any, info: ValidationInfo) -> Any:
    """A header that says who asks counts from stated addresses; a further one is beside it."""
    header = info.data.get("user_header", "")
    if info.field_name == "user_header_from" and header and not value:
        raise ValueError("is missing; without the proxy's addresses, anybody could say who they are (user_header)")
    if value and header is None:
        raise ValueError("is of no use without user_header; set that, too, or leave it out")
    if header and isinstance(value, str) and value.lower() == header.lower():
        raise ValueError("is the header that names users (user_header); groups come in another one")
    return value


def for_somebody(value: Any, info: ValidationInfo) -> Any:
    """Somebody can sign in by the ways to do so."""
    ways = [name for name in ("oidc_issuer", "user_header") if info.data.get(name) is not None]
    if value is None and ways and not info.data.get("group_roles", True):
        raise ValueError(
            f"nobody could sign in by {' and '.join(ways)}: say in group_roles which groups may use the server, or here"
            " what everybody is whom the provider or the proxy vouches for"
        )
    return value


def with_an_image_to_install_in(value: str, info: ValidationInfo) -> str:
    """Commands that install something are for sandboxes that have an image."""
    sandbox, own = info.data.get("sandbox"), info.data.get("sandbox_provider_class")
    if value.strip() and own is None and sandbox in ("local", "unconfined"):
        raise ValueError(f"{sandbox} sandboxes have no image to install in; leave it out, or have sandbox = docker")
    return value


def usable_profiles(value: dict[str, LLMProfile]) -> dict[str, LLMProfile]:
    """Each can be used by the server, and names only others that there are."""
    for name, profile in value.items():
        problem = operators_problem(profile) or reference_problem(name, profile, value)
        if (problem := problem or router_problem(profile, value)) is not None:
            raise wrong_at((name, *problem[0].split(".")), problem[1])
    return value


def known_profiles(value: Any, info: ValidationInfo) -> Any:
    """The name of a profile, or a table of such names, is of those that there are."""
    if (known := info.data.get("llm_profiles")) is None:
        return value  # that they are wrong is told already
    named = value if isinstance(value, dict) else {"": value}
    for purpose in named if info.field_name == "llm_purposes" else ():
        if (problem := purpose_problem(purpose)) is not None:
            raise wrong_at((purpose,), problem, named[purpose])
    for key, name in named.items():
        if name is not None and name not in known:
            raise wrong_at((key,) if key else (), missing_profile(name, known), name)
    return value
