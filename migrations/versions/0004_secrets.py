"""Users' own secrets, and which keys this database's secrets were encrypted with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "secrets",
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("user_id", "name", name="pk_secrets"),
    )
    op.create_table(
        "sealing_keys",
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("first_used_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_sealing_keys"),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("sealing_keys")
    op.drop_table("secrets")
