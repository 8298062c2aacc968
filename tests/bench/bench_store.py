"""The byte store against its peers and against the least that the work costs.

    python tests/bench/bench_store.py [--rounds 5] [--objects 2000] [--without-peers] [--output FILE]

Five tables:

    small           2,000 objects of 64 KiB: put, put again, get. No fsync: survives a killed process
    small_memory    the same on a file system in memory: what the software costs, whatever the disk does
    small_fsync     200 of them, for the stores that can: survives a power cut
    large           one object of 2 GiB from a file: MB/s, and peak resident memory above the process's own
    s3              put, put again and get against an S3 server on this machine, with requests counted

Peers (`stores`, `peers.txt`) are installed into an environment of their own and run in the same rounds, each
in a process of its own on the same bytes. Stores take turns within every round, so that drift of the machine
meets all alike; a ratio is the median of the rounds' ratios. The floor is plain Python that hashes, writes a
temporary file and renames it; on S3 it is s3fs itself.

Bars: put >= 0.9 of the floor and >= every peer at equal durability; a duplicate put writes nothing; a large
put adds <= 64 MB of memory; <= 2 requests per new S3 object, <= 1 per duplicate. The figures decided that the
file store calls the operating system directly instead of going through fsspec, and that a duplicate is
compared byte by byte instead of hashed again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import environment, peers, store_rounds, store_s3, stores  # noqa: E402
from tests.bench.store_rounds import WORK, Plan, Rounds  # noqa: E402

RESULT = ROOT / "tests/bench/results/store.json"
OBJECTS, SYNCED_OBJECTS, OBJECT_BYTES = 2000, 200, 64 << 10
LARGE_BYTES = 2 << 30
IN_MEMORY = Path("/dev/shm")
PUT_BAR, PEER_BAR = 0.9, 1.0
MEMORY_BAR = 64_000_000
"""Bytes a large put may add to the process's resident memory."""
REQUESTS_BAR = {"put": 2, "duplicate": 1}

Bars = Iterator[tuple[str, bool]]
"""What is asked, and whether it holds. Names with "speed" need a quiet machine, the others do not."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--large-bytes", type=int, default=LARGE_BYTES)
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    record = measure(options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    show(record)
    if not all(met for name, met in record["met"].items() if "speed" not in name):
        sys.exit("a bar that no busy machine excuses was missed")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The record that is kept."""
    note("peers")
    installed: Mapping[str, str | None] = {} if options.without_peers else peers.install()
    names = [name for name in stores.STORES if _available(name, installed)]
    load = environment.others_load()
    measured, large = measure_files(options, names)
    tables = {title: store_rounds.table(rounds) for title, rounds in measured.items()}
    note("s3")
    s3 = store_s3.measure(options.rounds)
    return {
        "benchmark": "store",
        **environment.describe(),
        "busy_cores_of_others": round(load, 2),
        "representative": not environment.is_busy(load),
        "config": {
            "objects": options.objects,
            "objects_fsync": SYNCED_OBJECTS,
            "objects_at_most": stores.AT_MOST,
            "object_bytes": OBJECT_BYTES,
            "large_bytes": options.large_bytes,
            "rounds": {title: len(rounds) for title, rounds in measured.items()},
            "file_system": environment.file_system(options.folder),
        },
        "peers": {
            requirement: installed.get(package, "not asked for")
            for package, requirement in peers.requirements().items()
        },
        "notes": stores.NOTES,
        **tables,
        "large": large,
        "s3": s3,
        "bars": {
            "put_ratio_to_floor": PUT_BAR,
            "put_ratio_to_peer": PEER_BAR,
            "large_added_bytes": MEMORY_BAR,
            "s3_requests": REQUESTS_BAR,
        },
        "met": {
            name: bool(met)
            for bars in (speed_bars(tables), file_bars(tables, large), s3_bars(s3))
            for name, met in bars
        },
        "rounds": measured,
    }


def _available(name: str, installed: Mapping[str, str | None]) -> bool:
    package = stores.PACKAGES.get(name)
    return package is None or installed.get(package, "absent") is None


def measure_files(options: argparse.Namespace, names: list[str]) -> tuple[dict[str, Rounds], dict[str, Any]]:
    """The tables of files, round by round, and the large object."""
    measured: dict[str, Rounds] = {}
    with (
        tempfile.TemporaryDirectory(prefix="mutoscope-bench-", dir=options.folder) as disk,
        tempfile.TemporaryDirectory(prefix="mutoscope-bench-", dir=_in_memory()) as memory,
    ):
        counts = (options.rounds, options.objects, OBJECT_BYTES)
        plans = {
            "small": Plan(stores.LOOSE, Path(disk), *counts),
            "small_memory": Plan(stores.LOOSE, Path(memory), *counts),
            "small_fsync": Plan(
                stores.SYNCED, Path(disk), options.rounds, SYNCED_OBJECTS, OBJECT_BYTES, durable=True
            ),
        }
        if _in_memory() is None:
            del plans["small_memory"]
        with store_rounds.running(names) as processes:
            for title, plan in plans.items():
                note(title)
                measured[title] = store_rounds.run(processes, plan)
        note("large")
        files = [name for name in names if "batch" not in name]
        large = store_rounds.large_object(files, Path(disk), options.large_bytes)
    return measured, large


def note(title: str) -> None:
    """What is measured now, and since when: for whoever waits."""
    print(f"{time.strftime('%H:%M:%S')} {title}", file=sys.stderr, flush=True)


def _in_memory() -> Path | None:
    return IN_MEMORY if IN_MEMORY.is_dir() and environment.file_system(IN_MEMORY) == "tmpfs" else None


def speed_bars(tables: Mapping[str, Mapping[str, Any]]) -> Bars:
    for title, rows in tables.items():
        yield f"{title}: speed against floor", rows["mutoscope"]["put"]["ratio_to_floor"] >= PUT_BAR
        for name, row in rows.items():
            if name in stores.PACKAGES and "batch" not in name:
                yield f"{title}: speed against {name}", row["put"]["mutoscope_ratio_to_this"] >= PEER_BAR


def file_bars(tables: Mapping[str, Mapping[str, Any]], large: Mapping[str, Any]) -> Bars:
    for title, rows in tables.items():
        duplicate = rows["mutoscope"]["duplicate"]
        yield (
            f"{title}: duplicates write nothing",
            duplicate["written_bytes"] == duplicate["files_changed"] == 0,
        )
    yield "large: memory", large["mutoscope"]["added_bytes"] <= MEMORY_BAR


def s3_bars(s3: Mapping[str, Any]) -> Bars:
    for work, bar in REQUESTS_BAR.items():
        yield f"s3: requests per {work}", s3["requests_per_object"][work] <= bar


def show(record: Mapping[str, Any]) -> None:
    """The figures, and what to make of them."""
    for title in record["rounds"]:
        print(f"{title + ', MB/s':26}" + "".join(f"{work:>12}" for work in WORK) + "   put: of floor, cpu us")
        for name, row in record[title].items():
            rates = "".join(f"{row[work]['mb_per_second']:12.0f}" for work in WORK)
            print(
                f"{name:26}{rates}{row['put']['ratio_to_floor']:18.2f}{row['put']['cpu_us_per_object']:8.0f}"
            )
    print(f"{'large':26}{'MB/s':>12}{'added MB':>12}")
    for name, row in record["large"].items():
        if "failed" in row:
            print(f"{name:26}{row['failed']}")
        else:
            print(f"{name:26}{row['mb_per_second']:12.0f}{row['added_bytes'] / 1e6:12.1f}")
    store_s3.show(record["s3"])
    for requirement, reason in record["peers"].items():
        if reason is not None:
            print(f"{requirement} was not measured: {reason}")
    for name, met in record["met"].items():
        print(f"{name}: {'met' if met else 'MISSED'}")
    if not record["representative"]:
        busy, cores = record["busy_cores_of_others"], record["machine"]["cores"]
        print(f"Not representative: others kept {busy:.1f} of {cores} cores busy. Repeat on an idle machine.")


if __name__ == "__main__":
    main()
