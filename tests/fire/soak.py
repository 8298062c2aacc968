"""Mixed load on a whole installation for a long time: memory of every process stays flat, all is in order.

    python tests/fire/soak.py --minutes 30

Writes results/soak.json and results/soak.svg beside itself. Exit code 1 when a job ended otherwise than it
must, memory grew, or fsck found a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event

import psutil

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    os.environ.setdefault("DO_NOT_TRACK", "1")

from mutoscope.platform.custody.fsck import Report as FsckReport
from mutoscope.platform.custody.fsck import fsck
from tests.fire.load import Load
from tests.fire.memory import Sampler
from tests.fire.plot import draw
from tests.fire.report import RESULTS, Report, say
from tests.fire.site import Site
from tests.support.contradictions import contradictions

SAMPLE_S = 5.0
TELL_S = 60.0
DRAIN_S = 600.0
"""Seconds that the last jobs may take to end."""


def main() -> int:
    """Soak; 0 when nothing is to be said against it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--at-once", type=int, default=2, help="workflows under way at a time")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mutoscope-soak-"))
    try:
        with Site(folder, starter=("flux-t2i",), pace=0.02) as site:
            site.start()
            return _soak(site, folder, options.minutes, options.at_once)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _soak(site: Site, folder: Path, minutes: float, at_once: int) -> int:
    sampler = Sampler(lambda: long_lived(site), SAMPLE_S)
    sampler.start()
    load = Load(site, folder, at_once)
    keep_going(load, minutes * 60)
    sampler.stop()
    assert load.lone_runs_done()
    return _conclude(site, load, sampler, minutes)


def keep_going(load: Load, seconds: float) -> None:
    """Load for so long, then the end of what is under way."""
    began, told = time.monotonic(), 0.0
    while (passed := time.monotonic() - began) < seconds + DRAIN_S:
        busy = load.turn(more=passed < seconds)
        if passed - told >= TELL_S:
            told = passed
            say(f"soak: {passed / 60:.0f} min, ended {dict(load.ended)}, wrong {len(load.wrong)}")
        if not busy and passed >= seconds and load.lone_runs_done():
            return
        Event().wait(0.5)
    raise AssertionError("jobs of the soak have not ended")


def long_lived(site: Site) -> Mapping[str, list[psutil.Process]]:
    """Processes that are to live for ever, by host and service; those of a server count as one."""
    found: dict[str, list[psutil.Process]] = {}
    for host in site.hosts:
        for child in host.supervisor.children:
            if child.process is not None and child.process.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    found[f"{host.name}/{child.name}"] = [psutil.Process(child.process.pid)]
    for name, server in (("postgres", site.postgres), ("s3", site.s3)):
        found[name] = server.processes()
    return found


def _conclude(site: Site, load: Load, sampler: Sampler, minutes: float) -> int:
    check = FsckReport()
    findings = [str(found.finding) for found in fsck(site.catalog, site.store, deep=True, report=check)]
    facts = {
        "minutes": minutes,
        "ended_as_they_must": dict(load.ended),
        "ended_otherwise": load.wrong,
        "runs": site.catalog.runs.counts(),
        "restarts": {
            f"{h.name}/{c.name}": c.restarts for h in site.hosts for c in h.supervisor.children if c.restarts
        },
        "fsck_clean": check.clean,
        "fsck_findings": findings,
        "contradictions": {name: len(found) for name, found in contradictions(site.catalog).items()},
    }
    report = Report("soak", facts)
    growing = []
    for name, record in sorted(sampler.records.items()):
        trend = record.trend()
        if trend is None:
            continue
        report.add(
            name,
            {
                "mib": round(trend.mib, 1),
                "growth_mib": round(trend.growth_mib, 1),
                "slope_mib_per_hour": round(trend.slope_mib_per_hour, 1),
                "most_mib": round(trend.most_mib, 1),
                "flat": trend.is_flat,
            },
        )
        if not trend.is_flat:
            growing.append(name)
    draw(sampler.records, RESULTS / "soak.svg", f"Memory of every process, {minutes:g} minutes of mixed load")
    say(f"soak: {facts}")
    good = not growing and not load.wrong and check.clean and not facts["contradictions"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
