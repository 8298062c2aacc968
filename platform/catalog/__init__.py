"""Rows: runs, artifacts, edges, weight versions and workers, and the queries over them.

    tables      the schema, each invariant at its column
    database    connections and transactions; clock: whose time leases go by; schema: revisions
    records     what goes in and out about runs
    runs        the caller's half of the queue; claims: the worker's half; edges: what a run used and made
    calls       who asked for a run, and what the memo answered
    lineage     what came from what, as a graph; tree: the graph as text
    artifacts   weights   workers   workflows   incidents
    members     what an artifact cannot be read without
    bulk        all of these by the ten thousand: imports, archives
    why         which earlier run a run's key came closest to
    audit       what a check of the catalog asks; contradictions: rows that cannot both be true
    watch       whether anything changed, cheaply
    catalog     all of it behind one object

The catalog knows nothing of bytes (`platform.artifacts`); the two meet in `platform.refs`.
"""

from mutoscope.platform.catalog.bulk import ArtifactRow, Bulk, Member
from mutoscope.platform.catalog.calls import Call, PassedOver
from mutoscope.platform.catalog.catalog import Catalog
from mutoscope.platform.catalog.incidents import Incident
from mutoscope.platform.catalog.lineage import ArtifactNode, Edge, LineageGraph, WeightUse
from mutoscope.platform.catalog.members import Members
from mutoscope.platform.catalog.records import Enqueued, RenewResult, RunRecord, RunSpec, Standing
from mutoscope.platform.catalog.tree import render_tree
from mutoscope.platform.catalog.weights import WeightVersion
from mutoscope.platform.catalog.workers import WorkerInfo
from mutoscope.platform.catalog.workflows import WorkflowRecord

__all__ = [
    "ArtifactNode",
    "ArtifactRow",
    "Bulk",
    "Call",
    "Catalog",
    "Edge",
    "Enqueued",
    "Incident",
    "LineageGraph",
    "Member",
    "Members",
    "PassedOver",
    "RenewResult",
    "RunRecord",
    "RunSpec",
    "Standing",
    "WeightUse",
    "WeightVersion",
    "WorkerInfo",
    "WorkflowRecord",
    "render_tree",
]
