from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent_core.llm.transport import client


@pytest.fixture(autouse=True)
async def closed_connections() -> AsyncIterator[None]:
    """Each test has its own event loop, and leaves none of its connections behind."""
    yield
    await client.aclose()
