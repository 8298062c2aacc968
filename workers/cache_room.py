"""Room on the disk for cached weights: what is in use is held, what is not makes way.

A cache may be emptied at any time, but not under the feet of a worker that is loading from it. Whoever reads
a folder holds a shared lock on it; whoever removes one needs the lock for itself, and passes over a folder
that is held. Locks are the kernel's: they end with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mutoscope.platform.ids import new_id

RESERVE = 0.05
"""Share of the disk that is left free: others write there too, the store and the catalog among them."""

log = logging.getLogger(__name__)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Keep a folder from being removed while the block runs; False when somebody was faster."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield _is_at(descriptor, folder)
    finally:
        os.close(descriptor)


def make_room(root: Path, needed: int) -> None:
    """Remove folders until `needed` more bytes fit beside the reserve: what killed workers left behind, then
    those used longest ago."""
    root.mkdir(parents=True, exist_ok=True)
    for folder in sorted(root.iterdir(), key=lambda folder: (folder.name[0] != ".", last_use(folder))):
        usage = shutil.disk_usage(root)
        if usage.free - needed >= RESERVE * usage.total:
            return
        if _remove(folder):
            log.info("removed from the weight cache to make room: %s", folder.name)


def note_use(folder: Path) -> None:
    """Remember that the folder was used now. One that is gone, or another user's, is left alone."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def last_use(folder: Path) -> float:
    """When that was, in seconds since the epoch; 0 for a folder that is gone."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(folder: Path) -> bool:
    """Remove a folder, unless somebody holds it or it is another user's."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(descriptor, folder):
            return False
        # Renamed first: it vanishes at once, and is never seen half removed.
        discarded = folder.with_name(f".{new_id()}")
        folder.rename(discarded)
    except (BlockingIOError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    shutil.rmtree(discarded, ignore_errors=True)
    return True


def _is_at(descriptor: int, folder: Path) -> bool:
    """Whether the open folder is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False
