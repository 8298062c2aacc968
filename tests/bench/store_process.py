"""One store, served to `bench_store` by a process of its own: commands in, figures out, a JSON line each.

Runs under any interpreter that has the store's package, so nothing of this project is imported here.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "support"))  # last: its names are not the standard library's

import memory  # noqa: E402
import stores  # noqa: E402


class Bench:
    """The commands. Timed work does nothing but call the store."""

    def __init__(self, name: str) -> None:
        self._make, self._store = stores.STORES[name], None
        self._batch = name.endswith(" batch")
        self._blocks: list[bytes] = []
        self._keys: list[str] = []

    def open(self, folder: str, durable: bool, objects: int, size: int, seed: int) -> dict[str, Any]:
        """A fresh store, and the blocks of this round: equal for every store, never seen before."""
        self._store: Any = self._make(Path(folder), durable)
        common = random.Random(seed).randbytes(size - 8)
        self._blocks = [number.to_bytes(8, "big") + common for number in range(objects)]
        return {}

    def put(self) -> dict[str, Any]:
        return self._timed(self._put_all)

    def duplicate(self) -> dict[str, Any]:
        before, first = _state(self._store.files()), list(self._keys)
        figures = self._timed(self._put_all)
        assert self._keys == first
        return {**figures, "files_changed": len(before ^ _state(self._store.files()))}

    def get(self) -> dict[str, Any]:
        def get_all() -> None:
            for key, block in zip(self._keys, self._blocks, strict=True):
                if len(self._store.get(key)) != len(block):
                    raise ValueError(key)

        return self._timed(get_all)

    def put_file(self, path: str) -> dict[str, Any]:
        """One large object, with the peak of resident memory above what the process held before."""
        base = memory.reset_peak()
        figures = self._timed(lambda: self._store.put_file(Path(path)))
        return {**figures, "base_bytes": base, "added_bytes": memory.peak() - base}

    def _put_all(self) -> None:
        if self._batch:
            self._keys = self._store.put_all(self._blocks)
        else:
            self._keys = [self._store.put(block) for block in self._blocks]

    def _timed(self, work: Callable[[], object]) -> dict[str, Any]:
        written, cpu, clock = _written(), time.process_time(), time.perf_counter()
        work()
        return {
            "seconds": time.perf_counter() - clock,
            "cpu_seconds": time.process_time() - cpu,
            "written_bytes": _written() - written,
        }


def _state(folder: Path) -> set[tuple[str, int, int, int]]:
    """Every file's name, inode, size and time of change: equal sets mean that nothing was written."""

    def files(folder: str) -> Iterable[os.DirEntry[str]]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from files(entry.path)
                else:
                    yield entry

    return {
        (entry.path, found.st_ino, found.st_size, found.st_mtime_ns)
        for entry in files(str(folder))
        for found in [entry.stat()]
    }


def _written() -> int:
    """Bytes this process handed to write calls so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def main() -> None:
    bench = Bench(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr  # what a store prints must not pass for an answer
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(bench, command.pop("do"))(**command)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
