"""The provider of sandboxes in the pods of a Kubernetes cluster, which share a namespace and its policies."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from agent_core.errors import SandboxError
from agent_core.runtime.docker.images import is_own
from agent_core.runtime.kubernetes import manifests
from agent_core.runtime.kubernetes.cluster import Cluster
from agent_core.runtime.kubernetes.manifests import CONTAINER, NETWORKING
from agent_core.runtime.kubernetes.options import KubernetesOptions
from agent_core.runtime.kubernetes.sandbox import GONE_SECONDS, KubernetesSandbox, remove, until_gone
from agent_core.runtime.sandbox import (
    LABEL_INSTANCE,
    Availability,
    Sandbox,
    SandboxLimits,
    SandboxSpec,
    SandboxState,
    object_name,
)

RIGHTS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "pods"): ("create", "delete", "get", "list", "patch", "watch"),
    ("", "pods/exec"): ("create", "get"),
    ("", "persistentvolumeclaims"): ("create", "delete", "get", "list"),
    ("", "configmaps"): ("create", "delete", "list"),
    ("", "events"): ("list",),
    ("networking.k8s.io", "networkpolicies"): ("create", "delete", "list"),
}
"""All that it needs in its namespace, by group and resource."""
_FIX_RIGHTS: Final = "Give its account the rights that docs/kubernetes.md lists."
_KINDS: Final = ("pods", "persistentvolumeclaims")
_TRIED_SECONDS: Final = 3
_REACH: Final = """
import os, socket, sys
try:
    address = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    socket.create_connection(address, float(sys.argv[1])).close()
except OSError:
    sys.exit(7)
"""


class _Rule(NamedTuple):
    """What an account may do in a namespace."""

    verbs: Sequence[str]
    groups: Sequence[str]
    resources: Sequence[str]

    def grants(self, verb: str, group: str, resource: str) -> bool:
        of_all = f"*/{resource.partition('/')[2]}"
        wanted = ((self.verbs, verb), (self.groups, group), (self.resources, resource))
        return all(
            "*" in granted or one in granted or (one == resource and of_all in granted) for granted, one in wanted
        )


class KubernetesProvider:
    """Makes a pod for each conversation (`SandboxProvider`)."""

    name = "kubernetes"

    def __init__(self, options: KubernetesOptions | None = None) -> None:
        self._options = options or KubernetesOptions()
        self._cluster = Cluster(self._options.context, self._options.namespace)

    async def check(self) -> Availability:
        try:
            version = await self._cluster.call("say its version", "GET", "/version")
            missing = await self._missing_rights()
        except SandboxError as error:
            return Availability(False, str(error).removesuffix(error.fix).strip(), error.fix)
        where = f"{self._cluster.where}, namespace {self._cluster.namespace}"
        if missing:
            return Availability(False, f"this server may not {'; '.join(missing)} ({where})", _FIX_RIGHTS)
        return Availability(True, f"a Kubernetes cluster answers (version {version.get('gitVersion')}, {where})")

    async def lacks(self) -> Mapping[str, str]:
        return {
            "extra_deps": "the nodes of a cluster take images from registries: make one with what you need",
            "processes": "the nodes say how many processes a pod may have (podPidsLimit of the kubelet)",
        }

    async def folders(self) -> Sequence[str]:
        return ()

    async def check_image(self, image: str) -> Availability:
        """Whether it can be an image: only the nodes know whether they get it, once they are to run it."""
        if is_own(image):
            text = f"the nodes have to have the image {image}, which is in no registry"
            return Availability(True, text, manifests.pull_fix(image))
        return Availability(True, f"the nodes pull the image {image} when they need it")

    def create(self, spec: SandboxSpec) -> Sandbox:
        return self._sandbox(spec, object_name(spec.instance_id, spec.conversation_id), known=False)

    def restore(self, spec: SandboxSpec, state: SandboxState) -> Sandbox:
        name = state.get("pod") or object_name(spec.instance_id, spec.conversation_id)
        return self._sandbox(spec, name, known=True)

    def _sandbox(self, spec: SandboxSpec, name: str, *, known: bool) -> KubernetesSandbox:
        return KubernetesSandbox(self._cluster, self._options, spec, name, known=known)

    async def reap(self, instance_id: str, keep: Collection[str]) -> list[str]:
        remaining = set(keep)
        removed: set[str] = set()
        going: list[tuple[str, str]] = []
        for kind in _KINDS:
            for item in await self._list(kind, "", instance_id):
                conversation = manifests.conversation_of(item)
                if conversation not in remaining:
                    await remove(self._cluster, kind, item["metadata"]["name"], 1 if kind == "pods" else None)
                    removed.add(conversation)
                    going.append((kind, item["metadata"]["name"]))
        for kind, name in going:
            await until_gone(self._cluster, kind, name, GONE_SECONDS)
        await self._remove_unused(instance_id, all_of_instance=not remaining)
        return sorted(removed - {""})

    async def running(self, instance_id: str) -> Collection[str]:
        return {manifests.conversation_of(pod) for pod in await self._list("pods", "", instance_id)} - {""}

    async def others(self) -> dict[str, int]:
        """How many pods and volumes the namespace has of each instance, whose server may be gone."""
        found: Counter[str] = Counter()
        for kind in _KINDS:
            for item in await self._list(kind, ""):
                found[manifests.instance_of(item)] += 1
        return dict(found.most_common())

    async def prepare(self, spec: SandboxSpec) -> None:
        await self._sandbox(spec, "", known=False).share()

    async def try_network(self, spec: SandboxSpec) -> Availability:
        """Whether the cluster keeps to network policies, tried with a pod that is to have none and asks for its API."""
        name = f"check-{secrets.token_hex(4)}"
        limits = replace(spec.limits, disk=64 * 1024**2) if spec.limits.disk else SandboxLimits(disk=64 * 1024**2)
        tried = self.create(replace(spec, conversation_id=name, network="none", limits=limits))
        try:
            await tried.start(lambda status, text: None)
            command = ["python3", "-I", "-S", "-c", _REACH, str(_TRIED_SECONDS)]
            code, _, errors = await self._cluster.run(tried.state["pod"], CONTAINER, command, limit=_TRIED_SECONDS * 3)
        finally:
            with suppress(SandboxError):
                await tried.destroy()
        if code == 0:
            return Availability(
                False,
                "the cluster does not keep to network policies: a sandbox without a network reached its API server",
                "Install a network that does, such as Calico or Cilium.",
            )
        if code != 7:
            return Availability(False, f"it could not be tried: {errors.rsplit(chr(10), 1)[-1]}")
        return Availability(True, "network policies hold, as far as one pod could tell")

    async def close(self) -> None:
        await self._cluster.close()

    async def _missing_rights(self) -> list[str]:
        """What of `RIGHTS` the account does not have, in words; nothing where the cluster does not tell all of it."""
        await self._cluster.path("pods")
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": self._cluster.namespace},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        found = await self._cluster.call_unless("say what this server may do", "POST", path, 403, 404, body=body)
        status = (found or {}).get("status") or {"incomplete": True}
        if status.get("incomplete"):
            return []
        rules = [_rule(one) for one in status.get("resourceRules") or () if not one.get("resourceNames")]
        missing: list[str] = []
        for (group, resource), verbs in RIGHTS.items():
            refused = [verb for verb in verbs if not any(rule.grants(verb, group, resource) for rule in rules)]
            if refused:
                missing.append(f"{', '.join(refused)} {resource}")
        return missing

    async def _list(self, kind: str, group: str, instance_id: str = "") -> list[dict[str, Any]]:
        labels = manifests.selector(manifests.labels_of(instance_id)) if instance_id else LABEL_INSTANCE
        path = await self._cluster.path(kind, group=group)
        return await self._cluster.items(f"list its {kind}", path, {"labelSelector": labels})

    async def _remove_unused(self, instance_id: str, *, all_of_instance: bool) -> None:
        """Remove the code of other releases, and once there are no sandboxes all that they share.

        Where another server begins one meanwhile, that makes it anew.
        """
        kept = "" if all_of_instance else manifests.code_name(instance_id)
        for item in await self._list("configmaps", "", instance_id):
            if item["metadata"]["name"] != kept:
                await remove(self._cluster, "configmaps", item["metadata"]["name"])
        if all_of_instance:
            for item in await self._list("networkpolicies", NETWORKING, instance_id):
                await remove(self._cluster, "networkpolicies", item["metadata"]["name"], group=NETWORKING)


def _rule(found: Mapping[str, Any]) -> _Rule:
    return _Rule(found.get("verbs") or (), found.get("apiGroups") or (), found.get("resources") or ())
