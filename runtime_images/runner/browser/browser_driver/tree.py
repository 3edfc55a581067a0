"""The accessibility tree of a page: Playwright's snapshot parsed into lines, and written for a model.

Calls name an element by its number: that of Playwright's reference (``e12``, or ``f3e12`` in the third document), plus
a hundred thousand for each frame before its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

FRAME_STEP = 100_000
_REFERENCE = re.compile(r"((?:f\d+)?)e(\d+)\Z")
_FIRST_REFERENCE = re.compile(r"\[ref=((?:f\d+)?)e\d+\]")
_ATTRIBUTE = re.compile(r"\s*\[([^\]\"]*)\]")
_NAME = re.compile(r'\s*("(?:[^"\\]|\\.)*"|/(?:[^/\\]|\\.)*/)')
_ROLE = re.compile(r"[A-Za-z]+")
_INTERACTIVE = frozenset(
    {
        *("button", "checkbox", "combobox", "gridcell", "link", "listbox", "menuitem", "menuitemcheckbox"),
        *("menuitemradio", "option", "radio", "searchbox", "slider", "spinbutton", "switch", "tab", "textbox"),
        "treeitem",
    }
)


class Box(NamedTuple):
    """A rectangle in the viewport, in CSS pixels."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Box:
        return Box(self.x + x, self.y + y, self.width, self.height)

    def meets(self, other: Box) -> bool:
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


@dataclass(frozen=True)
class Node:
    """One line of the tree. `number` is 0 for what cannot be named; `content` is text after the colon."""

    depth: int
    role: str
    name: str = ""
    number: int = 0
    attributes: tuple[str, ...] = ()
    box: Box | None = None
    content: str = ""
    is_clickable: bool = False
    is_focused: bool = False

    def line(self) -> str:
        words = [f"[{self.number}]"] if self.number else []
        words.append(self.role)
        words += [self.name] if self.name else []
        words += [f"[{attribute}]" for attribute in self.attributes]
        words += ["[clickable]"] if self.is_clickable and self.role not in _INTERACTIVE else []
        words += ["[focused]"] if self.is_focused else []
        return "  " * self.depth + " ".join(words) + (f": {self.content}" if self.content else "")


@dataclass(frozen=True)
class AccessibilityTree:
    """A page's accessibility tree."""

    nodes: tuple[Node, ...] = field(default_factory=tuple)

    def text(self, viewport: Box | None = None) -> str:
        shown = self.nodes if viewport is None else self._visible(viewport)
        return "\n".join(node.line() for node in shown)

    def named_once(self, number: int) -> Node | None:
        """The element of that number, if its name and role occur only once."""
        found = next((node for node in self.nodes if node.number == number > 0 and node.name), None)
        alike = [node for node in self.nodes if found and (node.role, node.name) == (found.role, found.name)]
        return found if len(alike) == 1 else None

    def focused(self) -> str:
        """The number of the focused element, as text; empty for the page itself."""
        return next((str(node.number) for node in self.nodes if node.is_focused and node.depth > 0), "")

    def marks(self, viewport: Box) -> list[tuple[int, Box]]:
        return [
            (node.number, node.box)
            for node in self.nodes
            if node.number > 0 and (node.is_clickable or node.role in _INTERACTIVE)
            if node.box is not None and node.box.meets(viewport)
        ]

    def _visible(self, viewport: Box) -> list[Node]:
        """What meets the viewport, with its ancestors; text without a place has its parent's."""
        visible: list[Node] = []
        seen: list[bool] = []
        for index, node in enumerate(self.nodes):
            del seen[node.depth :]
            around = seen[-1] if seen else True
            seen.append(around if node.box is None else node.box.meets(viewport))
            if seen[-1] or any(
                inner.box is not None and inner.box.meets(viewport) for inner in _inside(self.nodes, index)
            ):
                visible.append(node)
        return visible


class ElementNumbers:
    """The document of each number of the last look; numbers of another document are invalid."""

    def __init__(self) -> None:
        self.documents: list[str] = []

    def forget(self) -> None:
        self.documents = []

    def begin(self, snapshot: str) -> None:
        """A look at the page begins; numbers stay valid as long as its document does."""
        first = _FIRST_REFERENCE.search(snapshot)
        if first is None or self.documents[:1] != [first.group(1)]:
            self.forget()

    def number(self, reference: str) -> int:
        found = _REFERENCE.match(reference)
        if found is None or int(found.group(2)) >= FRAME_STEP:
            return 0
        if found.group(1) not in self.documents:
            self.documents.append(found.group(1))
        return self.documents.index(found.group(1)) * FRAME_STEP + int(found.group(2))

    def reference(self, number: int) -> str:
        """Playwright's reference for a number; "" for an unknown one."""
        place, element = divmod(number, FRAME_STEP)
        return f"{self.documents[place]}e{element}" if 0 <= place < len(self.documents) else ""


def read_tree(snapshot: str, numbers: ElementNumbers) -> AccessibilityTree:
    """Read Playwright's snapshot for models, with boxes; what cannot be read stays as text."""
    numbers.begin(snapshot)
    nodes: list[Node] = []
    frames: list[tuple[int, Box]] = []
    for line in snapshot.splitlines():
        stripped = line.lstrip(" ")
        if not stripped:
            continue
        depth = (len(line) - len(stripped)) // 2
        while frames and frames[-1][0] >= depth:
            frames.pop()
        node = _read_line(depth, stripped, numbers)
        if node.box is not None and frames:
            node = replace(node, box=node.box.moved(frames[-1][1].x, frames[-1][1].y))
        if node.role == "iframe" and node.box is not None:
            frames.append((depth, node.box))
        nodes.append(node)
    return AccessibilityTree(tuple(nodes))


def _read_line(depth: int, text: str, numbers: ElementNumbers) -> Node:
    body = text[2:] if text.startswith("- ") else text
    if body.startswith("/"):  # a property, as /url
        return Node(depth, body)
    key, content = _split(body)
    found = _ROLE.match(key)
    if found is None:
        return Node(depth, "text", content=body)
    if len(content) > 1 and content[0] == content[-1] == '"':
        content = content[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    named = _NAME.match(key, found.end())
    name, position = (named.group(1), named.end()) if named is not None else ("", found.end())
    attributes: list[str] = []
    number, box, is_clickable, is_focused = 0, None, False, False
    while attribute := _ATTRIBUTE.match(key, position):
        position = attribute.end()
        kind, _, value = attribute.group(1).partition("=")
        if kind == "ref":
            number = numbers.number(value)
        elif kind == "box":
            box = _box(value)
        elif attribute.group(1) == "cursor=pointer":
            is_clickable = True
        elif attribute.group(1) == "active":
            is_focused = True
        else:
            attributes.append(attribute.group(1))
    return Node(depth, found.group(), name, number, tuple(attributes), box, content, is_clickable, is_focused)


def _split(body: str) -> tuple[str, str]:
    """A line's key and what follows its colon. Keys with special characters are in single quotes."""
    if body.startswith("'"):
        end = 1
        while end < len(body):
            if body[end] == "'":
                if body[end + 1 : end + 2] != "'":
                    break
                end += 1
            end += 1
        return body[1:end].replace("''", "'"), body[end + 1 :].removeprefix(":").strip()
    found = _ROLE.match(body)
    position = found.end() if found is not None else 0
    named = _NAME.match(body, position)
    position = named.end() if named is not None else position
    while attribute := _ATTRIBUTE.match(body, position):
        position = attribute.end()
    if body[position : position + 1] in {":", ""}:
        return body[:position], body[position + 1 :].strip()
    return body, ""


def _box(value: str) -> Box | None:
    try:
        x, y, width, height = (float(part) for part in value.split(","))
    except ValueError:
        return None
    # What has no size is inside of something else, as the options of a closed list.
    return Box(x, y, width, height) if width > 0 and height > 0 else None


def _inside(nodes: tuple[Node, ...], index: int) -> Iterable[Node]:
    depth = nodes[index].depth
    for node in nodes[index + 1 :]:
        if node.depth <= depth:
            return
        yield node
