"""What an operator sees of a server at work: its metrics, and what alerts and dashboard make of them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from server.measures import MEASURES
from tests.integration.server.conftest import MakeProcess, ServerProcess, create, following
from tests.integration.server.forks import ROOT


class Worked(NamedTuple):
    """A server of which one agent has done a task, in the conversation of this id."""

    server: ServerProcess
    conversation: str


OF_HOSTS = "drydock_docker_host_"


@pytest.fixture
async def worked(make_process: MakeProcess) -> AsyncIterator[Worked]:
    turns = [call("terminal", {"command": "echo done"}), finish("It is done.")]
    async with ModelServer(turns) as model:
        environment = {"LLM_MODEL": "openai/scripted", "LLM_BASE_URL": model.url, "LLM_API_KEY": "key"}
        environment["DRYDOCK_GENERATE_TITLES"] = "false"
        server = await make_process("--sandbox", "unconfined", environment=environment)
        conversation = await create(server)
        async with following(server, conversation) as client:
            await client.send({"action": "message", "args": {"content": "Do it."}})
            await client.until(lambda: client.count(observation="agent_state_changed") > 0 and is_done(client.frames))
        yield Worked(server, conversation)


def is_done(frames: list[dict[str, object]]) -> bool:
    return any((frame.get("extras") or {}).get("agent_state") == "finished" for frame in frames)  # type: ignore[attr-defined]


async def measured(server: ServerProcess) -> tuple[str, dict[str, Metric]]:
    """What it answers, and what Prometheus' own library reads in that, by the names in the table."""
    async with server.client() as client:
        text = (await client.get("/metrics")).text
    families = text_string_to_metric_families(text)
    return text, {f"{one.name}_total" if one.type == "counter" else one.name: one for one in families}


async def test_each_metric_of_the_table_is_exported_and_nothing_else(worked: Worked) -> None:
    text, found = await measured(worked.server)
    _check_expressions(found)
    of_several = ("drydock_cluster_", OF_HOSTS)  # by servers that share a database, or have several engines
    of_one = {name: measure for name, measure in MEASURES.items() if not name.startswith(of_several)}
    assert found.keys() == of_one.keys()
    for name, measure in of_one.items():
        assert (found[name].type, found[name].documentation) == (measure.kind, measure.meaning)
        assert all({*one.labels} - {"le"} == {*measure.labels} for one in found[name].samples)
    assert worked.conversation not in text
    counted = {
        (sample.name.removesuffix("_count"), *sample.labels.values()): sample.value
        for family in found.values()
        for sample in family.samples
        if family.type == "counter" or sample.name.endswith("_count")
    }
    assert counted["drydock_step_duration_seconds", "ok"] == counted["drydock_step_overhead_seconds",] == 2
    assert counted["drydock_model_call_duration_seconds", "openai/scripted", "ok"] == 2
    assert counted["drydock_model_tokens_total", "openai/scripted", "input"] > 0
    assert counted["drydock_tool_call_duration_seconds", "terminal", "ok"] == 1
    assert counted["drydock_sandbox_request_duration_seconds", "shell.run", "ok"] == 1
    assert counted["drydock_sandbox_start_duration_seconds", "unconfined", "down", "ok"] == 1
    assert counted["drydock_socket_message_duration_seconds", "ok"] == 1
    assert counted["drydock_events_total", "ActionEvent"] == 2
    assert counted["drydock_http_requests_total", "POST", "/api/conversations", "200"] == 1


def _check_expressions(found: dict[str, Metric]) -> None:
    """Alerts and dashboard ask only for what is exported, by labels that it has."""
    labels = {sample.name: set(sample.labels) for family in found.values() for sample in family.samples}
    # These are of hosts, which a server with one engine has none of.
    labels |= {name: set(measure.labels) for name, measure in MEASURES.items() if name.startswith(OF_HOSTS)}
    (group,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "drydock.json").read_text("utf-8"))
    asked = [rule["expr"] for rule in group["rules"]]
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(asked) > 60
    shown = set[str]()
    for expression in asked:
        names = re.findall(r"\b(?:drydock|process)_\w+", expression)
        assert names or expression.startswith("up{"), expression
        assert not set(names) - labels.keys(), expression
        shown.update(names)
        known = {"instance", "job"}.union(*(labels[name] for name in names))
        grouped = re.findall(r"(?:by|on|group_left) \(([^)]*)\)", expression)
        used = {one.strip() for group in grouped for one in group.split(",")} | set(
            re.findall(r'(\w+)=~?"', expression)
        )
        assert not used - known, expression
    of_families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in shown}
    assert found.keys() - of_families == set(), "what nobody looks at"
