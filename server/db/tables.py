"""The tables, as the code sees them. A change here needs a step in `migrations/versions` (a test compares them)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970 (UTC) of an aware moment."""
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The aware UTC moment so many microseconds after the start of 1970."""
    return _EPOCH + timedelta(microseconds=value)


def read_moment(value: object) -> datetime | None:
    """The moment in a column; None where somebody else has put something there that is none.

    One such row must not make all others unreadable.
    """
    try:
        return from_microseconds(value) if isinstance(value, int) else None
    except OverflowError:
        return None


class UtcMoment(TypeDecorator[datetime]):
    """An aware moment, kept as microseconds since 1970: exact, sortable, free of time zone rules."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: object, dialect: Dialect) -> datetime | None:
        return read_moment(value)


class PlainText(TypeDecorator[str]):
    """Text in which `NUL` is replaced, also where it is looked for: PostgreSQL takes any character but that.

    Whatever comes over HTTP is refused with it; models, sandboxes and recordings may still bring it.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value if value is None else value.replace("\0", "\ufffd")


class Unreadable:
    """Stands where a JSON column holds no JSON."""


def read_json(text: str) -> Any:
    """What a JSON column holds; one damaged row must not make all others unreadable."""
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return Unreadable()


def _columns(kind: type[TypeEngine[Any]], *names: str, nullable: bool = False) -> list[Column[Any]]:
    return [Column(name, kind, nullable=nullable) for name in names]


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

events = Table(
    "events",
    metadata,
    Column("conversation_id", PlainText, nullable=False),
    Column("id", BigInteger, nullable=False, autoincrement=False),
    Column("kind", String(64), nullable=False),
    Column("source", String(32), nullable=False),
    Column("cause", BigInteger),
    Column("timestamp", UtcMoment, nullable=False),
    Column("size", BigInteger, nullable=False),
    # A payload is here, or in the blob store under the digest that `blob` names. It comes last, so that SQLite reads
    # the other columns of a long row without it.
    Column("blob", String(64)),
    Column("payload", LargeBinary),
    # On SQLite an ordinary rowid table: clustering by this key (WITHOUT ROWID) made every append of a busy server
    # touch one more leaf of big rows, and cut the throughput to a third.
    PrimaryKeyConstraint("conversation_id", "id"),
    # Of the rows that have a blob only; for PostgreSQL the step that makes it says so. To say that here would load the
    # dialect of a database that most servers do not use.
    Index("ix_events_blob", "conversation_id", "blob", sqlite_where=text("blob IS NOT NULL")),
)

# Not a foreign key of conversations: a log may exist without a row there (tests, imports), and the row here outlives a
# deleted conversation so that its last owner stays fenced off. The ids are in the order of their bytes, also in
# PostgreSQL (a step says so), so that the logs below one are found without a look at all of them.
owners = Table(
    "owners",
    metadata,
    Column("conversation_id", PlainText, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)

# The servers that share this database, each until the moment `expires_at`, in microseconds of the database's clock. It
# moves that moment on while it lives; once it is past, whatever it wants to change is refused.
servers = Table(
    "servers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

# What all of them have to agree on: `instance`, the name that their sandboxes carry, `chores`, which of them does what
# is done once for all, and `drained:` with the name of a Docker host, whether it is.
shared_facts = Table(
    "shared_facts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

# Large payloads, where several servers share the database; else they are files.
payloads = Table(
    "payloads",
    metadata,
    Column("conversation_id", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("stored_at", UtcMoment, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("conversation_id", "digest"),
)

# Where servers share the database: what workspaces of new conversations begin with, in pieces of a tar file.
waiting_files = Table(
    "waiting_files",
    metadata,
    Column("conversation_id", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("conversation_id", "number"),
)

# Which of them runs a conversation, since which epoch of its log, what it tells the others about it (`live`), and what
# the conversation has of what there is for all, or waits for (`turn`, a `SharedTurn`).
leases = Table(
    "leases",
    metadata,
    Column("conversation_id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("live", JSON(none_as_null=True)),
    Column("turn", JSON(none_as_null=True)),
    Index("ix_leases_owner", "owner"),
)

# What clients have sent by way of a server that does not run their conversation: an event as it would be stored, to be
# found behind `after` where it was delivered; `answer` is null until then.
inbox = Table(
    "inbox",
    metadata,
    Column("id", Text, primary_key=True),
    Column("conversation_id", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("after", BigInteger, nullable=False),
    Column("event", JSON, nullable=False),
    Column("created_at", UtcMoment, nullable=False),
    Column("answer", JSON(none_as_null=True)),
    Index("ix_inbox_conversation_id", "conversation_id", "number"),
    Index("ix_inbox_created_at", "created_at"),
    # Of those that wait, which are few; for PostgreSQL the step that makes it says so.
    Index("ix_inbox_waiting", "conversation_id", sqlite_where=text("answer IS NULL")),
)

conversations = Table(
    "conversations",
    metadata,
    Column("id", PlainText, primary_key=True),
    Column("user_id", PlainText, nullable=False),
    Column("title", PlainText),
    Column("created_at", UtcMoment, nullable=False),
    Column("last_updated_at", UtcMoment),
    Column("agent_state", PlainText),
    Column("sandbox", JSON),
    *_columns(
        PlainText, "trigger", "selected_repository", "selected_branch", "git_provider", "llm_model", nullable=True
    ),
    Column("accumulated_cost", Float, nullable=False),
    *_columns(BigInteger, "prompt_tokens", "completion_tokens"),
    *_columns(JSON, "pr_number", "options"),
    Column("waiting_number", BigInteger),
    Index("ix_conversations_listing", "user_id", "created_at", "id"),
    Index("ix_conversations_repository", "user_id", "selected_repository", "created_at", "id"),
    Index("ix_conversations_trigger", "user_id", "trigger", "created_at", "id"),
    Index("ix_conversations_repository_trigger", "user_id", "selected_repository", "trigger", "created_at", "id"),
    Index("ix_conversations_agent_state", "agent_state"),
)

settings = Table(
    "settings",
    metadata,
    Column("user_id", PlainText, primary_key=True),
    Column("document", JSON, nullable=False),
    Column("updated_at", UtcMoment, nullable=False),
)

# A chat completion comes with its whole history. `digest` is that of a history up to an answer, and the event is the
# last one of that answer: there the next turn goes on.
chat_turns = Table(
    "chat_turns",
    metadata,
    Column("user_id", PlainText, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("conversation_id", PlainText, nullable=False),
    Column("event_id", BigInteger, nullable=False),
    PrimaryKeyConstraint("user_id", "digest"),
    Index("ix_chat_turns_conversation_id", "conversation_id"),
)

# Requests that a client may repeat, by the key that it chose. `digest` is that of what was asked, `resource` names what
# the request is about (see `idempotency_keys`), and `answer` is null until it was carried out.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    *_columns(PlainText, "user_id", "scope", "key"),
    Column("digest", String(64), nullable=False),
    Column("resource", PlainText, nullable=False),
    Column("answer", JSON(none_as_null=True)),
    Column("created_at", UtcMoment, nullable=False),
    PrimaryKeyConstraint("user_id", "scope", "key"),
    Index("ix_idempotency_keys_created_at", "created_at"),
)

# What users give to their conversations' commands. `sealed` is the value, encrypted.
secrets = Table(
    "secrets",
    metadata,
    *_columns(PlainText, "user_id", "name", "description", "sealed"),
    Column("updated_at", UtcMoment, nullable=False),
    PrimaryKeyConstraint("user_id", "name"),
)

# What users have written for their agents: Markdown with a header, as in files.
skills = Table(
    "skills",
    metadata,
    *_columns(PlainText, "user_id", "name", "content"),
    Column("enabled", Boolean, nullable=False),
    Column("updated_at", UtcMoment, nullable=False),
    PrimaryKeyConstraint("user_id", "name"),
)

# Plugins that are installed, under `user:` and the user's id, or under `server` for all users. `archive` has the files
# as they were at the commit.
plugins = Table(
    "plugins",
    metadata,
    *_columns(PlainText, "owner", "name", "source", "ref", "path", "commit"),
    Column("enabled", Boolean, nullable=False),
    Column("installed_at", UtcMoment, nullable=False),
    Column("archive", LargeBinary, nullable=False),
    PrimaryKeyConstraint("owner", "name"),
)

# By digests of their own: which keys this database's secrets were ever encrypted with.
sealing_keys = Table(
    "sealing_keys",
    metadata,
    Column("key_id", String(32), primary_key=True),
    Column("first_used_at", UtcMoment, nullable=False),
)

# What was done by whom, one behind the other (see `server.auth.audit`): `record` is the text that `hash` is of, and the
# columns before it are what it is found by. Triggers refuse to change a record, or to remove one above the stump.
audit = Table(
    "audit",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", UtcMoment, nullable=False),
    *_columns(PlainText, "user_id", "action", "record"),
    Column("hash", String(64), nullable=False),
    Index("ix_audit_at", "at"),
    Index("ix_audit_user_id", "user_id", "number"),
    Index("ix_audit_action", "action", "number"),
)

# The signed end of that, and the stump that is left of its beginning; one row, which whoever appends holds.
audit_heads = Table(
    "audit_heads",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("stump_number", BigInteger, nullable=False),
    Column("stump_hash", String(64), nullable=False),
    *_columns(Text, "signature", "public_key"),
    # PostgreSQL's are made by the step that makes the tables.
    listeners=[
        (
            "after_create",
            DDL(  # type: ignore[no-untyped-call]
                "CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit"
                " BEGIN SELECT RAISE(ABORT, 'records of the audit log are not changed'); END"
            ).execute_if(dialect="sqlite"),
        ),
        (
            "after_create",
            DDL(  # type: ignore[no-untyped-call]
                "CREATE TRIGGER audit_kept BEFORE DELETE ON audit"
                " WHEN OLD.number > coalesce((SELECT max(stump_number) FROM audit_heads), 0)"
                " BEGIN SELECT RAISE(ABORT, 'records of the audit log are removed by drydock audit prune alone'); END"
            ).execute_if(dialect="sqlite"),
        ),
    ],
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", PlainText, primary_key=True),
    *_columns(PlainText, "user_id", "url"),
    Column("events", JSON, nullable=False),
    Column("conversation_id", PlainText),
    Column("secret", PlainText, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("created_at", UtcMoment, nullable=False),
    *_columns(UtcMoment, "delivered_at", "failing_since", nullable=True),
    Column("problem", PlainText, nullable=False),
    Index("ix_webhooks_user_id", "user_id", "created_at"),
)

# Up to which event of a conversation the receiver has acknowledged; no row: it is told from the webhook's beginning on.
webhook_positions = Table(
    "webhook_positions",
    metadata,
    *_columns(PlainText, "webhook_id", "conversation_id"),
    Column("position", BigInteger, nullable=False),
    PrimaryKeyConstraint("webhook_id", "conversation_id"),
    Index("ix_webhook_positions_conversation_id", "conversation_id"),
)

# Sign-ins with MCP servers, by what `sign_in_id` makes of their addresses. `sealed` (what is known of it) and `pending`
# (what was begun, found by the digest of its state) are encrypted.
mcp_sign_ins = Table(
    "mcp_sign_ins",
    metadata,
    *_columns(PlainText, "user_id", "id", "sealed"),
    *_columns(PlainText, "state", "pending", nullable=True),
    Column("updated_at", UtcMoment, nullable=False),
    PrimaryKeyConstraint("user_id", "id"),
    Index("ix_mcp_sign_ins_state", "state"),
)

# Who else may read a conversation, or write to it: the user `user_id`, or whoever has the link with the token of this
# digest.
shares = Table(
    "shares",
    metadata,
    Column("id", Text, primary_key=True),
    Column("conversation_id", PlainText, nullable=False),
    Column("user_id", PlainText),
    Column("digest", String(64)),
    Column("access", Text, nullable=False),
    Column("created_at", UtcMoment, nullable=False),
    Column("expires_at", UtcMoment),
    Index("ix_shares_conversation_id", "conversation_id"),
    Index("ix_shares_user_id", "user_id"),
    Index("ix_shares_digest", "digest", unique=True),
)

# What users say of conversations. The trajectory that it is about is the log, up to `last_event_id`.
feedback = Table(
    "feedback",
    metadata,
    Column("id", PlainText, primary_key=True),
    *_columns(PlainText, "user_id", "conversation_id"),
    Column("last_event_id", BigInteger, nullable=False),
    Column("created_at", UtcMoment, nullable=False),
    *_columns(PlainText, "polarity", "permissions", "email", "version"),
    Index("ix_feedback_listing", "user_id", "created_at", "id"),
    Index("ix_feedback_conversation_id", "conversation_id"),
)

# What agents and users keep from one conversation to the next. SQLite's index of their words is made when it is first
# needed (see `server.db.repositories.notes`).
notes = Table(
    "notes",
    metadata,
    Column("id", PlainText, primary_key=True),
    *_columns(PlainText, "user_id", "repository", "title", "content"),
    Column("conversation_id", PlainText),
    Column("version", BigInteger, nullable=False),
    *_columns(UtcMoment, "created_at", "updated_at"),
    Index("ix_notes_listing", "user_id", "created_at", "id"),
)

# Who may use the server, where it has accounts (`users = "accounts"`). The first administrator has the empty id, which
# everything has that was there before. `look` is the same for names that are taken for one another.
users = Table(
    "users",
    metadata,
    Column("id", PlainText, primary_key=True),
    *_columns(PlainText, "name", "look"),
    *_columns(PlainText, "email", "password", nullable=True),
    Column("role", String(32), nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("created_at", UtcMoment, nullable=False),
    Index("ix_users_look", "look", unique=True),
    Index("ix_users_email", "email", unique=True),
)

# By what providers call them, users who sign in there.
user_identities = Table(
    "user_identities",
    metadata,
    *_columns(PlainText, "issuer", "subject", "user_id"),
    PrimaryKeyConstraint("issuer", "subject"),
    Index("ix_user_identities_user_id", "user_id"),
)

# By their digests, sign-ins with a provider from which a browser has come back: each counts once, until it expires.
used_states = Table(
    "used_states",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("expires_at", UtcMoment, nullable=False),
    Index("ix_used_states_expires_at", "expires_at"),
)

# What users show for who they are: tokens for programs, and sign-ins of browsers; both by their digests alone.
access_tokens = Table(
    "access_tokens",
    metadata,
    Column("id", PlainText, primary_key=True),
    Column("digest", String(64), nullable=False),
    *_columns(PlainText, "user_id", "name"),
    Column("scopes", JSON, nullable=False),
    Column("created_at", UtcMoment, nullable=False),
    *_columns(UtcMoment, "expires_at", "used_at", nullable=True),
    Index("ix_access_tokens_digest", "digest", unique=True),
    Index("ix_access_tokens_user_id", "user_id"),
)
sign_ins = Table(
    "sign_ins",
    metadata,
    Column("id", PlainText, primary_key=True),
    Column("digest", String(64), nullable=False),
    *_columns(PlainText, "user_id", "address", "browser"),
    *_columns(UtcMoment, "created_at", "expires_at", "used_at"),
    Index("ix_sign_ins_digest", "digest", unique=True),
    Index("ix_sign_ins_user_id", "user_id"),
)

# Links that count once: with a `user_id` a new password for that user, else a new user with this role. `made_by` is
# null for those of the server and of its command line.
one_time_links = Table(
    "one_time_links",
    metadata,
    Column("digest", String(64), primary_key=True),
    *_columns(PlainText, "user_id", "role", "made_by", nullable=True),
    *_columns(UtcMoment, "created_at", "expires_at"),
    Index("ix_one_time_links_user_id", "user_id"),
)
