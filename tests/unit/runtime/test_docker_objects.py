"""Calls to an engine that does not do at once what it is asked for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError
from agent_core.runtime.docker.objects import DockerObjects, DockerQuota
from agent_core.runtime.sandbox import SandboxSpec


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
