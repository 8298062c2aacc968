"""How many workers a card's queue calls for: a hint to whatever starts and stops them.

Work waiting is runs in flight times the measured seconds of one. A worker does `at_once` runs side by side,
as many as each does now. So many workers finish the waiting work within `target` seconds:

    wanted = ceil((queued + running) * seconds / (at_once * target))

but one as soon as anything waits, and no more than there are runs for them to do, or places where the card
has a limit. A paused card wants what its running runs need.
"""

from __future__ import annotations

from math import ceil

TARGET_SECONDS = 60.0
"""In how many seconds the work that waits should be done."""


def workers_wanted(
    *,
    queued: int,
    running: int,
    serving: int,
    seconds: float | None,
    most_running: int | None = None,
    paused: bool = False,
    target: float = TARGET_SECONDS,
) -> int:
    """Workers of one card; 0 when nothing is in flight.

    Args:
        serving: workers that serve it now.
        seconds: that one run takes; None: not measured yet, then what is there must do, or one.
        most_running: the card's limit.
    """
    in_flight = running if paused else queued + running
    if most_running is not None:
        in_flight = min(in_flight, max(most_running, running))
    if not in_flight:
        return 0
    if seconds is None:
        return max(1, min(serving, in_flight))
    at_once = max(1.0, running / serving) if serving else 1.0
    return max(1, min(ceil(in_flight * seconds / (at_once * target)), ceil(in_flight / at_once)))
