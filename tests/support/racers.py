"""What the processes of the race tests do.

They are forked from the server of `forked`, which has imported the catalog and opened nothing: as good as new
processes, in milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.fsck import Report, fsck
from mutoscope.platform.ids import new_id
from tests.support import forked  # noqa: F401  # sets up what the one fork server of a test process imports
from tests.support.records import LEASE, SERVES, a_spec, an_artifact, present

PATIENCE_S = 300.0


def race(target: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """Run `target` once per argument list, each in a process of its own, started together; their results.

    An exception in a process is raised here.
    """
    context = multiprocessing.get_context("forkserver")
    start, results = context.Barrier(len(arguments)), context.Queue()
    processes = [context.Process(target=_run, args=(target, given, start, results)) for given in arguments]
    for process in processes:
        process.start()
    try:
        outcomes = [results.get(timeout=PATIENCE_S) for _ in processes]
    finally:
        for process in processes:
            process.join(PATIENCE_S)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def _run(target: Callable[..., Any], arguments: Sequence[Any], start: Any, results: Queue[Any]) -> None:
    try:
        start.wait(PATIENCE_S)
        results.put(target(*arguments))
    except BaseException as error:
        results.put(RuntimeError(f"{type(error).__name__}: {error}"))


def killed_at(point: str, marker: Path, target: Callable[..., Any], *arguments: Any) -> None:
    """Run `target` in a process that kills itself at a fault point, and prove that it died there."""
    environment = {"MUTOSCOPE_FAULT": f"{point}:kill", "MUTOSCOPE_FAULT_MARKER": str(marker)}
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_with_environment, args=(environment, target, arguments))
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == -signal.SIGKILL, f"exit {process.exitcode}"
    assert marker.read_text() == f"{point}\n", "the fault must have fired"


def _with_environment(
    environment: Mapping[str, str], target: Callable[..., Any], arguments: Sequence[Any]
) -> None:
    os.environ.update(environment)  # read at the first fault point, which the server of forks has not passed
    target(*arguments)


def migrate(url: str) -> None:
    """Create the catalog, as every process of a stack might at its first start."""
    Catalog.migrate(url)
    Catalog.open(url).close()


def want_and_work(url: str, keys: Sequence[str]) -> dict[str, str]:
    """Be caller and worker at once: ask for every key until it is a hit, and work off what is queued.

    Returns:
        Key to the id of the run that answered it.
    """
    catalog, worker, answers = Catalog.open(url), new_id(), {}
    while len(answers) < len(keys):
        for key in keys:
            enqueued = catalog.runs.enqueue(a_spec(key), present=present)
            if enqueued.disposition == "hit":
                answers[key] = enqueued.run.id
        for run in catalog.runs.claim(worker, SERVES, LEASE, limit=2):
            catalog.runs.progress(run.id, worker, "denoise", 1, 2)
            assert not catalog.runs.renew(worker, [run.id], LEASE).lost
            catalog.runs.succeed(run.id, worker, {"image": an_artifact(str(run.memo_key))}, {})
    catalog.close()
    return answers


def claim_all(url: str, limit: int) -> list[str]:
    """Claim until nothing is left; returns the ids."""
    catalog, worker, claimed = Catalog.open(url), new_id(), []
    while runs := catalog.runs.claim(worker, SERVES, LEASE, limit=limit):
        claimed.extend(run.id for run in runs)
    catalog.close()
    return claimed


def publish_many(url: str, digests: Sequence[str]) -> list[int]:
    """Publish versions of one component; returns their ordinals."""
    catalog = Catalog.open(url)
    ordinals = [catalog.weights.publish("toy-card", "net", digest).ordinal for digest in digests]
    catalog.close()
    return ordinals


def repair(url: str, store_url: str) -> list[str]:
    """Check and repair; returns the codes of the faults that were left."""
    catalog, report = Catalog.open(url), Report()
    for _ in fsck(catalog, ArtifactStore.open(store_url), repair=True, report=report):
        pass
    catalog.close()
    return sorted(report.left)


def write_or_check(url: str, store_url: str, name: str, rounds: int) -> list[str]:
    """Store and record, the same few things again and again; or, named ``check``, repair what looks broken.
    Returns the faults that a check found."""
    catalog, store, found = Catalog.open(url), ArtifactStore.open(store_url), []
    for n in range(rounds):
        if name == "check":
            found += [
                one.finding.rule.code for one in fsck(catalog, store, repair=True) if one.finding.is_fault
            ]
            continue
        data = f"{name} {n % 7}".encode() * 50
        ref = store.put(data, kind="image", media_type="image/png")
        catalog.artifacts.record(ref)
        assert store.get(ref.digest) == data
    catalog.close()
    return found
