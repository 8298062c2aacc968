"""Members: what containers consist of, recorded with the run that made them, on both databases."""

from __future__ import annotations

import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.errors import LeaseLost, UnknownReference
from mutoscope.platform.refs import ArtifactRef
from tests.support.records import a_spec, absent, an_artifact, claim, present, queue

NET = an_artifact("net", "weights")
PARTS = {"config.json": an_artifact("config", "blob"), "model/header": an_artifact("header", "blob")}


def recorded(catalog: Catalog, container: ArtifactRef = NET) -> dict[str, str]:
    return catalog.audit.members(container.digest)


def test_an_import_records_members_and_their_rows(any_catalog: Catalog) -> None:
    any_catalog.runs.record_completed("import", generated={"weights:net": NET}, members={NET.digest: PARTS})
    assert recorded(any_catalog) == {path: ref.digest for path, ref in PARTS.items()}
    assert {any_catalog.artifacts.get(ref.digest) for ref in PARTS.values()} == set(PARTS.values())
    (run,) = any_catalog.runs.list()
    assert any_catalog.runs.outputs(run.id) == {"weights:net": NET}, "files are members, not outputs"


def test_the_same_container_again_changes_nothing(any_catalog: Catalog) -> None:
    for _ in range(2):
        any_catalog.runs.record_completed("import", generated={"out": NET}, members={NET.digest: PARTS})
    assert recorded(any_catalog) == {path: ref.digest for path, ref in PARTS.items()}


def test_a_worker_records_members_with_the_success(any_catalog: Catalog) -> None:
    queue(any_catalog)
    run = claim(any_catalog)
    any_catalog.runs.succeed(run.id, "worker-a", {"net": NET}, members={NET.digest: PARTS})
    assert recorded(any_catalog) == {path: ref.digest for path, ref in PARTS.items()}


def test_a_worker_that_lost_the_run_records_none(any_catalog: Catalog) -> None:
    queue(any_catalog)
    run = claim(any_catalog)
    with pytest.raises(LeaseLost):
        any_catalog.runs.succeed(run.id, "worker-b", {"net": NET}, members={NET.digest: PARTS})
    assert recorded(any_catalog) == {}
    assert any_catalog.artifacts.list() == []


def test_a_base_the_catalog_does_not_know_is_refused_as_a_whole(any_catalog: Catalog) -> None:
    base = an_artifact("base", "weights")
    members = {NET.digest: {":base": base.digest, **PARTS}}
    with pytest.raises(UnknownReference, match=":base is "):
        any_catalog.runs.record_completed("import", generated={"out": NET}, members=members)
    assert any_catalog.runs.list() == []
    assert any_catalog.artifacts.list() == []
    any_catalog.artifacts.record(base)
    any_catalog.runs.record_completed("import", generated={"out": NET}, members=members)
    assert recorded(any_catalog)[":base"] == base.digest


@pytest.mark.parametrize("gone", ["model/header", "base's file"])
def test_a_hit_needs_every_member_present(any_catalog: Catalog, gone: str) -> None:
    base = an_artifact("base", "weights")
    deep = an_artifact("deep", "blob")
    any_catalog.runs.record_completed("import", generated={"out": base}, members={base.digest: {"f": deep}})
    queue(any_catalog)
    run = claim(any_catalog)
    members = {NET.digest: {**PARTS, ":base": base.digest}}
    any_catalog.runs.succeed(run.id, "worker-a", {"net": NET}, members=members)
    assert any_catalog.runs.enqueue(a_spec(), present=present).disposition == "hit"
    missing = deep if gone == "base's file" else PARTS[gone]
    again = any_catalog.runs.enqueue(a_spec(), present=lambda ref: ref.digest != missing.digest)
    assert again.disposition == "new", "weights that cannot be read are recomputed"


def test_outputs_without_members_are_hits_as_before(any_catalog: Catalog) -> None:
    queue(any_catalog)
    any_catalog.runs.succeed(claim(any_catalog).id, "worker-a", {"image": an_artifact("image")})
    assert any_catalog.runs.enqueue(a_spec(), present=present).disposition == "hit"
    assert any_catalog.runs.enqueue(a_spec(), present=absent).disposition == "new"


def test_many_members_are_recorded_at_once(any_catalog: Catalog) -> None:
    parts = {f"model/tensors/{index}": an_artifact(f"tensor {index}", "blob") for index in range(10_000)}
    any_catalog.runs.record_completed("import", generated={"out": NET}, members={NET.digest: parts})
    assert len(recorded(any_catalog)) == 10_000


def test_a_listing_shows_what_was_made_not_its_parts(any_catalog: Catalog) -> None:
    picture = an_artifact("picture")
    any_catalog.artifacts.record(picture)
    any_catalog.runs.record_completed("import", generated={"out": NET}, members={NET.digest: PARTS})
    assert set(any_catalog.artifacts.list()) == {NET, picture}
    assert set(any_catalog.artifacts.list(kind="blob")) == set(PARTS.values())
