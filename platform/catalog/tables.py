"""The tables, each invariant stated where it is kept.

A graph in the shape of W3C PROV: artifacts (entities) and runs (activities) are the nodes, `edges` says which
run used or generated which artifact. Because a checkpoint is an artifact and a train step is a run, "which
weights made this, and what made those" is one recursive query over `edges`.

Times are seconds since the epoch by the database's clock (`clock.now`). Rows outlive bytes: no artifact,
run or edge is ever deleted.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    literal_column,
    text,
)

from mutoscope.platform.catalog.clock import now

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_DIGEST = String(64)
_ID = String(36)
_JSON = JSON(none_as_null=True)

artifacts = Table(
    "artifacts",
    metadata,
    Column("digest", _DIGEST, primary_key=True),  # SHA-256 of the bytes; the bytes were stored before the row
    Column("kind", String(16), nullable=False),
    Column("media_type", String(127), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("meta", _JSON, nullable=False),
    Column("state", String(16), nullable=False),  # a tombstone keeps its edges: its lineage still answers
    Column("created_at", Double, nullable=False),
    # Of a tombstone: since when its bytes are in the trash, and when they were removed for good (null: not
    # yet, so far as is known).
    Column("collected_at", Double),
    Column("purged_at", Double),
    CheckConstraint("state in ('present', 'tombstone')", name="state"),
    CheckConstraint("size >= 0", name="size"),
    Index(None, "kind", "created_at"),
    Index(None, "created_at"),
)

workflow_runs = Table(
    "workflow_runs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("workflow", String(255), nullable=False),
    Column("parent_id", _ID, ForeignKey("workflow_runs.id")),
    Column("prefect_flow_run_id", _ID),
    Column("parameters", _JSON, nullable=False),  # with the drawn seed: enough to run it again
    Column("state", String(16), nullable=False),
    Column("outputs", _JSON),  # output name -> digest
    Column("error", _JSON),
    Column("created_at", Double, nullable=False),
    Column("finished_at", Double),
    # While it runs: which process executes it, and until when it is believed to. Past that anybody may
    # declare it crashed. Null: an execution that nobody watches over.
    Column("holder", String(255)),
    Column("lease_expires_at", Double),
    Column("attempt", Integer, nullable=False, server_default=text("1")),  # times it was started
    Column("max_attempts", Integer, nullable=False, server_default=text("1")),
    Column(
        "cancel_requested", Boolean(create_constraint=False), nullable=False, server_default=text("false")
    ),
    Column("time_limit_seconds", Double),  # of one attempt
    # The deployment that launched it, so that it can be started again on any host; null: a plain call.
    Column("prefect_deployment", String(255)),
    CheckConstraint("state in ('running', 'succeeded', 'failed', 'cancelled', 'crashed')", name="state"),
    Index(None, "workflow", "created_at"),
    Index(None, "created_at"),
    Index(None, "prefect_flow_run_id"),
    Index(None, "parent_id"),
)

under_way = workflow_runs.c.state == literal_column("'running'")
"""Spelled with a literal, as `in_flight` is."""

# Few, however long the history grows: what the collector must leave alone.
Index(
    "ix_workflow_runs_under_way",
    workflow_runs.c.created_at,
    sqlite_where=under_way,
    postgresql_where=under_way,
)

crashed = workflow_runs.c.state == literal_column("'crashed'")
"""Spelled with a literal, as `in_flight` is."""

# Whoever starts crashed ones again asks every second.
Index(
    "ix_workflow_runs_crashed",
    workflow_runs.c.created_at,
    sqlite_where=crashed,
    postgresql_where=crashed,
)

runs = Table(
    "runs",
    metadata,
    Column("id", _ID, primary_key=True),  # UUIDv7: ids sort by creation
    Column("kind", String(32), nullable=False),  # engine, import, train, reward, ...
    Column("card", String(255)),
    Column("card_digest", _DIGEST),
    Column("contract", _DIGEST),  # digest of the numeric contract; only a worker of equal contract may claim
    Column("profile", String(16)),
    Column("memo_key", _DIGEST),  # null: never shared
    Column("key_parts", _JSON),  # what the key was computed from: a miss explains itself field by field
    Column("parameters", _JSON, nullable=False),
    Column("seed", BigInteger),
    Column("state", String(16), nullable=False),
    Column("priority", Integer, nullable=False, server_default=text("0")),  # higher is claimed first
    Column("attempt", Integer, nullable=False, server_default=text("0")),  # times claimed
    Column("max_attempts", Integer, nullable=False, server_default=text("1")),
    Column(
        "waiters", Integer, nullable=False, server_default=text("1")
    ),  # callers not yet gone; see request_cancel
    Column(
        "cancel_requested", Boolean(create_constraint=False), nullable=False, server_default=text("false")
    ),
    Column("worker", _ID),  # the owner, while running; afterwards who ran it
    Column("lease_expires_at", Double),  # past this, anybody may take the run
    Column("stage", String(64)),  # progress: program node at work, finished work plans, of so many
    Column("step", Integer),
    Column("total", Integer),
    Column("workflow_run_id", _ID, ForeignKey("workflow_runs.id")),
    Column("prefect_flow_run_id", _ID),
    Column("prefect_task_run_id", _ID),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("timings", _JSON),  # seconds per program node
    Column("error", _JSON),  # of the last attempt
    Column("warnings", _JSON),  # lines that its user should read although it succeeded; null: none
    Column("weights_key", _DIGEST),  # of the card and the weights it pins (`placement`); null: it pins none
    Column("weights_bytes", BigInteger),  # size of what it pins, whatever is shared counted once
    Column("time_limit_seconds", Double),  # of one attempt; waiting in the queue does not count
    CheckConstraint("state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"),
    CheckConstraint(
        "state <> 'running' or (worker is not null and lease_expires_at is not null)", name="owned"
    ),
    Index(None, "memo_key", "state"),
    Index(None, "workflow_run_id"),
    Index(None, "created_at"),
    Index(None, "finished_at"),
)

in_flight = runs.c.state.in_((literal_column("'queued'"), literal_column("'running'")))
"""Queued or running. Spelled with literals: SQLite uses a partial index only where it can see that the
query's condition is the index's, which a bound parameter hides."""

# Single-flight: at most one run computes a key at a time. A second insert fails, and its caller attaches
# instead.
Index(
    "uq_runs_memo_key_in_flight",
    runs.c.memo_key,
    unique=True,
    sqlite_where=in_flight,
    postgresql_where=in_flight,
)
# The queue proper, in the order in which runs are claimed: small however long the history grows, and never
# sorted.
Index(
    "ix_runs_queue",
    runs.c.priority.desc(),
    runs.c.created_at,
    runs.c.id,
    sqlite_where=in_flight,
    postgresql_where=in_flight,
)

attempts = Table(
    "attempts",
    metadata,
    # One row each time a run was taken and did not succeed; a success is in `runs` itself. Written in the
    # transaction that ends the attempt.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("run_id", _ID, ForeignKey("runs.id"), nullable=False),
    # As `runs.attempt` was. One that was handed back does not count, so its number comes again.
    Column("attempt", Integer, nullable=False),
    Column("worker", _ID, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("error", _JSON),
    CheckConstraint("outcome in ('failed', 'expired', 'released', 'cancelled', 'timed_out')", name="outcome"),
    Index(None, "run_id"),
    Index(None, "ended_at"),
)

queues = Table(
    "queues",
    metadata,
    # What an operator said about a card's runs; a card without a row is served freely. Whoever claims reads
    # the row in the same transaction.
    Column("card", String(255), primary_key=True),
    Column("paused", Boolean(create_constraint=False), nullable=False, server_default=text("false")),
    Column("most_running", Integer),  # at a time, on all workers together; null: as many as there is room for
    Column("note", String(255)),
    Column("changed_at", Double, nullable=False),
    CheckConstraint("most_running >= 0", name="most_running"),
)

edges = Table(
    "edges",
    metadata,
    Column("run_id", _ID, ForeignKey("runs.id"), primary_key=True),
    Column("direction", String(9), primary_key=True),
    Column("role", String(255), primary_key=True),  # slot name, or weights:<component>
    Column("ordinal", Integer, primary_key=True),  # position within a role that takes several
    Column("artifact_digest", _DIGEST, ForeignKey("artifacts.digest"), nullable=False),
    CheckConstraint("direction in ('used', 'generated')", name="direction"),
    Index(None, "artifact_digest", "direction", "run_id"),
    # The rows lie in the primary key's own order: a walk finds what a run used without a second lookup.
    sqlite_with_rowid=False,
)

weight_versions = Table(
    "weight_versions",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("card", String(255), nullable=False),
    Column("component", String(255), nullable=False),
    Column("ordinal", Integer, nullable=False),  # 1, 2, 3, ... per component of a card; an import may skip
    Column("artifact_digest", _DIGEST, ForeignKey("artifacts.digest"), nullable=False),
    Column("parent_id", _ID, ForeignKey("weight_versions.id")),
    Column("produced_by_run", _ID, ForeignKey("runs.id")),
    Column("metrics", _JSON),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("card", "component", "ordinal"),
    Index(None, "artifact_digest"),
)

weight_aliases = Table(
    "weight_aliases",
    metadata,
    # Append-only: an alias is its newest row, the older rows are its history.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("card", String(255), nullable=False),
    Column("component", String(255), nullable=False),
    Column("name", String(64), nullable=False),
    # Null: retired, the component has no such alias from then on.
    Column("version_id", _ID, ForeignKey("weight_versions.id")),
    Column("created_at", Double, nullable=False),
    Index(None, "card", "component", "name", "id"),
)

workers = Table(
    "workers",
    metadata,
    Column("id", _ID, primary_key=True),  # drawn per process: a restarted worker is another worker
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("device", String(255), nullable=False),
    Column("cards", _JSON, nullable=False),  # card -> digests, numeric contract, resident weights
    Column("state", String(16), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("heartbeat_at", Double, nullable=False),
    Column("memory_bytes", BigInteger),  # that its runs may take, weights included; null: not known
    # What an operator asks of it, numbered, and the last number it has done. See `Wanted`.
    Column("wanted", _JSON),
    Column("done_serial", Integer, nullable=False, server_default=text("0")),
    Index(None, "heartbeat_at"),
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", _ID, primary_key=True),
    # determinism: other bytes under an equal memo key; damage, loss: stored bytes that changed or went away;
    # schedule: a workflow run that a schedule started has failed
    Column("kind", String(32), nullable=False),
    Column("memo_key", _DIGEST),
    Column("run_id", _ID, ForeignKey("runs.id")),  # null: nobody recorded how the bytes came about
    Column("earlier_run_id", _ID, ForeignKey("runs.id")),
    Column("details", _JSON, nullable=False),
    Column("created_at", Double, nullable=False),
    Index(None, "created_at"),
)

calls = Table(
    "calls",
    metadata,
    # One row each time a run was asked for: `runs` holds what was computed, this what the memo answered.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("run_id", _ID, ForeignKey("runs.id"), nullable=False),
    Column("workflow_run_id", _ID, ForeignKey("workflow_runs.id")),
    Column("disposition", String(8), nullable=False),
    Column("passed_over", _JSON),  # the equal success that was no hit, and why it was none
    Column("created_at", Double, nullable=False),
    # When its caller withdrew, or was declared dead: a call counts among a run's waiters until then, and
    # leaves them once.
    Column("left_at", Double),
    CheckConstraint("disposition in ('new', 'attached', 'hit')", name="disposition"),
    Index(None, "run_id"),
    Index(None, "workflow_run_id"),
)

members = Table(
    "members",
    metadata,
    # A container (a component's manifest, say) cannot be read without these: whoever keeps, copies or checks
    # the one follows its rows to the others, and need not open a byte.
    Column("container", _DIGEST, ForeignKey("artifacts.digest"), primary_key=True),
    Column("path", String(512), primary_key=True),
    Column("artifact_digest", _DIGEST, ForeignKey("artifacts.digest"), nullable=False),
    Index(None, "artifact_digest", "container"),
    sqlite_with_rowid=False,
)

leases = Table(
    "leases",
    metadata,
    # A promise to the collector. A reader's: these bytes are in use until then, even if nothing else points
    # at them. A writer's: bytes stored since `started_at` may have no row yet. Runs in flight are leases of
    # both kinds by themselves and need no row here.
    Column("id", _ID, primary_key=True),
    Column("holder", String(255), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("artifact_digest", _DIGEST),  # null: a writer's, who does not know yet what the bytes will be
    Column("started_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    CheckConstraint("kind in ('reader', 'writer')", name="kind"),
    Index(None, "artifact_digest", "expires_at"),
    Index(None, "expires_at"),
)

in_force = leases.c.expires_at >= now()
"""A lease that has not run out."""

pins = Table(
    "pins",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(128), nullable=False),
    Column("artifact_digest", _DIGEST, ForeignKey("artifacts.digest"), nullable=False),
    Column("with_inputs", Boolean(create_constraint=False), nullable=False),  # all that it came from, too
    Column("note", String(255)),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("name"),
    Index(None, "artifact_digest"),
)

retention_rules = Table(
    "retention_rules",
    metadata,
    # What matches and is older than `keep_seconds` may go, unless something else keeps it. What no rule
    # matches is kept.
    Column("id", _ID, primary_key=True),
    Column("name", String(128), nullable=False),
    Column("kind", String(16)),  # null: of every kind
    Column("workflow", String(255)),  # null: made by anything
    Column("keep_seconds", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("name"),
    CheckConstraint("keep_seconds >= 0", name="keep_seconds"),
)

identity = Table(
    "identity",
    metadata,
    # One row, drawn when somebody first asks: how a shared store tells its catalogs apart.
    Column("id", _ID, primary_key=True),
    Column("created_at", Double, nullable=False),
    # The one store that holds the bytes of this catalog, by the id in its marker object; null: not bound yet.
    Column("store_id", _ID),
    Column("store_url", String(2048)),  # where it was then, without secrets: for people
)

collections = Table(
    "collections",
    metadata,
    # One row per collection, so that another process can finish what a killed one began.
    Column("id", _ID, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("phase", String(16), nullable=False),
    Column("holder", String(255), nullable=False),
    Column("expires_at", Double, nullable=False),  # past this, anybody may take it over
    Column("horizon", Double, nullable=False),  # nothing made after this moment is looked at
    Column("grace_seconds", Double, nullable=False),
    Column("counts", _JSON, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("finished_at", Double),
    CheckConstraint("state in ('running', 'finished')", name="state"),
    Index(None, "started_at"),
)

approvals = Table(
    "approvals",
    metadata,
    # One row per question of a workflow run, whatever attempt of it asks; written once, decided once.
    Column("id", _ID, primary_key=True),
    Column("workflow_run_id", _ID, ForeignKey("workflow_runs.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("question", String(255), nullable=False),
    Column("subjects", _JSON, nullable=False),  # digests of what is to be looked at
    Column("asked_at", Double, nullable=False),
    Column("decided_at", Double),
    Column("approved", Boolean(create_constraint=False)),
    Column("decided_by", String(255)),  # as they named themselves, or their account
    Column("note", String(255)),
    CheckConstraint(
        "(decided_at is null) = (approved is null) and (decided_at is null) = (decided_by is null)",
        name="decided",
    ),
    UniqueConstraint("workflow_run_id", "name"),
)

undecided = approvals.c.decided_at.is_(None)

Index(
    "ix_approvals_open",
    approvals.c.asked_at,
    sqlite_where=undecided,
    postgresql_where=undecided,
)
