"""What catalog, store and the workers' journal say about the runs of a load: none lost, none twice."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from tests.support.tinycard.card import CARD

FIRST_SEED = 1_000_000
"""Workers rehearse with small seeds, which the journal tells of too."""


def account(catalog: Catalog, store: ArtifactStore, journal: Path, wanted: int) -> dict[str, Any]:
    """The figures of a load of `wanted` runs with the seeds from `FIRST_SEED` on."""
    seeds_wanted = range(FIRST_SEED, FIRST_SEED + wanted)
    runs = [r for r in catalog.runs.list(card=CARD.id, limit=10 * wanted) if r.seed in seeds_wanted]
    succeeded = [run for run in runs if run.state == "succeeded"]
    seeds = Counter(run.seed for run in succeeded)
    computed = Counter(int(line.split()[0]) for line in journal.read_text().splitlines())
    outputs = {run.id: catalog.runs.outputs(run.id) for run in succeeded}
    stored = set(store.digests())
    absent = [ref for refs in outputs.values() for ref in refs.values() if ref.digest not in stored]
    queued = sorted(run.started_at - run.created_at for run in succeeded if run.started_at)
    whole = sorted(run.finished_at - run.created_at for run in succeeded if run.finished_at)
    first = min(run.created_at for run in runs)
    last = max(run.finished_at or 0.0 for run in runs)
    return {
        "runs": len(runs),
        "succeeded": len(succeeded),
        "lost": len(set(seeds_wanted) - set(seeds)),
        "duplicated": sum(count - 1 for count in seeds.values()),
        "computed_again": sum(computed[seed] - 1 for seed in seeds),
        "taken_more_than_once": sum(run.attempt > 1 for run in runs),
        "without_two_outputs": sum(len(refs) != 2 for refs in outputs.values()),
        "outputs_not_in_the_store": len(absent),
        "incidents": len(catalog.incidents.list()),
        "seconds": last - first,
        "runs_per_second": len(succeeded) / (last - first),
        "queue_ms": quantiles(queued),
        "queued_to_done_ms": quantiles(whole),
    }


def is_sound(found: dict[str, Any], wanted: int) -> bool:
    """Whether nothing was lost, computed twice or left without its bytes."""
    wrong = (
        "lost",
        "duplicated",
        "computed_again",
        "without_two_outputs",
        "outputs_not_in_the_store",
        "incidents",
    )
    return found["succeeded"] == wanted and not any(found[name] for name in wrong)


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile in ms."""
    cuts = statistics.quantiles(seconds, n=100)
    return {name: round(cuts[at - 1] * 1e3, 2) for name, at in (("p50", 50), ("p95", 95), ("p99", 99))}
