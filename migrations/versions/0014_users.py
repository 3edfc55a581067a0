"""Users, what they show for who they are, and the links by which they come."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def _text(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=nullable) for name in names]


def _moments(*names: str, nullable: bool = False) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=nullable) for name in names]


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "users",
        *_text("id", "name", "look"),
        *_text("email", "password", nullable=True),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        *_moments("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
    )
    op.create_index("ix_users_look", "users", ["look"], unique=True)
    op.create_index("ix_users_email", "users", ["email"], unique=True)
    op.create_table(
        "user_identities",
        *_text("issuer", "subject", "user_id"),
        sa.PrimaryKeyConstraint("issuer", "subject", name="pk_user_identities"),
    )
    op.create_index("ix_user_identities_user_id", "user_identities", ["user_id"])
    op.create_table(
        "access_tokens",
        *_text("id"),
        sa.Column("digest", sa.String(64), nullable=False),
        *_text("user_id", "name"),
        sa.Column("scopes", sa.JSON, nullable=False),
        *_moments("created_at"),
        *_moments("expires_at", "used_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_access_tokens"),
    )
    op.create_table(
        "sign_ins",
        *_text("id"),
        sa.Column("digest", sa.String(64), nullable=False),
        *_text("user_id", "address", "browser"),
        *_moments("created_at", "expires_at", "used_at"),
        sa.PrimaryKeyConstraint("id", name="pk_sign_ins"),
    )
    for table in ("access_tokens", "sign_ins"):
        op.create_index(f"ix_{table}_digest", table, ["digest"], unique=True)
        op.create_index(f"ix_{table}_user_id", table, ["user_id"])
    op.create_table(
        "one_time_links",
        sa.Column("digest", sa.String(64), nullable=False),
        *_text("user_id", "role", "made_by", nullable=True),
        *_moments("created_at", "expires_at"),
        sa.PrimaryKeyConstraint("digest", name="pk_one_time_links"),
    )
    op.create_index("ix_one_time_links_user_id", "one_time_links", ["user_id"])


def downgrade() -> None:
    """Drop them: the server has one user then, who is the first administrator."""
    for table in ("one_time_links", "sign_ins", "access_tokens", "user_identities", "users"):
        op.drop_table(table)
