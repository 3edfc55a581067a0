"""PgBouncer before a PostgreSQL of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgresql import USER, Cluster, end_with_starter, free_port

START_SECONDS = 30.0

_CONFIGURATION = """\
[databases]
{name} = host=127.0.0.1 port={behind} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = session
logfile = {folder}/log
"""


@contextmanager
def pgbouncer(cluster: Cluster, name: str) -> Iterator[str]:
    """The address of that database by way of it."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, "PgBouncer is missing: scripts/real-parts pgbouncer"
    folder = Path(tempfile.mkdtemp(prefix="drydock-pgbouncer-"))
    port, file = free_port(), folder / "pgbouncer.ini"
    file.write_text(_CONFIGURATION.format(name=name, behind=cluster.port, user=USER, port=port, folder=folder))
    user = "postgres" if os.geteuid() == 0 else None  # it does not run as root
    for path in (folder, file):
        if user is not None:
            shutil.chown(path, user)
    process = subprocess.Popen(
        [program, "-q", file],
        user=user,
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=end_with_starter,
    )
    try:
        began = time.monotonic()
        while not (log := folder / "log").exists() or "process up" not in log.read_text("utf-8"):
            if process.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"PgBouncer does not start: {log.read_text('utf-8') if log.exists() else ''}")
            time.sleep(0.01)
        yield f"postgresql://{USER}@127.0.0.1:{port}/{name}"
    finally:
        process.kill()
        process.wait(START_SECONDS)
        shutil.rmtree(folder)
