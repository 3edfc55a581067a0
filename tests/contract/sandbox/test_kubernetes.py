"""The conformance suite of sandboxes on a Kubernetes cluster that is played: its pods are containers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_core.runtime.kubernetes.provider import KubernetesProvider
from agent_core.testing.sandbox_contract import (
    SandboxIsolationContract,
    SandboxKit,
    SandboxLifecycleContract,
    SandboxRequestContract,
    SandboxTogetherContract,
)
from tests.played_cluster import PlayedCluster

pytestmark = pytest.mark.docker


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


class TestIsolation(SandboxIsolationContract):
    pass
