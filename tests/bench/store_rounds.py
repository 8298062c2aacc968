"""Rounds of `bench_store`: every store through the same work in turn, and what the rounds come to."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import peers, stores
from tests.bench.peers import StoreFailedError, StoreProcess

WORK = ("put", "duplicate", "get")
LEAST_ROUNDS = 2

Rounds = list[dict[str, dict[str, Any]]]
"""Per round: store to work to figures."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one table measures.

    Attributes:
        names: the stores, in the order of the first round.
        folder: empty; where the stores' folders are made.
        rounds: at most; fewer, though two at least, on a machine where they take longer than `budget_s`.
        size: bytes of an object.
        durable: whether a put must survive a power cut.
        budget_s: seconds after which no further round begins.
    """

    names: Sequence[str]
    folder: Path
    rounds: int
    objects: int
    size: int
    durable: bool = False
    budget_s: float = 60.0


def process(name: str) -> StoreProcess:
    return StoreProcess(name, peers.interpreter() if name in stores.PACKAGES else None)


@contextmanager
def running(names: Sequence[str]) -> Iterator[dict[str, StoreProcess]]:
    """A process per store."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(process(name)) for name in names}


def run(processes: Mapping[str, StoreProcess], plan: Plan) -> Rounds:
    """All rounds of a plan, whose order turns from round to round.

    One round goes before those that count: it fills what interpreters and file systems keep between calls.
    """
    names = [name for name in plan.names if name in processes]
    os.sync()  # nobody pays for what was written before
    figures: Rounds = []
    started = time.monotonic()
    for number in range(plan.rounds + 1):
        if len(figures) >= LEAST_ROUNDS and time.monotonic() - started > plan.budget_s:
            break
        turn = [*names[number % len(names) :], *names[: number % len(names)]]
        place = plan.folder / f"round-{number}"
        row = one_round(processes, plan, turn, place, seed=number)
        shutil.rmtree(place)
        if number:
            figures.append(row)
    return figures


def one_round(
    processes: Mapping[str, StoreProcess], plan: Plan, turn: Sequence[str], place: Path, seed: int
) -> dict[str, dict[str, Any]]:
    """Each kind of work by each store in turn, over fresh folders."""
    row: dict[str, dict[str, Any]] = {name: {} for name in turn}
    objects = {name: min(plan.objects, stores.AT_MOST.get(name, plan.objects)) for name in turn}
    for name in turn:
        folder = place / name.replace(" ", "-")
        folder.mkdir(parents=True)
        processes[name].ask(
            "open", folder=str(folder), durable=plan.durable, objects=objects[name], size=plan.size, seed=seed
        )
    for work in WORK:
        for name in turn:
            done = processes[name].ask(work)
            row[name][work] = {
                **done,
                "objects": objects[name],
                "mb_per_second": round(objects[name] * plan.size / 1e6 / done["seconds"], 1),
                "cpu_us_per_object": round(done["cpu_seconds"] / objects[name] * 1e6, 1),
            }
    return row


def table(measured: Rounds) -> dict[str, dict[str, dict[str, Any]]]:
    """Store to work to what is compared."""
    return {name: {work: summary(measured, name, work) for work in WORK} for name in measured[0]}


def summary(measured: Rounds, name: str, work: str) -> dict[str, Any]:
    """Medians over the rounds, the slowest and fastest round, and ratios of rates within rounds."""
    rows = [row[name][work] for row in measured]
    rates = [row["mb_per_second"] for row in rows]
    return {
        "mb_per_second": statistics.median(rates),
        "slowest": min(rates),
        "fastest": max(rates),
        "cpu_us_per_object": statistics.median(row["cpu_us_per_object"] for row in rows),
        "ratio_to_floor": ratio(measured, name, "floor", work),
        "mutoscope_ratio_to_this": ratio(measured, "mutoscope", name, work),
        "written_bytes": max(row["written_bytes"] for row in rows),
        "files_changed": max(row.get("files_changed", 0) for row in rows),
    }


def ratio(measured: Rounds, above: str, below: str, work: str) -> float:
    """Median over the rounds of one store's rate over another's."""
    rates = [(row[above][work]["mb_per_second"], row[below][work]["mb_per_second"]) for row in measured]
    return round(statistics.median(one / other for one, other in rates), 3)


def large_object(names: Sequence[str], folder: Path, size: int) -> dict[str, dict[str, Any]]:
    """One large file into each store, each in a new process: its peak memory is then that of the work."""
    source = folder / "large"
    block = os.urandom(1 << 20)
    with source.open("wb") as file:
        for number in range(size >> 20):
            file.write(number.to_bytes(8, "big") + block[8:])
    os.sync()
    result: dict[str, dict[str, Any]] = {}
    for name in names:
        place = folder / "large-store"
        place.mkdir()
        with process(name) as store:
            store.ask("open", folder=str(place), durable=False, objects=1, size=8, seed=0)
            store.ask("put")  # whatever the first put imports or opens is not the large object's
            try:
                done = store.ask("put_file", path=str(source))
                result[name] = {
                    "mb_per_second": round(size / 1e6 / done["seconds"], 1),
                    "cpu_seconds": round(done["cpu_seconds"], 2),
                    "added_bytes": done["added_bytes"],
                    "base_bytes": done["base_bytes"],
                }
            except StoreFailedError as error:
                result[name] = {"failed": str(error)}
        shutil.rmtree(place)
    source.unlink()
    return result
