"""Which weights made an artifact, and which run used each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, select

from mutoscope.platform.catalog.closure import OF_WEIGHTS, Way, ids, is_run
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.records import WEIGHTS_ROLE
from mutoscope.platform.catalog.tables import artifacts, edges, runs, weight_versions
from mutoscope.platform.catalog.weights import VERSION_COLUMNS, WeightVersion


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A run's pinned component: which bytes, and every name they have.

    Attributes:
        versions: the names, oldest first; empty for bytes that were never published.
        present: False where the bytes were collected.
    """

    run_id: str
    card: str | None
    component: str
    digest: str
    versions: tuple[WeightVersion, ...]
    present: bool = True


def read(
    connection: Connection, way: Way, parameters: Mapping[str, Any], *, lateral: bool
) -> list[WeightUse]:
    """The uses along a way upwards; newest run first, then by component."""
    # Two statements rather than one: a planner that knows no numbers may start a join from all edges there
    # are instead of from the handful of runs.
    run_ids = [
        node for node in connection.execute(ids(way, lateral=lateral), parameters).scalars() if is_run(node)
    ]
    found: dict[tuple[str, str], WeightUse] = {}
    for run_id, role, digest, card, state, *version in by_keys(connection, _USES, run_ids):
        earlier = found.get((run_id, role))
        versions = earlier.versions if earlier else ()
        if version[0] is not None:
            versions = (*versions, WeightVersion(*version))
        component = role.removeprefix(WEIGHTS_ROLE)
        found[run_id, role] = WeightUse(run_id, card, component, digest, versions, state == "present")
    by_role = sorted(found.values(), key=attrgetter("component"))
    return sorted(by_role, key=attrgetter("run_id"), reverse=True)


_USES = (
    select(
        edges.c.run_id,
        edges.c.role,
        edges.c.artifact_digest,
        runs.c.card,
        artifacts.c.state,
        *VERSION_COLUMNS,
    )
    .join(runs, runs.c.id == edges.c.run_id)
    .join(artifacts, artifacts.c.digest == edges.c.artifact_digest)
    .outerjoin(weight_versions, weight_versions.c.artifact_digest == edges.c.artifact_digest)
    .where(edges.c.run_id.in_(KEYS), edges.c.direction == "used", OF_WEIGHTS)
    .order_by(edges.c.run_id, edges.c.role, weight_versions.c.created_at, weight_versions.c.id)
)
