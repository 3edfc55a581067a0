"""Several servers over one database: who they are, which conversations each runs, and what is sent to these."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "servers",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_servers"),
    )
    op.create_table(
        "shared_facts",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_shared_facts"),
    )
    op.create_table(
        "payloads",
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("stored_at", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("conversation_id", "digest", name="pk_payloads"),
    )
    op.create_table(
        "leases",
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("live", sa.JSON),
        sa.PrimaryKeyConstraint("conversation_id", name="pk_leases"),
    )
    op.create_index("ix_leases_owner", "leases", ["owner"])
    op.create_table(
        "inbox",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("after", sa.BigInteger, nullable=False),
        sa.Column("event", sa.JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("answer", sa.JSON),
        sa.PrimaryKeyConstraint("id", name="pk_inbox"),
    )
    op.create_index("ix_inbox_conversation_id", "inbox", ["conversation_id", "number"])


def downgrade() -> None:
    """Drop them; no server may be running, and large payloads are lost."""
    op.drop_table("inbox")
    op.drop_table("leases")
    op.drop_table("payloads")
    op.drop_table("shared_facts")
    op.drop_table("servers")
