"""What is looked for among many rows is found by an index: the logs below one, and what waits in the inbox."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_ORDER = "ALTER TABLE owners ALTER COLUMN conversation_id TYPE text COLLATE "


def upgrade() -> None:
    """Make the indexes. PostgreSQL's of owners is made again, without the table."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f'{_ORDER}"C"')
    op.create_index("ix_inbox_created_at", "inbox", ["created_at"])
    waits = sa.text("answer IS NULL")
    op.create_index("ix_inbox_waiting", "inbox", ["conversation_id"], sqlite_where=waits, postgresql_where=waits)


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_inbox_waiting", "inbox")
    op.drop_index("ix_inbox_created_at", "inbox")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f'{_ORDER}pg_catalog."default"')
