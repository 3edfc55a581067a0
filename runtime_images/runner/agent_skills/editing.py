"""The file editor as a function: the one that the file editor tool uses, with the same history for undo."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, List, Optional

from ..files.editor import Edit, Editor
from ..files.history import EditHistory

HISTORY = "DRYDOCK_EDIT_HISTORY"  # variable: the folder with the earlier versions of edited files

_editors: Dict[str, Editor] = {}


def file_editor(
    command: str,
    path: str,
    file_text: Optional[str] = None,
    view_range: Optional[List[int]] = None,
    old_str: Optional[str] = None,
    new_str: Optional[str] = None,
    insert_line: Optional[int] = None,
    **unknown: Any,
) -> str:
    """View, create or edit a file.

    Args:
        command: view, create, str_replace, insert or undo_edit.
        path: the file's absolute path; a folder can be viewed too.
        file_text: what create writes.
        view_range: the first and the last line that view shows; -1 stands for the end.
        old_str: what str_replace replaces; it must be in the file exactly once.
        new_str: what str_replace and insert put there.
        insert_line: the line behind which insert puts it.
        unknown: anything else is refused.

    Returns:
        What the file editor tool says; errors begin with ERROR.
    """
    if unknown:
        return f"ERROR:\nUnexpected arguments: {', '.join(sorted(unknown))}."
    edit = Edit(command, path, os.getcwd(), file_text, old_str, new_str, insert_line, view_range)
    result = _editor().run(edit)
    text: str = result["text"]
    return f"ERROR:\n{text}" if result["is_error"] else text


def _editor() -> Editor:
    folder = os.environ.get(HISTORY) or os.path.join(tempfile.gettempdir(), "edit-history")
    if folder not in _editors:
        _editors[folder] = Editor(EditHistory(folder))
    return _editors[folder]
