"""The registry of secrets: who gets them, what is hidden, and what happens when one cannot be had."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from agent_core.events.masking import MASK, SecretMasker
from agent_core.security import secrets as module
from agent_core.security.secrets import (
    CallableSecret,
    LookupSecret,
    SecretRegistry,
    SecretSource,
    SecretValue,
    StaticSecret,
)


def registry(**given: SecretValue) -> tuple[SecretRegistry, SecretMasker]:
    masker = SecretMasker()
    made = SecretRegistry(masker.add)
    made.update(given)
    return made, masker


async def test_a_command_gets_the_secrets_that_it_names_in_any_case_and_no_others() -> None:
    secrets, _ = registry(API_TOKEN="one-value", OTHER=SecretStr("two-value"), third=StaticSecret(secret="three-v"))
    assert await secrets.environment_for("curl -H $api_token x") == {"API_TOKEN": "one-value"}
    assert await secrets.environment_for("echo $OTHER ${THIRD}") == {"OTHER": "two-value", "third": "three-v"}
    assert await secrets.environment_for("ls") == {}


class Vault:
    """A program's own source, as short as it may be."""

    def get_value(self) -> str:
        return "vault-value"


class Described(SecretSource):
    description = "opens the door"

    async def get_value(self) -> str:
        return "door-value"


class Plain:
    description = None

    def value(self) -> str:
        return "plain-value"


async def test_a_programs_own_source_needs_nothing_but_a_value() -> None:
    described: Any = Described()  # type: ignore[abstract] # a program that is not type-checked
    sources: dict[str, Any] = {"VAULT": Vault(), "DOOR": described, "PLAIN": Plain()}
    secrets, masker = registry(**sources, GIVEN=StaticSecret.model_validate({"value": "given-value"}))
    values = {"VAULT": "vault-value", "DOOR": "door-value", "PLAIN": "plain-value", "GIVEN": "given-value"}
    assert await secrets.environment_for("echo $VAULT $DOOR $PLAIN $GIVEN") == values
    assert secrets.descriptions() == {"VAULT": "", "DOOR": "opens the door", "PLAIN": "", "GIVEN": ""}
    assert [masker.text(value) for value in values.values()] == [MASK] * 4


@given(st.sets(st.from_regex(r"\A[a-zA-Z_]{1,4}\Z"), max_size=6), st.text(alphabet="abAB_ $", max_size=20))
def test_exactly_those_whose_names_are_in_the_command_are_given(names: set[str], command: str) -> None:
    secrets, masker = registry(**{name: f"value-of-{name}" for name in names})
    found = asyncio.run(secrets.environment_for(command))
    assert found == {name: f"value-of-{name}" for name in names if name.lower() in command.lower()}
    assert all(masker.text(f"value-of-{name}") == MASK for name in names)


@pytest.mark.parametrize(
    "make",
    [
        lambda: StaticSecret(secret=271828),
        lambda: LookupSecret(url="https://vault/x", headers={"Key": 271828}),
    ],
)
def test_a_source_that_cannot_be_made_shows_no_value_in_its_error(make: Callable[[], SecretSource]) -> None:
    with pytest.raises(ValidationError) as caught:
        make()
    assert "271828" not in str(caught.value)


async def test_values_that_no_variable_can_hold_are_hidden_but_not_given() -> None:
    secrets, masker = registry(
        **{"my key": "value-one", "9A": "value-two", "NUL": "value\0three", "HALF": "half\ud800x"}
    )
    assert await secrets.environment_for("my key 9A NUL HALF") == {}
    assert masker.text("value-one value-two") == f"{MASK} {MASK}"


async def test_a_function_is_asked_each_time_and_replaced_values_stay_hidden() -> None:
    values = iter(["first-value", "second-value", None])

    async def later() -> str | None:
        return next(values)

    secrets, masker = registry(KEY=later)
    assert await secrets.environment_for("$KEY") == {"KEY": "first-value"}
    assert await secrets.environment_for("$KEY") == {"KEY": "second-value"}
    assert await secrets.environment_for("$KEY") == {}
    secrets.update({"KEY": "third-value"})
    assert await secrets.environment_for("$KEY") == {"KEY": "third-value"}
    assert masker.text("first-value second-value third-value") == f"{MASK} {MASK} {MASK}"


async def test_a_function_that_is_not_asynchronous_does_not_hold_up_the_loop() -> None:
    released = threading.Event()

    def slow() -> str:
        assert released.wait(60)
        return "slow-value"

    secrets, _ = registry(SLOW=CallableSecret(slow, "takes its time"))
    asking = asyncio.create_task(secrets.environment_for("$SLOW"))
    await asyncio.sleep(0)
    released.set()
    assert await asking == {"SLOW": "slow-value"}
    assert secrets.descriptions() == {"SLOW": "takes its time"}


async def test_a_function_that_has_nothing_more_to_give_does_not_hang() -> None:
    secrets, _ = registry(KEY=CallableSecret(iter(["the-only-one"]).__next__))
    async with asyncio.timeout(60):
        assert await secrets.environment_for("$KEY") == {"KEY": "the-only-one"}
        assert await secrets.environment_for("$KEY") == {}


async def test_all_values_are_known_before_any_command_and_failed_ones_are_tried_again_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def broken() -> str:
        asked.append("broken")
        raise ValueError("hunter2-is-the-password")

    def fine() -> str:
        asked.append("fine")
        return "fine-value"

    secrets, masker = registry(BROKEN=broken, FINE=fine)
    assert await secrets.environment_for("ls") == {}
    assert masker.text("fine-value") == MASK
    assert await secrets.environment_for("ls") == {}
    assert sorted(asked) == ["broken", "fine"]
    assert await secrets.environment_for("$BROKEN") == {}
    assert asked.count("broken") == 2
    monkeypatch.setattr(module, "RETRY_SECONDS", -1.0)
    await secrets.environment_for("$BROKEN")
    await secrets.environment_for("ls")
    assert asked.count("broken") == 4
    assert "BROKEN" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_source_that_is_given_anew_is_asked_at_once_and_one_that_was_taken_away_no_more() -> None:
    def broken() -> str:
        raise ValueError("it is locked")

    secrets, masker = registry(KEY=broken)
    await secrets.environment_for("ls")
    secrets.update({"KEY": lambda: "first-value"})
    await secrets.environment_for("ls")
    assert masker.text("first-value") == MASK
    assert await secrets.environment_for("$KEY") == {"KEY": "first-value"}

    secrets.remove(["KEY", "UNKNOWN"])
    assert not secrets
    assert await secrets.environment_for("$KEY") == {}
    assert secrets.descriptions() == {}
    assert masker.text("first-value") == MASK

    secrets.update({"KEY": broken})
    await secrets.environment_for("ls")
    secrets.remove(["KEY"])
    secrets.update({"KEY": lambda: "second-value"})
    await secrets.environment_for("ls")
    assert masker.text("second-value") == MASK


async def test_a_source_that_replaces_a_value_is_hidden_before_any_command_can_show_it() -> None:
    secrets, masker = registry(KEY="first-value")
    secrets.update({"KEY": lambda: "second-value"})
    assert await secrets.environment_for("ls") == {}
    assert masker.text("first-value second-value") == f"{MASK} {MASK}"


async def test_a_source_that_never_answers_is_none_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.02)

    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    secrets, _ = registry(NEVER=never)
    assert await secrets.environment_for("$NEVER") == {}


def test_values_that_are_too_short_are_not_hidden_and_longer_ones_are_first() -> None:
    _, masker = registry(SHORT="abc", LONG="value-long", PART="value")
    assert masker.text("abc value-long value") == f"abc {MASK} {MASK}"


def test_only_descriptions_are_told_and_stored_forms_hold_no_value() -> None:
    static = StaticSecret(secret=SecretStr("static-value"), description="the shop's key")
    lookup = LookupSecret(url="https://example.com/key", headers={"X-Key": SecretStr("header-value")})
    secrets, _ = registry(STATIC=static, LOOKUP=lookup)
    assert secrets.descriptions() == {"STATIC": "the shop's key", "LOOKUP": ""}
    assert "value" not in static.model_dump_json() + lookup.model_dump_json()
    assert "static-value" not in repr(secrets) + repr(static)


def test_an_empty_value_was_not_given_again() -> None:
    secrets, _ = registry(EMPTY="")
    assert not secrets
    assert secrets.descriptions() == {}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/key")
            self.end_headers()
            return
        known = self.headers.get("X-Key") == "header-value"
        self.send_response(200 if known and self.path in ("/key", "/huge") else 403)
        self.end_headers()
        self.wfile.write(b"looked-up-value\n" if self.path == "/key" else b"x" * 100_000)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - likewise
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_a_value_is_looked_up_at_its_server_which_alone_is_sent_the_headers(server: str) -> None:
    headers = {"X-Key": SecretStr("header-value")}
    secrets, masker = registry(
        GOOD=LookupSecret(url=f"{server}/key", headers=headers),
        REFUSED=LookupSecret(url=f"{server}/key"),
        MOVED=LookupSecret(url=f"{server}/moved", headers=headers),
        HUGE=LookupSecret(url=f"{server}/huge", headers=headers),
    )
    assert await secrets.environment_for("GOOD REFUSED MOVED HUGE") == {"GOOD": "looked-up-value"}
    assert masker.text("is looked-up-value") == f"is {MASK}"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/x", "example.com", "http:///x"])
def test_only_complete_web_addresses_can_be_looked_up(url: str) -> None:
    with pytest.raises(ValidationError, match="http"):
        LookupSecret(url=url)


def test_a_stored_source_has_no_value_in_it_not_even_a_masked_one() -> None:
    assert StaticSecret(secret=SecretStr("swordfish"), description="d").model_dump_json() == '{"description":"d"}'
    looked_up = LookupSecret(url="https://vault.example/x", headers={"X-Key": SecretStr("swordfish")})
    assert looked_up.model_dump_json() == '{"url":"https://vault.example/x","description":""}'
