"""The trace: a JSON file in the form that trace viewers read, and what a person finds in it."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from mutoscope.platform.engine import trace as tracing
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.parity.serving import standstill
from mutoscope.platform.engine.trace import Trace
from tests.engine.rowtoy import ERROR, latent, row_instance, row_request

Event = dict[str, Any]
FIELDS = {
    "M": {"ph", "pid", "tid", "name", "args"},
    "X": {"ph", "pid", "tid", "name", "ts", "dur", "args"},
    "i": {"ph", "pid", "tid", "name", "ts", "s", "args"},
}
"""The format's required fields by phase: metadata, complete events (with a duration), instant events."""


class Seconds:
    """A clock that advances by one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def traced(path: Path) -> list[Event]:
    """Three requests that share calls, one of which is cancelled, and one that fails."""
    trace = Trace(path, "cpu")
    engine = Engine(trace=trace, clock=Seconds(), node_cache=FeatureCache())
    instance = row_instance(most=4, weights={"net": "1" * 64})
    tickets = [
        engine.submit(instance, row_request(f"r{n}", n, group="g", passes=1 + n % 2)) for n in range(3)
    ]
    engine.submit(instance, row_request("bad", trouble=ERROR))
    while engine.step():
        if tickets[2].progress.step == 3:
            tickets[2].cancel()
    trace.close()
    events: list[Event] = json.loads(path.read_text())
    return events


def tracks(events: list[Event]) -> dict[str, list[Event]]:
    """Events by the name of their track, in order of time."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: dict[str, list[Event]] = defaultdict(list)
    for event in sorted((e for e in events if e["ph"] != "M"), key=lambda e: e["ts"]):
        found[names[event["pid"], event["tid"]]].append(event)
    return found


def test_every_event_has_the_form_that_viewers_read(tmp_path: Path) -> None:
    events = traced(tmp_path / "trace.json")
    for event in events:
        assert set(event) == FIELDS[event["ph"]]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == ["cpu", "requests"]


def test_a_request_is_followed_from_its_submission_to_its_end(tmp_path: Path) -> None:
    found = tracks(traced(tmp_path / "trace.json"))
    assert set(found) == {"calls", "row-toy r0", "row-toy r1", "row-toy r2", "row-toy bad"}
    assert [event["name"] for event in found["row-toy r0"]] == [
        "waiting",
        "encode 1/5",
        *(f"denoise {at}/5" for at in range(2, 6)),
        "succeeded",
    ]
    assert "encode from cache" in [event["name"] for event in found["row-toy r1"]]
    assert found["row-toy r2"][-1]["name"] == "cancelled"
    assert found["row-toy bad"][-1] == {
        **found["row-toy bad"][-1],
        "name": "failed",
        "args": {"error": "planted"},
    }
    assert found["row-toy r0"][0]["args"] == {"card": "row-toy", "group": "g"}


def test_a_step_names_its_call_and_its_neighbours(tmp_path: Path) -> None:
    found = tracks(traced(tmp_path / "trace.json"))
    calls = {event["args"]["call"]: event for event in found["calls"]}
    assert len(calls) == len(found["calls"])
    shared = 0
    for name, events in found.items():
        if name == "calls":
            continue
        for event in events:
            if event["ph"] != "X" or event["name"] == "waiting":
                continue
            call = calls[event["args"]["call"]]
            assert (event["ts"], event["dur"]) == (call["ts"], call["dur"])
            assert event["args"]["rows"] == call["args"]["rows"]
            me = f"{name.removeprefix('row-toy ')} {event['args']['step']}"
            assert me in call["args"]["steps"]
            assert len(call["args"]["steps"]) == 1 + len(event["args"]["neighbours"])
            shared += bool(event["args"]["neighbours"])
    assert shared > 4


def test_calls_follow_each_other_on_the_device(tmp_path: Path) -> None:
    calls = tracks(traced(tmp_path / "trace.json"))["calls"]
    for before, after in pairwise(calls):
        assert before["ts"] + before["dur"] <= after["ts"]


def test_the_file_of_a_killed_process_opens_as_well(tmp_path: Path) -> None:
    with closing(Trace(tmp_path / "trace.json")) as trace:
        Engine(trace=trace).run(row_instance(), row_request("r"))
        # Written so far, without the closing bracket, which the format says may be missing.
        events = json.loads((tmp_path / "trace.json").read_text() + "]")
    assert events[-1]["name"] == "succeeded"


def test_a_trace_is_bounded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tracing, "MAX_EVENTS", 10)
    assert len(traced(tmp_path / "trace.json")) == 10


def test_tracing_changes_no_bytes_and_no_order(tmp_path: Path) -> None:
    def turns(trace: Trace | None) -> tuple[list[str], list[bytes]]:
        seen: list[str] = []
        engine, instance = Engine(trace=trace, clock=standstill), row_instance(most=2)
        tickets = [
            engine.submit(instance, row_request(f"r{n}", n), lambda at: seen.append(at.request_id))
            for n in range(3)
        ]
        while engine.step():
            pass
        return seen, [latent(ticket.result()) for ticket in tickets]

    with closing(Trace(tmp_path / "trace.json")) as trace:
        assert turns(None) == turns(trace)
