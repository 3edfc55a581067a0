"""The compose file, built and started: server, filtering proxy, and sandboxes as sibling containers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.compose.compose_project import ComposeProject
from tests.integration.compose.sandboxes import Sandboxes

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

CONVERSATION_SECONDS = 180.0
REMOVAL_SECONDS = 60.0
STATE_CHANGED = "agent_state_changed"


@pytest.fixture(scope="module")
def sandboxes() -> Sandboxes:
    return Sandboxes()


@pytest.fixture(scope="module")
def project(sandboxes: Sandboxes) -> Iterator[ComposeProject]:
    project = ComposeProject()
    try:
        project.build()
        project.start()
        sandboxes.belong_to(project.container("server"))
        yield project
    finally:
        project.remove()
        sandboxes.remove_all()


@pytest.fixture(scope="module")
def conversation(project: ComposeProject, sandboxes: Sandboxes) -> str:
    """A conversation in which the demo has done its tour."""
    made = project.ask("POST", "/api/conversations", {"initial_user_msg": "tour"}, token=project.token)
    conversation_id = str(made["conversation_id"])
    end = time.monotonic() + CONVERSATION_SECONDS
    events: list[dict[str, Any]] = []
    while time.monotonic() < end:
        events = project.events(conversation_id)
        states = [event["extras"]["agent_state"] for event in events if event.get("observation") == STATE_CHANGED]
        if states and states[-1] in ("finished", "awaiting_user_input", "error", "stopped") and len(events) > 5:
            break
        time.sleep(0.3)
    else:
        raise AssertionError(f"the demo did not end: {events[-3:]}\n{project.log()[-3000:]}")
    return conversation_id


def test_the_first_start_prints_an_address_with_a_token_that_is_needed(project: ComposeProject) -> None:
    assert len(project.token) >= 20
    assert project.status_of("/api/conversations") == 401
    assert project.status_of("/api/conversations", token="wrong" * 5) == 401
    assert project.status_of("/api/conversations", token=project.token) == 200
    assert "<!doctype html>" in project.ask("GET", "/").lower()


def test_the_demo_runs_in_a_sandbox_beside_the_server(
    project: ComposeProject, conversation: str, sandboxes: Sandboxes, engine: Any
) -> None:
    events = project.events(conversation)
    exit_codes = [event["extras"]["metadata"]["exit_code"] for event in events if event.get("observation") == "run"]
    assert exit_codes, [event.get("message") for event in events]
    assert any(code != 0 for code in exit_codes), "the tour has a test that fails at first"
    assert exit_codes[-1] == 0
    (sandbox,) = sandboxes.of(conversation)
    facts = engine.inspect_container(sandbox["Id"])
    assert facts["HostConfig"]["Privileged"] is False
    assert facts["HostConfig"]["CapDrop"] == ["ALL"]
    assert facts["HostConfig"]["Binds"] in (None, [])


def test_a_sandbox_reaches_neither_the_server_nor_the_engine(
    project: ComposeProject, conversation: str, sandboxes: Sandboxes, engine: Any
) -> None:
    (sandbox,) = sandboxes.of(conversation)
    addresses = [
        f"{network['IPAddress']}/{port}"
        for service, port in (("server", project.port), ("engine", 2375))
        for network in engine.inspect_container(project.container(service))["NetworkSettings"]["Networks"].values()
    ]
    assert len(addresses) == 3
    tries = "; ".join(f"timeout 2 bash -c ': </dev/tcp/{address}' && echo {address}" for address in addresses)
    made = engine.exec_create(sandbox["Id"], ["bash", "-c", f"{tries}; ls /var/run/docker.sock; echo tried"])
    output = engine.exec_start(made["Id"]).decode()
    assert "tried" in output.split()
    assert not set(addresses) & set(output.split())
    assert "No such file" in output


def test_the_server_has_no_way_to_the_engine_but_the_proxy(project: ComposeProject, engine: Any) -> None:
    facts = engine.inspect_container(project.container("server"))
    assert [mount["Destination"] for mount in facts["Mounts"]] == ["/data"]
    assert facts["Config"]["User"] not in ("", "root", "0")
    ask = (
        "import json, urllib.request as r\n"
        "body = json.dumps({'Image': 'drydock/sandbox:base', 'HostConfig': {'Privileged': True}}).encode()\n"
        "url = 'http://engine:2375/containers/create?name=drydock-x'\n"
        "try: r.urlopen(r.Request(url, body, {'Content-Type': 'application/json'}), timeout=5)\n"
        "except r.HTTPError as e: print(e.code, e.read().decode())\n"
    )
    made = engine.exec_create(project.container("server"), ["python", "-c", ask])
    assert engine.exec_start(made["Id"]).decode().startswith("403 ")


def test_nothing_in_the_servers_image_compiles_programs(project: ComposeProject, engine: Any) -> None:
    script = "command -v gcc cc c++ clang make npm node pip; id -u; touch /opt/drydock/x 2>&1"
    made = engine.exec_create(project.container("server"), ["sh", "-c", script])
    output = engine.exec_start(made["Id"]).decode().split("\n")
    assert output[0].isdigit()
    assert output[0] != "0"
    assert "Read-only file system" in output[1]


def test_a_restart_keeps_token_and_conversations(project: ComposeProject, conversation: str) -> None:
    token = project.token
    before = project.events(conversation)
    project.run("restart", "server")
    project.wait_until_ready()
    assert project.token == token
    assert project.events(conversation)[: len(before)] == before


def test_deleting_a_conversation_removes_its_sandbox(
    project: ComposeProject, conversation: str, sandboxes: Sandboxes
) -> None:
    assert sandboxes.of(conversation)
    project.ask("DELETE", f"/api/conversations/{conversation}", token=project.token)
    end = time.monotonic() + REMOVAL_SECONDS
    while sandboxes.of(conversation) and time.monotonic() < end:
        time.sleep(0.2)
    assert sandboxes.of(conversation) == []


def test_it_ends_by_itself_when_it_is_told_to(project: ComposeProject, engine: Any) -> None:
    server = project.container("server")
    project.run("stop", "server")
    state = engine.inspect_container(server)["State"]
    assert (state["Running"], state["ExitCode"], state["OOMKilled"]) == (False, 0, False)
