"""What is done to a site while a film is under way, each with the proof that it was done to work under way.

A fault strikes, waits until what it interrupted is under way again, and says how long that took. It never
helps: whatever mends the site is the site's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import psutil

from mutoscope.platform.catalog import RunRecord
from tests.fire.film import PATIENCE_S, Film
from tests.fire.hosts import Host
from tests.fire.site import Site
from tests.support.deadline import until
from tests.support.tinycard.card import CARD

_LOOK_S = 0.1
OUTAGE_S = 30.0
"""How long the store is away: the outage that the platform promises to sit out."""


@dataclass(frozen=True)
class Struck:
    """A fault that has struck and been recovered from.

    Attributes:
        done, running: engine runs of the film at that moment.
        taken: ids of the runs whose worker was taken from them, which alone may be computed again.
        recovery_seconds: from the strike, or from the end of an outage, until work went on.
        facts: what else a reader of the report wants to know.
    """

    done: int
    running: int
    taken: frozenset[str]
    recovery_seconds: float
    facts: dict[str, Any] = field(default_factory=dict)


Fault = Callable[[Site, Film], Struck]


def worker_killed(site: Site, film: Film) -> Struck:
    """SIGKILL to a GPU worker that holds runs."""
    held = film.at_work()
    host, name, worker = _holder_of(site, held)
    at = time.monotonic()
    pid = host.kill(name)
    done, taken = film.done(), {run.id for run in film.running() if run.worker == worker}
    assert taken, "the worker held nothing when it died"

    def taken_over() -> bool:
        return all(run.finished or run.worker != worker for run in _runs(site, taken))

    _until(taken_over, "the dead worker's runs are taken over")
    recovery = time.monotonic() - at
    _until(lambda: len(_alive(site)) == 3, "the worker is replaced")
    facts = {"pid": pid, "host": host.name, "replaced_after_seconds": round(time.monotonic() - at, 2)}
    return Struck(done, len(held), frozenset(taken), recovery, facts)


def flow_killed(site: Site, film: Film) -> Struck:
    """SIGKILL to the process in which the film's workflows run."""
    held = film.at_work()
    host, flow = _flow_of(site, film)
    before = film.row
    assert before is not None
    at = time.monotonic()
    flow.kill()
    _until(lambda: not flow.is_running() or flow.status() == psutil.STATUS_ZOMBIE, "death of the flow")
    done = film.done()

    def put_back() -> bool:
        return site.api(f"/flow_runs/{film.flow_run_id}")["state"]["type"] == "SCHEDULED"

    def goes_on() -> bool:
        row = film.row
        return row is not None and row.attempt > before.attempt and row.state != "crashed"

    _until(lambda: put_back() or goes_on(), "the film is put back on the pool")
    noticed = time.monotonic() - at
    _until(goes_on, "another process has taken the film on")
    facts = {"pid": flow.pid, "host": host.name, "put_back_after_seconds": round(noticed, 2)}
    return Struck(done, len(held), frozenset(), time.monotonic() - at, facts)


def pool_killed(site: Site, film: Film) -> Struck:
    """SIGKILL to the worker of the flow pool that started the film."""
    held = film.at_work()
    host, flow = _flow_of(site, film)
    heard = _pool_heard(site, host)
    at = time.monotonic()
    pid = host.kill("flow-pool")
    done = film.done()
    _until(lambda: _pool_heard(site, host) != heard, "the pool's new worker reports")
    recovery = time.monotonic() - at
    facts = {"pid": pid, "host": host.name, "flow_outlived_it": flow.is_running()}
    return Struck(done, len(held), frozenset(), recovery, facts)


def prefect_killed(site: Site, film: Film) -> Struck:
    """SIGKILL to the Prefect server."""
    held = film.at_work()
    at = time.monotonic()
    pid = site.control.kill("prefect-server")
    done = film.done()
    _until(lambda: _answers(site), "the Prefect server answers again")
    return Struck(done, len(held), frozenset(), time.monotonic() - at, {"pid": pid})


def postgres_restarted(site: Site, film: Film) -> Struck:
    """Postgres, which keeps the catalog and Prefect's database, ends and comes back."""
    held = film.at_work()
    began, done = time.monotonic(), film.done()
    site.postgres.restart()
    back = time.monotonic()
    _progress(film, done)
    facts = {"outage_seconds": round(back - began, 2)}
    return Struck(done, len(held), frozenset(), time.monotonic() - back, facts)


def store_away(site: Site, film: Film) -> Struck:
    """The S3 server dies, and is back after `OUTAGE_S`."""
    held = film.at_work()
    site.s3.kill()
    done = film.done()
    Event().wait(OUTAGE_S)  # the outage is a length of time, not a wait for something
    assert not any(run.state == "failed" for run in film.runs())
    site.s3.start()
    back, during = time.monotonic(), film.done()
    _progress(film, during)
    facts = {"outage_seconds": OUTAGE_S, "runs_done_meanwhile": during - done}
    return Struck(done, len(held), frozenset(), time.monotonic() - back, facts)


def flow_host_cut(site: Site, film: Film) -> Struck:
    """The network of the host on which the film's workflows run is cut, for longer than a lease."""
    film.at_work()
    host, _ = _flow_of(site, film)
    return _cut(site, film, host)


def other_host_cut(site: Site, film: Film) -> Struck:
    """The network of the host on which they do not run is cut, for longer than a lease."""
    film.at_work()
    host, _ = _flow_of(site, film)
    return _cut(site, film, next(other for other in site.away if other is not host))


FAULTS: tuple[Fault, ...] = (
    worker_killed,
    flow_killed,
    pool_killed,
    prefect_killed,
    postgres_restarted,
    store_away,
    flow_host_cut,
    other_host_cut,
)


def _until(probe: Callable[[], object], what: str) -> None:
    until(probe, what, seconds=PATIENCE_S, every=_LOOK_S)


def _cut(site: Site, film: Film, host: Host) -> Struck:
    """Silence one host until the other has all of its work; then give it the network back."""
    assert host.link is not None
    workers = _workers_of(site, host)
    before = film.row
    assert before is not None
    running_flow = _flow_of(site, film)[0] is host
    at = time.monotonic()
    host.link.cut()
    # What was under way in the servers when the cable was pulled may still have been done.
    taken = {run.id for run in film.running() if run.worker in workers}
    done, running = film.done(), len(film.running())
    passed = host.link.passed

    def taken_over() -> bool:
        row = film.row
        assert row is not None
        return all(run.finished or run.worker not in workers for run in _runs(site, taken)) and (
            not running_flow or row.attempt > before.attempt
        )

    _until(taken_over, f"the other host has taken over from {host.name}")
    recovery = time.monotonic() - at
    assert dict(host.link.passed) == dict(passed), "the cut was not one"
    host.link.mend()
    mended = time.monotonic()
    _until(
        lambda: workers <= {worker.id for worker in _alive(site)} or len(_alive(site)) == 3,
        f"the workers of {host.name} are back",
    )
    facts = {
        "host": host.name,
        "held_runs": len(taken),
        "ran_the_flow": running_flow,
        "back_after_seconds": round(time.monotonic() - mended, 2),
    }
    return Struck(done, running, frozenset(taken), recovery, facts)


def _holder_of(site: Site, held: Iterable[RunRecord]) -> tuple[Host, str, str]:
    """Host, service and id of the worker that holds most of these runs."""
    owners = [run.worker for run in held if run.worker]
    worker = max(set(owners), key=owners.count)
    pid = next(info.pid for info in site.catalog.workers.list() if info.id == worker)
    for host in site.away:
        for child in host.supervisor.children:
            if child.process is not None and child.process.pid == pid:
                return host, child.name, worker
    raise AssertionError(f"worker {worker} (pid {pid}) runs on no host")


def _flow_of(site: Site, film: Film) -> tuple[Host, psutil.Process]:
    """Host and process that the film's rows name as their holder."""
    row = film.row
    assert row is not None
    assert row.holder is not None
    pid = int(row.holder.rpartition(":")[2])
    for host in site.away:
        for flow in host.flows():
            if flow.pid == pid:
                return host, flow
    raise AssertionError(f"the film's holder {row.holder} runs on no host{site.logs()}")


def _workers_of(site: Site, host: Host) -> set[str]:
    pids = {process.pid for process in host.processes()}
    return {worker.id for worker in _alive(site) if worker.pid in pids}


def _alive(site: Site) -> list[Any]:
    workers = site.catalog.workers.alive(CARD.id, within_seconds=site.lease_seconds)
    return [worker for worker in workers if worker.state == "ready"]


def _runs(site: Site, run_ids: Iterable[str]) -> Iterable[RunRecord]:
    return site.catalog.runs.get_many(list(run_ids)).values()


def _progress(film: Film, since: int) -> None:
    _until(lambda: film.done() > since, "a run of the film ends")


def _answers(site: Site) -> bool:
    try:
        site.api("/health")
    except (OSError, ValueError):
        return False
    return True


def _pool_heard(site: Site, host: Host) -> str | None:
    """When the Prefect server last heard of the host's pool worker."""
    workers = site.api("/work_pools/mutoscope/workers/filter", {})
    return next((worker["last_heartbeat_time"] for worker in workers if worker["name"] == host.name), None)
