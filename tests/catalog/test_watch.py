"""The cheap question whether a run was queued or ended."""

from __future__ import annotations

import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.watch import Watch
from tests.support.deadline import until
from tests.support.records import SERVES, an_artifact, claim, queue


def settled(watch: Watch) -> None:
    """Hear all that has been said so far."""
    until(lambda: not watch.changed(), "silence")


def heard(watch: Watch) -> None:
    """A notice takes its time from one connection to the other."""
    until(watch.changed, "the watch hears of it")


def test_sees_commits_of_its_own_catalog_and_of_others(any_catalog_url: str, catalog: Catalog) -> None:
    watch, other = catalog.watch(), Catalog.open(any_catalog_url)
    assert watch.changed(), "the first look"
    settled(watch)
    queue(catalog, "a")
    heard(watch)
    settled(watch)
    queue(other, "b")
    queue(other, "c")
    heard(watch)
    settled(watch)
    watch.close()
    other.close()


@pytest.mark.parametrize("ending", ["succeed", "fail", "release", "cancel"])
def test_hears_of_every_end(catalog: Catalog, ending: str) -> None:
    run = queue(catalog)
    claim(catalog)
    watch = catalog.watch()
    watch.changed()
    settled(watch)
    match ending:
        case "succeed":
            catalog.runs.succeed(run.id, "worker-a", {"image": an_artifact("image")})
        case "fail":
            catalog.runs.fail(run.id, "worker-a", {"type": "Oops"})
        case "release":
            catalog.runs.release(run.id, "worker-a")
        case "cancel":
            catalog.runs.request_cancel(run.id)
    heard(watch)
    watch.close()


def test_reading_and_what_came_to_nothing_is_no_change(catalog: Catalog) -> None:
    queue(catalog)
    watch = catalog.watch()
    watch.changed()
    settled(watch)
    catalog.artifacts.list()
    catalog.runs.claim("worker-a", {"another-card": SERVES["toy-card"]}, 60)
    with pytest.raises(ZeroDivisionError), catalog._database.write(news=True):
        raise ZeroDivisionError
    assert not watch.changed()
    watch.close()
