"""What ran when, as a Chrome trace: open the file in https://ui.perfetto.dev or chrome://tracing.

The track "device" shows every call the engine made; below, each request has a track of its own with the
steps it took part in, from when it was submitted to how it ended. A step's details name its batch, who shared
it and how many rows of padding were computed beside.

Events are written as they happen, in the format's array form, whose closing bracket may be missing: the file
of a process that was killed opens as well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutoscope.platform.engine.request import Progress, Request, Result
from mutoscope.platform.errors import RunCancelled

MAX_EVENTS = 1_000_000
"""About 300 MB. A trace answers a question about minutes; one left on for weeks must not fill the disk."""

_DEVICE, _REQUESTS = 1, 2
"""The two groups of tracks, "processes" in the format's words."""


@dataclass(frozen=True, slots=True)
class Part:
    """A request's part in a call. `progress` is where it stood before; `rows` are its own."""

    request: Request
    node: str
    progress: Progress
    rows: int


class Trace:
    """Writes one trace. Times are seconds by the engine's clock; the format wants microseconds."""

    def __init__(self, path: Path, device: str = "device") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("w", encoding="utf-8")
        self._file.write("[")
        self._events = 0
        self._calls = 0
        self._tracks: dict[str, int] = {}
        self._drawn = 0
        self._name(_DEVICE, 0, "process_name", device)
        self._name(_DEVICE, 1, "thread_name", "calls")
        self._name(_REQUESTS, 0, "process_name", "requests")

    def begun(self, request: Request, submitted: float, now: float) -> None:
        """A request was let in, after waiting since `submitted`."""
        details = {"card": request.card, "group": request.group or request.id}
        self._span(self._track(request), "waiting", submitted, now - submitted, details)

    def call(
        self, card: str, kind: str, parts: Sequence[Part], padding: int, started: float, seconds: float
    ) -> None:
        """A call was made for these requests' steps."""
        self._calls += 1
        rows = sum(part.rows for part in parts)
        shared = {"call": self._calls, "rows": rows, "padding": padding}
        everyone = [f"{part.request.id} {part.progress.step + 1}/{part.progress.total}" for part in parts]
        label = kind if len(parts) == 1 else f"{kind} of {len(parts)}"
        details = {**shared, "card": card, "steps": everyone}
        self._event("X", _DEVICE, 1, label, started, details, dur=seconds)
        for part in parts:
            step = f"{part.progress.step + 1}/{part.progress.total}"
            neighbours = [other.request.id for other in parts if other is not part]
            details = {**shared, "step": step, "own_rows": part.rows, "neighbours": neighbours}
            self._span(self._track(part.request), f"{part.node} {step}", started, seconds, details)

    def recalled(self, request: Request, node: str, now: float) -> None:
        """A step took nothing: what it fills was known."""
        self._event("i", _REQUESTS, self._track(request), f"{node} from cache", now, {}, s="t")

    def ended(self, request_id: str, now: float, outcome: Result | Exception) -> None:
        """A request is done."""
        track = self._tracks.pop(request_id, None)
        if track is None:
            return
        if isinstance(outcome, Exception):
            how = "cancelled" if isinstance(outcome, RunCancelled) else "failed"
            self._event("i", _REQUESTS, track, how, now, {"error": str(outcome)}, s="t")
        else:
            self._event("i", _REQUESTS, track, "succeeded", now, {}, s="t")
        self._file.flush()

    def close(self) -> None:
        """Complete the file."""
        if not self._file.closed:
            self._file.write("\n]\n")
            self._file.close()

    def _track(self, request: Request) -> int:
        if request.id not in self._tracks:
            self._drawn += 1
            self._tracks[request.id] = self._drawn
            self._name(_REQUESTS, self._drawn, "thread_name", f"{request.card} {request.id}")
        return self._tracks[request.id]

    def _span(self, track: int, name: str, at: float, seconds: float, details: dict[str, Any]) -> None:
        self._event("X", _REQUESTS, track, name, at, details, dur=seconds)

    def _name(self, process: int, track: int, what: str, name: str) -> None:
        self._write({"ph": "M", "pid": process, "tid": track, "name": what, "args": {"name": name}})

    def _event(
        self,
        phase: str,
        process: int,
        track: int,
        name: str,
        at: float,
        details: dict[str, Any],
        *,
        dur: float | None = None,
        s: str | None = None,
    ) -> None:
        event = {"ph": phase, "pid": process, "tid": track, "name": name, "ts": _micro(at), "args": details}
        if dur is not None:
            event["dur"] = _micro(dur)
        if s is not None:
            event["s"] = s
        self._write(event)

    def _write(self, event: dict[str, Any]) -> None:
        if self._file.closed or self._events >= MAX_EVENTS:
            return
        self._file.write(",\n" if self._events else "\n")
        self._file.write(json.dumps(event))
        self._events += 1


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)
