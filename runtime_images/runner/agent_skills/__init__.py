"""Functions that a kernel's cells find ready to use, by name; no other module here shadows a cell's own.

They print what they have to say, errors too, as a person at a terminal would want to read it.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any, Callable, Dict, List, Tuple, Union, get_type_hints

from .code_map import explore_tree_structure, get_entity_contents, search_code_snippets
from .documents import parse_audio, parse_docx, parse_image, parse_latex, parse_pdf, parse_pptx, parse_video
from .files import file_editor, find_file, goto_line, open_file, scroll_down, scroll_up, search_dir, search_file

KEY = "OPENAI_API_KEY"
_KINDS: Dict[Any, Tuple[Any, str]] = {str: ((str, os.PathLike), "a text"), int: (int, "a whole number")}


def available() -> Dict[str, Callable[..., Any]]:
    """The functions by name, in the order of their description; some only where a key is at hand."""
    always: List[Callable[..., Any]] = [open_file, goto_line, scroll_down, scroll_up]
    always += [search_dir, search_file, find_file]
    documents: List[Callable[..., Any]] = [parse_pdf, parse_docx, parse_latex, parse_pptx]
    media: List[Callable[..., Any]] = [parse_audio, parse_video, parse_image] if os.environ.get(KEY) else []
    code: List[Callable[..., Any]] = [search_code_snippets, get_entity_contents, explore_tree_structure]
    return {function.__name__: _checked(function) for function in [*always, *documents, *media, *code, file_editor]}


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments checked against its annotations; one value counts as a list of one.

    A mistake is told in a sentence in place of a traceback: returned by a function that returns text, else printed.
    """
    signature = inspect.signature(function)
    hints = get_type_hints(function)
    returns_text = hints.pop("return", None) is str

    @functools.wraps(function)
    def careful(*args: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*args, **options)
            for name in bound.arguments:
                if name in hints and hints[name] is not Any:
                    bound.arguments[name] = _taken(name, bound.arguments[name], hints[name])
        except TypeError as error:
            words = f"{function.__name__}: {str(error).rstrip('.')}."
            if returns_text:
                return f"ERROR:\n{words}"
            print(f"ERROR: {words}")
            return None
        return function(*bound.args, **bound.kwargs)

    return careful


def _taken(name: str, value: Any, hint: Any) -> Any:
    if getattr(hint, "__origin__", None) is Union:  # Optional
        if value is None:
            return None
        hint = hint.__args__[0]
    if hint in _KINDS:
        return _one(name, value, hint)
    # a list or another sequence
    if isinstance(value, (set, frozenset, range)) or hasattr(value, "tolist"):
        value = list(value)
    elif not isinstance(value, (list, tuple)):
        value = [value]
    return [_one(f"each of {name}", one, hint.__args__[0]) for one in value]


def _one(name: str, value: Any, kind: Any) -> Any:
    classes, words = _KINDS[kind]
    if hasattr(value, "__index__") and not isinstance(value, bool) and kind is int:
        return int(value)  # numpy's, too
    if not isinstance(value, classes) or isinstance(value, bool):
        raise TypeError(f"{name} must be {words}, not {_shown(value)}")
    text = os.fsdecode(value) if kind is str else value
    if name.endswith("path") and "\0" in text:
        raise TypeError(f"{name} has a zero byte in it: {_shown(text)}")
    return text


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - whatever it is, it is not what was wanted
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
