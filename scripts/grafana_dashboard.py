#!/usr/bin/env python3
"""Writes Grafana's dashboard from the list below: ``scripts/grafana_dashboard.py > deploy/grafana/drydock.json``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

WIDTH: Final = 24
HEIGHT: Final = 7
STAT_HEIGHT: Final = 4
ATTEMPTS: Final = "drydock_model_attempts_total"
CALLS: Final = "drydock_model_call_duration_seconds_count"
STARTS: Final = "drydock_sandbox_start_duration_seconds_count"
ROUTES: Final = "drydock_http_request_duration_seconds_bucket"


class Panel(NamedTuple):
    """A graph, or one number (``kind`` ``stat``): its unit by Grafana's name, and each expression with its legend."""

    title: str
    unit: str
    expressions: dict[str, str]
    kind: str = "timeseries"


def rate(name: str, by: str, labels: str = "") -> str:
    """So much a second, by a label."""
    return f"sum by ({by}) (rate({name}{labels}[$__rate_interval]))"


def quantiles(name: str, by: str = "", *of: float) -> dict[str, str]:
    """Quantiles of a histogram, by a label."""
    labels = by.split(", ") if by else []
    legend = "".join(f" {{{{{label}}}}}" for label in labels)
    buckets = f"sum by ({', '.join(['le', *labels])}) (rate({name}_bucket[$__rate_interval]))"
    return {f"p{100 * one:g}{legend}": f"histogram_quantile({one}, {buckets})" for one in of or [0.5, 0.95]}


def stat(title: str, unit: str, expression: str) -> Panel:
    """One number."""
    return Panel(title, unit, {"": expression}, "stat")


ROWS: Final[dict[str, list[Panel]]] = {
    "Now": [
        stat("Ready", "bool_yes_no", "min(drydock_ready)"),
        stat("Agents at work", "short", "sum(drydock_working)"),
        stat("Waiting for a turn", "short", "sum(drydock_waiting)"),
        stat("Sandboxes", "short", "sum(drydock_sandboxes)"),
        stat("Clients", "short", "sum(drydock_connections)"),
        stat("Cost, 24 h", "currencyUSD", "sum(increase(drydock_model_cost_dollars_total[24h]))"),
        stat("Since last backup", "s", "time() - min(drydock_last_backup_timestamp_seconds > 0)"),
        stat(
            "Faults, 24 h",
            "short",
            'sum(increase(drydock_troubles_total{code=~"unexpected_error|task_restarted"}[24h]))',
        ),
    ],
    "Agents": [
        Panel(
            "Conversations",
            "short",
            {name: f"sum(drydock_{name})" for name in ("working", "waiting", "loaded_conversations", "held_back")},
        ),
        Panel("Steps a second", "ops", {"{{outcome}}": rate("drydock_step_duration_seconds_count", "outcome")}),
        Panel("A step", "s", quantiles("drydock_step_duration_seconds")),
        Panel(
            "What a step costs the server itself", "s", quantiles("drydock_step_overhead_seconds", "", 0.5, 0.95, 0.99)
        ),
        Panel("Wait for a turn or a sandbox", "s", quantiles("drydock_queue_wait_seconds", "wanted", 0.95)),
        Panel(
            "Troubles, by their codes",
            "short",
            {"{{code}}": "sum by (code) (increase(drydock_troubles_total[$__rate_interval])) > 0"},
        ),
    ],
    "Models": [
        Panel(
            "Calls a second",
            "ops",
            {"{{model}} {{outcome}}": rate(CALLS, "model, outcome")},
        ),
        Panel("A call", "s", quantiles("drydock_model_call_duration_seconds", "model", 0.5, 0.95)),
        Panel("Until the first piece", "s", quantiles("drydock_model_first_token_seconds", "model", 0.5, 0.95)),
        Panel(
            "Requests for each call",
            "short",
            {"{{model}}": f"{rate(ATTEMPTS, 'model')} / {rate(CALLS, 'model')}"},
        ),
        Panel("Tokens a second", "short", {"{{model}} {{type}}": rate("drydock_model_tokens_total", "model, type")}),
        Panel(
            "Dollars an hour",
            "currencyUSD",
            {"{{model}}": f"3600 * {rate('drydock_model_cost_dollars_total', 'model')}"},
        ),
    ],
    "Tools and sandboxes": [
        Panel(
            "Calls of tools a second",
            "ops",
            {"{{tool}} {{outcome}}": rate("drydock_tool_call_duration_seconds_count", "tool, outcome")},
        ),
        Panel("A call of a tool", "s", quantiles("drydock_tool_call_duration_seconds", "tool", 0.95)),
        Panel("A request to a sandbox", "s", quantiles("drydock_sandbox_request_duration_seconds", "operation", 0.95)),
        Panel(
            "Sandboxes brought up, a minute",
            "short",
            {"{{provider}} {{found}} {{outcome}}": f"60 * {rate(STARTS, 'provider, found, outcome')}"},
        ),
        Panel(
            "Until a sandbox is up",
            "s",
            quantiles("drydock_sandbox_start_duration_seconds", "provider, found", 0.5, 0.95),
        ),
        Panel("Sandboxes", "short", {"up": "sum(drydock_sandboxes)", "ready": "sum(drydock_warm_sandboxes)"}),
        Panel("Sandboxes on Docker hosts", "short", {"{{host}}": "max by (host) (drydock_docker_host_sandboxes)"}),
        Panel(
            "Memory left on Docker hosts",
            "bytes",
            {"{{host}}": "max by (host) (drydock_docker_host_memory_free_bytes)"},
        ),
    ],
    "Storage": [
        Panel("Until an event is durable", "s", quantiles("drydock_append_duration_seconds", "", 0.5, 0.95, 0.99)),
        Panel("A transaction", "s", quantiles("drydock_commit_duration_seconds")),
        Panel("Events a second", "ops", {"{{kind}}": rate("drydock_events_total", "kind")}),
        Panel("Changes that wait", "short", {"{{instance}}": "drydock_pending_changes"}),
        Panel("Free room on the disk", "bytes", {"{{instance}}": "drydock_disk_free_bytes"}),
    ],
    "Clients": [
        Panel("Requests a second", "reqps", {"{{status}}": rate("drydock_http_requests_total", "status")}),
        Panel(
            "The ten slowest routes",
            "s",
            {"{{method}} {{route}}": f"topk(10, histogram_quantile(0.95, {rate(ROUTES, 'le, method, route')}))"},
        ),
        Panel("A message over a socket", "s", quantiles("drydock_socket_message_duration_seconds")),
        Panel("Coming into a conversation", "s", quantiles("drydock_socket_join_duration_seconds")),
        Panel("Who follows", "short", {"sockets": "sum(drydock_connections)", "live logs": "sum(drydock_live_logs)"}),
        Panel("What waits for clients", "bytes", {"{{instance}}": "drydock_waiting_bytes"}),
        Panel(
            "Until the certificate ends",
            "s",
            {"{{instance}}": "(drydock_certificate_ends_timestamp_seconds > 0) - time()"},
        ),
    ],
    "Process": [
        Panel("Processor", "percentunit", {"{{instance}}": "rate(process_cpu_seconds_total[$__rate_interval])"}),
        Panel("Memory", "bytes", {"{{instance}}": "drydock_memory_bytes", "ceiling": "drydock_memory_limit_bytes > 0"}),
        Panel("How late the event loop is", "s", {"{{instance}}": "drydock_loop_lag_seconds"}),
        Panel("Descriptors", "short", {"open": "process_open_fds", "most": "process_max_fds"}),
        Panel(
            "Tasks, threads, objects",
            "short",
            {"tasks": "drydock_tasks", "threads": "drydock_threads", "conversations": "drydock_sessions"},
        ),
        Panel(
            "Versions, and since when",
            "dateTimeAsIso",
            {"{{version}}": "1000 * process_start_time_seconds * on (instance) group_left (version) drydock_info"},
        ),
    ],
}


def of_instances(expression: str) -> str:
    """The same of those servers only that are chosen above the dashboard."""
    chosen = 'instance=~"$instance"'
    return re.sub(
        r"\b((?:drydock|process)_\w+)(\{)?", lambda found: f"{found[1]}{{{chosen}{',' if found[2] else '}'}", expression
    )


def panels() -> Iterator[dict[str, Any]]:
    """The rows with their panels, three graphs or eight numbers beside each other."""
    number, top = 0, 0
    for title, row in ROWS.items():
        yield {
            "id": (number := number + 1),
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top},
        }
        top += 1
        is_stats = row[0].kind == "stat"
        width, height = (WIDTH // 8, STAT_HEIGHT) if is_stats else (WIDTH // 3, HEIGHT)
        for place, panel in enumerate(row):
            x, y = place * width % WIDTH, top + place * width // WIDTH * height
            yield shown(panel, number := number + 1, {"h": height, "w": width, "x": x, "y": y})
        top += -(-len(row) * width // WIDTH) * height


def shown(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """A panel as Grafana wants it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + index), "datasource": source, "expr": of_instances(expression), "legendFormat": legend}
        for index, (legend, expression) in enumerate(panel.expressions.items())
    ]
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": options,
        "targets": targets,
    }


def dashboard() -> dict[str, Any]:
    """The whole file."""
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    instance = {
        "name": "instance",
        "type": "query",
        "label": "Server",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": "label_values(drydock_info, instance)",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "title": "Drydock",
        "uid": "drydock",
        "tags": ["drydock"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, instance]},
        "panels": list(panels()),
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    sys.stdout.write("\n")
