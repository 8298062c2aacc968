"""Rows that arrive from another catalog while this one goes on."""

from __future__ import annotations

from threading import Thread
from typing import Any

from sqlalchemy import text

from mutoscope.platform.catalog import ArtifactRow, Catalog, WeightVersion
from mutoscope.platform.catalog.transfer import Extract
from mutoscope.platform.catalog.transfer_keys import Roots
from tests.support.deadline import until
from tests.support.records import CARD, an_artifact

THEIRS, OURS = an_artifact("theirs", "weights"), an_artifact("ours", "weights")


class Arriving:
    """Rows taken out of one catalog, as another takes them in."""

    def __init__(self, extract: Extract) -> None:
        self._extract = extract

    def artifacts(self) -> list[ArtifactRow]:
        return [ArtifactRow(known.ref) for known in self._extract.artifacts()]

    def __getattr__(self, table: str) -> Any:
        return getattr(self._extract, table)


def a_writer_waits(catalog: Catalog) -> bool:
    """Whether a transaction on this Postgres database waits for another."""
    waiting = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with catalog._database.glance() as connection:
        return connection.execute(text(waiting)).first() is not None


def test_a_publication_waits_for_versions_that_arrive(catalog_url: str, postgres_catalog_url: str) -> None:
    there, here = Catalog.open(catalog_url), Catalog.open(postgres_catalog_url)
    there.artifacts.record(THEIRS)
    there.weights.publish(CARD, "net", THEIRS.digest)
    here.artifacts.record(OURS)
    published: list[WeightVersion] = []
    publication = Thread(target=lambda: published.append(here.weights.publish(CARD, "net", OURS.digest)))

    def publish_meanwhile() -> None:
        publication.start()
        until(lambda: a_writer_waits(here), "the publication waits for its turn")

    with there.transfer.extract(Roots(artifacts=frozenset([THEIRS.digest]))) as extract:
        arriving: Any = Arriving(extract)
        here.transfer.merge(arriving, before_commit=publish_meanwhile)
    publication.join()
    assert [(version.ordinal, version.digest) for version in here.weights.list(CARD)] == [
        (1, THEIRS.digest),
        (2, OURS.digest),
    ]
    assert here.weights.live(CARD) == {"net": published[0]}
    there.close()
    here.close()
