"""What is kept and why: members of containers, pins, retention rules, leases of both kinds, collections.

Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    op.add_column("artifacts", sa.Column("collected_at", sa.Double()))
    op.add_column("artifacts", sa.Column("purged_at", sa.Double()))
    op.drop_table("leases")  # nothing was ever written to it
    _leases()
    _members()
    _pins()
    _retention_rules()
    _identity()
    _collections()
    _calls()
    with op.batch_alter_table("incidents") as batch:
        batch.alter_column("run_id", existing_type=sa.String(36), nullable=True)
    _queue(sa.text("priority DESC"), "created_at", "id")
    op.create_index(op.f("ix_workflow_runs_created_at"), "workflow_runs", ["created_at"])
    under_way = sa.text("state = 'running'")
    op.create_index(
        "ix_workflow_runs_under_way",
        "workflow_runs",
        ["created_at"],
        sqlite_where=under_way,
        postgresql_where=under_way,
    )
    _views()


def downgrade() -> None:
    for view in _VIEWS:
        op.execute(sa.text(f"drop view {view}"))
    _queue("priority", "created_at")
    op.drop_index("ix_workflow_runs_under_way", table_name="workflow_runs")
    op.drop_index(op.f("ix_workflow_runs_created_at"), table_name="workflow_runs")
    # What has no run had no place before.
    op.execute(sa.text("delete from incidents where run_id is null"))
    with op.batch_alter_table("incidents") as batch:
        batch.alter_column("run_id", existing_type=sa.String(36), nullable=False)
    for table in ("calls", "collections", "identity", "retention_rules", "pins", "members", "leases"):
        op.drop_table(table)
    _leases_before()
    # In place on both databases. Batch mode would copy the table on SQLite, and drop one that edges refer to.
    op.execute(sa.text("alter table artifacts drop column purged_at"))
    op.execute(sa.text("alter table artifacts drop column collected_at"))


def _queue(*columns: str | sa.TextClause) -> None:
    """Rebuild the index of runs in flight: in the order of claiming it spares a long queue its sorting."""
    op.drop_index("ix_runs_queue", table_name="runs")
    in_flight = sa.text("state IN ('queued', 'running')")
    op.create_index(
        "ix_runs_queue", "runs", list(columns), sqlite_where=in_flight, postgresql_where=in_flight
    )


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("artifact_digest", sa.String(64)),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.CheckConstraint("kind in ('reader', 'writer')", name=op.f("ck_leases_kind")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    op.create_index(op.f("ix_leases_artifact_digest_expires_at"), "leases", ["artifact_digest", "expires_at"])
    op.create_index(op.f("ix_leases_expires_at"), "leases", ["expires_at"])


def _leases_before() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("artifact_digest", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    op.create_index(op.f("ix_leases_artifact_digest_expires_at"), "leases", ["artifact_digest", "expires_at"])


def _members() -> None:
    op.create_table(
        "members",
        sa.Column("container", sa.String(64), nullable=False),
        sa.Column("path", sa.String(512), nullable=False),
        sa.Column("artifact_digest", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["container"], ["artifacts.digest"], name=op.f("fk_members_container")),
        sa.ForeignKeyConstraint(
            ["artifact_digest"], ["artifacts.digest"], name=op.f("fk_members_artifact_digest")
        ),
        sa.PrimaryKeyConstraint("container", "path", name=op.f("pk_members")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_members_artifact_digest_container"), "members", ["artifact_digest", "container"])


def _pins() -> None:
    op.create_table(
        "pins",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("artifact_digest", sa.String(64), nullable=False),
        sa.Column("with_inputs", sa.Boolean(), nullable=False),
        sa.Column("note", sa.String(255)),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact_digest"], ["artifacts.digest"], name=op.f("fk_pins_artifact_digest")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pins")),
        sa.UniqueConstraint("name", name=op.f("uq_pins_name")),
    )
    op.create_index(op.f("ix_pins_artifact_digest"), "pins", ["artifact_digest"])


def _retention_rules() -> None:
    op.create_table(
        "retention_rules",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(16)),
        sa.Column("workflow", sa.String(255)),
        sa.Column("keep_seconds", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("keep_seconds >= 0", name=op.f("ck_retention_rules_keep_seconds")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retention_rules")),
        sa.UniqueConstraint("name", name=op.f("uq_retention_rules_name")),
    )


def _calls() -> None:
    op.create_table(
        "calls",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("workflow_run_id", sa.String(36)),
        sa.Column("disposition", sa.String(8), nullable=False),
        sa.Column("passed_over", _JSON),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("disposition in ('new', 'attached', 'hit')", name=op.f("ck_calls_disposition")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_calls_run_id")),
        sa.ForeignKeyConstraint(
            ["workflow_run_id"], ["workflow_runs.id"], name=op.f("fk_calls_workflow_run_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calls")),
    )
    op.create_index(op.f("ix_calls_run_id"), "calls", ["run_id"])
    op.create_index(op.f("ix_calls_workflow_run_id"), "calls", ["workflow_run_id"])


def _identity() -> None:
    op.create_table(
        "identity",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identity")),
    )


def _collections() -> None:
    op.create_table(
        "collections",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("horizon", sa.Double(), nullable=False),
        sa.Column("grace_seconds", sa.Double(), nullable=False),
        sa.Column("counts", _JSON, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double()),
        sa.CheckConstraint("state in ('running', 'finished')", name=op.f("ck_collections_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_collections")),
    )
    op.create_index(op.f("ix_collections_started_at"), "collections", ["started_at"])


def _views() -> None:
    """What analysts query; docs/analysts.md describes each column. A later revision that rebuilds a table
    below them drops them first and creates them again: SQLite refuses to rename under a view.
    """
    sqlite = op.get_bind().dialect.name == "sqlite"
    prompt = "json_extract(r.parameters, '$.prompt')" if sqlite else "r.parameters ->> 'prompt'"
    for name, query in _VIEWS.items():
        op.execute(sa.text(f"create view {name} as {query.format(prompt=prompt)}".replace(":", "\\:")))


_NAME = "v.card || '/' || v.component || '@' || cast(v.ordinal as varchar)"
_COMPONENT = "substr(u.role, 9)"  # behind "weights:"
_OF_WEIGHTS = "u.direction = 'used' and u.role like 'weights:%'"

_VIEWS = {
    "v_lineage": """
        select g.artifact_digest as artifact, g.role as role, g.ordinal as ordinal,
               u.artifact_digest as source, u.role as source_role, u.ordinal as source_ordinal,
               g.run_id as run, r.kind as run_kind, r.card as card, r.created_at as created_at
        from edges g
        join edges u on u.run_id = g.run_id and u.direction = 'used'
        join runs r on r.id = g.run_id
        where g.direction = 'generated'
    """,
    "v_outputs": """
        select a.digest as artifact, a.kind as kind, a.media_type as media_type, a.size as size,
               a.state as state, g.role as role, g.ordinal as ordinal,
               r.id as run, r.kind as run_kind, r.card as card, r.seed as seed, {prompt} as prompt,
               r.parameters as parameters, r.memo_key as memo_key, r.worker as worker,
               w.id as workflow_run, w.workflow as workflow,
               r.created_at as created_at, r.started_at as started_at, r.finished_at as finished_at
        from edges g
        join artifacts a on a.digest = g.artifact_digest
        join runs r on r.id = g.run_id
        left join workflow_runs w on w.id = r.workflow_run_id
        where g.direction = 'generated'
    """,
    "v_weight_use": f"""
        select u.run_id as run, r.card as card, r.kind as run_kind, r.state as run_state,
               {_COMPONENT} as component, u.artifact_digest as weights, {_NAME} as version,
               v.id as version_id, r.created_at as created_at
        from edges u
        join runs r on r.id = u.run_id
        left join weight_versions v on v.artifact_digest = u.artifact_digest
        where {_OF_WEIGHTS}
    """,
    "v_weight_made": f"""
        select {_NAME} as version, v.id as version_id, v.artifact_digest as weights,
               {_COMPONENT} as component, u.run_id as run, g.role as role, g.ordinal as ordinal,
               a.digest as artifact, a.kind as kind, a.size as size, a.state as state,
               r.created_at as created_at
        from edges u
        join edges g on g.run_id = u.run_id and g.direction = 'generated'
        join artifacts a on a.digest = g.artifact_digest
        join runs r on r.id = u.run_id
        left join weight_versions v on v.artifact_digest = u.artifact_digest
        where {_OF_WEIGHTS}
    """,
}
