"""What a pod does, and why it does not run, read from what the API server says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from agent_core.runtime.kubernetes.manifests import CONTAINER, FROZEN
from agent_core.runtime.sandbox import SandboxStatus


class Phase(StrEnum):
    """How far a pod is."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    GOING = "going"


class PodState(NamedTuple):
    """What a pod does; `problem` (words, and a code of `SandboxError`) is why it does not run.

    `is_hopeless`: waiting for it makes no sense.
    """

    phase: Phase
    problem: str = ""
    code: str = "start_failed"
    is_hopeless: bool = False
    is_frozen: bool = False

    @property
    def status(self) -> SandboxStatus:
        """What the sandbox is, whose volume is there."""
        if self.phase is not Phase.RUNNING:
            return SandboxStatus.STOPPED
        return SandboxStatus.PAUSED if self.is_frozen else SandboxStatus.RUNNING


_NO_IMAGE: Final = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_HOPELESS: Final = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_NOT_CREATED: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError")
_NO_PYTHON: Final = re.compile(
    r"(exec|executable|no such file).*python3|python3.*(not found|no such file)|Python 3\.8", re.I
)
_KILLED: Final = 137
_LONGEST: Final = 1500


def state_of(pod: Mapping[str, Any] | None) -> PodState:
    """What the pod is, as the API server describes it; None: there is none."""
    if pod is None:
        return PodState(Phase.ABSENT)
    about, status = pod["metadata"], pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    phase = status.get("phase", "Pending")
    if phase in ("Failed", "Succeeded") or _has_ended(containers):
        problem, code = _end(status, containers, pod)
        return PodState(Phase.ENDED, problem, code, is_hopeless=True)
    if about.get("deletionTimestamp"):
        return PodState(Phase.GOING, "it is being removed", "lost")
    own: Mapping[str, Any] = next((one for one in containers if one["name"] == CONTAINER), {})
    if phase == "Running" and "running" in (own.get("state") or {}):
        frozen = (about.get("annotations") or {}).get(FROZEN) == "yes"
        return PodState(Phase.RUNNING, is_frozen=frozen)
    if phase == "Unknown":
        return PodState(Phase.STARTING, "its node does not answer", "start_failed")
    return _starting(status, containers)


def _has_ended(containers: Sequence[Mapping[str, Any]]) -> bool:
    return any("terminated" in (one.get("state") or {}) and one["name"] == CONTAINER for one in containers)


def _starting(status: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> PodState:
    for one in containers:
        waiting = (one.get("state") or {}).get("waiting") or {}
        reason, words = waiting.get("reason", ""), _words(waiting)
        if reason in _NO_IMAGE:
            return PodState(Phase.STARTING, words, "image_missing", is_hopeless=reason in _HOPELESS)
        if reason in _NOT_CREATED:
            return PodState(Phase.STARTING, words, _code_of(words), is_hopeless=True)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            words = str(condition.get("message") or condition.get("reason") or "no node takes it")
            return PodState(Phase.STARTING, words.rstrip("."), "unschedulable")
    return PodState(Phase.STARTING, "", "start_timeout")


def _end(status: Mapping[str, Any], containers: Sequence[Mapping[str, Any]], pod: Mapping[str, Any]) -> tuple[str, str]:
    """Why it does not run any more, and the code for that."""
    if status.get("reason"):  # the node's word for the pod as a whole: Evicted, NodeLost, DeadlineExceeded, Preempting
        return f"{status['reason']}: {status.get('message') or 'no reason was given'}".rstrip(". "), "start_failed"
    for one in containers:
        ended = (one.get("state") or {}).get("terminated") or {}
        if not ended or (one["name"] != CONTAINER and ended.get("exitCode") == 0):
            continue
        if ended.get("reason") == "OOMKilled":
            most = _memory(pod)
            return f"it was ended by the kernel, since it needed more memory than it may have ({most})", "start_failed"
        words = str(ended.get("message") or "").strip()[-_LONGEST:]
        code = _code_of(words)
        if code == "no_python" and ended.get("exitCode") not in (1, 126, 127, 128):
            code = "start_failed"
        more = f", {ended['reason']}" if ended.get("reason") not in (None, "Error", "Completed") else ""
        return f"it ended with exit code {ended.get('exitCode')}{more}; its last words: {words or '(none)'}", code
    return "it ended", "start_failed"


def _code_of(words: str) -> str:
    if _NO_PYTHON.search(words):
        return "no_python"
    return "disk_full" if re.search("no space left", words, re.I) else "start_failed"


def _words(waiting: Mapping[str, Any]) -> str:
    message = str(waiting.get("message") or "").strip().rstrip(".")
    return f"{waiting.get('reason')}: {message}"[:_LONGEST] if message else str(waiting.get("reason"))


def _memory(pod: Mapping[str, Any]) -> str:
    for one in (pod.get("spec") or {}).get("containers") or ():
        found = str(((one.get("resources") or {}).get("limits") or {}).get("memory", ""))
        if one.get("name") == CONTAINER and found.isdigit():
            return f"{int(found) // 1024**2} MiB, sandbox_memory_mb"
    return "sandbox_memory_mb"
