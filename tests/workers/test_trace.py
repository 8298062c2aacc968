"""A worker asked for a trace leaves one that says which step of which run ran when."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

from tests.support.workshop import Workshop


def test_a_worker_writes_what_ran_when(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "home", trace=tmp_path / "traces")
    try:
        with workshop.worker() as worker:
            worker.wait_ready()
            runs = [workshop.enqueue(seed=seed, num_inference_steps=20, shared=False).run for seed in (1, 2)]
            assert [workshop.wait(run.id).state for run in runs] == ["succeeded"] * 2
            worker.signal(signal.SIGTERM)
            assert worker.wait_exit() == 0
            (path,) = (tmp_path / "traces").iterdir()
            assert path.name == f"worker-{worker.id}.json"
    finally:
        workshop.close()
    events = json.loads(path.read_text())
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    # Its weights were rehearsed before anybody asked for something.
    assert names == {"calls", "tiny-test rehearsal tiny-test", *(f"tiny-test {run.id}" for run in runs)}
    steps = Counter(event["name"] for event in events if event["name"].startswith("denoise "))
    assert steps == {"denoise 1/1": 1, **{f"denoise {at}/20": 2 for at in range(1, 21)}}
