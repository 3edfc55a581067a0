"""Texts cut in their middle (agent-core 4.2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_core.tools.truncation import maybe_truncate


@given(st.text(max_size=300), st.integers(0, 200), st.text(max_size=60))
def test_a_cut_text_has_the_limits_length_and_both_its_ends(text: str, limit: int, notice: str) -> None:
    cut = maybe_truncate(text, limit, notice)
    if len(text) <= limit:
        assert cut == text
        return
    assert len(cut) == limit
    if len(notice) < limit and "{omitted}" not in notice:
        head = -(-(limit - len(notice)) // 2)
        assert cut == text[:head] + notice + text[len(text) - (limit - len(notice) - head) :]


def test_the_notice_says_how_much_is_missing() -> None:
    cut = maybe_truncate("a" * 1000, 100, "[{omitted}]")
    assert cut.count("a") == 95
    assert "[905]" in cut
