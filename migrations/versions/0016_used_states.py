"""Sign-ins with a provider that were gone on with, so that each counts once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "used_states",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_used_states"),
    )
    op.create_index("ix_used_states_expires_at", "used_states", ["expires_at"])


def downgrade() -> None:
    """Drop it: whoever is on the way back signs in again."""
    op.drop_table("used_states")
