"""The places of conversations that wait for their turn."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("conversations", sa.Column("waiting_number", sa.BigInteger))


def downgrade() -> None:
    """Drop it: who waits is then taken up in no particular order."""
    op.drop_column("conversations", "waiting_number")
