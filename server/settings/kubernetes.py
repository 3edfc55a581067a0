"""What the settings say about the sandboxes of a cluster, for their provider."""

from __future__ import annotations

import ipaddress

from agent_core.runtime.kubernetes.options import KubernetesOptions
from server.settings.settings import Settings


def kubernetes_options(settings: Settings) -> KubernetesOptions:
    """What sandboxes are to be like there."""
    return KubernetesOptions(
        context=settings.kubernetes_context,
        namespace=settings.kubernetes_namespace,
        storage_class=settings.kubernetes_storage_class,
        runtime_class=settings.kubernetes_runtime_class,
        pull_policy=settings.kubernetes_pull_policy,
        pull_secrets=settings.kubernetes_pull_secrets,
        node_labels=dict(label.split("=", 1) for label in settings.kubernetes_node_labels),
        destinations=[str(ipaddress.ip_network(one)) for one in settings.kubernetes_destinations],
    )
