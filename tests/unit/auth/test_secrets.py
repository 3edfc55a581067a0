from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.auth.secrets import SecretBox, SecretKeyError, SecretUnreadableError

KEY = bytes(range(32))


@given(text=st.text(), purpose=st.text())
def test_what_was_encrypted_can_be_read_for_its_purpose(text: str, purpose: str) -> None:
    box = SecretBox(KEY)
    assert box.decrypt(box.encrypt(text, purpose=purpose), purpose=purpose) == text


def test_the_same_text_never_looks_the_same() -> None:
    box = SecretBox(KEY)
    assert len({box.encrypt("x", purpose="p") for _ in range(10)}) == 10


def test_neither_another_key_nor_another_purpose_reads_it() -> None:
    token = SecretBox(KEY).encrypt("hunter2", purpose="p")
    for box, purpose in ((SecretBox(KEY), "q"), (SecretBox(bytes(32)), "p")):
        with pytest.raises(SecretUnreadableError, match="enter the secret again") as caught:
            box.decrypt(token, purpose=purpose)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "change", [lambda t: t[:-4] + "AAAA", lambda t: t[:20], lambda t: t[3:], lambda t: "", str.upper]
)
def test_a_changed_token_is_refused(change: Callable[[str], str]) -> None:
    box = SecretBox(KEY)
    with pytest.raises(SecretUnreadableError):
        box.decrypt(change(box.encrypt("hunter2", purpose="p")), purpose="p")


def test_a_missing_key_file_is_made_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    token = SecretBox.open(path).encrypt("x", purpose="p")
    assert path.stat().st_mode & 0o777 == 0o600
    assert SecretBox.open(path).decrypt(token, purpose="p") == "x"
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret.key"]


def test_of_many_that_make_the_key_at_once_all_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        boxes = list(pool.map(SecretBox.open, [tmp_path / "secret.key"] * 16))
    token = boxes[0].encrypt("x", purpose="p")
    assert {box.decrypt(token, purpose="p") for box in boxes} == {"x"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret.key"]


def test_a_key_file_that_others_may_read_is_closed_to_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "secret.key"
    SecretBox.open(path)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        SecretBox.open(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "could be read by others" in caplog.text


@pytest.mark.parametrize("content", [b"", b"short", b"\xff\xfe", b"A" * 44, b"A" * 100])
def test_a_file_without_a_key_is_refused_by_name_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret.key"
    path.write_bytes(content)
    with pytest.raises(SecretKeyError, match="holds no key; restore it from a backup") as caught:
        SecretBox.open(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_a_key_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "secret.key"
    with pytest.raises(SecretKeyError, match="cannot be used") as caught:
        SecretBox.open(path)
    assert str(path) in str(caught.value)
