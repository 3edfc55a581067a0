"""Which family a model belongs to, for notes in its prompt."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_FAMILIES: Final = (
    ("anthropic_claude", re.compile(r"claude")),
    ("google_gemini", re.compile(r"gemini|gemma")),
    ("openai_gpt", re.compile(r"gpt|(?:^|/)o[1-9](?![a-z0-9])|codex")),
    ("qwen", re.compile(r"qwen|qwq")),
    ("deepseek", re.compile(r"deepseek")),
    ("mistral", re.compile(r"mistral|devstral|codestral")),
)
_VARIANTS: Final = (
    ("anthropic_claude", "thinking", re.compile(r"thinking")),
    ("openai_gpt", "codex", re.compile(r"codex")),
    ("openai_gpt", "gpt-5", re.compile(r"gpt-5")),
    ("openai_gpt", "reasoning", re.compile(r"(?:^|/)o[1-9](?![a-z0-9])")),
)


class ModelFamily(NamedTuple):
    """The family and, within it, the variant; empty where they are not known."""

    family: str = ""
    variant: str = ""


def family_of(model: str) -> ModelFamily:
    """The family of a model by its name, whoever serves it."""
    name = model.lower()
    family = next((family for family, pattern in _FAMILIES if pattern.search(name)), "")
    of_family = ((variant, pattern) for its, variant, pattern in _VARIANTS if its == family)
    return ModelFamily(family, next((variant for variant, pattern in of_family if pattern.search(name)), ""))
