"""What a test or its server has left is named, and fails it."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from docker.api.client import APIClient
from docker.utils import kwargs_from_env

from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.sandbox import LABEL_INSTANCE, SandboxSpec
from tests.integration.audit import Patience, left_in_engine, noting_instances
from tests.integration.server import conftest
from tests.integration.server.conftest import ServerProcess
from tests.integration.server.forks import ROOT

LEFT = {
    "task": "task sleeps for ever: ",
    "task_of_the_library": "task sleeps for ever, too: ",
    "thread": "thread waits for ever",
    "descriptor": "descriptor of /",
    "connection": "descriptor of socket:; descriptor of socket:",
    "child": "process ",
    "child_that_nobody_has_waited_for": "ended, not waited for",
    "process_whose_parent_has_gone[command line]": "process ",
    "process_whose_parent_has_gone[environment]": "process ",
    "temporary_file": "temporary file drydock-half-",
}
ERROR = re.compile(r"^ERROR \S+::test_(.+?) - AssertionError: the test has left: (.*)$", re.MULTILINE)


def test_each_thing_that_is_left_fails_its_test(tmp_path: Path) -> None:
    options = ("-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/integration/tests_that_leave.py"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "2000"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = dict(ERROR.findall(ran.stdout))
    assert {name: text for name, text in LEFT.items() if text not in found.get(name, "")} == {}, ran.stdout
    assert f"{len(LEFT) + 2} passed, {len(LEFT)} errors in" in ran.stdout


@pytest.mark.docker
async def test_what_is_left_in_the_engine_is_named() -> None:
    instance_id = f"test-{secrets.token_hex(6)}"
    provider = DockerProvider()
    with noting_instances() as noted:
        provider.create(SandboxSpec("first", instance_id, "drydock/sandbox:base", ""))
    await provider.close()
    assert noted == {instance_id}
    with closing(APIClient(version="auto", **kwargs_from_env())) as engine:
        labels = {LABEL_INSTANCE: instance_id}
        engine.create_volume(f"drydock-{instance_id}", labels=labels)
        network = engine.create_network(f"drydock-{instance_id}", labels=labels, internal=True)
        container = engine.create_container("drydock/sandbox:base", name=f"drydock-{instance_id}", labels=labels)
        try:
            left = left_in_engine(noted)
        finally:
            engine.remove_container(container)
            engine.remove_network(network["Id"])
            engine.remove_volume(f"drydock-{instance_id}")
    kinds = ("container /", "network ", "volume ")
    assert left == [f"{kind}drydock-{instance_id}" for kind in kinds]
    assert left_in_engine(noted) == []


async def test_what_a_server_holds_when_its_conversations_have_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "PATIENCE", Patience(0.3))
    server = ServerProcess(tmp_path / "data", "--sandbox", "unconfined")
    await server.start()
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    with socket.create_connection(address), pytest.raises(AssertionError, match=r"still holds \{'client': 1\}"):
        await server.close()
