"""The conformance suite of the IPython tool in sandboxes under bubblewrap, with the server's ipykernel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from agent_core.runtime.local.provider import LocalProvider
from agent_core.testing.sandbox_contract import LIMITS, SandboxKit
from tests.contract.suites.ipython_contract import IPythonContract, NotebookKit

pytestmark = [pytest.mark.bubblewrap, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def notebook(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NotebookKit]:
    folder = str(tmp_path_factory.mktemp("data"))
    kit = SandboxKit(LocalProvider(folder), folder)
    try:
        yield NotebookKit(kit.connect(limits=replace(LIMITS, memory=1024**3)))
    finally:
        await kit.close()


class TestIPython(IPythonContract):
    pass
