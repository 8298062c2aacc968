"""Resident memory of this process, and its peak from a moment on.

Not `getrusage`: its peak is inherited across exec, so that a child of a large process can never exceed it.
Imports nothing but the standard library, because benchmarks run it under interpreters of their own.
"""

from __future__ import annotations

from pathlib import Path


def reset_peak() -> int:
    """Forget the peak so far; the bytes resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _field("VmRSS")


def peak() -> int:
    """The most bytes resident at a time since the last reset, or since the process began."""
    return _field("VmHWM")


def _field(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
