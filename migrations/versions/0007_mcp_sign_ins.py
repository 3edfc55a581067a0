"""Users' sign-ins with MCP servers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "mcp_sign_ins",
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("state", sa.Text),
        sa.Column("pending", sa.Text),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("user_id", "id", name="pk_mcp_sign_ins"),
    )
    op.create_index("ix_mcp_sign_ins_state", "mcp_sign_ins", ["state"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("mcp_sign_ins")
