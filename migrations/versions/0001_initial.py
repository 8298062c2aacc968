"""The tables of the first release.

Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _artifacts()
    _leases()
    _workers()
    _workflow_runs()
    _runs()
    _edges()
    _incidents()
    _weight_versions()
    _weight_aliases()


def downgrade() -> None:
    # A table takes its indexes with it.
    for table in (
        "weight_aliases",
        "weight_versions",
        "incidents",
        "edges",
        "runs",
        "workflow_runs",
        "workers",
        "leases",
        "artifacts",
    ):
        op.drop_table(table)


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("media_type", sa.String(length=127), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("meta", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("state in ('present', 'tombstone')", name=op.f("ck_artifacts_state")),
        sa.CheckConstraint("size >= 0", name=op.f("ck_artifacts_size")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_artifacts")),
    )
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_artifacts_created_at"), ["created_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_artifacts_kind_created_at"), ["kind", "created_at"], unique=False
        )


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("artifact_digest", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    with op.batch_alter_table("leases", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_leases_artifact_digest_expires_at"),
            ["artifact_digest", "expires_at"],
            unique=False,
        )


def _workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(length=255), nullable=False),
        sa.Column("cards", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("heartbeat_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_workers_heartbeat_at"), ["heartbeat_at"], unique=False)


def _workflow_runs() -> None:
    op.create_table(
        "workflow_runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("workflow", sa.String(length=255), nullable=False),
        sa.Column("parent_id", sa.String(length=36), nullable=True),
        sa.Column("prefect_flow_run_id", sa.String(length=36), nullable=True),
        sa.Column("parameters", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("outputs", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "state in ('running', 'succeeded', 'failed', 'cancelled', 'crashed')",
            name=op.f("ck_workflow_runs_state"),
        ),
        sa.ForeignKeyConstraint(["parent_id"], ["workflow_runs.id"], name=op.f("fk_workflow_runs_parent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflow_runs")),
    )
    with op.batch_alter_table("workflow_runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_workflow_runs_parent_id"), ["parent_id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_workflow_runs_prefect_flow_run_id"), ["prefect_flow_run_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_workflow_runs_workflow_created_at"), ["workflow", "created_at"], unique=False
        )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("card", sa.String(length=255), nullable=True),
        sa.Column("card_digest", sa.String(length=64), nullable=True),
        sa.Column("contract", sa.String(length=64), nullable=True),
        sa.Column("profile", sa.String(length=16), nullable=True),
        sa.Column("memo_key", sa.String(length=64), nullable=True),
        sa.Column("key_parts", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("parameters", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_attempts", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("waiters", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("worker", sa.String(length=36), nullable=True),
        sa.Column("lease_expires_at", sa.Double(), nullable=True),
        sa.Column("stage", sa.String(length=64), nullable=True),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("total", sa.Integer(), nullable=True),
        sa.Column("workflow_run_id", sa.String(length=36), nullable=True),
        sa.Column("prefect_flow_run_id", sa.String(length=36), nullable=True),
        sa.Column("prefect_task_run_id", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("timings", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.CheckConstraint(
            "state <> 'running' or (worker is not null and lease_expires_at is not null)",
            name=op.f("ck_runs_owned"),
        ),
        sa.CheckConstraint(
            "state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name=op.f("ck_runs_state")
        ),
        sa.ForeignKeyConstraint(
            ["workflow_run_id"], ["workflow_runs.id"], name=op.f("fk_runs_workflow_run_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runs_created_at"), ["created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_memo_key_state"), ["memo_key", "state"], unique=False)
        batch_op.create_index(
            "ix_runs_queue",
            ["priority", "created_at"],
            unique=False,
            sqlite_where=sa.text("state IN ('queued', 'running')"),
            postgresql_where=sa.text("state IN ('queued', 'running')"),
        )
        batch_op.create_index(batch_op.f("ix_runs_workflow_run_id"), ["workflow_run_id"], unique=False)
        batch_op.create_index(
            "uq_runs_memo_key_in_flight",
            ["memo_key"],
            unique=True,
            sqlite_where=sa.text("state IN ('queued', 'running')"),
            postgresql_where=sa.text("state IN ('queued', 'running')"),
        )


def _edges() -> None:
    op.create_table(
        "edges",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("direction", sa.String(length=9), nullable=False),
        sa.Column("role", sa.String(length=255), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("artifact_digest", sa.String(length=64), nullable=False),
        sa.CheckConstraint("direction in ('used', 'generated')", name=op.f("ck_edges_direction")),
        sa.ForeignKeyConstraint(
            ["artifact_digest"], ["artifacts.digest"], name=op.f("fk_edges_artifact_digest")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_edges_run_id")),
        sa.PrimaryKeyConstraint("run_id", "direction", "role", "ordinal", name=op.f("pk_edges")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("edges", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_edges_artifact_digest_direction_run_id"),
            ["artifact_digest", "direction", "run_id"],
            unique=False,
        )


def _incidents() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("memo_key", sa.String(length=64), nullable=True),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("earlier_run_id", sa.String(length=36), nullable=True),
        sa.Column("details", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["earlier_run_id"], ["runs.id"], name=op.f("fk_incidents_earlier_run_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_incidents_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
    )
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incidents_created_at"), ["created_at"], unique=False)


def _weight_versions() -> None:
    op.create_table(
        "weight_versions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("card", sa.String(length=255), nullable=False),
        sa.Column("component", sa.String(length=255), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("artifact_digest", sa.String(length=64), nullable=False),
        sa.Column("parent_id", sa.String(length=36), nullable=True),
        sa.Column("produced_by_run", sa.String(length=36), nullable=True),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact_digest"], ["artifacts.digest"], name=op.f("fk_weight_versions_artifact_digest")
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["weight_versions.id"], name=op.f("fk_weight_versions_parent_id")
        ),
        sa.ForeignKeyConstraint(
            ["produced_by_run"], ["runs.id"], name=op.f("fk_weight_versions_produced_by_run")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_weight_versions")),
        sa.UniqueConstraint(
            "card", "component", "ordinal", name=op.f("uq_weight_versions_card_component_ordinal")
        ),
    )
    with op.batch_alter_table("weight_versions", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_weight_versions_artifact_digest"), ["artifact_digest"], unique=False
        )


def _weight_aliases() -> None:
    op.create_table(
        "weight_aliases",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("card", sa.String(length=255), nullable=False),
        sa.Column("component", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("version_id", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"], ["weight_versions.id"], name=op.f("fk_weight_aliases_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_weight_aliases")),
    )
    with op.batch_alter_table("weight_aliases", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_weight_aliases_card_component_name_id"),
            ["card", "component", "name", "id"],
            unique=False,
        )
