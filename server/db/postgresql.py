"""PostgreSQL's own ways: how it is reached, its fast append, and which servers will do."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import URL, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from server.db.errors import DatabaseError
from server.db.event_rows import EventRow

OLDEST_VERSION: Final = 14
DRIVER: Final = "postgresql+asyncpg"
SPELLINGS: Final = frozenset({"postgres", "postgresql", DRIVER})
"""Names of PostgreSQL in URLs; they mean the same here."""

MAX_ROWS: Final = 1000
"""Rows of one statement."""

CONNECT_SECONDS: Final = 10
WRITE_SECONDS: Final = 30
LOCK_SECONDS: Final = 10
IDLE_SECONDS: Final = 5
"""A transaction in which nothing is done for so long is ended: that of a server that is frozen keeps others waiting."""
_SILENCE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
"""What was sent is acknowledged within ten seconds (in ms), and silence looked into after five: otherwise the way to
that machine is cut, which nobody else would say for as long as a statement may take."""
_ANSWER_SECONDS: Final = 5
"""So much later than the server's own limit a statement is given up here: it may be the server that stands still."""

_APPEND: Final = """
    WITH current AS MATERIALIZED (
        SELECT conversation_id, epoch FROM owners
        WHERE conversation_id = ANY($1::text[]) ORDER BY conversation_id COLLATE "C" FOR SHARE
    ), this_server AS MATERIALIZED (
        SELECT 1 FROM servers WHERE id = $12 AND expires_at > extract(epoch FROM clock_timestamp()) * 1000000 FOR SHARE
    )
    INSERT INTO events (conversation_id, id, kind, source, cause, timestamp, size, blob, payload)
    SELECT new.log, new.id, new.kind, new.source, new.cause, new.timestamp, new.size, new.blob, new.payload
    FROM unnest(
        $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[],
        $10::bytea[], $11::bigint[]
    ) AS new (log, id, kind, source, cause, timestamp, size, blob, payload, epoch)
    WHERE NOT EXISTS (SELECT 1 FROM current WHERE current.conversation_id = new.log AND current.epoch > new.epoch)
    AND ($12::text IS NULL OR EXISTS (SELECT 1 FROM this_server))
    RETURNING conversation_id
"""
_SERVER: Final = """
    SELECT current_setting('server_version_num')::int / 10000, current_setting('server_version'),
    current_setting('server_encoding')
"""
_STATE: Final = """
    SELECT current_setting('server_version') AS version, pg_database_size(current_database()) AS bytes,
    current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery() AS read_only,
    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create,
    current_user AS user, current_schema() AS schema,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    current_setting('max_connections') AS most, current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes, current_setting('synchronous_commit') AS synchronous_commit
"""
_UPGRADE_IDLE_SECONDS: Final = 120
"""As `IDLE_SECONDS`, for whoever brings the schema up to date: what does so is loaded meanwhile."""
_UPGRADE_LOCK: Final = "SELECT pg_advisory_xact_lock(7018413351422861)"
"""One of all servers that start over the same database brings it up to date; the number is Drydock's, by chance."""


def create_engine(url: URL, *, name: str, answer_seconds: float, **options: Any) -> AsyncEngine:
    """An engine whose connections the server knows by `name`, and on which no statement takes longer than that.

    Options in the URL are those of libpq (``sslmode``), or settings of the server, which come before ours.
    """
    given = {key: value for key, value in url.query.items() if key != "connect_timeout"}
    milliseconds = round(answer_seconds * 1000)
    limits = {
        "statement_timeout": milliseconds,
        "lock_timeout": LOCK_SECONDS * 1000,
        "idle_in_transaction_session_timeout": IDLE_SECONDS * 1000,
    }
    arguments = {
        "dsn": url.set(drivername="postgresql", query=given).render_as_string(hide_password=False),
        "timeout": float(str(url.query.get("connect_timeout", CONNECT_SECONDS))),
        "command_timeout": answer_seconds + _ANSWER_SECONDS,
        "server_settings": {} if "application_name" in given else {"application_name": name},
    }
    engine = create_async_engine(url.set(drivername=DRIVER, query={}), connect_args=arguments, **options)
    # Not with the first message, as the name: pgbouncer refuses connections that come with settings unknown to it.
    setting = "; ".join(f"SET {key} = {value}" for key, value in limits.items() if key not in given)

    def on_connect(connection: Any, _record: object) -> None:
        _give_up_on_the_silent(connection.driver_connection)
        connection.run_async(lambda driver: driver.execute(setting))

    event.listen(engine.sync_engine, "connect", on_connect)
    return engine


def _give_up_on_the_silent(driver: Any) -> None:
    """End the connection where nothing comes back from that machine; one that is slow says that it has heard."""
    wire = driver._transport.get_extra_info("socket")
    if wire is None or wire.family == socket.AF_UNIX:
        return
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SILENCE.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            wire.setsockopt(socket.IPPROTO_TCP, option, value)


async def check_server(connection: AsyncConnection) -> None:
    """See that the server is new enough and keeps any text; `DatabaseError` where not."""
    major, version, encoding = (await connection.execute(text(_SERVER))).one()
    if major < OLDEST_VERSION:
        raise DatabaseError(
            f"PostgreSQL is version {version}, {OLDEST_VERSION} or newer is needed: upgrade that server"
        )
    if encoding != "UTF8":
        raise DatabaseError(
            f"the database keeps text as {encoding}, which has not every character: make one with CREATE DATABASE"
            " name ENCODING 'UTF8' TEMPLATE template0"
        )


async def describe(connection: AsyncConnection) -> str:
    """What the server is like, and what may come of it; `DatabaseError` where nothing can be stored in it."""
    began = time.monotonic()
    await connection.execute(text("SELECT 1"))
    milliseconds = (time.monotonic() - began) * 1000
    found = (await connection.execute(text(_STATE))).one()
    if found.read_only:
        raise DatabaseError(
            "the database is read-only (a standby, or default_transaction_read_only); make it the primary, or name that"
            " in database_url"
        )
    if not found.may_create:
        raise DatabaseError(
            f"the user {found.user} may make no tables in the schema {found.schema or 'public'}, which this"
            " version and later ones need: ALTER DATABASE name OWNER TO user, or GRANT CREATE ON SCHEMA public TO user"
        )
    told = (
        f"PostgreSQL {found.version}, {found.bytes // 2**20} MiB, answers in {milliseconds:.1f} ms;"
        f" {found.connections} of {found.most} connections are taken"
    )
    unsafe = [name for name in ("fsync", "full_page_writes", "synchronous_commit") if getattr(found, name) == "off"]
    if unsafe:
        told += f"; with {' and '.join(unsafe)} = off it may lose the last moments, or all, when its machine goes down"
    return told


async def wait_for_upgrade(connection: AsyncConnection) -> None:
    """Let others finish with the schema first; this transaction may take as long as it needs, and comes after them."""
    await connection.execute(text("SET LOCAL lock_timeout = 0"))
    await connection.execute(text("SET LOCAL statement_timeout = 0"))
    await connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = {_UPGRADE_IDLE_SECONDS * 1000}"))
    await connection.execute(text(_UPGRADE_LOCK))
    await connection.execute(text("SET LOCAL lock_timeout TO DEFAULT"))


def is_closed(connection: AsyncConnection) -> bool:
    """Whether the server has ended this connection, as far as is known without asking it."""
    held = connection.sync_connection
    if held is None or held.invalidated:
        return True
    driver: Any = held.connection.driver_connection
    return bool(driver.is_closed())


async def insert_events(
    connection: AsyncConnection, rows: Sequence[EventRow], server_id: str | None = None
) -> set[str]:
    """Append `rows` (at most `MAX_ROWS`) durably in one statement; see `event_rows.insert_events`.

    Of a server of several (`server_id`) whose time is over nothing is appended: others own what it did.

    One statement is one turn to the server instead of four. It holds the owners' rows until it is committed, so that
    nobody becomes the owner meanwhile, and takes them in the order of their names, as everybody does.
    """
    driver: Any = (await connection.get_raw_connection()).driver_connection
    logs = {row[0] for row in rows}
    stored = await driver.fetch(_APPEND, list(logs), *map(list, zip(*rows, strict=True)), server_id)
    return set() if len(stored) == len(rows) else logs - {row[0] for row in stored}
