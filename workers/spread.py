"""Rows of a call divided among the ranks of a group.

Rank r computes rows r, r + n, r + 2n, ... and everybody gets everybody's results. A row has the bits that it
has alone, in whatever company (that is what `batching` promises), so it does not matter who computes it: a
group returns what one process returns. Without shared calls the two passes of a guided step go to two ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mutoscope.platform.engine.batching import Batcher, Row
from mutoscope.platform.engine.execution import is_out_of_memory
from mutoscope.platform.engine.loop import WorkPlan
from mutoscope.platform.errors import RunFailed
from mutoscope.workers.group import Group


class Spread(Batcher):
    """A batcher whose rows are computed by all ranks. They all ask for the same at the same time."""

    def __init__(self, inner: Batcher, group: Group) -> None:
        super().__init__(inner.mode)
        self._inner = inner
        self._group = group

    def capacity(self, plan: WorkPlan) -> int:
        most = self._inner.capacity(plan)
        return most if most == 1 else most * self._group.size

    def padding(self, plan: WorkPlan, rows: int) -> int:
        each = [len(range(rank, rows, self._group.size)) for rank in range(self._group.size)]
        return sum(self._inner.padding(plan, count) for count in each if count)

    def one_by_one(self) -> Batcher:
        return Spread(self._inner.one_by_one(), self._group)

    def results(self, plan: WorkPlan, rows: list[Row]) -> list[Any]:
        """As of any batcher.

        Raises:
            OutOfMemoryError: a rank has no memory left; on every rank, so that all try again alike.
            RunFailed: another rank could not compute its rows. GroupLost: it is gone.
        """
        mine, failure = rows[self._group.rank :: self._group.size], None
        computed: list[Any] = []
        try:
            computed = self._inner.results(plan, mine) if mine else []
        except Exception as error:
            failure = error
        told = [_moved(result, torch.device("cpu")) for result in computed]
        heard = self._group.all((len(rows), _summary(failure), told))
        self._require_sound([(count, trouble) for count, trouble, _ in heard], failure)
        device = next(iter(rows[0].values())).device if rows else torch.device("cpu")
        size = self._group.size
        return [_moved(heard[at % size][2][at // size], device) for at in range(len(rows))]

    def _require_sound(
        self, told: Sequence[tuple[int, tuple[bool, str] | None]], own: Exception | None
    ) -> None:
        troubles = {rank: trouble for rank, (_, trouble) in enumerate(told) if trouble is not None}
        if any(memory for memory, _ in troubles.values()):
            lines = "; ".join(f"rank {rank}: {line}" for rank, (_, line) in troubles.items())
            raise torch.OutOfMemoryError(lines)
        if own is not None:
            raise own
        for rank, (_, line) in troubles.items():
            raise RunFailed(f"rank {rank} of the group: {line}")
        if len({count for count, _ in told}) > 1:
            raise RunFailed("the ranks of the group have different rows for one step: start them alike")


def _summary(error: Exception | None) -> tuple[bool, str] | None:
    """Whether memory lacks, and the line of an error."""
    return None if error is None else (is_out_of_memory(error), f"{type(error).__name__}: {error}")


def _moved(result: Any, device: torch.device) -> Any:
    """A tensor, or a tuple of them, on a device."""
    if isinstance(result, Tensor):
        return result.to(device)
    return tuple(_moved(part, device) for part in result)
