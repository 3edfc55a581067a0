"""How a tool's class is called as a tool."""

from __future__ import annotations

import re


def tool_name_of(class_name: str) -> str:
    """The class name in snake case without its ``Tool``: ``GrepTool`` is ``grep``; a ``…ToolSet`` keeps all of it."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", class_name).lower()
    return snake if snake.endswith("_tool_set") else snake.removesuffix("_tool")
