"""What the processes do that race for the pool: serve it, cancel under it, find what is silent in it."""

from __future__ import annotations

from collections.abc import Sequence

from mutoscope.platform.catalog import Catalog, RunRecord
from mutoscope.platform.ids import new_id
from tests.support.records import CONTRACT, LEASE, a_spec, absent, an_artifact


def serve(url: str, cards: Sequence[str], slots: int) -> int:
    """Work off the queue as a worker with so many slots does, holding on to as many runs as it can get;
    returns how many it finished."""
    catalog, worker, finished = Catalog.open(url), new_id(), 0
    watch, held = catalog.watch(), list[RunRecord]()
    while held or catalog.pool.depths():
        busy = [run.workflow_run_id for run in held if run.workflow_run_id]
        claimed = catalog.runs.claim(
            worker, dict.fromkeys(cards, CONTRACT), LEASE, slots - len(held), busy=busy, resident=()
        )
        held += claimed
        if held and (len(held) == slots or not claimed):
            run = held.pop(0)
            catalog.runs.succeed(run.id, worker, {"image": an_artifact(str(run.memo_key))})
            finished += 1
        elif not held:
            watch.wait(0.05)
    watch.close()
    catalog.close()
    return finished


def flow(url: str, root: str, keys: Sequence[str]) -> list[str]:
    """Start workflow runs below `root` and ask for runs in each, until one is told to stop; then let go of
    what was asked for last, as a process does that is cancelled. Returns the workflow runs."""
    catalog, holder, mine = Catalog.open(url), new_id(), list[str]()
    while True:
        child = catalog.workflows.start("test.child", {}, root, holder=holder, lease_seconds=LEASE)
        mine.append(child)
        calls = [
            catalog.runs.enqueue(a_spec(key, workflow_run_id=child), present=absent).call for key in keys
        ]
        if catalog.workflows.renew([child], holder, LEASE).cancelled:
            for call in calls:
                catalog.runs.withdraw(call)
            catalog.close()
            return mine


def cancel_after(url: str, root: str, count: int) -> list[str]:
    """Cancel `root` once that many workflow runs were started below it; returns what was under way."""
    catalog = Catalog.open(url)
    watch = catalog.watch()
    while len(catalog.workflows.list(parent_id=root, limit=count)) < count:
        watch.wait(0.02)
    stopped = catalog.workflows.request_cancel(root)
    watch.close()
    catalog.close()
    return stopped


def take_silent(url: str) -> list[str]:
    """Declare crashed whatever is silent; returns what this process got."""
    catalog, taken = Catalog.open(url), list[str]()
    while expired := catalog.workflows.expired(limit=5):
        for record in expired:
            if catalog.workflows.take_expired(record.id, {"message": "silent"}) is not None:
                taken.append(record.id)
    catalog.close()
    return taken
