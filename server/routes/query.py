"""Parameters that several routes take, with their limits."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

_MAX_PATH: Final = 4096
_EXACT: Final = 2**53
"""Beyond it JavaScript loses digits."""

FilePath = Annotated[
    str,
    Query(max_length=_MAX_PATH, description="Relative to the workspace, or absolute below it; empty: itself."),
]
PageId = Annotated[str | None, Query(max_length=2000, description="`next_page_id` of the page before.")]
Repository = Annotated[str | None, Query(max_length=500, description="Only those of this repository.")]
EventId = Annotated[int, Query(ge=-_EXACT, le=_EXACT)]
