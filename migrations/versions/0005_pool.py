"""A pool that is operated: attempts on record, queues that pause, workers that are asked, workflows on lease.

Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    for table, columns in _columns().items():
        for column in columns:
            # In place on both databases: batch mode would copy the table on SQLite, one that others refer to.
            op.add_column(table, column)
    op.create_index(op.f("ix_runs_finished_at"), "runs", ["finished_at"])
    crashed = sa.text("state = 'crashed'")
    op.create_index(
        "ix_workflow_runs_crashed",
        "workflow_runs",
        ["created_at"],
        sqlite_where=crashed,
        postgresql_where=crashed,
    )
    _attempts()
    _queues()


def downgrade() -> None:
    op.drop_table("queues")
    op.drop_table("attempts")
    op.drop_index("ix_workflow_runs_crashed", table_name="workflow_runs")
    op.drop_index(op.f("ix_runs_finished_at"), table_name="runs")
    for table, columns in reversed(_columns().items()):
        for column in reversed(columns):
            op.execute(sa.text(f"alter table {table} drop column {column.name}"))


def _columns() -> dict[str, list[sa.Column]]:
    """New columns. Each is null or has a constant default, so that no row is rewritten."""
    return {
        "workflow_runs": [
            sa.Column("holder", sa.String(255)),
            sa.Column("lease_expires_at", sa.Double()),
            sa.Column("attempt", sa.Integer(), nullable=False, server_default=sa.text("1")),
            sa.Column("max_attempts", sa.Integer(), nullable=False, server_default=sa.text("1")),
            sa.Column("cancel_requested", sa.Boolean(), nullable=False, server_default=sa.text("false")),
            sa.Column("time_limit_seconds", sa.Double()),
            sa.Column("prefect_deployment", sa.String(255)),
        ],
        "runs": [
            sa.Column("weights_key", sa.String(64)),
            sa.Column("weights_bytes", sa.BigInteger()),
            sa.Column("time_limit_seconds", sa.Double()),
        ],
        "workers": [
            sa.Column("memory_bytes", sa.BigInteger()),
            sa.Column("wanted", _JSON),
            sa.Column("done_serial", sa.Integer(), nullable=False, server_default=sa.text("0")),
        ],
        "calls": [sa.Column("left_at", sa.Double())],
        "identity": [sa.Column("store_id", sa.String(36)), sa.Column("store_url", sa.String(2048))],
    }


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(36), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("error", _JSON),
        sa.CheckConstraint(
            "outcome in ('failed', 'expired', 'released', 'cancelled', 'timed_out')",
            name=op.f("ck_attempts_outcome"),
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
    )
    op.create_index(op.f("ix_attempts_run_id"), "attempts", ["run_id"])
    op.create_index(op.f("ix_attempts_ended_at"), "attempts", ["ended_at"])


def _queues() -> None:
    op.create_table(
        "queues",
        sa.Column("card", sa.String(255), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column("most_running", sa.Integer()),
        sa.Column("note", sa.String(255)),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.CheckConstraint("most_running >= 0", name=op.f("ck_queues_most_running")),
        sa.PrimaryKeyConstraint("card", name=op.f("pk_queues")),
    )
