"""One step of the chain, and the process that runs chains on demand. Standard library only: every system's
interpreter imports it.

A system's script calls `serve` with what it does. Commands come as JSON lines, answers go the same way; what
libraries print goes to standard error.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

JOURNAL = "CHAIN_JOURNAL"
"""File to which every computed step adds a line: what was computed twice is seen there."""

SIZE = 64 * 1024


def step(previous: bytes, position: int) -> bytes:
    """The artifact after `previous`: `SIZE` bytes that depend on every byte before."""
    made = _after(previous, position)
    if path := os.environ.get(JOURNAL):
        with open(path, "a") as journal:  # one short line in append mode: written whole
            journal.write(f"{_entry(made)}\n")
    return made


def start(seed: int) -> bytes:
    """What the first step takes."""
    return str(seed).encode()


def expected(seed: int, steps: int) -> str:
    """Digest of the last artifact, computed here."""
    return hashlib.sha256(_artifacts(seed, steps)[-1]).hexdigest()


def entries(seed: int, steps: int) -> list[str]:
    """What the journal says of that chain, in order. Other lines are of other work, such as a rehearsal."""
    return [_entry(made) for made in _artifacts(seed, steps)]


def _artifacts(seed: int, steps: int) -> list[bytes]:
    made = [start(seed)]
    for position in range(steps):
        made.append(_after(made[-1], position))
    return made[1:]


def _after(previous: bytes, position: int) -> bytes:
    digest = hashlib.sha256(position.to_bytes(4, "big") + previous).hexdigest()
    return digest.encode() * (SIZE // len(digest))


def _entry(made: bytes) -> str:
    return made[:16].decode()


Chain = Callable[[int, int], "bytes | str"]
"""Runs the chain of (seed, steps); the last artifact, or its digest."""


def serve(chain: Chain, **others: Callable[..., Any]) -> None:
    """Answer commands until standard input ends. `run` times the chain; `others` are called by name."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what is printed from here on is no answer

    def run(seed: int, steps: int) -> dict[str, Any]:
        began = time.perf_counter()
        last = chain(seed, steps)
        seconds = time.perf_counter() - began
        digest = last if isinstance(last, str) else hashlib.sha256(last).hexdigest()
        return {"seconds": seconds, "right": digest == expected(seed, steps)}

    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        answer = run(**command) if do == "run" else {"answer": others[do](**command)}
        answers.write(json.dumps(answer) + "\n")
