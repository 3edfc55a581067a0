"""Writes the table of troubles in `docs/operations.md`: ``python -m server.cli.troubles_reference`` prints it."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from agent_core.troubles import Trouble


class Row(NamedTuple):
    """What an operator looks up: when a code is counted, what people read then, and what is to be done."""

    when: str
    people: str
    fix: str


_ERROR: Final = "the error in the conversation, whose state is `error`; the status table"
_START: Final = "why it could not be started, in the conversation and its status; the next message tries again"
_ANSWER: Final = "the answer to the action, in the conversation"
_NOTHING: Final = "–"
_AGAIN: Final = "nothing: it is tried again"

GROUPS: Final[dict[str, dict[Trouble, Row]]] = {
    "Storage": {
        Trouble.DISK_FULL: Row(
            "once each time nothing can be stored any more; a line of level info when it can again",
            "507 to what is refused, `STATUS$ERROR_STORAGE` to who follows, 503 at `/ready`",
            "free space; it goes on by itself",
        ),
        Trouble.STORAGE_UNAVAILABLE: Row(
            "the same, for every other reason (EIO, read-only, locked)",
            "503 instead of 507, else the same",
            "see to the disk, or to who holds the database; it goes on by itself",
        ),
        Trouble.STORAGE_UNREADABLE: Row(
            "a page of the database, a record, a secret or a setting that is damaged was asked for",
            "503 to what needs it; an agent that meets it stops in `error` and says so; the rest goes on",
            "`drydock doctor`, then a backup; a setting: save it again; a record: or delete that conversation",
        ),
        Trouble.EVENT_UNREADABLE: Row(
            "an event or its large payload is damaged or lost, and is passed over",
            "the conversation without this event",
            "`drydock doctor`; where it matters, a backup",
        ),
        Trouble.DATABASE_BUSY: Row(
            "a read had no turn within ten seconds", "503 with `Retry-After`", "less load, or a faster disk"
        ),
        Trouble.RETENTION_REMOVED: Row(
            "each conversation that retention deletes; one line for a round", "it is gone", "nothing, or other limits"
        ),
        Trouble.RETENTION_FAILED: Row(
            "a round of retention failed, or could not delete a conversation", _NOTHING, "what the line says; " + _AGAIN
        ),
    },
    "Ends of the process, and what they leave": {
        Trouble.INTERRUPTED: Row(
            "each conversation that was at work when the server ended, and is taken up",
            "an action of which nobody knows whether it took effect says so",
            "nothing; where it grows without you: why does the server end?",
        ),
        Trouble.NOT_RESUMED: Row(
            "one of them could not be taken up (yet)", "its status", "what the line says; its next message takes it up"
        ),
        Trouble.CRASH_LOOP: Row(
            "a conversation is held back: the server ended in each of its last lives",
            "`STATUS$HELD_BACK` and why, in the conversation and its status",
            "nothing: it is taken up later, alone; or delete it",
        ),
        Trouble.LEFTOVERS_REMOVED: Row(
            "each sandbox, file, payload, row or half-made conversation that a killed process had left",
            _NOTHING,
            "nothing",
        ),
        Trouble.LEFTOVERS_KEPT: Row(
            "some of that could not be removed", _NOTHING, "what the line says; the next look or start tries again"
        ),
        Trouble.TASK_RESTARTED: Row(
            "a task in the background, or a part of a conversation, failed and began again",
            "nothing, or where it fails again and again `error` with what to do",
            "report it, with the line's traceback",
        ),
        Trouble.CLOCK_JUMPED: Row(
            "the machine's clock was set by 30 s or more", "times of events that leap", "keep the machine's time right"
        ),
        Trouble.LEASE_LOST: Row(
            "of several servers over one database: it did not hear of this one in time (frozen, cut off, overloaded)",
            "clients follow on, by way of the server that carries their conversation on",
            "see to that machine, or to the way to PostgreSQL; longer times: `cluster_lease_seconds`",
        ),
    },
    "Room": {
        Trouble.WAITING: Row(
            "a conversation waits for its turn (level info)",
            '`STATUS$WAITING_FOR_TURN` with its place ("Third in line"), on the page and over REST',
            "nothing, or higher limits; `drydock doctor` shows what they follow from",
        ),
        Trouble.MEMORY_CEILING: Row(
            "memory is short: each look at it (one a second), and each request that is refused; a line a minute",
            "503 with the figures, or a place in line with the reason",
            "more memory, fewer at once, or `max_memory_mb`",
        ),
        Trouble.DISK_RESERVE: Row(
            "the disk has less than its reserve, and each request that is refused for it",
            "507 with the figures",
            "free space, or `disk_reserve_mb`; it goes on by itself",
        ),
        Trouble.FROZEN: Row(
            "a conversation's sandbox is frozen for that",
            "`STATUS$ERROR_DISK_RESERVE` and the reason, in the conversation and its status",
            "the same",
        ),
    },
    "Sandboxes": {
        Trouble.ENGINE_UNAVAILABLE: Row(
            "the Docker engine, or the cluster, does not answer: a start begins to wait for it, or has failed",
            "`STATUS$WAITING_FOR_ENGINE` and why; after `sandbox_start_seconds` why it could not be started",
            "see to the engine; what waits or has failed starts by itself when it answers",
        ),
        Trouble.ENGINE_REFUSED: Row("it answers that it cannot", _START, "what the line says"),
        Trouble.EXEC_REFUSED: Row("it lets nobody into a sandbox", _START, "what the line says"),
        Trouble.CLUSTER_FORBIDDEN: Row(
            "the cluster does not know this server, or does not let it do what it needs",
            _START,
            "kubernetes.md, rights",
        ),
        Trouble.QUOTA_EXCEEDED: Row("the namespace's quota leaves no room for a sandbox", _START, "a larger quota"),
        Trouble.UNSCHEDULABLE: Row(
            "no node of the cluster took a sandbox in time", _START, "what the line says; larger nodes, or more of them"
        ),
        Trouble.IMAGE_MISSING: Row("there is no such image", _START, "pull or build it, as the line says"),
        Trouble.NO_PYTHON: Row("the image has no Python that the runner can use", _START, "another image"),
        Trouble.NO_ADDRESSES: Row(
            "the engine has no address left for a network", _START, "`docker network prune`, or `default-address-pools`"
        ),
        Trouble.NO_ISOLATION: Row(
            "local sandboxes cannot be closed off here", _START, "`drydock doctor` says what is missing"
        ),
        Trouble.NO_PROVIDER: Row("there is nowhere to run sandboxes", _START, "`drydock doctor`"),
        Trouble.DEPS_FAILED: Row("the extra dependencies could not be installed", _START, "`runtime_extra_deps`"),
        Trouble.START_TIMEOUT: Row("a sandbox was not there in time", _START, "less load, or `sandbox_start_seconds`"),
        Trouble.START_FAILED: Row("a conversation could not be started, for any other reason", _START, "what it says"),
        Trouble.SANDBOX_LOST: Row(
            "a sandbox that was up has gone (removed, killed, out of memory as a whole), or does not answer",
            "`STATUS$ERROR_RUNTIME_DISCONNECTED`; the next command starts it again, with its files",
            "where it repeats: its memory, the kernel's log",
        ),
        Trouble.SANDBOX_DISK_LIMIT: Row(
            "a sandbox has written more than it may: what wrote was ended, or it is stopped",
            "`STATUS$ERROR_DISK_LIMIT` and why",
            "`sandbox_disk_mb`, or its user removes files",
        ),
        Trouble.ACTION_FAILED: Row(
            "an action had no result, since its sandbox failed or was lost, or the server was restarted",
            _ANSWER + ", and whether it may have taken effect",
            "nothing: the agent looks",
        ),
        Trouble.ACTION_STOPPED: Row("an action was ended before it was done, mostly by its user", _ANSWER, "nothing"),
        Trouble.SANDBOX_NOT_STOPPED: Row(
            "a sandbox could not be stopped, paused or frozen", _NOTHING, "what the line says"
        ),
        Trouble.SANDBOX_NOT_REMOVED: Row(
            "the sandbox of a deleted conversation could not be removed", _NOTHING, "nothing: tried every 30 s"
        ),
    },
    "Models and agents": {
        Trouble.MODEL_KEY: Row("the key is missing, wrong, or not for this model", _ERROR, "the key"),
        Trouble.MODEL_BUDGET: Row("the account's budget is used up", _ERROR, "the account"),
        Trouble.MODEL_RATE: Row("the rate was limited, after all retries", _ERROR, "wait, or fewer at once"),
        Trouble.MODEL_TIMEOUT: Row(
            "no answer in time, after retries", _ERROR, "the model server, or a longer `timeout`"
        ),
        Trouble.MODEL_UNAVAILABLE: Row("it cannot be reached, or is overloaded", _ERROR, "the model server"),
        Trouble.MODEL_INTERNAL: Row("it failed, or sent what is no answer", _ERROR, "the model server"),
        Trouble.MODEL_SILENT: Row("it answered with nothing", _ERROR, "the model server"),
        Trouble.MODEL_REFUSES: Row("it refuses the content", _ERROR, "other words"),
        Trouble.MODEL_CONTEXT: Row("the prompt is too long for it", _ERROR, "a model with a larger window"),
        Trouble.MODEL_HISTORY: Row("it refuses the history of messages", _ERROR, "report it"),
        Trouble.MODEL_REQUEST: Row("it refuses the request", _ERROR, "the model's options"),
        Trouble.MODEL_UNKNOWN: Row("it does not know the model", _ERROR, "the model's name, the base URL"),
        Trouble.MODEL_CACHE: Row("it refuses marks of the prompt's cache", _ERROR, "`caching_prompt`: false"),
        Trouble.MODEL_ERROR: Row("it failed in another way", _ERROR, "what it says"),
        Trouble.CALL_IN_TEXT: Row("calls cannot be written as text for it", _ERROR, "report it"),
        Trouble.CALL_INVALID: Row("calls that it writes as text cannot be read", _ERROR, "another model"),
        Trouble.CALL_OF_NOTHING: Row("it calls what there is not", _ERROR, "another model"),
        Trouble.MODEL_RETRIED: Row(
            "a request to it failed and is made again (level info)", "`STATUS$LLM_RETRY` with the reason", "nothing"
        ),
        Trouble.MODEL_REPLACED: Row("a fallback is asked instead of it", "the fallback's answer", "the first model"),
        Trouble.NO_CONDENSATION: Row("a history cannot be made shorter", _ERROR, "a model with a larger window"),
        Trouble.MAX_ITERATIONS: Row("an agent has used up its steps", _ERROR, "a message lets it go on"),
        Trouble.MAX_BUDGET: Row("an agent has used up its money", _ERROR, "a message lets it go on"),
        Trouble.STUCK: Row("an agent repeats itself", _ERROR, "a message sets it on another course"),
        Trouble.STEP_FAILED: Row("a step failed for a reason without a code here", _ERROR, "what it says"),
        Trouble.SUBAGENT_FAILED: Row("a sub-agent failed", "the answer to the agent that asked it", "what it says"),
    },
    "What others have made": {
        Trouble.TOOL_SERVER_FAILED: Row(
            "an MCP server does not start, has ended, or cannot be used", "the event in the conversation", "the server"
        ),
        Trouble.PLUGIN_FAILED: Row(
            "a plugin could not be installed or set up", "the event in the conversation", "the plugin"
        ),
        Trouble.HOOK_FAILED: Row("a hook failed, or its file cannot be used", "the event in the conversation", "it"),
        Trouble.LISTENER_FAILED: Row(
            "a listener of the operator's own failed; the first in a conversation with its traceback",
            _NOTHING,
            "the listener",
        ),
        Trouble.TRACES_LOST: Row(
            "spans were not taken by the collector of traces, or found no place in the queue", _NOTHING, "the collector"
        ),
        Trouble.WEBHOOK_FAILED: Row(
            "a delivery failed; a line for the first in a row",
            "the webhook's `problem` and `failing_since`",
            "the receiver; " + _AGAIN,
        ),
        Trouble.WEBHOOK_GIVEN_UP: Row(
            "nothing more is sent to a webhook", "it is not `active` any more, and why", "make it active again"
        ),
    },
    "Clients": {
        Trouble.CERTIFICATE: Row(
            "the server's certificate ends within a week, has ended, or its new files cannot be used",
            "nothing while it counts, then what browsers and clients say",
            "renew it; the line says what is wrong with new files; the former certificate stays until they can be used",
        ),
        Trouble.TOO_MANY_CONNECTIONS: Row("a connection too many", "503 with `Retry-After`", "`max_connections`"),
        Trouble.TOO_MANY_LIVE_LOGS: Row("a live log too many", "429 with `Retry-After`", "`max_live_logs`"),
        Trouble.NO_DESCRIPTORS: Row(
            "the process has no descriptor left (looked for every 5 s)",
            "connections that wait; what needs a file fails and says so",
            "`ulimit -n`, `LimitNOFILE`, or `max_connections`",
        ),
        Trouble.SLOW_CLIENT: Row(
            "a client took nothing for a minute, and is cut (level info)", "it connects again and misses nothing", "it"
        ),
        Trouble.UNFINISHED: Row(
            "heads and messages whose ends do not come are more than 256 MiB, and one more is refused",
            "503 with `Retry-After`; who has a WebSocket is cut, connects again and misses nothing",
            "who are these clients?",
        ),
        Trouble.WRONG_CLIENT: Row(
            "a client sent what is no packet, or much before it had joined, and is cut (level info)",
            "it is cut",
            "the client",
        ),
        Trouble.WRONG_TOKENS: Row("somebody tries wrong tokens", "401, then 429", "who has that address?"),
    },
    "All others": {
        Trouble.UNEXPECTED: Row(
            "any other line with a traceback: a fault of Drydock, or of what an operator has added",
            "500 that names no detail, or the error in the conversation",
            "report it, with the traceback",
        ),
        Trouble.OTHER: Row("any other line of level warning or error", "what it is about", "what the line says"),
    },
}


def render() -> str:
    """The tables, in Markdown."""
    parts = []
    for group, rows in GROUPS.items():
        lines = [f"| {group}: `code` | Counted | What people read | What to do |", "|---|---|---|---|"]
        lines += [f"| `{code}` | {row.when} | {row.people} | {row.fix} |" for code, row in rows.items()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
