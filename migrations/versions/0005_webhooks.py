"""Webhooks, and how far each has come in the conversations of its user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.Column("conversation_id", sa.Text),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("delivered_at", sa.BigInteger),
        sa.Column("failing_since", sa.BigInteger),
        sa.Column("problem", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
    )
    op.create_index("ix_webhooks_user_id", "webhooks", ["user_id", "created_at"])
    op.create_table(
        "webhook_positions",
        sa.Column("webhook_id", sa.Text, nullable=False),
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("webhook_id", "conversation_id", name="pk_webhook_positions"),
    )
    op.create_index("ix_webhook_positions_conversation_id", "webhook_positions", ["conversation_id"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("webhook_positions")
    op.drop_table("webhooks")
