"""The objects of sandboxes in a cluster: fields that the API knows, no needless rights, and what settings do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agent_core.runtime.kubernetes import manifests
from agent_core.runtime.kubernetes.options import KubernetesOptions
from agent_core.runtime.sandbox import SandboxLimits, SandboxSpec
from server.settings.kubernetes import kubernetes_options
from server.settings.settings import Settings
from tests.kubernetes_fields import unknown_fields

SPEC = SandboxSpec("Conversation Ä/1", "instance", "registry.example/image:1", "", environment={"PRICE": "$(HOME) $5"})
NETWORKS = ("none", "internal", "full", "host-access")


def made(options: KubernetesOptions, spec: SandboxSpec = SPEC) -> list[dict[str, Any]]:
    return [
        manifests.pod(spec, options, "drydock-x", "drydock-x-data"),
        manifests.claim(spec, options, "drydock-x-data", "creation"),
        manifests.code_map(spec),
        manifests.policy(spec, options),
        manifests.look_pod(spec, options, "drydock-x-look", "drydock-x-data", "image", "node", 60),
    ]


@pytest.mark.parametrize("network", NETWORKS)
def test_they_have_only_fields_that_the_api_knows_each_of_its_kind(network: str) -> None:
    spec = replace(SPEC, network=network)  # type: ignore[arg-type]
    options = KubernetesOptions(
        "c", "n", "fast", "gvisor", "Always", ("one", "two"), {"pool": "x"}, ("203.0.113.0/24",)
    )
    for which in (KubernetesOptions(), options):
        for item in made(which, spec):
            assert unknown_fields(item, f"V1{item['kind']}") == []
            assert json.loads(json.dumps(item)) == item
            for value in item["metadata"]["labels"].values():
                assert len(value) <= 63


def test_a_pod_has_no_right_that_it_does_not_need() -> None:
    for item in (made(KubernetesOptions())[0], made(KubernetesOptions())[4]):
        spec = item["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "shareProcessNamespace"} & spec.keys()
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "privileged": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"memory", "cpu"} <= container["resources"]["limits"].keys()
        assert not [volume for volume in spec["volumes"] if volume.keys() & {"hostPath", "secret", "projected"}]


def test_what_nodes_read_in_a_value_is_the_value() -> None:
    [container] = made(KubernetesOptions())[0]["spec"]["containers"]
    assert container["env"] == [{"name": "PRICE", "value": "$$(HOME) $$5"}]
    written = [*container["command"], *container["args"]]
    assert not [word for word in written if "$(" in word]


def test_the_code_fits_into_its_object() -> None:
    item = made(KubernetesOptions())[2]
    assert len(json.dumps(item)) < 1024**2 * 0.9
    assert item["immutable"] is True
    assert manifests.code_name("a") != manifests.code_name("b")


def test_networks_let_out_what_their_name_says() -> None:
    def rules(network: str, *destinations: str) -> list[dict[str, Any]]:
        spec = replace(SPEC, network=network)  # type: ignore[arg-type]
        item = manifests.policy(spec, KubernetesOptions(destinations=destinations))
        assert item["spec"]["ingress"] == []
        assert item["spec"]["policyTypes"] == ["Ingress", "Egress"]
        found: list[dict[str, Any]] = item["spec"]["egress"]
        return found

    assert rules("none") == rules("internal") == []
    assert rules("host-access") == [{}]
    names, public = rules("full")
    assert {one["port"] for one in names["ports"]} == {53}
    assert {one["ipBlock"]["cidr"] for one in public["to"]} == {"0.0.0.0/0", "::/0"}
    refused = {one for block in public["to"] for one in block["ipBlock"]["except"]}
    assert {"10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12", "169.254.0.0/16", "100.64.0.0/10", "fc00::/7"} <= refused
    assert rules("full", "203.0.113.0/24")[1] == {"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}
    kinds = {manifests.network_kind(replace(SPEC, network=one), KubernetesOptions()) for one in NETWORKS}  # type: ignore[arg-type]
    narrow = manifests.network_kind(SPEC, KubernetesOptions(destinations=("203.0.113.0/24",)))
    assert len({*kinds, narrow}) == len(NETWORKS) + 1  # a pod never has the rules of before by its label


def test_settings_shape_the_objects() -> None:
    settings = Settings(
        sandbox="kubernetes",
        kubernetes_context="production",
        kubernetes_namespace="sandboxes",
        kubernetes_storage_class="fast",
        kubernetes_runtime_class="gvisor",
        kubernetes_pull_policy="Always",
        kubernetes_pull_secrets=("registry",),
        kubernetes_node_labels=("pool=sandboxes", "disk=ssd"),
        kubernetes_destinations=("198.51.100.7", "2001:db8::/32"),
    )
    options = kubernetes_options(settings)
    assert (options.context, options.namespace) == ("production", "sandboxes")
    pod, claim, _, policy, look = made(options)
    assert claim["spec"]["storageClassName"] == "fast"
    for item in (pod, look):
        assert item["spec"]["runtimeClassName"] == "gvisor"
        assert item["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert item["spec"]["nodeSelector"] == {"pool": "sandboxes", "disk": "ssd"}
        assert {one["imagePullPolicy"] for one in item["spec"]["containers"]} == {"Always"}
    blocks = [one["ipBlock"]["cidr"] for one in policy["spec"]["egress"][1]["to"]]
    assert blocks == ["198.51.100.7/32", "2001:db8::/32"]
    usual = made(KubernetesOptions())
    assert "storageClassName" not in usual[1]["spec"]
    assert not usual[0]["spec"].keys() & {"runtimeClassName", "imagePullSecrets", "nodeSelector"}


def test_limits_are_those_of_the_sandbox() -> None:
    limits = SandboxLimits(memory=300 * 1024**2, cpus=0.5, tmp_size=5 * 1024**2, disk=7 * 1024**2, read_only=False)
    pod, claim, *_ = made(KubernetesOptions(), replace(SPEC, limits=limits))
    [container] = pod["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == str(300 * 1024**2)
    assert container["resources"]["limits"]["cpu"] == "500m"
    assert container["resources"]["requests"]["cpu"] == "100m"
    assert container["securityContext"]["readOnlyRootFilesystem"] is False
    assert claim["spec"]["resources"]["requests"]["storage"] == str(limits.disk_bound)
    sizes = {one["name"]: one["emptyDir"]["sizeLimit"] for one in pod["spec"]["volumes"] if "emptyDir" in one}
    assert sizes["tmp"] == sizes["var-tmp"] == str(5 * 1024**2)
    assert pod["spec"]["terminationGracePeriodSeconds"] == 5
