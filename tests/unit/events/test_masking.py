"""Masking: no form of a secret survives, at any depth, in whatever pieces it comes."""

from __future__ import annotations

import base64
import html
import itertools
import json
import re
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from agent_core.events.masking import MASK, MIN_SECRET_LENGTH, SecretMasker, StreamingMask
from tests.canaries import found_in, written

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
    assert masker.text(f"key:\n{KEY}") == f"key:\n{MASK}\n"
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


tokens = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40)
white = st.text(" \t\r\n", max_size=8)


def checked(secret: str, text: str, step: int = 5) -> str:
    """What is shown of a text: the same whole and in pieces, and not taken for a document without a secret."""
    masker = SecretMasker([secret])
    shown = masker.text(text)
    if shown != text:
        assert masker.may_be_in(to_json({"text": text}))
    streaming = StreamingMask(masker)
    pieces = [text[start : start + step] for start in range(0, len(text), step)]
    assert "".join(map(streaming.feed, pieces)) + streaming.flush() == shown
    return shown


@given(tokens, st.lists(white, min_size=40, max_size=40), surroundings, st.integers(1, 20))
def test_white_space_within_a_secret_does_not_show_it(secret: str, between: list[str], before: str, step: int) -> None:
    torn = "".join(char + white for char, white in zip(secret, between, strict=False))
    shown = checked(secret, f"{before}|{torn}|", step)
    assert MASK in shown
    assert secret not in "".join(shown.split())


@given(tokens, st.integers(1, 12), st.sampled_from(["\n", "\r\n", "\n    "]))
def test_a_secret_that_is_wrapped_at_any_width_is_hidden_also_as_base64(secret: str, width: int, end: str) -> None:
    for form in (secret, base64.b64encode(b"key " + secret.encode()).decode(), secret.encode().hex()):
        wrapped = end.join(form[start : start + width] for start in range(0, len(form), width))
        assert MASK in checked(secret, f"<{wrapped}>"), wrapped


@given(
    st.text(st.characters(min_codepoint=48, max_codepoint=122, exclude_characters="\\"), min_size=8, max_size=90),
    st.sampled_from([20, 76]),
    st.sampled_from([r"\n", r"\r\n", "\\\n", "\\n    "]),
    st.integers(1, 20),
)
def test_a_wrapped_secret_is_hidden_where_its_line_ends_are_shown_escaped(
    secret: str, width: int, end: str, step: int
) -> None:
    for form in (secret, base64.b64encode(b"key " + secret.encode()).decode(), secret.encode().hex()):
        wrapped = end.join(form[start : start + width] for start in range(0, len(form), width))
        assert MASK in checked(secret, f"<{wrapped}>", step), wrapped


def test_a_secret_is_hidden_as_programs_show_it_that_wrap_base64() -> None:
    secret = "ghp_" + "aB3dE6fG9" * 12
    for text in (repr(base64.encodebytes(secret.encode())), json.dumps(base64.encodebytes(secret.encode()).decode())):
        assert re.fullmatch(rf"b?['\"]{MASK}\w?=*\\n['\"]", checked(secret, text)), text


@given(st.text("ab \n\\nt", max_size=40), st.lists(st.text("abn", min_size=8, max_size=9), min_size=1, max_size=3))
def test_pieces_show_what_the_whole_text_shows_also_where_white_space_is_escaped(text: str, hidden: list[str]) -> None:
    masker, text = SecretMasker(hidden), "\\n".join([text, *hidden[0], text, hidden[0]])
    for step in (1, 3):
        mask = StreamingMask(masker)
        pieces = [text[start : start + step] for start in range(0, len(text), step)]
        assert "".join(map(mask.feed, pieces)) + mask.flush() == masker.text(text)
    assert MASK in masker.text(text)


def test_escaped_line_ends_without_end_are_not_kept_back() -> None:
    mask = StreamingMask(SecretMasker(["n" + "aB3dE6fG9" * 300]))
    assert len(mask.feed("n" + r"\n" * 3_000)) > 5_900


def test_html_and_shells_that_quote_with_backslashes_hide_it() -> None:
    secret = "p@ss w<or>d&'x\"$é"
    shown = (html.escape(secret), html.escape(secret, quote=False), repr(secret.encode()), r"p@ss\ w\<or\>d\&\'x\"\$é")
    for text in shown:
        assert MASK in checked(secret, f"<{text}>"), text


HEX_STYLES = {
    "plain": lambda raw: raw.hex(),
    "capitals": lambda raw: raw.hex().upper(),
    "od": lambda raw: "\n".join(raw.hex(" ")[start : start + 48] for start in range(0, 3 * len(raw), 48)),
    "colons": lambda raw: raw.hex(":"),
    "words": lambda raw: raw.hex(" ", 2),
    "an array": lambda raw: ", ".join(f"0x{byte:02X}" for byte in raw),
    "escapes": lambda raw: "".join(f"\\x{byte:02x}" for byte in raw),
    "doubly escaped": lambda raw: "".join(f"\\\\x{byte:02x}" for byte in raw),
    "JSON": lambda raw: "".join(f"\\u{byte:04x}" for byte in raw),
    "HTML": lambda raw: "".join(f"&#x{byte:x};" for byte in raw),
    "percent": lambda raw: "".join(f"%{byte:02X}" for byte in raw),
    "a quoted-printable mail": lambda raw: "".join(f"={byte:02X}" for byte in raw),
}


@pytest.mark.parametrize("style", HEX_STYLES.values(), ids=HEX_STYLES.keys())
@settings(max_examples=25)
@given(secret=tokens, step=st.integers(1, 20), before=surroundings)
def test_a_secret_in_hexadecimal_is_hidden(style: Callable[[bytes], str], secret: str, step: int, before: str) -> None:
    written = style(secret.encode())
    shown = checked(secret, f"{before}|{written}|", step)
    assert MASK in shown
    assert not any(written[start : start + len(written) // 2] in shown for start in range(len(written) // 2))


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=7))
def test_a_short_secret_is_hidden_in_hexadecimal_in_one_piece_only(secret: str) -> None:
    assert checked(secret, f"<{secret.encode().hex()}>") == f"<{MASK}>"
    spaced = secret.encode().hex(" ")
    assert checked(secret, spaced) == spaced


@given(secrets, st.lists(st.sampled_from("asX"), min_size=40, max_size=40), st.integers(1, 20))
def test_any_characters_of_a_secret_may_be_percent_encoded(secret: str, how: list[str], step: int) -> None:
    written = "".join(
        char if kind == "a" else "".join(f"%{byte:{'02x' if kind == 's' else '02X'}}" for byte in char.encode())
        for char, kind in zip(secret, how, strict=False)
    )
    assert MASK in checked(secret, f"https://host/?k={written}&x=100%", step)
    assert MASK in checked(secret, f"k={written[:9]}\n{written[9:]}", step) or "%" in written[7:10]


def test_a_percent_encoded_key_of_several_lines_is_hidden() -> None:
    assert checked(KEY, f"?key={quote(KEY)}&x") == f"?key={MASK}%0A&x"
    assert checked(KEY, quote(KEY.replace("\n", "\r\n"), safe="")).startswith(MASK)


@given(tokens, st.sampled_from(["\\", '"', "%", "\\n", "%41", "\\\\", "\b"]), st.integers(0, 8), st.integers(1, 9))
def test_characters_that_formats_treat_in_their_own_way_are_no_way_around(
    secret: str, special: str, place: int, step: int
) -> None:
    odd = secret[:place] + special + secret[place:]
    for text in (odd, f"{special}{odd}{special}", "\n".join(odd), f"C:\\{odd}", json.dumps(odd), quote(odd, safe="")):
        assert MASK in checked(odd, text, step), text


@given(
    st.text("ab \n%6162", max_size=60),
    st.lists(st.text("ab", min_size=8, max_size=9), min_size=1, max_size=3),
    st.data(),
)
def test_pieces_show_what_the_whole_text_shows_also_of_torn_and_encoded_secrets(
    text: str, hidden: list[str], data: st.DataObject
) -> None:
    masker = SecretMasker(hidden)
    mask = StreamingMask(masker)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(map(mask.feed, pieces)) + mask.flush() == masker.text(text)


@pytest.mark.parametrize("text", ["%%61bcdef-s%65cret", "100%abcdef-secret", "%4abcdef-secret", "%zabcdef-s%65cret"])
def test_a_percent_sign_before_a_secret_is_no_way_around(text: str) -> None:
    assert MASK in checked("abcdef-secret", text, 1)


def test_what_only_looks_like_a_form_of_a_secret_is_shown() -> None:
    masker = SecretMasker(["open-sesame", "1234"])
    for text in ("open the sesame", "100% of 6f70656e", "[31, 32, 33, 34]", "1 2 3 4", "%zz%", "1\n234"):
        assert masker.text(text) == text


def test_text_that_ends_with_white_space_is_shown_at_once_where_no_secret_begins() -> None:
    mask = StreamingMask(SecretMasker(["sk-very-long-secret-value"]))
    assert mask.feed("$ make test   \n\n") == "$ make test   \n\n"
    assert mask.feed("the key is sk-\n  ") == "the key is "
    assert mask.feed("very-long-secret-value.") == f"{MASK}."


@settings(max_examples=60)
@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=32),
    st.integers(min_value=0),
    st.lists(st.integers(1, 9), min_size=1, max_size=20),
)
def test_no_form_of_a_secret_shows_in_pieces_of_any_sizes(secret: str, number: int, sizes: list[int]) -> None:
    every = list(written(secret))
    rest = f"it is {every[number % len(every)]} "
    mask, shown = StreamingMask(SecretMasker([secret])), ""
    for size in itertools.cycle(sizes):
        shown += mask.feed(rest[:size])
        rest = rest[size:]
        if not rest:
            break
    shown += mask.flush()
    assert MASK in shown
    assert found_in({"shown": shown.replace(MASK, "\0")}, {"secret": secret}) == []
