"""A soak of a minute: every job of the mixed load ends as it must. `soak.py` goes on for longer, and judges
memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fire.film import check_clean
from tests.fire.load import Load
from tests.fire.memory import Sampler
from tests.fire.report import Report
from tests.fire.site import Site
from tests.fire.soak import SAMPLE_S, keep_going, long_lived
from tests.support.contradictions import contradictions

pytestmark = pytest.mark.fire

SECONDS = 60.0


def test_every_job_of_the_mixed_load_ends_as_it_must(site: Site, report: Report, tmp_path: Path) -> None:
    load = Load(site, tmp_path)
    sampler = Sampler(lambda: long_lived(site), SAMPLE_S)
    sampler.start()
    began = time.monotonic()
    keep_going(load, SECONDS)
    sampler.stop()
    assert load.wrong == []
    assert set(load.ended) >= {"film", "failing"}
    assert contradictions(site.catalog) == {}
    check_clean(site)
    assert {name.rpartition("/")[0] for name in sampler.records} == {"", "control", "east", "west"}
    report.add("brief_soak", {"seconds": round(time.monotonic() - began, 1), "ended": dict(load.ended)})
