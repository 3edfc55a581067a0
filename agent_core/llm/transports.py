"""Which way a configured model is reached."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from agent_core.llm.client import shared_client
from agent_core.llm.demo import DemoTransport
from agent_core.llm.exchange import Transport
from agent_core.llm.recording import RecordingTransport, ReplayTransport


def transport_of(model: str, record_to: str | None) -> Transport:
    """The script for ``demo/…``, a recording for ``replay/<file>``, else the client; recorded where asked for."""
    inner = _transport_of(model)
    return RecordingTransport(inner, Path(record_to).expanduser()) if record_to else inner


def _transport_of(model: str) -> Transport:
    prefix, _, name = model.partition("/")
    if prefix == "demo":
        return DemoTransport()
    if prefix == "replay":
        return _replay(name)
    return shared_client()


@lru_cache(maxsize=32)
def _replay(name: str) -> ReplayTransport:
    return ReplayTransport(Path(name).expanduser())
