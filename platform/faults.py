"""Named fault points, so that tests can stop or break a real process at the moments that matter.

``MUTOSCOPE_FAULT`` holds ``point:action``, or ``point:action@n`` for the n-th time the point is passed;
several are separated by commas. Actions: ``kill`` (SIGKILL to the own process: no handler, no flush) and
``raise`` (an InjectedError). ``MUTOSCOPE_FAULT_MARKER`` names a file to which a line is appended, and
synced, just before the action, so that a test can prove that its fault fired and was not merely survived.

Without the variable a point costs one dictionary lookup.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from mutoscope.platform.errors import InvalidParameter

POINTS = frozenset(
    {
        "catalog.before_commit",  # all of a transaction's statements are done, nothing is kept yet
        "catalog.after_commit",  # kept, the caller has not been told
        "store.mid_write",  # part of an object's bytes are written, under no name yet
        "store.mid_multipart",  # one more part of a large object is under way
        "store.before_commit",  # all bytes are written, under no name yet
        "store.after_commit",  # the object is in place, nobody has been told
        "store.set_aside",  # a damaged object is in quarantine, the sound bytes are not yet in its place
        "store.move.copied",  # moved by copying: both names hold the bytes
        "store.moved",  # moved, nobody has been told
        "component.file_stored",  # a component's file and tensors are stored, its manifest is not
        "import.stored",  # every byte of an imported folder is stored, no row yet
        "import.recorded",  # the import's run is recorded, its versions are not
        "export.object",  # an object is in the archive, which has no name yet
        "export.before_rename",  # the archive is complete, under no name yet
        "import.verified",  # the archive is whole and fits, nothing is stored
        "import.object",  # an object of it is stored, no row is there
        "import.before_rows",  # all objects are stored, no row is there
        "import.rows",  # all rows are entered, the transaction is not committed
        "import.after_rows",  # committed, nobody has been told
        "fsck.before_repair",  # a fault is known, nothing is done about it
        "fsck.quarantined",  # a damaged object is set aside, its row still says present
        "fsck.marked",  # a row says that its bytes are lost, nobody has looked once more
        "gc.after_mark",  # it is known what may go, nothing is done about it
        "gc.after_tombstone",  # rows of a batch are tombstones, their bytes are still in objects/
        "gc.trash",  # between two moves to the trash
        "gc.after_trash",  # a batch is in the trash, since when is not noted
        "gc.after_settle",  # that is noted, what was revived meanwhile is still in the trash
        "gc.before_purge",  # a batch is marked and counted as removed, its bytes lie in the trash
        "gc.after_purge",  # they are gone
        "worker.after_claim",  # leased, nothing computed
        "worker.step",  # between two steps
        "worker.before_put",  # computed, no byte stored
        "worker.after_put",  # bytes stored, no row yet
        "worker.after_succeed",  # rows committed, the worker has not noted it
    }
)
ACTIONS = frozenset({"kill", "raise"})


class InjectedError(RuntimeError):
    """Raised by the ``raise`` action; deliberately no MutoscopeError, as a real defect would not be one."""


@dataclass(slots=True)
class _Fault:
    action: str
    countdown: int


def parse(text: str) -> dict[str, _Fault]:
    """Read the variable's syntax. Raises InvalidParameter: a fault that cannot fire would prove nothing."""
    faults: dict[str, _Fault] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        point, _, rest = item.partition(":")
        action, _, nth = rest.partition("@")
        if point not in POINTS or action not in ACTIONS or not (nth or "1").isdecimal():
            known = f"{' | '.join(sorted(POINTS))}, {' | '.join(sorted(ACTIONS))}"
            raise InvalidParameter(
                "MUTOSCOPE_FAULT", item, f"use point:action or point:action@n with {known}"
            )
        faults[point] = _Fault(action, int(nth or "1"))
    return faults


class FaultPoints:
    """A set of armed faults."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._armed = parse(environment.get("MUTOSCOPE_FAULT", ""))
        self._marker = environment.get("MUTOSCOPE_FAULT_MARKER")

    def hit(self, point: str) -> None:
        """Pass a point; act if it is armed and its turn has come."""
        fault = self._armed.get(point)
        if fault is None:
            return
        fault.countdown -= 1
        if fault.countdown:
            return
        self._mark(point)
        if fault.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise InjectedError(f"fault injected at {point}")

    def _mark(self, point: str) -> None:
        if self._marker is None:
            return
        with open(self._marker, "a", encoding="utf-8") as file:
            file.write(f"{point}\n")
            file.flush()
            os.fsync(file.fileno())


_process: FaultPoints | None = None


def hit(point: str) -> None:
    """Pass a point of this process, whose faults were armed by its environment."""
    arm().hit(point)


def arm() -> FaultPoints:
    """The process's faults, read from its environment once: at the first point, not at import, because a
    forked process may get its environment later.

    Raises:
        InvalidParameter: MUTOSCOPE_FAULT names an unknown point or action.
    """
    global _process
    if _process is None:
        _process = FaultPoints(os.environ)
    return _process


@contextmanager
def armed(text: str, marker: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Arm this process's points otherwise for the length of the block: ``armed("worker.step:raise")``."""
    global _process
    previous = _process
    environment = {"MUTOSCOPE_FAULT": text}
    if marker is not None:
        environment["MUTOSCOPE_FAULT_MARKER"] = os.fspath(marker)
    _process = FaultPoints(environment)
    try:
        yield
    finally:
        _process = previous
