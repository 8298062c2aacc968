"""A worker on several devices: one process for each, started together by `torchrun`.

    torchrun --nproc-per-node 2 -m mutoscope.workers --card flux-t2i

Rank 0 is the worker: it alone talks to catalog and queue. It tells the others by command what to load and to
run; every rank computes every step, and divides the rows of a call with the others. What passes between them
is small (commands, and the rows' results, latents of some megabytes), so it goes through gloo and the host's
memory whatever the devices are.

Nobody outlives the group: a rank that dies breaks the connection to the others, and they end as well. The
worker hands its runs back then; if it was itself that died, their leases run out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from mutoscope.platform.errors import GroupLost, InvalidParameter

SILENCE_S = 600.0
"""Seconds without a word after which a rank is taken for lost that has not broken its connection. The longest
silence is that of a rank that loads."""


@dataclass(slots=True)
class Group:
    """This process's place among the ranks.

    Attributes:
        broken: a rank is lost; nothing more is exchanged.
    """

    rank: int
    size: int
    broken: bool = False

    @classmethod
    def join(cls, environment: Mapping[str, str] = os.environ) -> Group | None:
        """Meet the others, as `torchrun` says; None for a process that was started alone.

        Raises:
            GroupLost: they do not come.
        """
        size = int(environment.get("WORLD_SIZE", "1"))
        if size < 2:
            return None
        group = cls(int(environment["RANK"]), size)
        try:
            dist.init_process_group("gloo", timeout=timedelta(seconds=SILENCE_S))
        except RuntimeError as error:
            raise group._lost(error) from None
        return group

    def require_alike(self, what: str, value: str) -> None:
        """Refuse a group whose ranks would compute different things.

        Raises:
            InvalidParameter: another rank has another value. GroupLost: a rank is gone.
        """
        values = self.all(value)
        if len(set(values)) > 1:
            shown = ", ".join(f"rank {rank}: {one[:24]}" for rank, one in enumerate(values))
            raise InvalidParameter(what, value[:24], f"start all ranks alike ({shown})")

    def tell(self, command: Any) -> None:
        """Rank 0: give the others a command. Raises GroupLost."""
        self._exchange(lambda: dist.broadcast_object_list([command], src=0))

    def hear(self) -> Any:
        """Another rank: wait for the next command. Raises GroupLost."""
        heard = [None]
        self._exchange(lambda: dist.broadcast_object_list(heard, src=0))
        return heard[0]

    def all(self, value: Any) -> list[Any]:
        """Everybody's value, by rank. Raises GroupLost."""
        values: list[Any] = [None] * self.size
        self._exchange(lambda: dist.all_gather_object(values, value))
        return values

    def leave(self) -> None:
        """Take leave of the others, if they are still there."""
        with suppress(RuntimeError):
            dist.destroy_process_group()

    def _exchange(self, exchange: Any) -> None:
        if self.broken:
            raise self._lost(None)
        try:
            exchange()
        except RuntimeError as error:
            self.broken = True
            raise self._lost(error) from None

    def _lost(self, error: RuntimeError | None) -> GroupLost:
        cause = "" if error is None else f" ({str(error).splitlines()[0]})"
        return GroupLost(
            f"rank {self.rank} of {self.size} has lost another rank of its group{cause}: the group ends, its "
            "runs go on elsewhere"
        )
