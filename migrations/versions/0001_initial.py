"""The event log, its owners, conversations and settings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "events",
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("id", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("source", sa.String(32), nullable=False),
        sa.Column("cause", sa.BigInteger),
        sa.Column("timestamp", sa.BigInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("blob", sa.String(64)),
        sa.Column("payload", sa.LargeBinary),
        sa.PrimaryKeyConstraint("conversation_id", "id", name="pk_events"),
    )
    op.create_index(
        "ix_events_blob",
        "events",
        ["conversation_id", "blob"],
        sqlite_where=sa.text("blob IS NOT NULL"),
        postgresql_where=sa.text("blob IS NOT NULL"),
    )
    op.create_table(
        "owners",
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("conversation_id", name="pk_owners"),
    )
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("title", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("last_updated_at", sa.BigInteger),
        sa.Column("agent_state", sa.Text),
        sa.Column("sandbox", sa.JSON),
        sa.Column("trigger", sa.Text),
        sa.Column("selected_repository", sa.Text),
        sa.Column("selected_branch", sa.Text),
        sa.Column("git_provider", sa.Text),
        sa.Column("llm_model", sa.Text),
        sa.Column("accumulated_cost", sa.Float, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("pr_number", sa.JSON, nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
    )
    op.create_index("ix_conversations_listing", "conversations", ["user_id", "created_at", "id"])
    op.create_index(
        "ix_conversations_repository", "conversations", ["user_id", "selected_repository", "created_at", "id"]
    )
    op.create_index("ix_conversations_trigger", "conversations", ["user_id", "trigger", "created_at", "id"])
    op.create_index(
        "ix_conversations_repository_trigger",
        "conversations",
        ["user_id", "selected_repository", "trigger", "created_at", "id"],
    )
    op.create_index("ix_conversations_agent_state", "conversations", ["agent_state"])
    op.create_table(
        "settings",
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_settings"),
    )


def downgrade() -> None:
    """Drop all tables."""
    for table in ("settings", "conversations", "owners", "events"):
        op.drop_table(table)
