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
