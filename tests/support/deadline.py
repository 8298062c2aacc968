"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 180.0
"""Seconds until a wait is given up. Generous: it is reached only when something is broken, or the machine is
choked.
"""


def until(probe: Callable[[], T | None], what: str, *, seconds: float = PATIENCE_S, every: float = 0.02) -> T:
    """The first truthy value of `probe`. Fails with `what` when `seconds` have passed."""
    deadline = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(every)
