"""Memory of long-lived processes over time, and whether it grows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import psutil

MIB = 1 << 20
SETTLING = 1 / 3
"""Share of a record that is left out: caches fill, pools open connections, allocators find their size."""
TOLERATED = 0.05
TOLERATED_MIB = 16.0
"""What a flat process may differ by between the two halves that are left: allocators breathe."""


@dataclass
class Record:
    """One process's memory: seconds since the start, and resident MiB."""

    seconds: list[float] = field(default_factory=list)
    mib: list[float] = field(default_factory=list)

    def add(self, seconds: float, mib: float) -> None:
        self.seconds.append(seconds)
        self.mib.append(mib)

    def trend(self) -> Trend | None:
        """How it developed once it had settled; None while there is too little to say."""
        first = int(len(self.mib) * SETTLING)
        seconds, mib = self.seconds[first:], self.mib[first:]
        if len(mib) < 6:
            return None
        half = len(mib) // 2
        growth = median(mib[half:]) - median(mib[:half])
        return Trend(median(mib[:half]), growth, _slope(seconds, mib) * 3600, max(self.mib))


@dataclass(frozen=True)
class Trend:
    """Memory after settling: MiB in the first half, what the second half has more, MiB an hour, the most."""

    mib: float
    growth_mib: float
    slope_mib_per_hour: float
    most_mib: float

    @property
    def is_flat(self) -> bool:
        return self.growth_mib <= max(TOLERATED * self.mib, TOLERATED_MIB)


def _slope(seconds: list[float], mib: list[float]) -> float:
    """Theil and Sen's: the median of the slopes between pairs, which a few outliers do not move."""
    step = max(1, len(mib) // 100)
    points = list(zip(seconds, mib, strict=True))[::step]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(points)
        for later in points[index + 1 :]
        if later[0] > earlier[0]
    ]
    return median(slopes)


class Sampler(threading.Thread):
    """Looks at processes every few seconds.

    Args:
        processes: the long-lived processes as they are now, by name. A name may stand for several, whose
            memory is added up.
    """

    def __init__(self, processes: Callable[[], Mapping[str, Iterable[psutil.Process]]], every: float) -> None:
        super().__init__(name="memory-sampler", daemon=True)
        self.records: dict[str, Record] = {}
        self._processes, self._every = processes, every
        self._stopping = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(self._every):
            for name, processes in self._processes().items():
                self.records.setdefault(name, Record()).add(time.monotonic() - began, _resident(processes))

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def _resident(processes: Iterable[psutil.Process]) -> float:
    """Memory of their own, in MiB: what several share is not counted once for each."""
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().uss
        except psutil.Error:
            continue
    return total / MIB
