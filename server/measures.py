"""`MEASURES`: everything that `GET /metrics` shows, by its name: its kind, what it means, and its labels."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

QUICK: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Bounds in seconds for what the server does by itself."""
LONG: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Bounds in seconds for what waits for models, commands or people."""

TROUBLES: Final = "drydock_troubles_total"


class MetricInfo(NamedTuple):
    """One thing that is measured; its unit ends its name, before ``_total``. `bounds` are those of a histogram."""

    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


MEASURES: Final[dict[str, MetricInfo]] = {
    # Agents.
    "drydock_step_duration_seconds": MetricInfo(
        "histogram",
        "A step of an agent, its model's answer included, without the tools",
        ("outcome",),
        LONG,
    ),
    "drydock_step_overhead_seconds": MetricInfo(
        "histogram", "The same without the calls of models: what a step costs the server itsel", (), QUICK
    ),
    "drydock_model_call_duration_seconds": MetricInfo(
        "histogram",
        "A call of a model with its retries, and the waits before these",
        ("model", "outcome"),
        LONG,
    ),
    "drydock_model_first_token_seconds": MetricInfo(
        "histogram", "From the request to the first piece of an answer, in the attempt that succeeded", ("model",), LONG
    ),
    "drydock_model_attempts_total": MetricInfo("counter", "Requests to models, each retry counted", ("model",)),
    "drydock_model_tokens_total": MetricInfo(
        "counter",
        "Tokens of all answers, broken ones too; `type` is `input`, `output` or `cached` (of input, by its provider)",
        ("model", "type"),
    ),
    "drydock_model_cost_dollars_total": MetricInfo(
        "counter", "What these cost, as far as prices are known", ("model",)
    ),
    "drydock_tool_call_duration_seconds": MetricInfo(
        "histogram",
        "A call of a tool, its wait for the sandbox included (`terminal`: a command)",
        ("tool", "outcome"),
        LONG,
    ),
    "drydock_queue_wait_seconds": MetricInfo(
        "histogram",
        "How long conversations waited; `wanted` is `turn` (to work) or `sandbox` (to have it up without work)",
        ("wanted",),
        LONG,
    ),
    "drydock_working": MetricInfo("gauge", "Conversations at work"),
    "drydock_waiting": MetricInfo("gauge", "Conversations that wait for their turn"),
    "drydock_held_back": MetricInfo("gauge", "Conversations held back from crash loops"),
    "drydock_sessions": MetricInfo("gauge", "Conversations that have an object in memory"),
    "drydock_loaded_conversations": MetricInfo("gauge", "Conversations that are loaded"),
    "drydock_cluster_servers": MetricInfo("gauge", "Servers that share the database (of several)"),
    "drydock_cluster_leases": MetricInfo("gauge", "Conversations that this server has the lease of (of several)"),
    "drydock_cluster_redis": MetricInfo("gauge", "1 while live output goes over Redis, else 0 (with `redis_url`)"),
    # Sandboxes.
    "drydock_sandbox_request_duration_seconds": MetricInfo(
        "histogram",
        "A request to a sandbox, with its start where it had to be started",
        ("operation", "outcome"),
        LONG,
    ),
    "drydock_sandbox_start_duration_seconds": MetricInfo(
        "histogram",
        "A sandbox brought up; `found` is `running` where it ran already, else `down`",
        ("provider", "found", "outcome"),
        LONG,
    ),
    "drydock_sandboxes": MetricInfo("gauge", "Sandboxes that are up, or coming up"),
    "drydock_warm_sandboxes": MetricInfo("gauge", "Sandboxes that are ready for conversations to come"),
    "drydock_docker_host_status": MetricInfo(
        "gauge", "1 for the state that a Docker host is in: `up`, `draining` or `lost` (of several)", ("host", "state")
    ),
    "drydock_docker_host_sandboxes": MetricInfo("gauge", "Sandboxes that run there, of all servers", ("host",)),
    "drydock_docker_host_max_sandboxes": MetricInfo("gauge", "How many may, before others get new ones", ("host",)),
    "drydock_docker_host_memory_bytes": MetricInfo("gauge", "Its memory", ("host",)),
    "drydock_docker_host_memory_free_bytes": MetricInfo(
        "gauge", "What of that is left for new sandboxes; 0 while it is lost", ("host",)
    ),
    # Storage.
    "drydock_append_duration_seconds": MetricInfo(
        "histogram", "From the wish to store events to their being durable, the wait for the writer included", (), QUICK
    ),
    "drydock_commit_duration_seconds": MetricInfo("histogram", "One transaction with the events of many", (), QUICK),
    "drydock_events_total": MetricInfo("counter", "Events that were stored", ("kind",)),
    "drydock_pending_changes": MetricInfo("gauge", "Changes that wait for the database's writer"),
    "drydock_ready": MetricInfo("gauge", "1 while `GET /ready` answers 200, else 0"),
    "drydock_audit_broken": MetricInfo("gauge", "1 where the audit log was found changed since the start, else 0"),
    "drydock_disk_free_bytes": MetricInfo("gauge", "Free room on the disk of the data folder"),
    "drydock_last_backup_timestamp_seconds": MetricInfo("gauge", "When the last backup was made; 0: never"),
    # Clients.
    "drydock_http_requests_total": MetricInfo(
        "counter",
        "Requests over HTTP by their route's template; `page`: files of the page, `refused`: no route was asked",
        ("method", "route", "status"),
    ),
    "drydock_http_request_duration_seconds": MetricInfo(
        "histogram",
        "From a request's head to the end of its answer; what is followed takes long",
        ("method", "route"),
        LONG,
    ),
    "drydock_socket_message_duration_seconds": MetricInfo(
        "histogram",
        "A message of a client over a socket, until it is stored or refused",
        ("outcome",),
        LONG,
    ),
    "drydock_connections": MetricInfo("gauge", "Clients in conversations over sockets"),
    "drydock_socket_join_duration_seconds": MetricInfo(
        "histogram", "A client's coming into a conversation over a socket", ("outcome",), LONG
    ),
    "drydock_waiting_bytes": MetricInfo("gauge", "What waits for clients over sockets"),
    "drydock_live_logs": MetricInfo("gauge", "Logs that programs follow"),
    "drydock_certificate_ends_timestamp_seconds": MetricInfo(
        "gauge", "When the server's own certificate ends; 0: it has none"
    ),
    # The process.
    "drydock_info": MetricInfo("gauge", "1; its label says which version runs", ("version",)),
    "drydock_tasks": MetricInfo("gauge", "Tasks on the server's event loop"),
    "drydock_threads": MetricInfo("gauge", "Threads of the server's process"),
    "drydock_loop_lag_seconds": MetricInfo(
        "gauge", "By how much the event loop was late at most in the last 5 to 10 s"
    ),
    "drydock_memory_bytes": MetricInfo("gauge", "Memory of the server itsel"),
    "drydock_memory_limit_bytes": MetricInfo("gauge", "Its ceiling; 0: none"),
    "process_cpu_seconds_total": MetricInfo("counter", "Processor time of the server's process"),
    "process_start_time_seconds": MetricInfo("gauge", "When the server's process began, in seconds since 1970"),
    "process_open_fds": MetricInfo("gauge", "Descriptors that are open"),
    "process_max_fds": MetricInfo("gauge", "Descriptors that may be open"),
    TROUBLES: MetricInfo("counter", "Bad luck that was met, by its code (docs/errors.md)", ("code",)),
}
