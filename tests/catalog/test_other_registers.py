"""Registers that other layers use, asked on both databases."""

from __future__ import annotations

import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.transfer_keys import Roots
from mutoscope.platform.errors import LeaseLost, UnknownReference
from tests.support.records import an_artifact, make, queue

IMAGE, OTHER = an_artifact("image"), an_artifact("other")


def test_artifacts_are_recorded_together(catalog: Catalog) -> None:
    catalog.artifacts.record_many([IMAGE, OTHER, IMAGE])
    assert catalog.audit.count() == 2
    assert {holding.digest for holding in catalog.audit.artifacts()} == {IMAGE.digest, OTHER.digest}


def test_runs_are_counted_by_state(catalog: Catalog) -> None:
    make(catalog, "key", {"image": IMAGE})
    queue(catalog, "another")
    assert catalog.runs.counts() == {"queued": 1, "succeeded": 1}


def test_incidents_are_found_and_counted(catalog: Catalog) -> None:
    make(catalog, "key", {"image": IMAGE})
    late = make(catalog, "key", {"image": OTHER})
    (incident,) = catalog.incidents.list()
    assert catalog.incidents.find(incident.id[:30]) == incident
    assert catalog.incidents.of_run(late.id) == incident.id
    assert catalog.incidents.counts() == {"determinism": 1}
    with pytest.raises(UnknownReference):
        catalog.incidents.find("ffff")


def test_pins_and_rules_are_read_back(catalog: Catalog) -> None:
    catalog.artifacts.record(IMAGE)
    pin = catalog.pins.add(IMAGE.digest, "keep", with_inputs=True)
    assert catalog.pins.get("keep") == pin
    assert catalog.pins.list() == [pin]
    rule = catalog.retention.add("old", keep_seconds=60.0, kind="image")
    assert catalog.retention.get("old") == rule


def test_leases_are_renewed_while_they_hold(catalog: Catalog) -> None:
    ids = catalog.leases.take("reader", [IMAGE.digest], "a test", 60.0)
    catalog.leases.renew(ids, 600.0)
    catalog.leases.release(ids)
    with pytest.raises(LeaseLost):
        catalog.leases.renew(ids, 600.0)


def test_a_miss_is_explained_by_the_nearest_success(catalog: Catalog) -> None:
    one = make(catalog, "one", {"image": IMAGE}, key_parts={"seed": 1, "parameters": {"steps": 4}})
    two = queue(catalog, "two", key_parts={"seed": 2, "parameters": {"steps": 4}})
    nearest = catalog.why.nearest(two)
    assert nearest is not None
    assert nearest.run == one
    assert [(d.left, d.right) for d in nearest.differences] == [("1", "2")]
    assert catalog.why.equal_failures(two) == 0


def test_a_sound_catalog_contradicts_nothing(catalog: Catalog) -> None:
    make(catalog, "key", {"image": IMAGE})
    for question in (
        catalog.contradictions.incomplete_containers,
        catalog.contradictions.dead_aliases,
        catalog.contradictions.dead_pins,
        catalog.contradictions.runs_without_outputs,
        catalog.contradictions.unfinished_with_outputs,
        catalog.contradictions.impossible_runs,
        catalog.contradictions.broken_references,
        catalog.contradictions.damaged_pages,
        catalog.contradictions.schema_differences,
    ):
        assert question() == [], question.__name__
    assert catalog.faults() == []


def test_a_history_is_taken_out_and_brought_in_again(catalog: Catalog) -> None:
    run = make(catalog, "key", {"image": IMAGE})
    with catalog.transfer.extract(Roots(artifacts=frozenset([IMAGE.digest]))) as extract:
        assert [known.ref for known in extract.artifacts()] == [IMAGE]
        assert list(extract.runs()) == [run]
        assert [edge.digest for edge in extract.edges()] == [IMAGE.digest]


def test_an_incident_that_is_about_no_run_is_recorded(catalog: Catalog) -> None:
    catalog.incidents.record("schedule", {"message": "it did not start"})
    (incident,) = catalog.incidents.list(kind="schedule")
    assert (incident.run_id, incident.details) == (None, {"message": "it did not start"})
