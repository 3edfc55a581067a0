"""The audit log, whose records nobody changes, and its signed end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_SQLITE = (
    "CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit"
    " BEGIN SELECT RAISE(ABORT, 'records of the audit log are not changed'); END",
    "CREATE TRIGGER audit_kept BEFORE DELETE ON audit"
    " WHEN OLD.number > coalesce((SELECT max(stump_number) FROM audit_heads), 0)"
    " BEGIN SELECT RAISE(ABORT, 'records of the audit log are removed by drydock audit prune alone'); END",
)
_POSTGRESQL = (
    """
    CREATE FUNCTION refuse_change_of_audit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF OLD.number <= (SELECT coalesce(max(stump_number), 0) FROM audit_heads) THEN
                RETURN OLD;
            END IF;
            RAISE EXCEPTION 'records of the audit log are removed by drydock audit prune alone';
        END IF;
        RAISE EXCEPTION 'records of the audit log are not changed';
    END $$
    """,
    "CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_change_of_audit()",
    "CREATE TRIGGER audit_whole BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit()",
)


def upgrade() -> None:
    """Make the tables, and what keeps records as they are."""
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_user_id", "audit", ["user_id", "number"])
    op.create_index("ix_audit_action", "audit", ["action", "number"])
    op.create_table(
        "audit_heads",
        sa.Column("id", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("stump_number", sa.BigInteger, nullable=False),
        sa.Column("stump_hash", sa.String(64), nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
        sa.Column("public_key", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_heads"),
    )
    for statement in _POSTGRESQL if op.get_bind().dialect.name == "postgresql" else _SQLITE:
        op.execute(statement)


def downgrade() -> None:
    """Drop them: what was done by whom is lost."""
    op.drop_table("audit")
    op.drop_table("audit_heads")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION refuse_change_of_audit()")
