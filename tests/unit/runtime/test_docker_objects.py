"""Calls to an engine that does not do at once what it is asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError
from agent_core.runtime.docker.objects import DockerObjects, DockerQuota, Quota, sandbox_config
from agent_core.runtime.docker.provider import is_abandoned
from agent_core.runtime.sandbox import LABEL_PROGRAM, SandboxSpec


class Engine:
    """Answers each call with the next of these statuses; 204 is success."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)

    call_unless = DockerEngine.call_unless

    async def call(self, what: str, work: object, *, limit: float | None = None) -> None:
        status = self.answers.pop(0)
        if status != 204:
            raise EngineRefusedError(what, status, "unable to freeze")


def objects(engine: Engine) -> DockerObjects:
    made = cast(DockerEngine, cast(Any, engine))
    spec = SandboxSpec("conversation", "instance", "image", "/nowhere")
    return DockerObjects(made, DockerQuota(made), spec, "drydock-name")


@pytest.mark.parametrize("answers", [(204,), (500, 500, 500, 204), (500, 409), (404,)])
async def test_a_sandbox_that_cannot_be_frozen_at_once_is_tried_again(answers: tuple[int, ...]) -> None:
    engine = Engine(*answers)
    await objects(engine).pause()
    assert engine.answers == []


@pytest.mark.parametrize("answers", [(500, 500, 500, 500), (403,)])
async def test_a_sandbox_that_cannot_be_frozen_is_an_error_in_the_end(answers: tuple[int, ...]) -> None:
    engine = Engine(*answers)
    with pytest.raises(EngineRefusedError, match="pause the sandbox"):
        await objects(engine).pause()
    assert engine.answers == []


def test_a_programs_container_does_not_wait_long_for_somebody_who_holds_it() -> None:
    """Killed together with its guard (by the end of a container that both are in) nobody else would end it."""
    spec = SandboxSpec("conversation", "instance", "image", "/nowhere", ends_with_owner=True)
    for one, seconds in ((spec, "600"), (replace(spec, ends_with_owner=False), "172800")):
        config = sandbox_config(one, "volume", "none", "", Quota())
        assert config["Cmd"][config["Cmd"].index("--idle-exit-seconds") + 1] == seconds
        assert (LABEL_PROGRAM in config["Labels"]) is one.ends_with_owner


@pytest.mark.parametrize(
    ("created", "finished", "running", "expected"),
    [
        (2, 1.1, False, True),
        (2, 0.9, False, False),  # its program may come back to it
        (2, None, False, True),  # made, and never started
        (0.9, None, False, False),
        (9, 2, True, False),
    ],
)
def test_what_a_killed_program_has_left_is_removed_when_it_has_not_run_for_a_day(
    created: float, finished: float | None, running: bool, expected: bool
) -> None:
    def ago(days: float | None) -> str:
        moment = datetime.now(UTC) - timedelta(days=days) if days is not None else datetime.min
        return moment.strftime("%Y-%m-%dT%H:%M:%S.000000000Z").zfill(30)

    state = {"Running": running, "FinishedAt": ago(finished)}
    assert is_abandoned({"Created": ago(created), "State": state}) is expected
