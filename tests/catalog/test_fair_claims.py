"""Whose run is claimed next when several workflow runs wait: a long queue keeps nobody out."""

from __future__ import annotations

from mutoscope.platform.catalog import Catalog
from tests.support import plans
from tests.support.records import LEASE, SERVES, queue


def workflow(catalog: Catalog) -> str:
    return catalog.workflows.start("test.make", {})


def queued(catalog: Catalog, name: str, of: str | None, count: int = 1, priority: int = 0) -> list[str]:
    """Ids of new runs of a workflow run."""
    return [queue(catalog, f"{name} {n}", workflow_run_id=of, priority=priority).id for n in range(count)]


def claimed(catalog: Catalog, limit: int, busy: tuple[str, ...] = ()) -> list[str]:
    return [run.id for run in catalog.runs.claim("worker-a", SERVES, LEASE, limit, busy=busy)]


def test_a_workflow_that_is_not_served_goes_before_the_rest_of_a_long_queue(any_catalog: Catalog) -> None:
    long, late = workflow(any_catalog), workflow(any_catalog)
    many = queued(any_catalog, "many", long, 6)
    (one,) = queued(any_catalog, "one", late)
    (single,) = queued(any_catalog, "single", None)
    assert claimed(any_catalog, 1) == many[:1]
    assert claimed(any_catalog, 1, (long,)) == [one]
    assert claimed(any_catalog, 1, (long, late)) == [single]  # who belongs to nobody is never passed over
    assert claimed(any_catalog, 1, (long, late)) == many[1:2]  # nobody else waits


def test_what_is_taken_together_is_taken_in_turns(any_catalog: Catalog) -> None:
    first, second = workflow(any_catalog), workflow(any_catalog)
    of_first, of_second = queued(any_catalog, "a", first, 3), queued(any_catalog, "b", second, 3)
    assert claimed(any_catalog, 3) == [of_first[0], of_second[0], of_first[1]]


def test_priority_comes_before_fairness(any_catalog: Catalog) -> None:
    urgent, other = workflow(any_catalog), workflow(any_catalog)
    of_urgent = queued(any_catalog, "urgent", urgent, 2, priority=1)
    of_other = queued(any_catalog, "other", other, 1)
    assert claimed(any_catalog, 3) == [*of_urgent, *of_other]


def test_a_cancelled_run_among_those_that_wait_is_settled_and_no_turn(any_catalog: Catalog) -> None:
    first, second = workflow(any_catalog), workflow(any_catalog)
    (a,), (b, c) = queued(any_catalog, "a", first), queued(any_catalog, "b", second, 2)
    any_catalog.runs.request_cancel(b)
    assert claimed(any_catalog, 5) == [a, c]
    assert claimed(any_catalog, 5) == []


def test_the_queue_is_read_in_its_order_and_never_sorted(any_catalog: Catalog) -> None:
    long, late = workflow(any_catalog), workflow(any_catalog)
    queued(any_catalog, "many", long, 30)
    (one,) = queued(any_catalog, "one", late)
    with plans.watched(any_catalog) as seen:
        assert claimed(any_catalog, 1, (long,)) == [one]
    assert seen.bad == {}
