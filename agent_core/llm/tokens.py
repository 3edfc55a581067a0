"""How many tokens a text is: by a tokenizer of one's own, or estimated."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from agent_core.llm.prices import CHARS_PER_TOKEN

logger = logging.getLogger(__name__)

KEPT: Final = 4
"""How many tokenizers are kept in memory."""


def count_tokens(texts: Iterable[str], tokenizer: str | None = None) -> int:
    """Tokens of these texts together, by the ``tokenizer.json`` at this path, or else a quarter of the characters.

    A file that cannot be used is logged, once, and done without.
    """
    loaded = _loaded(tokenizer) if tokenizer is not None else None
    if loaded is None:
        return sum(map(len, texts)) // CHARS_PER_TOKEN
    return sum(len(loaded.encode(text, add_special_tokens=False).ids) for text in texts)


@lru_cache(maxsize=KEPT)
def _loaded(path: str) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(path)
    except Exception as error:  # noqa: BLE001 - the library raises nothing more exact
        logger.warning("custom_tokenizer %r cannot be used, tokens are estimated: %s", path, error)
        return None
