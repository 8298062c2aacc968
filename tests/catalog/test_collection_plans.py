"""The collector's questions are asked for every page and batch of a large catalog: none reads a whole table,
but for those that stay small."""

from __future__ import annotations

import itertools

import pytest
from sqlalchemy import text

from mutoscope.platform.catalog import Catalog, Member
from mutoscope.platform.catalog.reachability import Policy
from tests.support import big, plans

SMALL = ("pins", "leases", "retention_rules", "weight_aliases", "collections", "identity", "newest")
"""Some rows for each thing that people name. Aliases are read through their index, newest rows alone."""
DAY = 86_400.0


@pytest.fixture
def told(catalog: Catalog) -> big.History:
    """A history, with the statistics that the database keeps of it."""
    made = big.history(catalog, big.Shape(steps=4, prompts=25, samples=8))
    with catalog.bulk() as bulk:
        bulk.members(Member(one, "next", other) for one, other in itertools.pairwise(made.images))
    for _ in range(300):
        within = catalog.workflows.start("rl.rollout", {})
        catalog.workflows.finish(within, "succeeded")
    with catalog._database.write() as connection:
        connection.execute(
            text("insert into calls (run_id, disposition, created_at) select id, 'new', created_at from runs")
        )
    plans.analyse(catalog)
    return made


def test_no_page_and_no_batch_reads_a_whole_table(catalog: Catalog, told: big.History) -> None:
    catalog.retention.add("images", DAY, kind="image")
    catalog.retention.add("rollouts", DAY, workflow="rl.rollout")
    catalog.pins.add(told.versions[1], "one", with_inputs=True)
    policy = Policy(tuple(catalog.retention.list()), catalog.reachability.now())
    record = catalog.collections.begin("me", 0.0)
    with plans.watched(catalog) as seen:
        page = catalog.reachability.scan(policy, limit=50)
        assert page.suspects
        digests = [suspect.digest for suspect in page.suspects]
        catalog.reachability.containers(digests)
        catalog.reachability.recipes(digests)
        assert sum(len(part) for part in catalog.reachability.inputs_of_pins()) > 10
        buried = catalog.tombstones.bury(record, "me", policy, digests)
        assert buried
        catalog.tombstones.settle(record, "me", buried)
        catalog.tombstones.unsettle(record, "me", buried)
        catalog.tombstones.judge(record, "me", buried, 0.0)
        catalog.tombstones.states(digests)
        catalog.tombstones.writer_age()
        catalog.reasons.of(told.images[0], policy.rules)
    assert len(seen.scans) > 20
    bad = {
        statement: [step for step in steps if not any(name in step for name in SMALL)]
        for statement, steps in seen.bad.items()
    }
    assert {statement: steps for statement, steps in bad.items() if steps} == {}
