"""``python -m bench.scaling``: what many agents and many conversations need, reckoned from what one of each takes.

The tables of docs/scaling.md are what it prints. What it reckons with is `COSTS`: a test counts again whatever of it
can be counted, and `make bench` measures what takes time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench.simulation import Machines, StepCosts, simulate

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What one of each takes.

    Counted (they are the same on every machine): what a step with one command of usual output stores, the messages
    with which another server is told of it, rows on the disk with their indexes, connections. Measured: processor
    time memory, the write-ahead log, and the reading of a lease, which each of several servers does once a second
    for each conversation that is loaded at any of them. Assumed: `busy_share`, of a core's time what may be used so
    that nobody waits long for it, and `sandbox_mib`, which is what the server itself reckons with.
    """

    events_per_step: float = 2.0
    appends_per_step: float = 2.0
    payload_bytes_per_step: float = 1820.0
    notices_per_step: float = 2.0
    row_bytes: float = 210.0
    conversation_bytes: float = 1900.0
    events_beside_steps: float = 8.0
    connections_per_process: int = 8

    server_ms: float = 6.5
    database_ms: float = 0.6
    client_ms_per_event: float = 0.17
    server_ms_per_lease: float = 0.0096
    database_ms_per_lease: float = 0.0004
    write_ahead_factor: float = 1.6
    process_mib: float = 130.0
    loaded_kib: float = 350.0
    client_kib: float = 60.0

    busy_share: float = 0.6
    sandbox_mib: float = 256.0


COSTS: Final = Costs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Agents at work, what each of their steps waits for and prints, and what is stored and watched meanwhile."""

    agents: int
    conversations: int
    clients: int
    model_seconds: float = 5.0
    command_seconds: float = 1.0
    steps_per_conversation: float = 30.0
    output_bytes: float = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What such a load needs. Rates are those of a second, sizes in bytes."""

    steps: float
    server_cores: float
    processes: int
    server_memory: float
    sandbox_memory: float
    rows: float
    commits: float
    notices: float
    database_cores: float
    connections: int
    write_ahead: float
    database_size: float
    growth_per_day: float


def step_bytes(output_bytes: float, costs: Costs = COSTS) -> float:
    """What a step takes in the database whose command prints so much."""
    return costs.payload_bytes_per_step + output_bytes + costs.events_per_step * costs.row_bytes


def stored_bytes(conversations: float, steps: float, output_bytes: float = 0.0, costs: Costs = COSTS) -> float:
    """What so many conversations with so many such steps each take in the database."""
    event = costs.payload_bytes_per_step / costs.events_per_step + costs.row_bytes
    beside = costs.conversation_bytes + costs.events_beside_steps * event
    return conversations * (beside + steps * step_bytes(output_bytes, costs))


def need(load: Load, costs: Costs = COSTS) -> Need:
    """Reckon it. All but the sandboxes' memory grows with the steps in a second, or with what is stored."""
    own_seconds = (costs.server_ms + costs.database_ms) / 1000
    steps = load.agents / (load.model_seconds + load.command_seconds + own_seconds)
    watched = steps * costs.events_per_step * load.clients / max(load.agents, 1)
    busy = (steps * costs.server_ms + watched * costs.client_ms_per_event) / 1000
    processes = max(1, math.ceil(busy / costs.busy_share))
    looked_at = 0.0
    if processes > 1:
        looked_at = load.agents
        left = costs.busy_share - looked_at * costs.server_ms_per_lease / 1000
        if left <= 0:
            raise ValueError(f"{load.agents} agents: servers that look at so many leases each second do nothing else")
        processes = math.ceil(busy / left)
    cores = (busy + processes * looked_at * costs.server_ms_per_lease / 1000) / costs.busy_share
    database_busy = (steps * costs.database_ms + processes * looked_at * costs.database_ms_per_lease) / 1000
    elsewhere = (processes - 1) / processes
    in_memory = load.agents * costs.loaded_kib + load.clients * costs.client_kib
    stored = steps * step_bytes(load.output_bytes, costs)
    return Need(
        steps=steps,
        server_cores=cores,
        processes=processes,
        server_memory=processes * costs.process_mib * MIB + in_memory * KIB,
        sandbox_memory=load.agents * costs.sandbox_mib * MIB,
        rows=steps * costs.events_per_step,
        commits=steps * costs.appends_per_step,
        notices=steps * costs.notices_per_step * elsewhere * min(1.0, load.clients / max(load.agents, 1)),
        database_cores=database_busy / costs.busy_share,
        connections=processes * costs.connections_per_process,
        write_ahead=stored * costs.write_ahead_factor,
        database_size=stored_bytes(load.conversations, load.steps_per_conversation, load.output_bytes, costs),
        growth_per_day=stored * 86_400,
    )


LOADS: Final = (
    Load(agents=100, conversations=10_000, clients=100),
    Load(agents=1_000, conversations=100_000, clients=2_000),
    Load(agents=10_000, conversations=1_000_000, clients=10_000),
)

STEP: Final = StepCosts(
    server_ms=COSTS.server_ms, database_ms=COSTS.database_ms, turns=round(COSTS.appends_per_step), sync_ms=0.3
)
SIMULATED: Final = (
    (100, Machines(processes=1, cores=1, database_cores=1)),
    (1_000, Machines(processes=1, cores=1, database_cores=1)),
    (1_000, Machines(processes=2, cores=2, database_cores=1)),
    (2_000, Machines(processes=4, cores=4, database_cores=2)),
    (10_000, Machines(processes=8, cores=8, database_cores=4)),
    (10_000, Machines(processes=16, cores=16, database_cores=4)),
)


def needs_table(loads: Sequence[Load] = LOADS, costs: Costs = COSTS) -> str:
    """What each load needs, a column for each."""
    needs = [need(load, costs) for load in loads]
    rows = [
        ("agents at work", *(f"{load.agents:,}" for load in loads)),
        ("conversations stored", *(f"{load.conversations:,}" for load in loads)),
        ("clients connected", *(f"{load.clients:,}" for load in loads)),
        ("steps in a second", *(f"{one.steps:,.0f}" for one in needs)),
        ("**server processes**, each with a core", *(f"{one.processes}" for one in needs)),
        ("– cores that they use, a part of which stays free", *(f"{one.server_cores:.1f}" for one in needs)),
        ("– memory of all of them", *(size(one.server_memory) for one in needs)),
        ("**database**: cores", *(f"{one.database_cores:.1f}" for one in needs)),
        ("– events stored in a second", *(f"{one.rows:,.0f}" for one in needs)),
        ("– transactions in a second, at most", *(f"{one.commits:,.0f}" for one in needs)),
        ("– write-ahead log in a second", *(size(one.write_ahead) for one in needs)),
        ("– connections", *(f"{one.connections}" for one in needs)),
        ("– size with these conversations", *(size(one.database_size) for one in needs)),
        ("– growth in a day at this pace", *(size(one.growth_per_day) for one in needs)),
        ("notices among servers in a second, at most", *(f"{one.notices:,.0f}" for one in needs)),
        ("**sandboxes**: memory on the machines that have them", *(size(one.sandbox_memory) for one in needs)),
    ]
    return _table(rows)


def simulation_table(step: StepCosts = STEP) -> str:
    """What the simulation says of agents whose model and command take six seconds."""
    rows: list[Sequence[str]] = [
        ("Agents", "Processes", "Cores of servers", "Cores of the database", "Steps/s", "A step's own time, p50", "p95")
    ]
    for agents, machines in SIMULATED:
        found = simulate(agents, 6.0, step, machines)
        facts = (agents, machines.processes, machines.cores, machines.database_cores)
        times = (f"{found.p50_ms:,.0f} ms", f"{found.p95_ms:,.0f} ms")
        rows.append((*(f"{one:,}" for one in facts), f"{found.steps_per_second:,.0f}", *times))
    return _table(rows)


def size(value: float) -> str:
    """Bytes as people write them."""
    for unit, name in ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if value >= unit:
            return f"{value / unit:.1f} {name}" if value < 10 * unit else f"{value / unit:,.0f} {name}"
    return f"{value / KIB:,.0f} KiB"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *rest])


def pages() -> Iterator[str]:
    """The tables of docs/scaling.md."""
    yield needs_table()
    yield simulation_table()


if __name__ == "__main__":
    print("\n\n".join(pages()))
