"""Where a benchmark ran: what a reader needs to compare two figures."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from mutoscope.platform.engine import numerics

ROOT = Path(__file__).parents[2]

BUSY_SHARE = 0.3
"""Share of the cores that others may use before figures are marked as taken on a busy machine."""


def describe() -> dict[str, Any]:
    """Commit, machine and versions, as plain JSON data."""
    return {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "system": f"{platform.system()} {platform.release()}",
        },
        "python": platform.python_version(),
        "versions": numerics.library_versions(),
    }


def others_load() -> float:
    """Cores that other processes keep busy, measured over a second in which this one sleeps."""
    return psutil.cpu_percent(interval=1.0) / 100 * (os.cpu_count() or 1)


def is_busy(load: float) -> bool:
    """Whether that load would colour the figures."""
    return load > BUSY_SHARE * (os.cpu_count() or 1)


def file_system(folder: Path) -> str:
    """Type of the file system that holds the folder, such as ext4."""
    mounts = [p for p in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(p.mountpoint)]
    return max(mounts, key=lambda partition: len(partition.mountpoint)).fstype if mounts else "unknown"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
