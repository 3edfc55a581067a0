"""Sandboxes in a cluster where something is wrong: each with its sentence, and nothing that stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import SandboxError, SandboxLostError
from agent_core.runtime.kubernetes.options import KubernetesOptions
from agent_core.runtime.kubernetes.provider import RIGHTS, KubernetesProvider
from agent_core.runtime.sandbox import SandboxStatus
from agent_core.testing.sandbox_contract import LIMITS, SandboxKit, eventually, output, run
from tests.played_cluster import PlayedCluster

NO_ROOM = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient memory.",
        }
    ],
}


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PlayedCluster]:
    async with PlayedCluster(tmp_path) as played:
        monkeypatch.setenv("KUBECONFIG", str(played.kubeconfig))
        yield played


@pytest.fixture
async def kit(cluster: PlayedCluster, tmp_path: Path) -> AsyncIterator[SandboxKit]:
    made = SandboxKit(KubernetesProvider(), str(tmp_path))
    yield made
    cluster.refusals.clear()
    await made.close()


def nothing_is_left(cluster: PlayedCluster) -> bool:
    return not cluster.objects["pods"] and not cluster.objects["persistentvolumeclaims"]


async def refused(kit: SandboxKit, **changes: Any) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        await kit.connect(**changes).start()
    return caught.value


async def test_what_the_account_may_not_do_is_named_with_what_to_do(kit: SandboxKit, cluster: PlayedCluster) -> None:
    cluster.refuse("POST .*/pods$", 403, 'pods is forbidden: User "x" cannot create resource "pods"')
    error = await refused(kit)
    assert error.code == "cluster_forbidden"
    assert 'cannot create resource "pods"' in str(error)
    assert "docs/kubernetes.md" in str(error)
    assert nothing_is_left(cluster)


async def test_a_full_quota_says_so(kit: SandboxKit, cluster: PlayedCluster) -> None:
    cluster.refuse("POST .*/pods$", 403, 'pods "x" is forbidden: exceeded quota: drydock, requested: pods=1, used: 9')
    error = await refused(kit)
    assert error.code == "quota_exceeded"
    assert "exceeded quota: drydock" in str(error)
    assert nothing_is_left(cluster)


async def test_what_no_node_takes_is_told_while_it_waits_and_in_the_end(
    kit: SandboxKit, cluster: PlayedCluster
) -> None:
    cluster.unready[kit.image] = NO_ROOM
    error = await refused(kit, limits=replace(LIMITS, start_seconds=0.5))
    assert error.code == "unschedulable"
    assert "0.5 s: 0/3 nodes are available: 3 Insufficient memory" in str(error)
    assert any("No node has room for it yet" in text for _, _, text in kit.notices)
    assert nothing_is_left(cluster)


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImageNeverPull"])
async def test_an_image_that_nodes_cannot_get_ends_the_start_at_once(
    kit: SandboxKit, cluster: PlayedCluster, reason: str
) -> None:
    waiting = {"waiting": {"reason": reason, "message": "Back-off pulling image"}}
    cluster.unready["nowhere.example/image"] = {
        "phase": "Pending",
        "containerStatuses": [{"name": "sandbox", "state": waiting}],
    }
    error = await refused(kit, image="nowhere.example/image")
    assert error.code == "image_missing"
    assert "nowhere.example/image" in str(error)
    assert reason in str(error)
    assert nothing_is_left(cluster)


async def test_no_cluster_at_all_is_said_with_where_it_was_looked_for(
    tmp_path: Path, cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.go_away()
    provider = KubernetesProvider()
    try:
        found = await provider.check()
        assert not found.ok
        assert cluster.url in found.reason
        assert "kubectl" in found.fix
    finally:
        await provider.close()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    provider = KubernetesProvider()
    try:
        found = await provider.check()
        assert not found.ok
        assert "way to the cluster is not known" in found.reason
        assert str(tmp_path / "nothing") in found.fix
    finally:
        await provider.close()


async def test_missing_rights_are_named_before_anything_is_begun(kit: SandboxKit, cluster: PlayedCluster) -> None:
    def rule(group: str, resource: str, verbs: tuple[str, ...]) -> dict[str, Any]:
        return {"verbs": list(verbs), "apiGroups": [group], "resources": [resource]}

    cluster.rules = [rule(*of, verbs) for of, verbs in RIGHTS.items()]
    assert (await kit.provider.check()).ok
    cluster.rules = [rule(*of, verbs) for of, verbs in RIGHTS.items() if of[1] != "pods/exec"]
    found = await kit.provider.check()
    assert not found.ok
    assert "create, get pods/exec" in found.reason
    cluster.refuse("GET /version", 401, "Unauthorized", reason="Unauthorized", times=1)
    assert "does not know who this server is" in (await kit.provider.check()).reason


async def test_another_context_and_a_namespace_that_is_not_ours(cluster: PlayedCluster) -> None:
    for options, words in (
        (KubernetesOptions(context="elsewhere"), "elsewhere"),
        (KubernetesOptions(namespace="kube-system"), "kube-system"),
    ):
        provider = KubernetesProvider(options)
        try:
            with pytest.raises(SandboxError, match=words):
                await provider.reap("instance", [])
        finally:
            await provider.close()


async def test_lists_are_read_page_by_page_and_anew_where_a_page_is_too_old(
    kit: SandboxKit, cluster: PlayedCluster
) -> None:
    cluster.unready[kit.image] = NO_ROOM
    sandboxes = [kit.provider.create(kit.spec(f"c{number}")) for number in range(7)]
    starts = [asyncio.create_task(one.start(lambda status, text: None)) for one in sandboxes]
    await eventually(lambda: len(cluster.objects["pods"]) == len(starts))
    for start in starts:
        start.cancel()
    await asyncio.wait(starts)
    cluster.longest_page = 2
    cluster.refuse(
        "GET .*/pods.*continue=4", 410, "The provided continue parameter is too old", reason="Expired", times=1
    )
    kept = ["c0", "c1"]
    assert await kit.provider.reap(kit.instance, kept) == ["c2", "c3", "c4", "c5", "c6"]
    assert len(cluster.objects["pods"]) == len(cluster.objects["persistentvolumeclaims"]) == 2


@pytest.mark.docker
@pytest.mark.bubblewrap
async def test_a_server_that_is_too_busy_is_asked_again(kit: SandboxKit, cluster: PlayedCluster) -> None:
    cluster.refuse("POST .*/(pods|persistentvolumeclaims)$", 429, "too many", reason="TooManyRequests", times=3)
    assert await output(kit.connect(), "echo fine") == "fine"


@pytest.mark.docker
@pytest.mark.bubblewrap
async def test_the_older_protocol_of_execs_will_do(kit: SandboxKit, cluster: PlayedCluster) -> None:
    cluster.exec_protocols = ["v4.channel.k8s.io"]
    sandbox = kit.connect()
    assert await output(sandbox, "echo fine") == "fine"
    await sandbox.close()
    assert await kit.connect(state=dict(sandbox.sandbox.state)).lookup("first:1") == "unknown"


@pytest.mark.docker
@pytest.mark.bubblewrap
async def test_an_api_server_that_is_away_ends_nothing_and_is_waited_for(
    kit: SandboxKit, cluster: PlayedCluster
) -> None:
    first, second = kit.connect("first"), kit.connect("second")
    await first.start()
    task = asyncio.create_task(run(first, "until [ -e flag ]; do sleep 0.05; done; echo done", key="first:1"))
    await eventually(lambda: _is_running(first, "first:1"))
    await cluster.go_away()
    starting = asyncio.create_task(second.start())
    await eventually(lambda: "STATUS$WAITING_FOR_ENGINE" in kit.statuses("second"))
    await cluster.come_back()
    await starting
    await run(first, "touch flag", args={"session": "other"})
    assert (await task)["output"].strip() == "done"


@pytest.mark.docker
@pytest.mark.bubblewrap
async def test_a_pod_that_was_evicted_or_ran_out_of_memory_says_so_and_starts_anew_with_its_files(
    kit: SandboxKit, cluster: PlayedCluster
) -> None:
    sandbox = kit.connect()
    await output(sandbox, "echo kept > file")
    name = sandbox.sandbox.state["pod"]
    task = asyncio.create_task(run(sandbox, "sleep 60", key="first:1"))
    await eventually(lambda: _is_running(sandbox, "first:1"))
    await cluster.evict(name, "The node was low on resource: memory.")
    with pytest.raises(SandboxLostError, match="Evicted: The node was low on resource"):
        await task
    assert await sandbox.sandbox.poll() is SandboxStatus.STOPPED
    assert await output(sandbox, "cat file") == "kept"
    await cluster.kill(name, "OOMKilled")
    await eventually(lambda: cluster.objects["pods"][name]["status"]["phase"] == "Failed")
    with pytest.raises(SandboxLostError, match="more memory than it may have"):
        await sandbox.sandbox.attach()
    assert await output(sandbox, "cat file") == "kept"


@pytest.mark.docker
@pytest.mark.bubblewrap
async def test_a_pod_gets_the_network_that_is_wanted_now_without_being_made_anew(
    kit: SandboxKit, cluster: PlayedCluster
) -> None:
    first = kit.connect(network="full")
    await output(first, "sleep 500 &")
    await first.close()
    second = kit.connect(state=dict(first.sandbox.state), network="none")
    assert await output(second, "jobs | wc -l") == "1"
    [pod] = cluster.objects["pods"].values()
    assert pod["metadata"]["labels"]["drydock.network"].startswith("none-")


@pytest.mark.docker
@pytest.mark.bubblewrap
async def test_policies_that_are_kept_to_and_such_that_are_not(kit: SandboxKit) -> None:
    found = await kit.provider.try_network(kit.spec())  # type: ignore[attr-defined]
    assert found.ok, found


async def _is_running(sandbox: Any, key: str) -> bool:
    return bool(await sandbox.lookup(key) == "running")
