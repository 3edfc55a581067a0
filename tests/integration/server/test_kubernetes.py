"""Conversations in the pods of a cluster that is played: made, adopted after a kill -9, and gone with them."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path

import pytest

from server.cli.doctor import doctor
from server.cli.workspaces import SandboxWorkspaces
from server.settings.settings import Settings
from tests.integration.server.conftest import MakeProcess, create, following
from tests.played_cluster import PlayedCluster

pytestmark = [pytest.mark.docker, pytest.mark.bubblewrap]


async def test_a_pod_outlives_a_killed_server_is_adopted_and_goes_with_its_conversation(
    make_process: MakeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster").mkdir()
    async with PlayedCluster(tmp_path / "cluster") as cluster:
        environment = {"KUBECONFIG": str(cluster.kubeconfig)}
        server = await make_process("--sandbox", "kubernetes", environment=environment)
        await server.until_printed("a Kubernetes cluster answers")
        conversation_id = await create(server)
        async with following(server, conversation_id) as follower:
            await follower.run("echo kept > kept; export WORD=remembered")
            await follower.until(lambda: follower.count(observation="run") == 1)
            [before] = [pod["metadata"]["uid"] for pod in cluster.objects["pods"].values()]
            await server.kill()
            await follower.disconnect()
            await server.start()
            await follower.connect()
            await follower.run("cat kept; echo $WORD")
            await follower.until(lambda: follower.count(observation="run") == 2)
            assert "kept" in follower.frames[-1]["content"]
            assert "remembered" in follower.frames[-1]["content"]
        [pod] = cluster.objects["pods"].values()
        assert pod["metadata"]["uid"] == before
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        settings = Settings(data_dir=server.data_dir, sandbox="kubernetes")
        assert await asyncio.to_thread(file_of, settings, conversation_id, pod["metadata"]["name"]) == b"kept\n"
        async with server.client() as client:
            assert (await client.delete(f"/api/conversations/{conversation_id}")).json() is True
        assert cluster.objects["pods"] == cluster.objects["persistentvolumeclaims"] == {}
        await server.stop()


def file_of(settings: Settings, conversation_id: str, pod: str) -> bytes:
    """What `drydock backup --workspaces` reads of a sandbox."""
    archive = io.BytesIO()
    with SandboxWorkspaces(settings) as workspaces:
        assert workspaces.write(conversation_id, {"provider": "kubernetes", "pod": pod}, archive) == []
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        found = tar.extractfile("kept")
        assert found is not None
        return found.read()


async def test_doctor_says_what_a_cluster_lacks_and_that_nothing_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path / "data", sandbox="kubernetes")

    async def examined() -> tuple[int, str]:
        printed = io.StringIO()
        code = await asyncio.to_thread(doctor, settings, printed)
        return code, printed.getvalue()

    async with PlayedCluster(tmp_path) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        _, text = await examined()
        assert f"ok   kubernetes  a Kubernetes cluster answers (version v1.36.1, {cluster.url}" in text
        assert "ok   network     network policies hold" in text
        assert not cluster.objects["pods"]
        assert not cluster.objects["persistentvolumeclaims"]
        cluster.rules = []
        code, text = await examined()
        assert code == 1
        assert "MISS kubernetes  this server may not create, delete, get, list, patch, watch pods" in text
        assert "docs/kubernetes.md" in text
