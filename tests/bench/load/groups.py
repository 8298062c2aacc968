"""The processor time that groups of processes take."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Group:
    """Processes with all their descendants."""

    pids: Sequence[int]

    def seconds(self) -> float:
        """Processor time taken so far, user and system; children that ended count where they are known."""
        total = 0.0
        for pid in self.pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                parent = psutil.Process(pid)
                times = parent.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
                for child in parent.children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        times = child.cpu_times()
                        total += times.user + times.system
        return total


class Meter:
    """Reads several groups at once."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self._groups = groups
        self._before = self._read()

    def since(self) -> dict[str, float]:
        """Seconds that each group has taken since the meter was made."""
        return {name: after - self._before[name] for name, after in self._read().items()}

    def _read(self) -> dict[str, float]:
        return {name: group.seconds() for name, group in self._groups.items()}
