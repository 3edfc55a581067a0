"""The conformance suite of sandboxes on a Kubernetes cluster that is played: its pods are containers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agent_core.runtime.kubernetes.provider import KubernetesProvider
from agent_core.testing.sandbox_contract import (
    SandboxIsolationContract,
    SandboxKit,
    SandboxLifecycleContract,
    SandboxRequestContract,
    SandboxTogetherContract,
)
from tests.played_cluster import PlayedCluster

pytestmark = [pytest.mark.docker, pytest.mark.bubblewrap]


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PlayedCluster]:
    async with PlayedCluster(tmp_path) as played:
        monkeypatch.setenv("KUBECONFIG", str(played.kubeconfig))
        yield played


@pytest.fixture
async def kit(cluster: PlayedCluster, tmp_path: Path) -> AsyncIterator[SandboxKit]:
    made = SandboxKit(KubernetesProvider(), str(tmp_path))
    yield made
    await made.close()


class TestLifecycle(SandboxLifecycleContract):
    pass


class TestRequests(SandboxRequestContract, SandboxTogetherContract):
    pass


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def kept_kit(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SandboxKit]:
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        async with PlayedCluster(folder) as played:
            patch.setenv("KUBECONFIG", str(played.kubeconfig))
            made = SandboxKit(KubernetesProvider(), str(folder))
            yield made
            await made.close()


@pytest.mark.asyncio(loop_scope="class")
class TestIsolation(SandboxIsolationContract):
    """In one pod after the other, as far as each finds what the one before has left it.

    What each may take its node sees to: here the same engine as of the sandboxes of Docker. That a pod is given its
    limits say the tests of its manifest.
    """

    @pytest.fixture
    def kit(self, kept_kit: SandboxKit) -> SandboxKit:
        return kept_kit
