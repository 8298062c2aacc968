"""Anything may die, or be cut off, while a film of sixty runs is made: it is made all the same, and nothing
is made twice but what a lost worker held.
"""

from __future__ import annotations

import pytest

from tests.fire.faults import FAULTS, Fault
from tests.fire.film import Film
from tests.fire.report import Report, say
from tests.fire.shape import RUNS
from tests.fire.site import Site

pytestmark = pytest.mark.fire


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_film_is_made(site: Site, report: Report, seed: int, fault: Fault) -> None:
    film = Film.begin(site, seed)
    say(f"{fault.__name__}: a film under way")
    struck = fault(site, film)
    assert 0 < struck.done < RUNS
    assert struck.running > 0
    say(f"{fault.__name__}: struck at {struck.done} of {RUNS}, recovered in {struck.recovery_seconds:.1f} s")
    row = film.wait()
    seconds = film.seconds
    account = film.check(row, twice=struck.taken)
    entry = {
        "struck_at": f"{struck.done} of {RUNS}",
        "running_then": struck.running,
        "taken_from_a_worker": len(struck.taken),
        "recovery_seconds": round(struck.recovery_seconds, 2),
        "within_target": struck.recovery_seconds <= report.facts["target_seconds"],
        "film_seconds": round(seconds, 1),
        **struck.facts,
        **account,
    }
    report.add(fault.__name__, entry)


def test_an_undisturbed_film(site: Site, report: Report, seed: int) -> None:
    film = Film.begin(site, seed)
    row = film.wait()
    report.add("undisturbed", {"film_seconds": round(film.seconds, 1), **film.check(row)})
