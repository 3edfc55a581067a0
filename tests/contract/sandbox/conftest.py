"""The shared suites show what went wrong as any test module does, and run on the event loop that the server uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

pytest.register_assert_rewrite(
    "tests.contract.suites.attacks_contract",
    "tests.contract.suites.editor_contract",
    "tests.contract.suites.file_tools_contract",
    "tests.contract.suites.disk_contract",
    "tests.contract.suites.terminal_contract",
)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The server's loop starts processes in its own way; the tests in ``tests/integration/sandbox`` use the usual."""
    return {"uvloop": uvloop.new_event_loop}
