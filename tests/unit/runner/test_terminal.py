from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runtime_images.runner.terminal.terminal_text import TerminalText


def read(*pieces: str, rows: int = 200) -> str:
    committed: list[str] = []
    screen = TerminalText(committed.append, rows=rows)
    for piece in pieces:
        screen.feed(piece)
    screen.flush()
    return "".join(committed)


class Watched(TerminalText):
    """Says what had to be read character by character."""

    read: str = ""

    def _interpret(self, text: str) -> None:
        self.read += text
        super()._interpret(text)


plain = st.text(st.sampled_from("abc é漢\t\n"), max_size=12)
controls = st.sampled_from(
    [
        *("\r", "\r\n", "\n", "\b", "\x07", "\x0b", "\x9b", "\x00", "\x1b", "\x7f", "\x18"),
        *("\x1b[0m", "\x1b[1;31m", "\x1b[38;5;200m", "\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[2J", "\x1b[H"),
        *("\x1b[A", "\x1b[2A", "\x1b[B", "\x1b[3C", "\x1b[2D", "\x1b[2;3H", "\x1b[5G", "\x1b[2P", "\x1b[3X", "\x1b[@"),
        *("\x1b[L", "\x1b[M", "\x1b[3b", "\x1b7", "\x1b8", "\x1bM", "\x1bD", "\x1bc", "\x1b(B", "\x1b[s", "\x1b[u"),
        *(
            "\x1b[2;4r",
            "\x1b[1;2r",
            "\x1b[r",
            "\x1b[2S",
            "\x1b[T",
            "\x1b[4h",
            "\x1b[4l",
            "\x1b(0",
            "\x1b[Z",
            "\x1b[?7l",
        ),
        *("\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[6n", "\x1b[>c", "\x1b[", "\x1b]", "\x1bP", "\x1b[1;"),
        *(
            "\x1b]0;title\x07",
            "\x1b]8;;http://x\x1b\\",
            "\x1bPq#0\x1b\\",
            "\x1b]unended",
            "\x1b_x",
            "\x1b]0;a\x1b[31mb",
        ),
    ]
)
streams = st.lists(plain | controls, max_size=14).map("".join)


@given(streams, st.lists(st.integers(0, 200), max_size=6), st.integers(1, 5))
@settings(max_examples=600)
@example("a\n\x1b[3b", [2], 1)
@example("a\n\x1b[3b", [2], 5)
@example("ab\rc\x1b[C\n\x1b[3b", [7, 8], 5)
def test_the_text_is_the_same_however_the_stream_is_divided(stream: str, cuts: list[int], rows: int) -> None:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert read(*pieces, rows=rows) == read(stream, rows=rows)


@given(streams)
def test_no_control_character_but_tab_and_newline_is_left(stream: str) -> None:
    assert all(character in "\t\n" or character >= " " for character in read(stream))
    assert "\x7f" not in read(stream)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")) | st.sampled_from("\n\t")))
def test_plain_text_is_unchanged(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("long text\rshort\n", "shorttext\n"),
        ("long text\r\x1b[Kshort\n", "short\n"),
        ("ab\b\bxy", "xy"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("one\ntwo\n\x1b[2A\x1b[2KONE\n\x1b[B", "ONE\ntwo\n"),
        ("\x1b[2J\x1b[Hfirst frame\x1b[2J\x1b[Hsecond", "second"),
        ("before\n\x1b[?1049h\x1b[H\x1b[2Jpicture\x1b[?1049lafter", "before\n\npicture\nafter"),
        ("\x1b[3;5Hx", "    x"),
        ("\x1b[H\x1b[2Jtop  \n\nrow\n\n \n\n", "top  \n\nrow\n"),
        ("ab\x1b[10Cc", "ab          c"),
        ("abcdef\x1b[1G\x1b[2P", "cdef"),
        ("abcdef\x1b[1G\x1b[2X", "  cdef"),
        ("-\x1b[4b", "-----"),
        ("漢字\rab\n", "ab字\n"),
        ("漢字x\b\b\by", "漢y x"),
        ("漢字\x1b[5Gx", "漢字x"),
        ("e\u0301a\x1b[3Gx\rE", "Eax"),
        ("\x1b(0lqk\x1b(Bq", "┌─┐q"),
        ("abc\r\x1b[4hXY\x1b[4lZ", "XYZbc"),
        ("abc   \x1b[Jd", "abc   d"),
        ("a\tb\rX", "X\tb"),
        ("head\n1\n2\n3\nfoot\x1b[2;4r\x1b[4;1H\n4\n5\x1b[r", "head\n3\n4\n5\nfoot"),
        ("head\n1\n2\nfoot\x1b[2;3r\x1b[2;1H\x1bM0\x1b[r", "head\n0\n1\nfoot"),
        ("1\n2\n3\nfoot\x1b[1;3r\x1b[1;1H\x1b[M\x1b[r", "2\n3\n\nfoot"),
        ("1\n2\n3\nfoot\x1b[1;3r\x1b[1;1H\x1b[2Lnew\x1b[r", "new\n\n1\nfoot"),
        ("1\n2\n3\nfoot\x1b[1;3r\x1b[3;1H\n4\n5\x1b[r", "1\n2\n3\n4\n5\nfoot"),
        ("\x1b[2J\x1b[H" + "padded".ljust(256) + "\nnot padded ", "padded\nnot padded "),
        ("a\x1b", "a"),
        ("a\x1b[", "a"),
        ("a\x1b]never ended\nb", "a\nb"),
        ("a\x9bb\x85c", "abc"),
    ],
)
def test_sequences_have_their_effect_or_none(stream: str, text: str) -> None:
    assert read(stream) == text


def test_absurd_parameters_are_bounded() -> None:
    assert len(read("\x1b[999999Cx\x1b[999999999999Dy\x1b[99999999b\x1b[9999;9999Hz\x1b[9999Lq")) < 20_000


def test_text_that_scrolled_off_is_final() -> None:
    stream = "".join(f"{n}\n" for n in range(10))
    assert read(stream + "\x1b[20Ax", rows=4) == "0\n1\n2\n3\n4\n5\n6\nx\n8\n9\n"


def test_a_line_without_end_is_handed_on_in_time() -> None:
    committed: list[str] = []
    screen = TerminalText(committed.append)
    for _ in range(100):
        screen.feed("x" * 10_000)
    assert sum(map(len, committed)) > 700_000
    screen.flush()
    assert "".join(committed) == "x" * 1_000_000


def test_a_program_that_asks_for_the_cursor_is_told() -> None:
    replies: list[bytes] = []
    screen = TerminalText(lambda _text: None, replies.append)
    screen.feed("a\nbc\x1b[6n")
    assert replies == [b"\x1b[2;3R"]


def test_each_look_at_a_full_screen_program_shows_its_whole_picture() -> None:
    pieces: list[str] = []
    text = TerminalText(pieces.append)

    def look(written: str) -> str:
        text.feed(written)
        text.flush()
        said = "".join(pieces)
        pieces.clear()
        return said

    assert look("before\n\x1b[?1049h\x1b[H\x1b[2Jone\r\ntwo  \r\n~\x1b[1;1H") == "before\n\none\ntwo\n~"
    assert look("\x1b[2;1HTWO\x1b[5;1Hstatus") == "one\nTWO\n~\n\nstatus"
    assert look("\x1b[1;1H") == ""
    assert look("\x1b[5;1Hsaved \x1b[?1049lafter\n") == "saved\nafter\n"
    assert look("plain\n") == "plain\n"


def test_pages_that_scroll_off_a_full_screen_program_are_not_shown_again() -> None:
    pieces: list[str] = []
    text = TerminalText(pieces.append, rows=3)
    text.feed("\x1b[?1049h1\n2\n3")
    text.flush()
    text.feed("\n4\n5")
    text.flush()
    assert pieces == ["1\n2\n3", "3\n4\n5"]


def test_the_screen_of_a_full_screen_program_has_an_edge_and_tab_stops() -> None:
    start = "\x1b[?1049h\x1b[H\x1b[2J"
    assert read(start + "ab\tc\x1b[1;10Hd") == "ab      cd"
    assert read(start + "\t\t\x1b[Zx") == "        x"
    assert read(start + "x" * 300) == "x" * 256 + "\n" + "x" * 44
    assert read(start + "x" * 255 + "漢") == "x" * 255 + "\n漢"
    assert read(start + "\x1b[?7l" + "x" * 300 + "y") == "x" * 255 + "y"
    assert read(start + "漢字wide\x1b[1;5H|") == "漢字|ide"
    assert read(start + "1\r\n2\r\n3\x1b[1;2r\x1b[2S") == "\n\n3"


@pytest.mark.parametrize("flood", ["\0" * 5000, "a\0b\x07\n" * 1000, "é\0\x9b\n" * 1000])
def test_a_flood_of_characters_without_effect_is_not_read_one_by_one(flood: str) -> None:
    committed: list[str] = []
    screen = Watched(committed.append)
    screen.feed(flood)
    screen.flush()
    assert "".join(committed) == "".join(character for character in flood if character in "abé\n")
    assert screen.read == ""
