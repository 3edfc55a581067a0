"""Names and labels of what is made for a conversation, and the places inside a sandbox: alike for all providers."""

from __future__ import annotations

import hashlib
import re

from agent_core.runtime.sandbox import SandboxLimits

LABEL_INSTANCE = "drydock.instance"
LABEL_CONVERSATION = "drydock.conversation"
LABEL_ROLE = "drydock.role"
LABEL_MAKING = "drydock.making"

WORKSPACE = "/workspace"
RUNNER_ROOT = "/.drydock"
"""Inside a sandbox: ``runner/`` (code, read-only for its user), ``state/`` (socket and journal), ``home/``."""
STATE_DIR = f"{RUNNER_ROOT}/state"
SOCKET_NAME = "runner.sock"
SOCKET = f"{STATE_DIR}/{SOCKET_NAME}"
IDLE_EXIT_SECONDS = 48 * 3600
"""Where no server has attached for two days the runner ends: its server's data may have been deleted, and then nobody
else knows of the sandbox. The workspace stays."""

_READABLE = 24


def serve_arguments(
    limits: SandboxLimits,
    *,
    socket: str = SOCKET,
    state_dir: str = STATE_DIR,
    workspace: str = WORKSPACE,
    own_workspace: bool = True,
    alone: bool = True,
) -> list[str]:
    """Arguments of the runner.

    Args:
        limits: of which it keeps those of the disk.
        socket: where it listens.
        state_dir: where it keeps its journal and whatever else it needs.
        workspace: where commands begin.
        own_workspace: whether what is in the workspace counts as the sandbox's.
        alone: whether it sees no processes but the sandbox's.
    """
    return [
        *("serve", "--socket", socket, "--state-dir", state_dir, "--workspace", workspace),
        *("--idle-exit-seconds", str(IDLE_EXIT_SECONDS)),
        *("--disk-bytes", str(limits.disk), "--disk-entries", str(limits.inodes)),
        *("--own-workspace", "yes" if own_workspace else "no", "--alone", "yes" if alone else "no"),
    ]


def object_name(instance_id: str, conversation_id: str) -> str:
    """The one name of all objects of a conversation's sandbox: valid everywhere, readable, and never shared.

    Two conversations, or the same conversation of two instances, have different names; the same pair always has the
    same one, so an object is found again without any record of it.
    """
    digest = hashlib.sha256(f"{instance_id}\0{conversation_id}".encode()).hexdigest()[:12]
    readable = _slug(conversation_id)[:_READABLE].strip("-")
    return f"drydock-{readable}-{digest}" if readable else f"drydock-{digest}"


def instance_name(instance_id: str) -> str:
    """The prefix of what all sandboxes of one instance use together (networks)."""
    digest = hashlib.sha256(instance_id.encode()).hexdigest()[:12]
    return f"drydock-{digest}"


def bridge_name(prefix: str, network: str) -> str:
    """Name of the host's device for a network of the engine; a device's name has 15 characters at most."""
    return prefix + hashlib.sha256(network.encode()).hexdigest()[: 15 - len(prefix)]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
