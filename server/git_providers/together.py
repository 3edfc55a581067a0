"""Several questions at once: none is left running when another fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from server.git_providers.errors import GitProviderError

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def what_works(questions: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers of those that are answered; the log says what the others failed for.

    Raises:
        GitProviderError: of the first one, when all failed.
    """
    answers = await asyncio.gather(*questions, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, GitProviderError):
            raise answer
    failures = [answer for answer in answers if isinstance(answer, GitProviderError)]
    if failures and len(failures) == len(answers):
        raise failures[0]
    for failure in failures:
        _log.warning("a part is left out: %s", failure)
    return [answer for answer in answers if not isinstance(answer, BaseException)]
