"""How an operator wants the sandboxes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """See the settings that begin with ``kubernetes_``; what is empty is as the cluster has it."""

    context: str = ""
    namespace: str = ""
    storage_class: str = ""
    runtime_class: str = ""
    pull_policy: str = "IfNotPresent"
    pull_secrets: Sequence[str] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)
    destinations: Sequence[str] = ()
