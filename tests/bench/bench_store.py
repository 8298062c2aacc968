"""Throughput of the file store, against the least a content-addressed store can do.

    python tests/bench/bench_store.py [--rounds 5] [--objects 2000] [--output FILE]

Small objects (2,000 of 64 KiB): put, put again, get, each as MB/s. Beside each the floor, measured in the
same round: plain Python that hashes, writes a temporary file and renames it (put), hashes and looks
(duplicate), reads and hashes (get). The store promises more than the floor: a duplicate is compared with what
is stored, so that damage is repaired. One large object (256 MiB) streams through put and open_read; its peak
of resident memory is measured in a process of its own.

The ratios decide two things: that the file store calls the operating system directly instead of going through
fsspec, and that a duplicate is compared byte by byte instead of hashed again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mutoscope.platform.artifacts import ArtifactStore  # noqa: E402
from tests.bench import environment  # noqa: E402

RESULT = ROOT / "tests/bench/results/store.json"
OBJECTS, OBJECT_BYTES = 2000, 64 << 10
LARGE_BYTES, CHUNK = 256 << 20, 1 << 20
MEMORY_BAR = 48 << 20
"""Bytes a large put may add to the process's resident memory."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--large", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.large is not None:
        print(json.dumps(large_object(arguments.large)))
        return
    load = environment.others_load()
    rounds = [one_round(arguments.objects) for _ in range(arguments.rounds)]
    result = {
        "environment": environment.describe(),
        "others_load_cores": round(load, 2),
        "busy_machine": environment.is_busy(load),
        "config": {
            "objects": arguments.objects,
            "object_bytes": OBJECT_BYTES,
            "rounds": arguments.rounds,
            "fsync": False,
        },
        "rounds": {name: [r[name] for r in rounds] for name in rounds[0]},
        "median": {name: round(statistics.median(r[name] for r in rounds), 1) for name in rounds[0]},
        "median_ratio_to_floor": {
            work: {
                "throughput": _median_ratio(rounds, f"store_{work}", f"floor_{work}"),
                "cpu_time": _median_ratio(rounds, f"store_{work}_cpu_us", f"floor_{work}_cpu_us"),
            }
            for work in ("put", "duplicate", "get")
        },
        "large_object": run_large(),
        "bars": {"large_put_added_bytes": MEMORY_BAR},
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=2) + "\n")
    print(
        json.dumps(
            {key: result[key] for key in ("median", "median_ratio_to_floor", "large_object")}, indent=2
        )
    )
    added = result["large_object"]["put_added_bytes"]
    if added > MEMORY_BAR:
        sys.exit(f"a large put added {added} bytes of memory, the bar is {MEMORY_BAR}")


def _median_ratio(rounds: list[dict[str, float]], numerator: str, denominator: str) -> float:
    return round(statistics.median(r[numerator] / r[denominator] for r in rounds), 3)


def one_round(objects: int) -> dict[str, float]:
    """MB/s of each kind of work, floor and store in turn over fresh folders, and CPU time per object, the
    figure that means something on a machine shared with others."""
    common = os.urandom(OBJECT_BYTES - 8)
    blocks = [n.to_bytes(8, "big") + common for n in range(objects)]
    names = [hashlib.sha256(block).hexdigest() for block in blocks]
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="mutoscope-bench-") as folder:
        floor = Floor(f"{folder}/floor")
        store = ArtifactStore.open(f"{folder}/store")
        work: dict[str, tuple[Callable[[bytes], Any], list[Any]]] = {
            "floor_put": (floor.put, blocks),
            "store_put": (lambda block: put(store, block), blocks),
            "floor_duplicate": (floor.put, blocks),
            "store_duplicate": (lambda block: put(store, block), blocks),
            "floor_get": (floor.get, names),
            "store_get": (store.get, names),
        }
        for name, (call, items) in work.items():
            started, started_cpu = time.perf_counter(), time.process_time()
            for item in items:
                call(item)
            figures[name] = round(objects * OBJECT_BYTES / 1e6 / (time.perf_counter() - started), 1)
            figures[f"{name}_cpu_us"] = round((time.process_time() - started_cpu) / objects * 1e6, 1)
    return figures


class Floor:
    """Hash, temporary file, rename: nothing checked, nothing repaired."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        for shard in range(256):
            os.makedirs(f"{folder}/{shard:02x}")

    def put(self, data: bytes) -> None:
        name = hashlib.sha256(data).hexdigest()
        path = f"{self._folder}/{name[:2]}/{name}"
        if os.path.exists(path):
            return
        with open(path + ".tmp", "wb") as file:
            file.write(data)
        os.rename(path + ".tmp", path)

    def get(self, name: str) -> bytes:
        with open(f"{self._folder}/{name[:2]}/{name}", "rb") as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != name:
            raise ValueError(name)
        return data


def put(store: ArtifactStore, data: bytes) -> None:
    store.put(data, kind="blob", media_type="application/octet-stream")


def run_large() -> dict[str, float]:
    """The large object in a process of its own, whose peak memory is then that of the object alone."""
    with tempfile.TemporaryDirectory(prefix="mutoscope-bench-") as folder:
        command = [sys.executable, __file__, "--large", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def large_object(folder: Path) -> dict[str, float]:
    """One streamed put and one streamed, verified read."""
    store = ArtifactStore.open(folder.as_uri())
    chunk = os.urandom(CHUNK)
    before = peak_bytes()
    started, started_cpu = time.perf_counter(), time.process_time()
    ref = store.put(
        (chunk for _ in range(LARGE_BYTES // CHUNK)), kind="blob", media_type="application/octet-stream"
    )
    put_seconds, put_cpu = time.perf_counter() - started, time.process_time() - started_cpu
    added = peak_bytes() - before
    started, started_cpu = time.perf_counter(), time.process_time()
    with store.open_read(ref.digest) as reader:
        while reader.read(CHUNK):
            pass
    read_seconds, read_cpu = time.perf_counter() - started, time.process_time() - started_cpu
    return {
        "bytes": LARGE_BYTES,
        "put_megabytes_per_second": round(LARGE_BYTES / 1e6 / put_seconds, 1),
        "read_megabytes_per_second": round(LARGE_BYTES / 1e6 / read_seconds, 1),
        "put_megabytes_per_cpu_second": round(LARGE_BYTES / 1e6 / put_cpu, 1),
        "read_megabytes_per_cpu_second": round(LARGE_BYTES / 1e6 / read_cpu, 1),
        "put_added_bytes": added,
        "peak_bytes": peak_bytes(),
    }


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
