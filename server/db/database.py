"""`Database`: what the server keeps, opened once."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import URL, Connection, create_mock_engine, inspect, make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from agent_core.errors import EventStoreError
from agent_core.troubles import Trouble, coded
from server.auth.secrets import SecretBox
from server.auth.signing import SigningKey
from server.db import postgresql
from server.db.blobs import BlobStore, FolderBlobStore
from server.db.data_folder import SANDBOXES, InstanceLock, finish_restore, instance_id, prepare_data_dir
from server.db.database_blobs import DatabaseBlobStore
from server.db.engine import DatabaseSettings, Engines, create_engines, create_file, sqlite_url
from server.db.errors import DatabaseError, DatabaseVersionError, database_error, is_database_failure
from server.db.event_store import SqlEventStore
from server.db.repositories.audit import NOTED_FILE, AuditLog
from server.db.repositories.chat_turns import ChatTurnRepository
from server.db.repositories.conversations import ConversationRepository, Touches
from server.db.repositories.credentials import CredentialRepository
from server.db.repositories.feedback import FeedbackRepository
from server.db.repositories.idempotency_keys import IdempotencyKeys
from server.db.repositories.identities import IdentityRepository
from server.db.repositories.mcp_sign_ins import McpSignInRepository
from server.db.repositories.notes import NoteRepository
from server.db.repositories.plugins import PluginRepository
from server.db.repositories.shares import ShareRepository
from server.db.repositories.user_secrets import SecretRepository, SecretStore
from server.db.repositories.user_settings import SettingsRepository, SettingsStore
from server.db.repositories.user_skills import SkillRepository
from server.db.repositories.users import UserRepository
from server.db.repositories.waiting_files import WaitingFileRepository
from server.db.repositories.webhooks import WebhookRepository
from server.db.sealing_keys import check_key, finish_rotation
from server.db.sqlite import WAL_PAGES_BEFORE_CHECKPOINT
from server.db.storage_probe import look_for_damage
from server.db.tables import metadata
from server.db.upgrade_copies import UpgradeCopies
from server.db.writer import Writer

HEAD = "0017"
"""The newest step in `migrations/versions` (a test compares them): known here so that a start need not load Alembic."""

MIGRATIONS = Path(__file__).parents[2] / "migrations"
DATABASE_FILE = "drydock.db"
KEY_FILE = "secret.key"
BLOB_FOLDER = "blobs"
UPGRADE_COPIES = "before-upgrades"

LOOK_SECONDS = 30.0
"""How long a start may look whether a database is whole after the machine went down."""

ORPHAN_SECONDS = 3600.0
_CLOCK_SECONDS = 0.1  # a file system's clock may be behind by a few milliseconds
"""A payload without an event is removed when it is older: a younger one's event may still be on its way."""

_ROOM_BYTES = WAL_PAGES_BEFORE_CHECKPOINT * 4096

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Database:
    """The server's storage. `instance_id` (16 hexadecimal digits) lasts as long as its folder and labels sandboxes."""

    data_dir: Path
    instance_id: str
    events: SqlEventStore
    conversations: ConversationRepository
    settings: SettingsStore
    chat_turns: ChatTurnRepository
    idempotency_keys: IdempotencyKeys
    feedback: FeedbackRepository
    notes: NoteRepository
    webhooks: WebhookRepository
    user_secrets: SecretStore
    mcp_sign_ins: McpSignInRepository
    user_skills: SkillRepository
    plugins: PluginRepository
    shares: ShareRepository
    waiting_files: WaitingFileRepository
    users: UserRepository
    credentials: CredentialRepository
    audit: AuditLog
    identities: IdentityRepository
    blobs: BlobStore
    secrets: SecretBox
    engines: Engines
    writer: Writer
    untidy: set[str] = field(default_factory=set)
    """Conversations of whose making something is left that could not be removed yet."""

    async def make_room(self) -> None:
        """Let SQLite's write-ahead log have its full length already, for a process that stays.

        To sync a file that has grown takes about twice as long as one that was written over. Failures are only logged.
        """
        url = self.engines.write.url
        if url.get_backend_name() != "sqlite":
            return
        try:
            if _size(f"{url.database}-wal") < _ROOM_BYTES:
                await self.writer.change(_fill_room)
            await self.writer.change(_drop_room)  # also what a crash has left
        except EventStoreError as error:
            _log.warning("no room could be made in the database's log: %s", error)


class OwnStores(NamedTuple):
    """Stores of an operator's own, in the place of those in the database and in the data folder."""

    settings: SettingsStore | None = None
    secrets: SecretStore | None = None
    blobs: BlobStore | None = None


@asynccontextmanager
async def open_database(
    data_dir: Path, settings: DatabaseSettings | None = None, own: OwnStores | None = None
) -> AsyncIterator[Database]:
    """Open what is kept in `data_dir` (and at `settings.url`), new or brought up to date; `own` stores stand for ours.

    Raises `DataDirectoryError`, `InstanceRunningError`, `SecretKeyError`, `DatabaseVersionError` (a newer version made
    it) or `DatabaseError`.
    """
    settings, own = settings or DatabaseSettings(), own or OwnStores()
    data_dir = prepare_data_dir(data_dir)
    async with AsyncExitStack() as stack:
        lock = stack.enter_context(InstanceLock(data_dir))
        finish_restore(data_dir)
        name = instance_id(data_dir)
        box = SecretBox.open(data_dir / KEY_FILE)
        if settings.url is None:
            if not box.is_new:  # else no server has used this folder yet
                _refuse_lost_database(data_dir)
            create_file(data_dir / DATABASE_FILE)
            if lock.machine_went_down:
                await asyncio.to_thread(_refuse_damaged_database, data_dir / DATABASE_FILE)
                lock.looked_at()
        engines = create_engines(settings.url or sqlite_url(data_dir / DATABASE_FILE), settings)
        stack.push_async_callback(engines.dispose)
        await upgrade(engines.write, UpgradeCopies(data_dir / UPGRADE_COPIES))
        blobs: BlobStore | None = own.blobs
        if engines.another is not None:  # PostgreSQL, which other servers may use, too
            name = await _shared_instance_id(engines, name)
            blobs = blobs or await stack.enter_async_context(DatabaseBlobStore(engines.another))
        is_ours = blobs is None
        if blobs is None:
            blobs = await stack.enter_async_context(FolderBlobStore(data_dir / BLOB_FOLDER))
        writer = await stack.enter_async_context(Writer(engines, close_timeout_seconds=settings.close_timeout_seconds))
        box = await finish_rotation(engines, box, data_dir / KEY_FILE)
        await check_key(engines, writer, box, data_dir / KEY_FILE)
        touches = await stack.enter_async_context(Touches(writer, interval_seconds=settings.touch_interval_seconds))
        audit = AuditLog(engines, writer, SigningKey(box), data_dir / NOTED_FILE)
        stack.push_async_callback(audit.close)
        events = SqlEventStore(engines, writer, blobs, inline_payload_bytes=settings.inline_payload_bytes)
        await stack.enter_async_context(_collecting(events, blobs, is_ours=is_ours))
        yield Database(
            data_dir=data_dir,
            instance_id=name,
            events=events,
            conversations=ConversationRepository(engines, writer, blobs, touches),
            settings=own.settings or SettingsRepository(engines, writer, box),
            chat_turns=ChatTurnRepository(engines, writer),
            idempotency_keys=IdempotencyKeys(writer),
            feedback=FeedbackRepository(engines, writer),
            notes=NoteRepository(engines, writer),
            webhooks=WebhookRepository(engines, writer, box),
            user_secrets=own.secrets or SecretRepository(engines, writer, box),
            mcp_sign_ins=McpSignInRepository(engines, writer, box),
            user_skills=SkillRepository(engines, writer),
            plugins=PluginRepository(engines, writer),
            shares=ShareRepository(engines, writer),
            waiting_files=WaitingFileRepository(engines, writer),
            users=UserRepository(engines, writer),
            credentials=CredentialRepository(engines, writer),
            audit=audit,
            identities=IdentityRepository(engines, writer),
            blobs=blobs,
            secrets=box,
            engines=engines,
            writer=writer,
        )


@asynccontextmanager
async def open_beside(data_dir: Path, settings: DatabaseSettings) -> AsyncIterator[tuple[Engines, Writer]]:
    """The database of a server that may run meanwhile, to change a few rows; `DatabaseError` unless it is of today."""
    file = data_dir / DATABASE_FILE
    if settings.url is None and not file.exists():
        raise DatabaseError(f"there is no database {file}; start the server once, or name its folder with --data-dir")
    engines = create_engines(settings.url or sqlite_url(file), settings)
    try:
        async with engines.write.connect() as connection:
            revision = await connection.run_sync(stored_revision)
        if revision != HEAD:
            raise DatabaseError(
                f"the schema of the database is {revision or 'not made yet'}, this version works with {HEAD}: start the"
                " server of this version once"
            )
        async with Writer(engines, close_timeout_seconds=settings.close_timeout_seconds) as writer:
            yield engines, writer
    except Exception as error:
        if not is_database_failure(error):
            raise
        raise database_error("the database could not be opened", error) from error
    finally:
        await engines.dispose()


async def _shared_instance_id(engines: Engines, own: str) -> str:
    """The name that the sandboxes of all servers of this database carry: that of the first one's folder."""
    try:
        async with engines.write.begin() as connection:
            keep = "INSERT INTO shared_facts (name, value) VALUES ('instance', :own) ON CONFLICT (name) DO NOTHING"
            await connection.execute(text(keep), {"own": own})
            found = await connection.execute(text("SELECT value FROM shared_facts WHERE name = 'instance'"))
            return str(found.scalar_one())
    except Exception as error:
        if not is_database_failure(error):
            raise
        raise database_error("the database could not be opened", error) from error


@asynccontextmanager
async def _collecting(events: SqlEventStore, blobs: BlobStore, *, is_ours: bool) -> AsyncIterator[None]:
    """Context that begins with a look for payloads that a process before has left.

    `is_ours`: no other process writes to `blobs`, so that what is older than this one belongs to none that still lives.
    """
    began = time.time() - _CLOCK_SECONDS

    async def collect() -> None:
        try:
            used = await events.blobs_in_use()
            age = time.time() - began if is_ours else ORPHAN_SECONDS
            removed = await blobs.collect(used, older_than_seconds=age)
        except (EventStoreError, OSError) as error:
            _log.warning("leftover payloads could not be looked for: %s", error, extra=coded(Trouble.LEFTOVERS_KEPT))
        else:
            if removed:
                extra = coded(Trouble.LEFTOVERS_REMOVED, times=removed)
                _log.info("removed %d payloads that no event refers to", removed, extra=extra)

    task = asyncio.create_task(collect(), name="blob-collector")
    try:
        yield
    finally:
        await asyncio.wait([task])  # it is short, and neither a read nor a thread can be stopped half way


def _refuse_lost_database(data_dir: Path) -> None:
    """Refuse to begin a new database where the files of conversations say that there was one: they would be removed."""
    if _size(str(data_dir / DATABASE_FILE)):
        return
    kept = [name for name in (BLOB_FOLDER, SANDBOXES) if _has_any(data_dir / name)]
    if kept:
        state = "is empty" if (data_dir / DATABASE_FILE).exists() else "is not there"
        raise DatabaseError(
            f"the database {data_dir / DATABASE_FILE} {state}, but there are files of its conversations"
            f" ({', '.join(kept)}): restore it from a backup (drydock restore) or from {UPGRADE_COPIES}/; to begin"
            " anew, move everything out of the data folder, or choose another one with --data-dir"
        )


def _refuse_damaged_database(file: Path) -> None:
    """Refuse a database that a power cut has damaged, as far as that is seen in a moment. Blocks."""
    if not _size(f"{file}-wal"):
        return  # it was closed in order
    began = time.monotonic()
    try:
        damage = look_for_damage(file, LOOK_SECONDS)
    except sqlite3.OperationalError as error:
        _log.warning("whether the database is whole after the machine went down could not be seen: %s", error)
        return
    if damage:
        raise DatabaseError(
            f"the database {file} is damaged ({damage}): the machine went down while a server was at work, and the disk"
            " had not kept what it had said it had; keep a copy of the data folder, and restore a backup (drydock"
            " restore)"
        )
    found = "is whole" if damage == "" else "is whole as far as was seen"
    _log.info("the machine went down; the database %s (%.1f s)", found, time.monotonic() - began)


def _has_any(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


async def _drop_room(connection: AsyncConnection) -> None:
    await connection.execute(text("DROP TABLE IF EXISTS room_in_the_log"))


async def _fill_room(connection: AsyncConnection) -> None:
    await _drop_room(connection)
    await connection.execute(text("CREATE TABLE room_in_the_log (zeros BLOB)"))
    await connection.execute(text(f"INSERT INTO room_in_the_log VALUES (zeroblob({_ROOM_BYTES}))"))  # noqa: S608 - a constant


async def upgrade(engine: AsyncEngine, copies: UpgradeCopies | None = None) -> None:
    """Apply the missing steps, in one transaction where the database can do that; before that SQLite goes to `copies`.

    Killed at any moment, the database is as it was or upgraded. A `DatabaseVersionError` or `DatabaseError` has changed
    nothing.
    """
    try:
        async with engine.connect() as connection:
            if engine.url.get_backend_name() != "sqlite":
                await postgresql.check_server(connection)
            revision = await connection.run_sync(stored_revision)
            is_new = await connection.run_sync(_is_new_sqlite)
        if revision == HEAD:
            return
        if revision is not None:
            _refuse_newer(engine.url, revision, copies)
            if engine.url.get_backend_name() != "sqlite":
                _log.info("the schema of the database is brought from %s to %s", revision, HEAD)
            elif copies is not None:
                await asyncio.to_thread(copies.make, Path(str(engine.url.database)), revision)
        async with engine.begin() as connection:
            if engine.url.get_backend_name() != "sqlite":
                await postgresql.wait_for_upgrade(connection)
            await connection.run_sync(_create if is_new else _run)
    except Exception as error:
        if not is_database_failure(error):
            raise
        raise database_error(f"the database {engine.url.render_as_string()} could not be opened", error) from error


async def examine(url: str) -> str | None:
    """What a PostgreSQL is like, in a sentence; None for a SQLite file. Changes nothing.

    Raises `DatabaseError` or `DatabaseVersionError` where a server cannot work over it.
    """
    engine = create_engines(url, DatabaseSettings()).write
    if engine.url.get_backend_name() == "sqlite":
        return None
    try:
        async with engine.connect() as connection:
            await postgresql.check_server(connection)
            told = await postgresql.describe(connection)
            revision = await connection.run_sync(stored_revision)
        if revision is not None and revision != HEAD:
            _refuse_newer(engine.url, revision, None)
            return f"{told}; its schema is {revision}, and is brought to {HEAD} by the next start"
        return f"{told}; its schema is {revision or 'made by the first start'}"
    except Exception as error:
        if not is_database_failure(error):
            raise
        raise database_error(f"the database {engine.url.render_as_string()} could not be opened", error) from error
    finally:
        await engine.dispose()


def examine_file(file: Path) -> str:
    """What the next start changes in the schema of a SQLite file, "" for nothing. Changes nothing.

    Raises `DatabaseVersionError` where a newer version has made it.
    """
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.Error:  # whether it is damaged is seen elsewhere
            return ""
    if found is None or found[0] == HEAD:
        return ""
    _refuse_newer(make_url(sqlite_url(file)), found[0], UpgradeCopies(file.parent / UPGRADE_COPIES))
    return f"its schema is {found[0]}, and is brought to {HEAD} by the next start"


async def name_of_servers(url: str) -> str | None:
    """The name that the sandboxes of all servers of this PostgreSQL carry; None: it cannot be had. Changes nothing."""
    engines = create_engines(url, DatabaseSettings())
    try:
        async with engines.write.connect() as connection:
            found = await connection.execute(text("SELECT value FROM shared_facts WHERE name = 'instance'"))
            return found.scalar_one_or_none()
    except Exception as error:
        if not is_database_failure(error):
            raise
        return None
    finally:
        await engines.dispose()


def stored_revision(connection: Connection) -> str | None:
    """The last step that was applied, None for an empty database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _refuse_newer(url: URL, revision: str, copies: UpgradeCopies | None) -> None:
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()}
    if revision in known:
        return
    older = None if copies is None else copies.newest(known)
    way_back = f", or put the copy from before its upgrade, {older}, in its place" if older is not None else ""
    raise DatabaseVersionError(
        f"the database {url.render_as_string()} was made by a newer version of Drydock (its schema is {revision}, this "
        f"version knows up to {HEAD}); install that version again{way_back}, or choose another data folder"
    )


_ALEMBIC_TABLE = """
    CREATE TABLE alembic_version (
        version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
    )
"""


def _is_new_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite" and not inspect(connection).get_table_names()


def _create(connection: Connection) -> None:
    # What all steps together make (a test compares them), without loading Alembic and going through each of them. At
    # once: for each statement another thread would be asked.
    sqlite: Any = connection.connection.dbapi_connection
    sqlite.run_async(lambda driver: driver.executescript(_schema()))


@cache
def _schema() -> str:
    """The statements for a new SQLite database, in a transaction of their own."""
    made: list[str] = []

    def note(statement: Any, *_: Any, **__: Any) -> None:
        made.append(str(statement.compile(dialect=mock.dialect)))

    mock = create_mock_engine("sqlite://", note)
    metadata.create_all(mock, checkfirst=False)
    version = f"INSERT INTO alembic_version VALUES ('{HEAD}')"  # noqa: S608 - a constant
    return ";\n".join(("BEGIN IMMEDIATE", *made, _ALEMBIC_TABLE, version, "COMMIT"))


def _run(connection: Connection) -> None:
    # Loaded only when there is something to do: an ordinary start is faster and smaller without Alembic.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
