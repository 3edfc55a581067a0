"""Skills that users have written for their agents, and plugins that are installed, with their files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "skills",
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("user_id", "name", name="pk_skills"),
    )
    op.create_table(
        "plugins",
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("ref", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("commit", sa.Text, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("installed_at", sa.BigInteger, nullable=False),
        sa.Column("archive", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("owner", "name", name="pk_plugins"),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("plugins")
    op.drop_table("skills")
