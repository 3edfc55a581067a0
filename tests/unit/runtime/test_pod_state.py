"""What is read from what an API server says of a pod: what it does, and why it does not run."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.runtime.kubernetes.pod_state import Phase, PodState, state_of
from agent_core.runtime.sandbox import SandboxStatus


def pod(phase: str = "Pending", metadata: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    limits = {"resources": {"limits": {"memory": str(512 * 1024**2)}}}
    return {
        "metadata": {"name": "drydock-x", **(metadata or {})},
        "spec": {"containers": [{"name": "sandbox", **limits}]},
        "status": {"phase": phase, **status},
    }


def container(name: str = "sandbox", **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


RUNNING = container(running={"startedAt": "2026-01-01T00:00:00Z"})


def test_what_it_does() -> None:
    assert state_of(None).phase is Phase.ABSENT
    assert state_of(pod()).phase is Phase.STARTING
    runs = state_of(pod("Running", containerStatuses=[RUNNING]))
    assert (runs.phase, runs.status) == (Phase.RUNNING, SandboxStatus.RUNNING)
    frozen = state_of(pod("Running", {"annotations": {"drydock.frozen": "yes"}}, containerStatuses=[RUNNING]))
    assert frozen.status is SandboxStatus.PAUSED
    going = state_of(pod("Running", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, containerStatuses=[RUNNING]))
    assert (going.phase, going.status) == (Phase.GOING, SandboxStatus.STOPPED)
    assert state_of(pod("Running", containerStatuses=[container(waiting={"reason": "ContainerCreating"})])) == PodState(
        Phase.STARTING, "", "start_timeout"
    )
    silent = state_of(pod("Unknown"))
    assert (silent.phase, silent.problem) == (Phase.STARTING, "its node does not answer")


NO_ROOM = "0/3 nodes are available: 3 Insufficient memory."


@pytest.mark.parametrize(
    ("found", "code", "words", "is_hopeless"),
    [
        (
            pod(
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_ROOM}]
            ),
            *("unschedulable", "3 Insufficient memory", False),
        ),
        (
            pod(containerStatuses=[container(waiting={"reason": "ErrImagePull", "message": "not found"})]),
            *("image_missing", "ErrImagePull: not found", False),
        ),
        (
            pod(containerStatuses=[container(waiting={"reason": "ImagePullBackOff", "message": "Back-off pulling"})]),
            *("image_missing", "ImagePullBackOff: Back-off", True),
        ),
        (
            pod(initContainerStatuses=[container("prepare", waiting={"reason": "ErrImageNeverPull"})]),
            *("image_missing", "ErrImageNeverPull", True),
        ),
        (
            pod(
                containerStatuses=[container(waiting={"reason": "CreateContainerConfigError", "message": "no secret"})]
            ),
            *("start_failed", "no secret", True),
        ),
        (
            pod(
                "Failed",
                initContainerStatuses=[
                    container(
                        "prepare",
                        terminated={
                            "exitCode": 128,
                            "reason": "StartError",
                            "message": 'exec: "python3": executable file not found in $PATH',
                        },
                    )
                ],
            ),
            *("no_python", "python3", True),
        ),
        (
            pod("Failed", containerStatuses=[container(terminated={"exitCode": 137, "reason": "OOMKilled"})]),
            *("start_failed", "more memory than it may have (512 MiB", True),
        ),
        (
            pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
            *("start_failed", "Evicted: The node was low on resource: memory", True),
        ),
        (
            pod(
                "Failed",
                containerStatuses=[container(terminated={"exitCode": 1, "message": "no space left on device"})],
            ),
            *("disk_full", "no space left", True),
        ),
        (
            pod("Succeeded", containerStatuses=[container(terminated={"exitCode": 0, "reason": "Completed"})]),
            *("start_failed", "it ended with exit code 0; its last words: (none)", True),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_why_it_does_not_run(found: dict[str, Any], code: str, words: str, is_hopeless: bool) -> None:
    state = state_of(found)
    assert state.phase is (Phase.ENDED if found["status"]["phase"] in ("Failed", "Succeeded") else Phase.STARTING)
    assert (state.code, state.is_hopeless) == (code, is_hopeless)
    assert words in state.problem
    assert not state.problem.endswith(".")


def test_what_has_ended_while_its_pod_is_still_called_running_has_ended() -> None:
    ended = container(terminated={"exitCode": 137, "reason": "Error", "message": "Killed"})
    state = state_of(pod("Running", containerStatuses=[ended]))
    assert (state.phase, state.status) == (Phase.ENDED, SandboxStatus.STOPPED)
    assert "exit code 137; its last words: Killed" in state.problem
