"""The accessibility tree: the library's snapshot read and written for a model."""

from __future__ import annotations

import pytest

from runtime_images.runner.browser.browser_driver.tree import FRAME_STEP, Box, ElementNumbers, read_tree

SNAPSHOT = """\
- generic [active] [ref=e1] [box=0,0,1280,3000]:
  - heading "Hello" [level=1] [ref=e2] [box=8,8,100,20]
  - 'link "the: \\"re\\" ''x''" [ref=e3] [cursor=pointer] [box=8,30,50,20]':
    - /url: /x
  - textbox "Name" [active] [ref=e4] [box=8,60,50,20]: "abc: \\"d\\""
  - combobox [ref=e5] [box=8,90,50,20]:
    - option "Alpha" [selected] [box=0,0,0,0]
  - generic [ref=e6] [cursor=pointer] [box=8,120,50,20]: press me
  - iframe [ref=e7] [box=100,200,300,150]:
    - button "Inner" [ref=f1e2] [box=8,8,50,20]
    - iframe [ref=f1e3] [box=10,30,200,100]:
      - button "Deep" [disabled] [ref=f2e2] [box=5,5,50,20]
  - button "Below" [ref=e8] [box=8,2900,50,20]
  - text: the end
"""
WINDOW = Box(0, 0, 1280, 720)


def test_the_tree_is_written_with_numbers_first_and_without_places() -> None:
    tree = read_tree(SNAPSHOT, ElementNumbers())
    assert tree.text().splitlines() == [
        "[1] generic [focused]",
        '  [2] heading "Hello" [level=1]',
        '  [3] link "the: \\"re\\" \'x\'"',
        "    /url: /x",
        '  [4] textbox "Name" [focused]: abc: "d"',
        "  [5] combobox",
        '    option "Alpha" [selected]',
        "  [6] generic [clickable]: press me",
        "  [7] iframe",
        f'    [{FRAME_STEP + 2}] button "Inner"',
        f"    [{FRAME_STEP + 3}] iframe",
        f'      [{2 * FRAME_STEP + 2}] button "Deep" [disabled]',
        '  [8] button "Below"',
        "  text: the end",
    ]


def test_the_visible_part_leaves_out_what_is_outside_of_the_window() -> None:
    shown = read_tree(SNAPSHOT, ElementNumbers()).text(WINDOW)
    assert "Below" not in shown
    assert 'option "Alpha"' in shown
    assert "the end" in shown
    assert "/url: /x" in shown
    low = read_tree(SNAPSHOT, ElementNumbers()).text(Box(0, 2800, 1280, 720))
    assert "Below" in low
    assert "Hello" not in low


def test_only_what_a_person_would_use_gets_a_mark_where_it_shows() -> None:
    marks = dict(read_tree(SNAPSHOT, ElementNumbers()).marks(WINDOW))
    assert set(marks) == {3, 4, 5, 6, FRAME_STEP + 2, 2 * FRAME_STEP + 2}
    assert marks[FRAME_STEP + 2] == Box(108, 208, 50, 20)
    assert marks[2 * FRAME_STEP + 2] == Box(115, 235, 50, 20)


def test_the_focus_is_the_elements_not_the_pages() -> None:
    assert read_tree(SNAPSHOT, ElementNumbers()).focused() == "4"
    assert read_tree("- generic [active] [ref=e1]", ElementNumbers()).focused() == ""


@pytest.mark.parametrize(
    "line",
    [
        '- paragraph [ref=e5]: "- button \\"Pay\\" [ref=e3]"',
        "- text: button [ref=e3]",
        '- button "Pay [ref=e3]" [ref=e5]',
        "- 'button \"it''s [ref=e3]\" [ref=e5]'",
    ],
)
def test_what_a_page_says_cannot_pass_for_a_number(line: str) -> None:
    assert [node.number for node in read_tree(line, ElementNumbers()).nodes] in ([5], [0])


def test_what_cannot_be_read_stays_as_text() -> None:
    tree = read_tree("- [odd\n- 12: x\n\n-", ElementNumbers())
    assert len(tree.nodes) == 3
    assert all(node.number == 0 for node in tree.nodes)


def test_numbers_mean_the_documents_of_the_last_look() -> None:
    numbers = ElementNumbers()
    read_tree(SNAPSHOT, numbers)
    assert numbers.reference(3) == "e3"
    assert numbers.reference(FRAME_STEP + 2) == "f1e2"
    assert numbers.reference(5 * FRAME_STEP) == ""
    read_tree("- button [ref=e9]", numbers)
    assert numbers.reference(FRAME_STEP + 2) == "f1e2", "the same document: its frames keep their numbers"
    read_tree("- button [ref=f4e2]", numbers)
    assert numbers.reference(2) == "f4e2"
    assert numbers.reference(FRAME_STEP + 2) == ""
    numbers.forget()
    assert numbers.reference(2) == ""
