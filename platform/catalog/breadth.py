"""The walk of `closure` on SQLite, one generation of nodes at a time.

SQLite's recursive statement remembers what it has seen in a B-tree of texts, and spends three quarters of a
large walk there. A set of Python's does the same in a tenth of the time, and nodes asked for in order are
found next to each other in the index: 2.5 times as fast at a hundred thousand nodes. Postgres remembers in a
hash table, and a question costs it a trip over the network: it keeps the recursive statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from mutoscope.platform.batches import batched
from mutoscope.platform.catalog.closure import Way
from mutoscope.platform.catalog.records import WEIGHTS_ROLE

_CHUNK = 2_000
"""Nodes per statement: a statement's own cost vanishes, its list of ids stays small."""

_RUNS = (
    "select e.run_id from json_each(?) n cross join edges e "
    "where e.artifact_digest = n.value and e.direction = '{direction}'"
)
_ARTIFACTS = (
    "select e.artifact_digest from json_each(?) n cross join edges e "
    "where e.run_id = n.value and e.direction = '{direction}'"
)
_NO_WEIGHTS = f" and substr(e.role, 1, {len(WEIGHTS_ROLE)}) <> '{WEIGHTS_ROLE}'"
_CONTAINERS = "select m.container from json_each(?) n cross join members m where m.artifact_digest = n.value"


def reached(connection: Connection, root: str, way: Way, hops: int | None) -> tuple[set[str], set[str]]:
    """Digests and ids of runs of the closure of `root`, its own among them; see `closure.ids`."""
    driver: Any = connection.connection.driver_connection
    to_runs = _RUNS.format(direction="used" if way.down else "generated")
    to_artifacts = _ARTIFACTS.format(direction="generated" if way.down else "used")
    if not way.history and not way.down:
        to_artifacts += _NO_WEIGHTS
    artifacts, runs = {root}, set[str]()
    new_artifacts, new_runs, hop = {root}, set[str](), 0
    while (new_artifacts or new_runs) and (hops is None or hop < hops):
        found = _beyond(driver, to_artifacts, new_runs)
        if way.containers:
            found |= _beyond(driver, _CONTAINERS, new_artifacts)
        new_runs = _beyond(driver, to_runs, new_artifacts) - runs
        new_artifacts = found - artifacts
        artifacts |= new_artifacts
        runs |= new_runs
        hop += 1
    return artifacts, runs


def _beyond(driver: Any, statement: str, nodes: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for chunk in batched(sorted(nodes), _CHUNK):
        found.update(chain.from_iterable(driver.execute(statement, (json.dumps(chunk),))))
    return found
