"""Masking: no form of a secret survives, at any depth, in whatever pieces it comes."""

from __future__ import annotations

import base64
import json
import shlex
from urllib.parse import quote, quote_plus

from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic_core import to_json

from agent_core.events.masking import MASK, MIN_SECRET_LENGTH, SecretMasker, StreamingMask

secrets = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=["Cs"]), min_size=12, max_size=40
)
surroundings = st.text("abc xyz.,\n", max_size=20)


def nest(value: str, depth: int) -> object:
    return value if depth == 0 else [{"k": nest(value, depth - 1)}, "other"]


@given(secrets, surroundings, surroundings, st.integers(0, 5))
def test_a_secret_is_hidden_at_any_depth(secret: str, before: str, after: str, depth: int) -> None:
    assume(secret not in before + after)
    masked = json.dumps(SecretMasker([secret]).data(nest(before + secret + after, depth)), ensure_ascii=False)
    assert secret not in masked
    assert MASK in masked


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=40), surroundings, surroundings)
def test_a_document_that_holds_a_secret_is_never_taken_for_one_without(secret: str, before: str, after: str) -> None:
    assume(len(secret.strip()) >= MIN_SECRET_LENGTH)
    masker = SecretMasker([secret])
    for text in (secret, json.dumps(secret), quote(secret), base64.b64encode(secret.encode()).decode()):
        assume(masker.text(before + text + after) != before + text + after)
        for value in (before + text + after, {before + text + after: 1}, [[before + text + after]]):
            assert masker.may_be_in(to_json(value))


def test_a_document_without_a_secret_is_told_at_once() -> None:
    assert not SecretMasker(["open-sesame"]).may_be_in(b'{"text": "open sesame"}')
    assert not SecretMasker().may_be_in(b"{}")


@given(secrets)
def test_keys_of_objects_are_masked_too(secret: str) -> None:
    assert SecretMasker([secret]).data({f"x{secret}": 1}) == {f"x{MASK}": 1}


@given(secrets, st.binary(max_size=7), st.binary(max_size=7))
def test_base64_hides_it_at_any_alignment(secret: str, before: bytes, after: bytes) -> None:
    data = before + secret.encode() + after
    for encoded in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()):
        assert MASK in SecretMasker([secret]).text(encoded)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=11))
def test_base64_hides_a_short_one_that_stands_alone(secret: str) -> None:
    encoded = base64.b64encode(secret.encode()).decode()
    assert encoded.rstrip("=") not in SecretMasker([secret]).text(f"key: {encoded}.")


@given(st.binary(min_size=24, max_size=150), st.binary(max_size=90), st.sampled_from([64, 76]), st.data())
def test_base64_in_lines_hides_it(noise: bytes, before: bytes, width: int, data: st.DataObject) -> None:
    secret = noise.hex()
    encoded = base64.b64encode(before + secret.encode() + b"rest").decode()
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    lines = end.join(encoded[start : start + width] for start in range(0, len(encoded), width))
    masker = SecretMasker([secret])
    assert masker.may_be_in(to_json({"text": lines}))
    shown = masker.text(lines)
    core = base64.b64encode(b"\0" * (len(before) % 3) + secret.encode()).decode()[4:-4]
    left = shown.replace("\r", "").replace("\n", "")
    assert not any(core[start : start + 12] in left for start in range(len(core) - 12))
    streaming = StreamingMask(masker)
    pieces = [lines[start : start + 7] for start in range(0, len(lines), 7)]
    assert "".join(map(streaming.feed, pieces)) + streaming.flush() == shown


def test_the_url_encoding_of_browsers_hides_it() -> None:
    assert SecretMasker(["it's (a) /secret!*"]).text("?k=it's%20(a)%20%2Fsecret!*&x") == f"?k={MASK}&x"


def test_a_value_with_half_a_character_is_no_reason_to_fail() -> None:
    assert SecretMasker(["half\ud800secret"]).text("a half\ud800secret b") == f"a {MASK} b"


@given(secrets)
def test_url_encoding_hides_it(secret: str) -> None:
    for form in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
        assert secret not in SecretMasker([secret]).text(f"https://host/?key={form}&x=1")
        assert MASK in SecretMasker([secret]).text(f"https://host/?key={form}&x=1")


def test_a_secret_inside_another_one_leaves_no_rest() -> None:
    masker = SecretMasker(["open-sesame", "open-sesame-twice"])
    assert masker.text("open-sesame-twice open-sesame") == f"{MASK} {MASK}"


def test_a_rotated_secret_stays_hidden() -> None:
    masker = SecretMasker(["first-value"])
    masker.add(["second-value"])
    assert masker.text("first-value second-value") == f"{MASK} {MASK}"


QUOTE = r"'\''"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nc2VjcmV0IGxpbmUgdHdv\nzz9Q=\n-----END KEY-----\n"


def test_a_secret_of_several_lines_is_hidden_line_by_line_too() -> None:
    masker = SecretMasker([KEY])
    assert masker.text(f"key:\n{KEY}") == f"key:\n{MASK}"
    numbered = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(KEY.splitlines(), start=1))
    shown = masker.text(numbered)
    assert [line.split("\t")[1] for line in shown.splitlines()] == [
        "-----BEGIN KEY-----",
        *[MASK] * 3,
        "-----END KEY-----",
    ]
    config = SecretMasker(["kind: Config\nusers:\n  - token: abcdefgh12345678\n"])
    assert config.text("kind: Config, - token: abcdefgh12345678") == f"kind: Config, {MASK}"


def test_a_secret_is_hidden_without_the_space_around_it_too() -> None:
    assert SecretMasker(["open-sesame\n"]).text("it is open-sesame.") == f"it is {MASK}."


def test_the_quotes_of_programs_and_shells_hide_it() -> None:
    secret = 'it\'s "q" $HOME `id` \\ back'
    masker = SecretMasker([secret])
    declared = 'declare -x K="it\'s \\"q\\" \\$HOME \\`id\\` \\\\ back"'
    for shown in (
        repr(secret),
        json.dumps(secret),
        shlex.quote(secret),
        f"K='{secret.replace(chr(39), QUOTE)}'",
        declared,
    ):
        assert MASK in masker.text(shown), shown


@given(st.data())
def test_a_key_that_is_streamed_shows_only_its_marks(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(KEY)), max_size=6)))
    stream = StreamingMask(SecretMasker([KEY]))
    pieces = [KEY[start:end] for start, end in zip([0, *cuts], [*cuts, len(KEY)], strict=True)]
    shown = "".join(map(stream.feed, pieces)) + stream.flush()
    assert all(line in {MASK, "-----BEGIN KEY-----", "-----END KEY-----"} for line in shown.splitlines())


def test_very_short_values_are_left_alone() -> None:
    assert SecretMasker(["ab", "   "]).text("ab cd") == "ab cd"


@given(secrets, surroundings, surroundings, st.lists(st.integers(1, 9), min_size=1, max_size=60))
def test_streamed_text_never_shows_a_secret_and_loses_nothing(
    secret: str, before: str, after: str, sizes: list[int]
) -> None:
    assume(secret not in before + after)
    masker = SecretMasker([secret])
    whole = before + secret + after
    mask, shown, rest = StreamingMask(masker), "", whole
    for size in sizes:
        shown += mask.feed(rest[:size])
        rest = rest[size:]
        assert secret not in shown
    shown += mask.feed(rest) + mask.flush()
    assert shown == masker.text(whole)


def test_text_that_cannot_be_part_of_a_secret_is_shown_at_once() -> None:
    mask = StreamingMask(SecretMasker(["sk-very-long-secret-value"]))
    assert mask.feed("begun\n") == "begun\n"
    assert mask.feed("the key is sk-very") == "the key is "
    assert mask.feed(" well") == "sk-very well"


@given(
    st.lists(st.text("ab", min_size=MIN_SECRET_LENGTH, max_size=7), min_size=1, max_size=4),
    st.lists(st.text("ab", max_size=6), max_size=8),
)
def test_pieces_show_what_the_whole_text_shows(hidden: list[str], pieces: list[str]) -> None:
    """Also of secrets that begin with, end with or lie across one another."""
    masker = SecretMasker(hidden)
    mask = StreamingMask(masker)
    assert "".join(map(mask.feed, pieces)) + mask.flush() == masker.text("".join(pieces))


def test_a_secret_that_begins_with_another_one_is_hidden_whole() -> None:
    mask = StreamingMask(SecretMasker(["open-sesame", "open-sesame-twice"]))
    assert mask.feed("say open-sesame") == "say "
    assert mask.feed("-twi") == ""
    assert mask.feed("ce and open-sesame-now") == f"{MASK} and {MASK}-now"
    assert mask.flush() == ""
