"""Names and labels of what is made for a conversation, and the places inside a sandbox: alike for all providers."""

from __future__ import annotations

import hashlib
import re

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
SERVE = (
    *("serve", "--socket", SOCKET, "--state-dir", STATE_DIR, "--workspace", WORKSPACE),
    *("--idle-exit-seconds", str(48 * 3600)),
)
"""Arguments of the runner. Where no server has attached for two days it ends: its server's data may have been deleted,
and then nobody else knows of the sandbox. The workspace stays."""

_READABLE = 24


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


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
