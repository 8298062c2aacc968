"""SQLite's walk by generations finds what the recursive statement finds, on graphs of every shape."""

from __future__ import annotations

import itertools
import random

import pytest

from mutoscope.platform.catalog import ArtifactRow, Catalog, Edge, Member, breadth, closure
from mutoscope.platform.catalog.closure import Way
from tests.support import big
from tests.support.records import an_artifact

REFS = [an_artifact(f"node {n}", "weights" if n % 5 == 0 else "blob") for n in range(30)]
WAYS = [
    Way(down, limited, history, containers)
    for down, limited, history, containers in itertools.product((False, True), repeat=4)
    if history or not down
]


def scatter(catalog: Catalog, seed: int) -> None:
    """Runs that use and make artifacts at random: shared inputs, cycles, containers of containers."""
    draw = random.Random(seed)
    runs = [big.a_run("step", float(n)) for n in range(25)]
    edges = [
        Edge(run.id, direction, draw.choice(("item", "weights:net")), position, draw.choice(REFS).digest)
        for run in runs
        for direction in ("used", "generated")
        for position in range(draw.randrange(4))
    ]
    members = [Member(draw.choice(REFS).digest, f"part {n}", draw.choice(REFS).digest) for n in range(12)]
    with catalog.bulk() as bulk:
        bulk.artifacts(ArtifactRow(ref) for ref in REFS)
        bulk.runs(runs)
        bulk.edges(edges)
        bulk.members(members)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("chunk", [1, 2_000])
def test_both_walks_agree(
    sqlite_catalog: Catalog, monkeypatch: pytest.MonkeyPatch, seed: int, chunk: int
) -> None:
    monkeypatch.setattr(breadth, "_CHUNK", chunk)
    scatter(sqlite_catalog, seed)
    sizes = set()
    with sqlite_catalog._database.read() as connection:
        for way, ref, hops in itertools.product(WAYS, REFS[::3], (1, 2, 5)):
            parameters = {"root": ref.digest, **({"hops": hops} if way.limited else {})}
            recursive = set(connection.execute(closure.ids(way, lateral=False), parameters).scalars())
            artifacts, runs = breadth.reached(connection, ref.digest, way, hops if way.limited else None)
            assert artifacts | runs == recursive, (way, ref, hops)
            assert all(closure.is_run(node) for node in runs)
            sizes.add(len(recursive))
    assert len(sizes) > 10, "walks of many sizes were compared"
