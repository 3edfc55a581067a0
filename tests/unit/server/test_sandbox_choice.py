"""What a conversation may choose of its sandbox, and what becomes of it when the server's bounds change."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.runtime.sandbox import NetworkWish
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.user_settings import StoredSettings
from server.session.sandbox_choice import (
    ChosenSandbox,
    SandboxOptions,
    SandboxRefusedError,
    choose_sandbox,
    image_of,
    is_allowed,
    limits_of,
    network_of,
    stored_choice,
)
from server.settings.settings import Settings

NOTHING = SandboxOptions()


def choose(server: dict[str, Any], request: dict[str, Any] | None = None, **user: Any) -> ChosenSandbox:
    return choose_sandbox(
        SandboxOptions.model_validate(request or {}), StoredSettings(**user), Settings.model_validate(server)
    )


@pytest.mark.parametrize(
    ("patterns", "image", "allowed"),
    [
        ((), "drydock/sandbox:base", True),
        ((), "drydock/sandbox:browser", True),
        ((), "python:3.12", False),
        (("python:3.*",), "python:3.12", True),
        (("python:3.*",), "python:3.12/evil", False),
        (("python:3.*",), "python:2.7", False),
        (("python:3.*",), "evil/python:3.12", False),
        (("python:latest",), "python", True),
        (("python",), "python:latest", True),
        (("python",), "python:3", False),
        (("python",), "python", True),
        (("ghcr.io/me/*",), "ghcr.io/me/a:1", True),
        (("ghcr.io/me/*",), "ghcr.io/me/a/b:1", False),
        (("*/me/*",), "ghcr.io/me/a:1", True),
        (("*",), "ghcr.io/anybody/a/b:1", True),
        (("a.b",), "acb", False),
        (("mine@sha256:*",), "mine@sha256:" + "0" * 64, True),
    ],
)
def test_images_are_allowed_by_patterns_whose_star_stops_at_a_slash(
    patterns: tuple[str, ...], image: str, allowed: bool
) -> None:
    assert is_allowed(image, Settings(sandbox_images=patterns)) is allowed


@pytest.mark.parametrize("image", ["Python", "a b", "-a", "a:", "a@sha256:12", "../a", "a\n", "a;b", "a" * 501, "ü:1"])
def test_what_is_no_name_of_an_image_is_refused_as_such(image: str) -> None:
    if image == "a\n":  # cut off, as around every name
        assert SandboxOptions(image=image).image == "a"
        return
    with pytest.raises(ValidationError, match="no name of an image"):
        SandboxOptions(image=image)


def test_the_request_wins_over_the_users_runtime_image_over_their_base_image_over_the_servers() -> None:
    server = {"sandbox_image": "own:1", "sandbox_images": "a:*"}
    base, runtime = {"sandbox_base_container_image": "a:base"}, {"sandbox_runtime_container_image": "a:runtime"}
    for request, user, image, source in (
        ({"image": "a:request"}, {**base, **runtime}, "a:request", "request"),
        ({}, {**base, **runtime}, "a:runtime", "user"),
        ({"image": " "}, base, "a:base", "user"),
        ({}, {"sandbox_base_container_image": " "}, "own:1", "server"),
    ):
        chosen = choose(server, request, **user)
        assert (chosen.image, chosen.image_from) == (image, source)


@pytest.mark.parametrize(
    ("request_", "user", "named"),
    [
        ({"image": "b:1"}, {}, "sandbox.image"),
        ({}, {"sandbox_base_container_image": "b:1"}, "sandbox_base_container_image"),
        ({}, {"sandbox_runtime_container_image": "b:1"}, "sandbox_runtime_container_image"),
    ],
)
def test_an_image_that_is_not_allowed_is_refused_with_the_list_and_the_fix(
    request_: dict[str, Any], user: dict[str, Any], named: str
) -> None:
    with pytest.raises(SandboxRefusedError) as refused:
        choose({"sandbox_images": "a:*"}, request_, **user)
    assert refused.value.field == named
    assert str(refused.value).startswith(f"{named}: the image b:1 is not one")
    assert "drydock/sandbox:base, drydock/sandbox:*, a:*" in str(refused.value)
    assert "sandbox_images" in str(refused.value)


@pytest.mark.parametrize(
    ("field", "setting", "usual", "maximum"),
    [
        ("memory_mb", "sandbox_memory_mb", 512, "sandbox_memory_max_mb"),
        ("cpus", "sandbox_cpus", 1.5, "sandbox_cpus_max"),
        ("processes", "sandbox_processes", 64, "sandbox_processes_max"),
        ("disk_mb", "sandbox_disk_mb", 100, "sandbox_disk_max_mb"),
        ("start_seconds", "sandbox_start_seconds", 20, "sandbox_start_max_seconds"),
    ],
)
def test_a_number_may_be_less_than_usual_and_more_only_up_to_the_operators_maximum(
    field: str, setting: str, usual: float, maximum: str
) -> None:
    kind = type(usual)
    assert getattr(choose({setting: usual}, {field: usual}), field) == usual
    with pytest.raises(SandboxRefusedError, match=f"sandbox.{field}: .* is {usual}.*{maximum}"):
        choose({setting: usual}, {field: usual * 2})
    widened = {setting: usual, maximum: kind(usual * 2)}
    assert getattr(choose(widened, {field: kind(usual * 2)}), field) == usual * 2
    with pytest.raises(SandboxRefusedError):
        choose(widened, {field: kind(usual * 2) + 1})
    with pytest.raises(ValidationError, match=f"is less than {setting}"):
        Settings.model_validate({setting: usual, maximum: kind(usual) - 1})


def test_a_disk_without_a_bound_lets_any_size_be_chosen() -> None:
    assert choose({"sandbox_disk_mb": 0}, {"disk_mb": 10**8}).disk_mb == 10**8
    assert choose({"sandbox_disk_mb": 10, "sandbox_disk_max_mb": 0}, {"disk_mb": 10**8}).disk_mb == 10**8
    with pytest.raises(ValidationError, match="is less than sandbox_disk_mb"):
        Settings(sandbox_disk_mb=0, sandbox_disk_max_mb=10)


def test_a_network_may_be_narrower_than_usual_and_wider_only_up_to_the_operators_maximum() -> None:
    order: tuple[NetworkWish, ...] = ("none", "internal", "full", "host-access")
    for number, usual in enumerate(order):
        for place, asked in enumerate(order):
            if place <= number:
                assert choose({"sandbox_network": usual}, {"network": asked}).network == asked
            else:
                with pytest.raises(
                    SandboxRefusedError, match=rf"sandbox\.network: {asked} .*{', '.join(order[: number + 1])}"
                ):
                    choose({"sandbox_network": usual}, {"network": asked})
            widened = {"sandbox_network": usual, "sandbox_network_max": order[max(number, place)]}
            assert choose(widened, {"network": asked}).network == asked
    with pytest.raises(ValidationError, match="is less than sandbox_network"):
        Settings(sandbox_network="full", sandbox_network_max="internal")


def test_the_factor_multiplies_memory_and_processors_within_the_bounds() -> None:
    server = {"sandbox_memory_mb": 100, "sandbox_cpus": 0.5, "sandbox_memory_max_mb": 400, "sandbox_cpus_max": 4}
    for factor, memory, cpus in ((None, None, None), (0, None, None), (1, None, None), (4, 400, 2.0)):
        chosen = choose(server, remote_runtime_resource_factor=factor)
        assert (chosen.memory_mb, chosen.cpus) == (memory, cpus)
    with pytest.raises(SandboxRefusedError, match=r"remote_runtime_resource_factor: 5 times.*500 MiB.*400 MiB"):
        choose(server, remote_runtime_resource_factor=5)
    chosen = choose(server, {"memory_mb": 200}, remote_runtime_resource_factor=5)
    assert (chosen.memory_mb, chosen.cpus) == (200, 2.5), "the request says how much"


def test_a_stored_choice_stays_when_defaults_change_and_is_never_more_than_what_may_be_chosen_by_now() -> None:
    before = Settings(sandbox_memory_mb=512, sandbox_memory_max_mb=2048)
    request = SandboxOptions(memory_mb=1024, network="internal")
    record = ConversationRecord(id="a", options={"sandbox": choose_sandbox(request, None, before).model_dump()})
    chosen = stored_choice(record)
    assert limits_of(chosen, Settings(sandbox_memory_mb=2048)).memory == 1024 * 1024**2
    assert limits_of(chosen, Settings(sandbox_memory_mb=128)).memory == 128 * 1024**2
    assert limits_of(chosen, Settings()).cpus == 2.0
    assert network_of(chosen, Settings()) == "internal"
    assert network_of(chosen, Settings(sandbox_network="none")) == "none"
    assert network_of(ChosenSandbox(), Settings(sandbox_network="none")) == "none"


def test_an_image_that_may_not_be_chosen_any_more_is_not_used_any_more() -> None:
    chosen = choose({"sandbox_images": ("python:*",)}, {"image": "python:3.12"})
    assert image_of(chosen, Settings(sandbox_images=("python:3.*",))) == "python:3.12"
    assert image_of(chosen, Settings(sandbox_image="mine:1")) == "mine:1"
    assert image_of(choose({"sandbox_image": "old:1"}), Settings(sandbox_image="new:1")) == "old:1", "nobody chose it"


def test_what_cannot_be_read_of_a_stored_choice_is_left_to_the_server() -> None:
    record = ConversationRecord(id="a", options={"sandbox": {"image": "a:1", "memory_mb": "much", "new": 1}})
    assert stored_choice(record) == ChosenSandbox(image="a:1")
    assert stored_choice(ConversationRecord(id="a")) == ChosenSandbox()
