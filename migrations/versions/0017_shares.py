"""Who else may read a conversation, or write to it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "shares",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text),
        sa.Column("digest", sa.String(64)),
        sa.Column("access", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_shares"),
    )
    op.create_index("ix_shares_conversation_id", "shares", ["conversation_id"])
    op.create_index("ix_shares_user_id", "shares", ["user_id"])
    op.create_index("ix_shares_digest", "shares", ["digest"], unique=True)


def downgrade() -> None:
    """Drop it: everything is its owner's alone again."""
    op.drop_table("shares")
