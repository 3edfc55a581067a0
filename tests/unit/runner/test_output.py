from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime_images.runner.core.loop import Loop
from runtime_images.runner.core.text import cut_middle
from runtime_images.runner.terminal.output import BoundedText, LiveFeed


@given(st.lists(st.text(max_size=30), max_size=40), st.integers(0, 200))
def test_a_transcript_cuts_as_the_whole_text_would_be_cut(pieces: list[str], limit: int) -> None:
    transcript = BoundedText(limit)
    for piece in pieces:
        transcript.append(piece)
    assert transcript.take() == cut_middle("".join(pieces), limit)
    assert transcript.take() == ("", 0)


@given(st.text(max_size=400), st.integers(0, 300))
def test_a_cut_text_fits_and_says_what_it_leaves_out(text: str, limit: int) -> None:
    cut = cut_middle(text, limit)
    assert len(cut.text) <= limit or cut.text == text
    if len(text) <= limit:
        assert cut == (text, 0)
    elif limit > 80:
        head, notice, rest = cut.text.partition("\n[… ")
        tail = rest.partition(" …]\n")[2]
        assert text.startswith(head)
        assert text.endswith(tail)
        assert cut.omitted == len(text) - len(head) - len(tail)
        assert notice + rest.split(" ")[0] == f"\n[… {cut.omitted}"
        assert 0 <= len(head) - len(tail) <= 1


def test_a_transcript_takes_bounded_memory() -> None:
    transcript = BoundedText(100)
    for n in range(100_000):
        transcript.append(str(n))
    held = sum(len(part) for part in [*transcript._head, *transcript._tail])
    assert held < 1000
    assert transcript.take().text.endswith("99999")


class Watched:
    """A loop that runs until the feed has sent something."""

    def __init__(self, *, willing: bool = True) -> None:
        self.loop = Loop()
        self.sent: list[str] = []
        self.willing = willing
        self.refused = 0
        self.feed = LiveFeed(self.loop, self._take)

    def _take(self, text: str) -> bool:
        self.loop.stop()
        if not self.willing:
            self.refused += 1
            self.willing = True
            return False
        self.sent.append(text)
        return True

    def wait(self) -> str:
        self.loop._stopping = False
        self.loop.run()
        return "".join(self.sent)


def test_live_text_is_coalesced_and_free_of_control_sequences() -> None:
    watched = Watched()
    for piece in ("\x1b[31mred", "\x1b[", "0m \x07plain\r", "\nline\rover"):
        watched.feed.append(piece)
    assert watched.wait() == "red plain\nline\rover"
    assert len(watched.sent) == 1
    watched.loop.close()


def test_a_sequence_divided_between_two_sendings_is_not_shown() -> None:
    watched = Watched()
    watched.feed.append("a\x1b[3")
    assert watched.wait() == "a"
    watched.feed.append("1mb")
    assert watched.wait() == "ab"
    watched.loop.close()


def test_of_a_flood_the_ends_are_shown() -> None:
    watched = Watched()
    watched.feed.append("begin" + "x" * 100_000)
    watched.feed.append("y" * 100_000 + "end")
    text = watched.wait()
    assert text.startswith("begin")
    assert text.endswith("end")
    assert len(text) < 9000
    assert "not shown live" in text
    watched.loop.close()


def test_what_a_slow_watcher_refuses_is_offered_again() -> None:
    watched = Watched(willing=False)
    watched.feed.append("text")
    assert watched.wait() == ""
    assert watched.refused == 1
    assert watched.wait() == "text"
    watched.loop.close()
