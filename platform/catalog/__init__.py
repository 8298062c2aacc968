"""Rows: runs, artifacts, edges, weight versions and workers, and the queries over them.

    tables      the schema, each invariant at its column
    database    connections and transactions; clock: whose time leases go by; schema: revisions
    records     what goes in and out about runs
    runs        the caller's half of the queue; claims: the worker's half; edges: what a run used and made
    calls       who asked for a run, and what the memo answered
    lineage     what came from what; its parts are closure and breadth (the walk), graph (its records), uses,
                made, impact, recipes and diff (answers), tree, prov and openlineage (how they are written)
    artifacts   weights   workers   workflows   incidents
    trainings   what a training was set up with, the versions it made, what it noted of each iteration
    queues      what an operator holds back; pool: depths and rates per card; pool_report: how they are told;
                scaling: how many workers they call for
    routing     which run a worker takes next; claiming: how it takes it; residents: which weights are where
    placement   what a run's weights are called, and their bytes
    attempts    times a run was taken and did not succeed
    waiting     callers that leave a run, each of them once
    worker_facts     what live workers said, read when it is new
    workflow_leases  who executes a workflow run; workflow_records: its row
    approvals   what workflows ask of people
    members     what an artifact cannot be read without
    bulk        all of these by the ten thousand: imports, archives
    transfer    the rows of a closure for another catalog; transfer_keys: which those are
    merge       rows that arrive from one; merge_versions: weight versions among them
    why         which earlier run a run's key came closest to
    pins        what is kept by name; retention: rules that say what may go, and when
    leases      promises to the collector; collections: its runs, one at a time
    reachability  what may go; keeping: what keeps, as conditions on rows; reasons: the same in words;
                given: what workflows hold as text
    tombstones  each step of the collector as one transaction
    audit       what a check of the catalog asks; contradictions: rows that cannot both be true
    calendar    workflow runs by day
    identity    which catalog this is, for a store that several share
    naming      what a name that a person typed stands for; keys: rows by many keys,
                or by the beginning of one
    watch       whether anything changed, cheaply
    ends        who waits for which run, behind one thread
    catalog     all of it behind one object

The catalog knows nothing of bytes (`platform.artifacts`); the two meet in `platform.refs`.
"""

from mutoscope.platform.catalog.attempts import AttemptRecord
from mutoscope.platform.catalog.bulk import ArtifactRow, Bulk, Member
from mutoscope.platform.catalog.calls import Call, PassedOver
from mutoscope.platform.catalog.catalog import Catalog
from mutoscope.platform.catalog.closure import Closure
from mutoscope.platform.catalog.diff import Diff
from mutoscope.platform.catalog.graph import ArtifactNode, Edge, LineageGraph
from mutoscope.platform.catalog.impact import Impact
from mutoscope.platform.catalog.incidents import Incident
from mutoscope.platform.catalog.made import MadePage
from mutoscope.platform.catalog.members import Members
from mutoscope.platform.catalog.placement import weights_key
from mutoscope.platform.catalog.pool_report import Depth, PoolReport, Rate
from mutoscope.platform.catalog.queues import QueueRecord
from mutoscope.platform.catalog.records import Enqueued, RenewResult, RunRecord, RunSpec, Standing
from mutoscope.platform.catalog.trainings import Note, Training
from mutoscope.platform.catalog.tree import render_tree
from mutoscope.platform.catalog.uses import WeightUse
from mutoscope.platform.catalog.weights import WeightVersion
from mutoscope.platform.catalog.workers import Wanted, WorkerInfo
from mutoscope.platform.catalog.workflows import WorkflowRecord

__all__ = [
    "ArtifactNode",
    "ArtifactRow",
    "AttemptRecord",
    "Bulk",
    "Call",
    "Catalog",
    "Closure",
    "Depth",
    "Diff",
    "Edge",
    "Enqueued",
    "Impact",
    "Incident",
    "LineageGraph",
    "MadePage",
    "Member",
    "Members",
    "Note",
    "PassedOver",
    "PoolReport",
    "QueueRecord",
    "Rate",
    "RenewResult",
    "RunRecord",
    "RunSpec",
    "Standing",
    "Training",
    "Wanted",
    "WeightUse",
    "WeightVersion",
    "WorkerInfo",
    "WorkflowRecord",
    "render_tree",
    "weights_key",
]
