"""A PostgreSQL of the tests' own: a cluster for each process of them, made when the first test needs it."""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import asyncpg

from server.db.database import upgrade
from server.db.engine import DatabaseSettings, create_engines
from server.db.tables import metadata

START_SECONDS: Final = 60.0
USER: Final = "drydock"
Shutdown = Literal["fast", "immediate"]
RUNNING: set[int] = set()
"""The processes that others are started by, of all clusters: they stay from test to test."""

_SETTINGS: Final = {
    # What is lost without these is lost when the machine's power fails, which no test does to it: a killed server has
    # given its pages to the system by then. Each commit would wait for the disk, each database for hundreds of files.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_wal_size": "96MB",
    "max_connections": "60",
    "log_min_messages": "fatal",
}
_DURABLE: Final = {"shared_buffers": "256MB", "max_connections": "200", "log_min_messages": "fatal"}
_LOCALE: Final = ("--locale-provider", "icu", "--icu-locale", "en-US", "--locale", "C.UTF-8")
"""Text is in the order of a language, as in most clusters, and not in that of its bytes."""

_ACCESS: Final = """
local all locked scram-sha-256
host all locked 127.0.0.1/32 scram-sha-256
local all all trust
host all all 127.0.0.1/32 trust
"""
"""Everybody on this machine is let in, but the user `locked` by a password alone."""


class Cluster:
    """A PostgreSQL server that its owner starts, stops and closes; it ends with this process whatever becomes of that.

    Tests of one process run one after another, so each may stop it, and sees to it that it runs afterwards. One that
    `is_durable` is as careful as PostgreSQL is by itself, for measurements. At another `address` than the loopback it
    is reached by all of that network.
    """

    def __init__(self, address: str = "127.0.0.1", *, is_durable: bool = False) -> None:
        self._address = address
        self._programs = _programs()
        self._settings = _DURABLE if is_durable else _SETTINGS
        self._user = "postgres" if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="drydock-postgresql-", dir="/tmp"))  # a socket's path is short
        self._names = (f"test_{number}" for number in itertools.count())
        # It ends with the thread that has started it, as the system sees it: with this one, which stays.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="postgresql")
        self._process: subprocess.Popen[bytes] | None = None
        self._shared: str | None = None
        self.port = 0
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        words = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", *_LOCALE]
        self._run("initdb", "-D", str(self.data), *words, "--no-sync", "--no-instructions")
        (self.data / "pg_hba.conf").write_text(f"{_ACCESS}host all all {address}/24 trust\n")

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace")

    @property
    def pid(self) -> int:
        """That of the process which starts the others."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, at the port that it had before; returns when it takes connections."""
        self.port = self.port or free_port()
        options = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self._folder)}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        self._process = self._starter.submit(self._spawn, words).result()
        RUNNING.add(self.pid)
        began = time.monotonic()
        while self._call("pg_isready", "-q", "-h", str(self._folder), "-p", str(self.port)):
            if self._process.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"PostgreSQL does not start: {self.log}")
            time.sleep(0.02)

    def _spawn(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._programs / "postgres", "-D", self.data, "-c", f"listen_addresses={self._address}", *words],
                **self._as_user(),
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_starter,
            )

    def stop(self, how: Shutdown = "fast") -> None:
        """Stop it: ``fast`` breaks off what goes on in order, ``immediate`` as a crash does. Once is enough."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(signal.SIGINT if how == "fast" else signal.SIGQUIT)
        self._process.wait(START_SECONDS)
        RUNNING.discard(self.pid)
        self._process = None

    def freeze(self) -> None:
        """Have it and all its backends stand still until `thaw`."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text("ascii").split()
        for pid in (self.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def restart(self, how: Shutdown = "fast") -> None:
        self.stop(how)
        self.start()

    def restart_as_standby(self) -> None:
        """As the one that another has gone ahead of, until `pg_promote()`."""
        self.stop()
        mark = self.data / "standby.signal"
        mark.touch()
        owner = self.data.stat()
        os.chown(mark, owner.st_uid, owner.st_gid)
        self.start()

    def close(self) -> None:
        """Stop it, and remove all that it had."""
        self.stop("immediate")
        self._starter.shutdown()
        shutil.rmtree(self._folder)

    def url(self, database: str = "postgres", *, user: str = USER, password: str = "", tcp: bool = False) -> str:
        """Where a database is: at the cluster's socket, or at its port on the loopback."""
        who = quote(user) + (f":{quote(password, safe='')}" if password else "")
        if tcp:
            return f"postgresql://{who}@{self._address}:{self.port}/{database}"
        return f"postgresql://{who}@/{database}?host={quote(str(self._folder), safe='')}&port={self.port}"

    async def run(self, *statements: str, database: str = "postgres", user: str = USER) -> list[Any]:
        """Run statements, each by itself; returns the rows of the last."""
        connection = await asyncpg.connect(self.url(database, user=user))
        try:
            rows: list[Any] = []
            for statement in statements:
                rows = await connection.fetch(statement)
            return rows
        finally:
            await connection.close()

    async def shared_database(self) -> str:
        """The address of a database with all tables, and nothing in them."""
        if self._shared is None:
            engines = create_engines(self.url(await self.new_database()), DatabaseSettings())
            await upgrade(engines.write)
            await engines.dispose()
            self._shared = str(engines.write.url.database)
        # Faster than to make one, and than TRUNCATE, while there are few rows.
        untriggered = "SET session_replication_role = replica"  # records of the audit log are not removed otherwise
        emptying = (f"DELETE FROM {name}" for name in metadata.tables)  # noqa: S608
        await self.run(untriggered, *emptying, database=self._shared)
        return self.url(self._shared, tcp=True)

    async def new_database(self, template: str = "template1") -> str:
        """Make an empty database, or one like `template`, to which nobody is connected; returns its name."""
        name = next(self._names)
        await self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    async def drop(self, database: str) -> None:
        await self.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def _as_user(self) -> dict[str, Any]:
        return {} if self._user is None else {"user": self._user, "group": self._user, "extra_groups": []}

    def _call(self, program: str, *words: str) -> int:
        return subprocess.run([self._programs / program, *words], timeout=START_SECONDS).returncode

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [self._programs / program, *words],
            **self._as_user(),
            check=True,
            timeout=START_SECONDS,
            capture_output=True,
        )


def _programs() -> Path:
    """The folder of PostgreSQL's programs: Debian's newest, or that on the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise RuntimeError("PostgreSQL is missing: scripts/real-parts postgresql")
    return found[-1].parent if found else Path(str(on_path)).resolve().parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_PDEATHSIG: Final = 1
_prctl: Callable[..., int] | None = getattr(ctypes.CDLL(None), "prctl", None)


def end_with_starter() -> None:
    os.setpgid(0, 0)  # Ctrl-C is for the tests
    if _prctl is not None:
        _prctl(_PDEATHSIG, signal.SIGQUIT)
