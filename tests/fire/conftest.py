"""One site for the whole suite: bringing it up takes most of a minute."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from tests.fire.report import Report, say
from tests.fire.site import Site

_SEEDS = itertools.count(1_000_000, 1_000)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    began = time.monotonic()
    say("starting Postgres, S3, Prefect and two hosts")
    with Site(tmp_path_factory.mktemp("fire")) as made:
        made.start()
        say(f"ready after {time.monotonic() - began:.0f} s")
        yield made


@pytest.fixture(scope="session")
def report(site: Site) -> Report:
    """Where times of recovery go."""
    facts = {"lease_seconds": site.lease_seconds, "target_seconds": site.lease_seconds + 10}
    return Report("faults", facts)


@pytest.fixture
def seed() -> int:
    """Where seeds begin that no other test has used."""
    return next(_SEEDS)


@pytest.fixture
def fresh_seed() -> Callable[[], int]:
    """The same, as often as asked."""
    return lambda: next(_SEEDS)
