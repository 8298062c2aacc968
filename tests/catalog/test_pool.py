"""The pool at a glance, and what an operator asks of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mutoscope.platform.catalog import Catalog, WorkerInfo, weights_key
from mutoscope.platform.catalog.scaling import workers_wanted
from mutoscope.platform.errors import AmbiguousReference, NoWorker, UnknownReference
from tests.support import big, plans
from tests.support.records import CARD, LEASE, SERVES, an_artifact, claim, make, queue

OTHER = "other-card"


def serve(catalog: Catalog, name: str, facts: Mapping[str, Any], state: str = "ready", **more: int) -> None:
    """Register a worker of `CARD`, and what it says of itself."""
    catalog.workers.register(WorkerInfo(name, "here", 7, "cpu", {CARD: facts}, state, **more))  # type: ignore[arg-type]


def test_depths_tell_what_waits_and_runs(catalog: Catalog) -> None:
    assert catalog.pool.depths() == {}
    for n in range(3):
        queue(catalog, f"{n}")
    queue(catalog, "other", card=OTHER)
    catalog.runs.claim("worker-a", SERVES, LEASE, 2)
    depths = catalog.pool.depths()
    assert {card: (depth.queued, depth.running) for card, depth in depths.items()} == {
        CARD: (1, 2),
        OTHER: (1, 0),
    }
    assert depths[OTHER].oldest_seconds is not None
    assert depths[CARD].oldest_seconds is not None
    assert depths[CARD].oldest_seconds > depths[OTHER].oldest_seconds >= 0


def test_rates_tell_what_ended_lately(catalog: Catalog) -> None:
    big.finished_runs(catalog, 3)  # long ago
    ended = [make(catalog, name, {"image": an_artifact(name)}) for name in ("1", "2")]
    failed = queue(catalog, "3")
    claim(catalog)
    catalog.runs.fail(failed.id, "worker-a", {"message": "no"})
    catalog.runs.record_completed("import", generated={"image": an_artifact("1")}, card=CARD)
    (rate,) = catalog.pool.rates(600.0).values()
    assert (rate.per_minute, rate.failed) == (0.2, 1), "two in ten minutes"
    taken = [(run.finished_at or 0) - (run.started_at or 0) for run in ended]
    assert rate.seconds == pytest.approx(sum(taken) / 2, abs=1e-5)


def test_a_report_names_resident_weights_and_counts_what_workers_said(catalog: Catalog) -> None:
    nets = [an_artifact(f"net {n}", "weights") for n in range(3)]
    heads = [an_artifact(f"head {n}", "weights") for n in range(2)]
    catalog.artifacts.record_many([*nets, *heads])
    for net in nets[:2]:
        catalog.weights.publish(CARD, "net", net.digest)
    catalog.weights.publish(CARD, "head", heads[0].digest)
    catalog.weights.publish(CARD, "neck", heads[1].digest)
    sets = [
        {"net": nets[0].digest, "head": heads[0].digest},
        {"net": nets[1].digest, "head": heads[0].digest, "neck": heads[1].digest},
        {"net": nets[2].digest},
    ]
    facts = {
        "resident": {str(weights_key(CARD, one)): one for one in sets},
        "bytes": 30,
        "running": 1,
        "finished": 5,
    }
    serve(catalog, "worker-a", facts, memory_bytes=100)
    serve(catalog, "worker-b", {}, state="draining")
    serve(catalog, "worker-c", {}, state="stopped")
    catalog.workers.ask("worker-a", load=[CARD])
    first, second = catalog.pool.report().workers
    assert [str(one) for one in first.resident] == [
        f"{CARD}@1",
        f"{CARD}@1 +net@2",
        f"{CARD} {nets[2].digest[:12]}",
    ]
    assert (first.bytes, first.memory_bytes, first.running, first.finished) == (30, 100, 1, 5)
    assert first.asked == {"serial": 1, "load": [CARD], "unload": [], "drain": False}
    assert (second.id, second.state, second.asked) == ("worker-b", "draining", None)


def test_a_report_has_a_line_for_every_card_that_matters(catalog: Catalog) -> None:
    serve(catalog, "worker-a", {})
    serve(catalog, "worker-b", {}, state="draining")
    queue(catalog, "1", card=OTHER)
    catalog.queues.pause("third-card", "broken")
    catalog.queues.limit("third-card", 2)
    other, third, toy = catalog.pool.report().cards
    assert (other.card, other.queued, other.serving, other.wanted) == (OTHER, 1, 0, 1)
    assert (third.card, third.paused, third.note, third.most_running) == ("third-card", True, "broken", 2)
    assert (toy.card, toy.queued, toy.serving, toy.wanted) == (CARD, 0, 1, 0), "one that drains takes no run"


def test_how_long_a_slow_card_takes_is_told_by_the_runs_before(catalog: Catalog) -> None:
    run = make(catalog, "1", {"image": an_artifact("1")})
    with catalog._database.write() as connection:
        connection.exec_driver_sql(
            f"update runs set started_at = started_at - 1000, finished_at = finished_at - 600 "
            f"where id = '{run.id}'"
        )
    assert catalog.pool.rates() == {}
    queue(catalog, "2")
    (line,) = catalog.pool.report().cards
    assert line.seconds == pytest.approx(400, abs=5)
    assert (line.per_minute, line.wanted) == (0.0, 1)


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({"queued": 0, "running": 0, "serving": 3, "seconds": 2.0}, 0),
        ({"queued": 0, "running": 1, "serving": 3, "seconds": 2.0}, 1),
        # 100 runs of 12 s, one at a time each, in 60 s: 100 * 12 / 60
        ({"queued": 98, "running": 2, "serving": 2, "seconds": 12.0}, 20),
        # four at a time each: a quarter of that
        ({"queued": 92, "running": 8, "serving": 2, "seconds": 12.0}, 5),
        # no more than there are runs
        ({"queued": 3, "running": 0, "serving": 0, "seconds": 600.0}, 3),
        # a limit of 2 bounds what more workers could do
        ({"queued": 98, "running": 2, "serving": 2, "seconds": 600.0, "most_running": 2}, 2),
        ({"queued": 98, "running": 0, "serving": 2, "seconds": 600.0, "most_running": 0}, 0),
        # paused: what runs is finished, what waits does not count
        ({"queued": 98, "running": 2, "serving": 2, "seconds": 600.0, "paused": True}, 2),
        ({"queued": 98, "running": 0, "serving": 2, "seconds": 600.0, "paused": True}, 0),
        # nothing measured yet: those that are there, or one
        ({"queued": 9, "running": 0, "serving": 0, "seconds": None}, 1),
        ({"queued": 9, "running": 3, "serving": 3, "seconds": None}, 3),
        ({"queued": 1, "running": 0, "serving": 3, "seconds": None}, 1),
    ],
)
def test_the_hint_is_depth_times_measured_seconds(facts: dict[str, object], wanted: int) -> None:
    assert workers_wanted(**facts) == wanted  # type: ignore[arg-type]


def test_a_worker_hears_what_it_is_asked_until_it_has_done_it(catalog: Catalog) -> None:
    serve(catalog, "worker-a", {})
    assert catalog.workers.heartbeat("worker-a") is None
    first = catalog.workers.ask("worker-a", load=["a", "b"], unload=["c"])
    assert catalog.workers.heartbeat("worker-a") == first
    second = catalog.workers.ask("worker-a", load=["c"], unload=["b"], drain=True)
    assert (second.serial, second.load, second.unload, second.drain) == (2, ("a", "c"), ("b",), True)
    assert catalog.workers.heartbeat("worker-a", done_serial=1) == second, "asked meanwhile, so not done"
    assert catalog.workers.heartbeat("worker-a", done_serial=2, memory_bytes=5) is None
    third = catalog.workers.ask("worker-a", load=["d"])
    assert (third.serial, third.load, third.drain) == (3, ("d",), False), "what is done is not asked again"
    (info,) = catalog.workers.alive()
    assert (info.wanted, info.done_serial, info.memory_bytes) == (third, 2, 5)
    with pytest.raises(UnknownReference, match="mutoscope pool"):
        catalog.workers.ask("nobody", drain=True)


def test_a_worker_is_named_by_either_end_of_its_id(catalog: Catalog) -> None:
    with pytest.raises(NoWorker, match="mutoscope up"):
        catalog.workers.named()
    for name in ("0198-aaaa", "0198-bbbb"):
        serve(catalog, name, {})
    assert [worker.id for worker in catalog.workers.named("bbbb")] == ["0198-bbbb"]
    assert [worker.id for worker in catalog.workers.named("0198-a")] == ["0198-aaaa"]
    assert len(catalog.workers.named()) == 2
    with pytest.raises(AmbiguousReference, match="0198-aaaa"):
        catalog.workers.named("0198")
    with pytest.raises(UnknownReference, match="cccc"):
        catalog.workers.named("cccc")


def test_a_look_at_the_pool_reads_no_history(catalog: Catalog) -> None:
    big.finished_runs(catalog, 300)
    queue(catalog)
    serve(catalog, "worker-a", {"resident": {"key": {"net": "a" * 64}}})
    plans.analyse(catalog)
    with plans.watched(catalog) as seen:
        catalog.pool.report()
        catalog.workflows.expired()
        catalog.workflows.restartable()
    assert len(seen.scans) >= 7
    assert {statement for statement in seen.bad if "incidents" not in statement} == set()
