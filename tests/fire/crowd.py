"""A crowd of runs in the queue: lone runs of the test card that no workflow asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.orchestration.plan import Origin, plan_run, spec_of
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.settings import Settings
from tests.fire.site import BUCKET, CARD_ORIGIN, LEASE_S, Site
from tests.support.platform import cards_registered
from tests.support.tinycard.card import CARD


@dataclass(frozen=True)
class Crowd:
    """Runs of the seeds `seeds`, all with the same parameters."""

    site: Site
    ids: dict[int, str]
    """Run id by seed."""

    @classmethod
    def queue(cls, site: Site, seeds: Iterable[int], **parameters: Any) -> Crowd:
        """Queue one run per seed."""
        with pytest.MonkeyPatch.context() as patch, cards_registered(patch, CARD_ORIGIN):
            runtime = _runtime(site)
            plan = plan_run(runtime, CARD.id, parameters, seed=0)
            assert plan.key_parts is not None
            ids = {}
            for seed in seeds:
                spec = spec_of(runtime, {**plan.key_parts, "seed": seed}, {}, Origin())
                ids[seed] = site.catalog.runs.enqueue(spec, present=site.store.contains).run.id
        return cls(site, ids)

    def runs(self) -> list[RunRecord]:
        return list(self.site.catalog.runs.get_many(list(self.ids.values())).values())

    def states(self) -> Counter[str]:
        """How many are in each state."""
        return Counter(run.state for run in self.runs())

    def computed(self) -> Counter[int]:
        """How often each was computed, by seed, as the card itself noted."""
        seeds = (int(line.split()[0]) for line in self.site.journal.read_text().splitlines())
        return Counter(seed for seed in seeds if seed in self.ids)

    def computed_again(self, allowed: Collection[str]) -> dict[int, int]:
        """Seeds computed more than once, those of the allowed runs left out."""
        return {s: times for s, times in self.computed().items() if times > 1 and self.ids[s] not in allowed}


def _runtime(site: Site) -> Runtime:
    home: Path = site.control.home
    settings = Settings(
        home=home, database_url=site.database_url, store_url=f"s3://{BUCKET}", lease_seconds=LEASE_S
    )
    return Runtime(settings, site.catalog, site.store)
