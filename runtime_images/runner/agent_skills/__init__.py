"""Functions that a kernel's cells find ready to use, by name; no other module here shadows a cell's own.

They print what they have to say, errors too, as a person at a terminal would want to read it.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List

from .argument_checks import checked
from .code_map import explore_tree_structure, get_entity_contents, search_code_snippets
from .documents import parse_audio, parse_docx, parse_image, parse_latex, parse_pdf, parse_pptx, parse_video
from .files import file_editor, find_file, goto_line, open_file, scroll_down, scroll_up, search_dir, search_file

KEY = "OPENAI_API_KEY"


def available() -> Dict[str, Callable[..., Any]]:
    """The functions by name, in the order of their description; some only where a key is at hand."""
    always: List[Callable[..., Any]] = [open_file, goto_line, scroll_down, scroll_up]
    always += [search_dir, search_file, find_file]
    documents: List[Callable[..., Any]] = [parse_pdf, parse_docx, parse_latex, parse_pptx]
    media: List[Callable[..., Any]] = [parse_audio, parse_video, parse_image] if os.environ.get(KEY) else []
    code: List[Callable[..., Any]] = [search_code_snippets, get_entity_contents, explore_tree_structure]
    return {function.__name__: checked(function) for function in [*always, *documents, *media, *code, file_editor]}
