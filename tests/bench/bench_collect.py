"""Collection at a million artifacts and three million edges, on SQLite and on Postgres.

    python tests/bench/bench_collect.py [--steps 417] [--databases sqlite postgres] [--output FILE]

A made-up history of reinforcement learning (`tests/support/big.py`), no bytes. Three marks: nothing is old,
though every artifact is looked at; latents and trajectories are old, half of all; the same with the last
weights pinned with their inputs, which is nearly everything. Then rows of the second are made tombstones and
settled, as the collector does. Memory is the process's peak above what it held before the first mark.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from mutoscope.platform.catalog import Catalog  # noqa: E402
from mutoscope.platform.custody.collect import BATCH  # noqa: E402
from mutoscope.platform.custody.mark import mark, policy_of  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.support import big  # noqa: E402
from tests.support.servers import Databases, PostgresServer  # noqa: E402

RESULT = ROOT / "tests/bench/results/collect.json"
FOREVER = 3e9
WEEK = 7 * 86_400.0
BURIED_BATCHES = 100
MIB = 1 << 20


class Peak:
    """The process's largest resident memory while the block runs, above what it was at the start."""

    def __enter__(self) -> Peak:
        self._process, self._done = psutil.Process(), threading.Event()
        self._start = self._most = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.mib = round((self._most - self._start) / MIB, 1)

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._most = max(self._most, self._process.memory_info().rss)


def measure(catalog: Catalog, steps: int) -> dict[str, Any]:
    """Fill the catalog and take the figures."""
    history = big.history(catalog, big.Shape(steps=steps))
    told: dict[str, Any] = {
        "artifacts": history.artifacts,
        "runs": history.runs,
        "edges": history.edges,
        "marks": {},
    }
    catalog.retention.add("all", FOREVER)
    told["marks"]["nothing is old"] = _mark(catalog)
    catalog.retention.remove("all")
    for kind in ("latent", "trajectory"):
        catalog.retention.add(kind, WEEK, kind=kind)
    told["marks"]["half is old"] = _mark(catalog)
    catalog.pins.add(history.versions[-1], "last", with_inputs=True)
    told["marks"]["half is old, the last weights pinned with inputs"] = _mark(catalog)
    catalog.pins.remove("last")
    told["buried_per_second"] = _bury(catalog)
    return told


def _mark(catalog: Catalog) -> dict[str, Any]:
    started, cpu = time.perf_counter(), time.process_time()
    with Peak() as peak:
        found = mark(catalog, policy_of(catalog))
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    candidates = sum(kind.count for kind in found.by_kind())
    found.close()
    return {
        "seconds": round(seconds, 1),
        "own_cpu_seconds": round(cpu_seconds, 1),
        "peak_mib": peak.mib,
        "candidates": candidates,
    }


def _bury(catalog: Catalog) -> int:
    """Rows a second that become tombstones and are settled, in the collector's batches."""
    record, policy = catalog.collections.begin("bench", 0.0), policy_of(catalog)
    found = mark(catalog, policy)
    batches = list(islice(found.batches(BATCH), BURIED_BATCHES))
    found.close()
    started, count = time.perf_counter(), 0
    for batch in batches:
        buried = catalog.tombstones.bury(record, "bench", policy, batch)
        catalog.tombstones.settle(record, "bench", buried)
        count += len(buried)
    return round(count / (time.perf_counter() - started))


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite:///{folder / 'catalog.db'}"


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    server = PostgresServer()
    server.start()
    databases = Databases(server.url())
    try:
        yield databases.create()
    finally:
        databases.close()
        server.close()


DATABASES: dict[str, Callable[[Path], Any]] = {"sqlite": sqlite, "postgres": postgres}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=big.MILLION.steps, help="train steps; 417: a million")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=list(DATABASES))
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    load = environment.others_load()
    result: dict[str, Any] = {
        "environment": environment.describe(),
        "others_load_cores": round(load, 2),
        "busy_machine": environment.is_busy(load),
    }
    for name in arguments.databases:
        with (
            tempfile.TemporaryDirectory(prefix="mutoscope-bench-") as folder,
            DATABASES[name](Path(folder)) as url,
        ):
            Catalog.migrate(url)
            catalog = Catalog.open(url)
            result[name] = measure(catalog, arguments.steps)
            catalog.close()
        report(name, result[name])
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=2) + "\n")


def report(name: str, told: dict[str, Any]) -> None:
    """A table for people."""
    print(f"\n{name}: {told['artifacts']:,} artifacts, {told['edges']:,} edges")
    for what, figures in told["marks"].items():
        print(
            f"  mark, {what:<50} {figures['seconds']:>7} s ({figures['own_cpu_seconds']} s of CPU)"
            f"  {figures['peak_mib']:>7} MiB"
            f"  {figures['candidates']:>9,} may go"
        )
    print(f"  tombstones and settled: {told['buried_per_second']:,} rows/s", flush=True)


if __name__ == "__main__":
    main()
