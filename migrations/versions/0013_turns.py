"""What conversations hold of what there is for all servers of a database, and the files that wait for their start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and make the table."""
    op.add_column("leases", sa.Column("turn", sa.JSON))
    op.create_table(
        "waiting_files",
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("conversation_id", "number", name="pk_waiting_files"),
    )


def downgrade() -> None:
    """Drop them: each server has a queue of its own then."""
    op.drop_table("waiting_files")
    op.drop_column("leases", "turn")
