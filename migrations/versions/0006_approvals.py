"""Approvals: what a workflow asked a person before it went on, and what was decided by whom.

Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("workflow_run_id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("question", sa.String(255), nullable=False),
        sa.Column("subjects", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("decided_at", sa.Double()),
        sa.Column("approved", sa.Boolean()),
        sa.Column("decided_by", sa.String(255)),
        sa.Column("note", sa.String(255)),
        sa.CheckConstraint(
            "(decided_at is null) = (approved is null) and (decided_at is null) = (decided_by is null)",
            name=op.f("ck_approvals_decided"),
        ),
        sa.ForeignKeyConstraint(
            ["workflow_run_id"], ["workflow_runs.id"], name=op.f("fk_approvals_workflow_run_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
        sa.UniqueConstraint("workflow_run_id", "name", name=op.f("uq_approvals_workflow_run_id_name")),
    )
    undecided = sa.text("decided_at IS NULL")
    op.create_index(
        "ix_approvals_open", "approvals", ["asked_at"], sqlite_where=undecided, postgresql_where=undecided
    )


def downgrade() -> None:
    op.drop_index("ix_approvals_open", table_name="approvals")
    op.drop_table("approvals")
