"""The profile `cluster` of the compose file: three servers over one PostgreSQL, behind their proxy, which has TLS."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.certificates import Authority
from tests.integration.compose.compose_project import ComposeProject
from tests.integration.compose.sandboxes import Sandboxes

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

WAIT_SECONDS = 180.0
SERVERS = ("server-1", "server-2", "server-3")
SERVICES = (*SERVERS, "postgresql", "proxy")
SECRETS = ("PASSWORD", "SECRET", "TOKEN=", "KEY=")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProject]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    tls = (*authority.vouch("proxy", "127.0.0.1"), authority.file)
    project, sandboxes = ComposeProject(cluster=True, tls=tls), Sandboxes()
    try:
        project.build()
        project.start()
        sandboxes.belong_to_instance(ask_database(project, "SELECT value FROM shared_facts WHERE name = 'instance'"))
        yield project
    finally:
        project.remove()
        sandboxes.remove_all()


def ask_database(project: ComposeProject, statement: str) -> str:
    return project.execute("postgresql", "psql", "-h", "/tmp", "-U", "postgres", "-d", "drydock", "-Atc", statement)


def until(condition: Callable[[], bool]) -> None:
    """Wait for it; whoever asks a server just when it goes is cut off, and asks again."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        with contextlib.suppress(OSError):
            if condition():
                return
        assert time.monotonic() < end
        time.sleep(0.3)


def finishes(project: ComposeProject, conversation_id: str) -> int:
    """How often the agent has come to an end of its work."""
    return sum(
        (event.get("extras") or {}).get("agent_state") in ("finished", "awaiting_user_input")
        for event in project.events(conversation_id)
    )


def test_each_container_is_healthy_and_has_every_limit_and_none_knows_a_secret_by_its_environment(
    project: ComposeProject, engine: Any
) -> None:
    containers = {service: project.container(service) for service in SERVICES}

    def states() -> set[str]:
        return {engine.inspect_container(one)["State"]["Health"]["Status"] for one in containers.values()}

    until(lambda: states() == {"healthy"})
    found = {service: engine.inspect_container(one) for service, one in containers.items()}
    for service, facts in found.items():
        host = facts["HostConfig"]
        assert all(host[limit] > 0 for limit in ("Memory", "NanoCpus", "PidsLimit")), service
        assert (host["CapDrop"], host["ReadonlyRootfs"]) == (["ALL"], True), service
        assert host["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "3"}, service
        assert host["RestartPolicy"]["Name"] == "unless-stopped", service
        given = [one for one in facts["Config"]["Env"] if one.partition("=")[2]]
        assert not [one for one in given if any(word in one.upper() for word in SECRETS) or project.token in one], (
            service
        )
    published = [service for service, facts in found.items() if facts["HostConfig"]["PortBindings"]]
    assert published == ["proxy"]


def test_a_conversation_goes_on_when_the_server_that_runs_it_is_killed(project: ComposeProject, engine: Any) -> None:
    assert project.status_of("/api/conversations") == 401
    made = project.ask("POST", "/api/conversations", {"initial_user_msg": "tour"}, token=project.token)
    conversation_id = str(made["conversation_id"])
    until(lambda: len(project.events(conversation_id)) > 3)
    owner = ask_database(
        project,
        "SELECT url FROM servers JOIN leases ON servers.id = leases.owner"  # noqa: S608
        f" WHERE leases.conversation_id = '{conversation_id}'",
    )
    killed = owner.removeprefix("http://").partition(":")[0]
    assert killed in SERVERS
    assert finishes(project, conversation_id) == 0
    engine.kill(project.container(killed))
    until(lambda: finishes(project, conversation_id) == 1)
    events = project.events(conversation_id)
    ids = [event["id"] for event in events]
    assert ids == sorted(set(ids))
    codes = [event["extras"]["metadata"]["exit_code"] for event in events if event.get("observation") == "run"]
    assert codes[-1] == 0, json.dumps(events[-3:])


def test_without_a_certificate_the_proxy_speaks_plain_http(project: ComposeProject, engine: Any) -> None:
    assert project.tls is not None
    with pytest.raises(ConnectionError):
        urllib.request.urlopen(f"http://127.0.0.1:{project.port}/health", timeout=5)
    project.tls = None
    engine.kill(project.container("proxy"))  # ended in order it would first let go on what is open
    project.run("up", "-d", "--no-build", "--no-deps", "proxy")
    until(lambda: project.status_of("/health") == 200)
