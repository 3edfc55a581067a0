from __future__ import annotations

import io
from pathlib import Path

import pytest

from agent_core.events.masking import secrets_in_address
from server.cli.doctor import doctor
from server.settings.settings import Settings
from server.settings.text_fields import shown_address


@pytest.mark.parametrize(
    ("address", "shown", "secrets"),
    [
        ("https://a.example/v1", "https://a.example/v1", []),
        ("https://a.example:8000/v1?key=k#f", "https://a.example:8000/v1", ["k"]),
        ("https://user@a.example", "https://a.example", []),
        ("https://ghp_0123456789abcdef@a.example", "https://a.example", ["ghp_0123456789abcdef"]),
        ("https://a.example/?a=b&api%5Fkey=x%2By&page=2", "https://a.example/", ["x%2By", "x+y"]),
        ("https://user:p%40ss@a.example/v1", "https://a.example/v1", ["p%40ss", "p@ss"]),
        ("https://:pass@[::1]:80", "https://[::1]:80", ["pass"]),
        ("https://[::1", "https://[::1", []),
        ("https://user:pass@[broken?key=k", "[broken", []),
    ],
)
def test_what_may_be_secret_in_an_address_is_not_shown(address: str, shown: str, secrets: list[str]) -> None:
    assert (shown_address(address), secrets_in_address(address)) == (shown, secrets)


def test_the_models_address_is_told_without_its_password(tmp_path: Path) -> None:
    address = "http://user:do-not-tell@127.0.0.1:9/v1"
    out = io.StringIO()
    doctor(Settings(data_dir=tmp_path, llm_model="openai/x", llm_base_url=address, sandbox="unconfined"), out)
    assert "openai/x at http://127.0.0.1:9/v1, without a key; nothing answers there" in out.getvalue()
