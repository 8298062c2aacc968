"""Export and import: the closure as one tar, and what it becomes in another home."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog, RunRecord, render_tree
from mutoscope.platform.custody.archive_export import export_archive
from mutoscope.platform.custody.archive_import import import_archive
from mutoscope.platform.errors import ArtifactCorrupt, CatalogError, InvalidInput, UnknownReference
from mutoscope.platform.ids import sha256
from mutoscope.platform.orchestration.replay import replay_run
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import submit_run
from mutoscope.platform.refs import ArtifactRef
from tests.custody.archives import CARD_ID, History, archive_of, everything, make_history
from tests.orchestration.conftest import RECIPE
from tests.support.fake_worker import FakeWorker, publish_weights
from tests.support.platform import platform_in
from tests.support.tinycard.card import CARD


def execute(catalog: Catalog, statement: str, **values: object) -> None:
    """Alter rows behind the catalog's back."""
    with catalog._database.write() as connection:
        connection.execute(text(statement), values)


@pytest.fixture(params=["file+sqlite", "s3+postgres"])
def any_target(request: pytest.FixtureRequest, tmp_path: Path, source: Runtime) -> Iterator[Runtime]:
    """An empty home on each pair of media."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere = {}
    if request.param == "s3+postgres":
        elsewhere = {
            "store_url": request.getfixturevalue("s3_bucket"),
            "database_url": request.getfixturevalue("postgres_catalog_url"),
        }
    with platform_in(folder, **elsewhere) as runtime:
        yield runtime


def test_what_arrives_is_what_left(
    source: Runtime, history: History, any_target: Runtime, tmp_path: Path
) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.workflow_run)
    done = import_archive(any_target.catalog, any_target.store, archive)
    assert done.changed
    assert everything(any_target.catalog) == everything(source.catalog)
    for digest in source.store.digests():
        assert any_target.store.get(digest) == source.store.get(digest)
    before, after = (r.catalog.lineage.up(history.picture.digest) for r in (source, any_target))
    assert render_tree(after) == render_tree(before)
    uses = any_target.catalog.lineage.weights_of(history.picture.digest)
    assert {str(v) for use in uses for v in use.versions} >= {f"{CARD_ID}/net@1"}
    assert any_target.catalog.leases.list() == []


async def test_an_imported_picture_replays_in_its_new_home(
    source: Runtime, history: History, any_target: Runtime, tmp_path: Path
) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.picture)
    import_archive(any_target.catalog, any_target.store, archive)
    (run,) = any_target.catalog.runs.generated_by(history.picture.digest)
    with FakeWorker(any_target, (CARD_ID,)).serving() as worker:
        replayed = await replay_run(run.id, runtime=any_target)
        assert replayed.equal
        assert worker.done == [replayed.run.id]


async def test_what_was_imported_answers_from_memo(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.first)
    import_archive(target.catalog, target.store, archive, alias="live")
    with FakeWorker(target, (CARD_ID,)).serving() as worker:
        outcome = await submit_run(CARD_ID, seed=1)
    assert outcome.disposition == "hit"
    assert outcome.outputs["image"] == history.first
    assert worker.done == []


def test_importing_again_changes_nothing(
    source: Runtime, history: History, any_target: Runtime, tmp_path: Path
) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.workflow_run)
    import_archive(any_target.catalog, any_target.store, archive)
    before = everything(any_target.catalog)
    again = import_archive(any_target.catalog, any_target.store, archive)
    assert not again.changed
    assert everything(any_target.catalog) == before
    # Nor does bringing it home.
    assert not import_archive(source.catalog, source.store, archive).changed


def test_a_dry_run_tells_all_and_does_nothing(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.workflow_run)
    planned = import_archive(target.catalog, target.store, archive, dry_run=True)
    assert list(target.store.digests()) == []
    assert all(rows == [] for rows in everything(target.catalog).values())
    done = import_archive(target.catalog, target.store, archive)
    assert (planned.merged.new, planned.stored, planned.stored_bytes) == (
        done.merged.new,
        done.stored,
        done.stored_bytes,
    )


def test_equal_content_gives_equal_bytes(source: Runtime, history: History, tmp_path: Path) -> None:
    one = archive_of(source, tmp_path / "one.tar", history.picture, history.first)
    two = archive_of(source, tmp_path / "two.tar", history.first, history.picture.digest[:9])
    assert one.read_bytes() == two.read_bytes()


def test_an_archive_is_read_without_our_code(source: Runtime, history: History, tmp_path: Path) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.picture)
    folder = tmp_path / "unpacked"
    folder.mkdir()
    subprocess.run(["tar", "xf", str(archive), "-C", str(folder)], check=True)
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "WARNING" not in checked.stderr
    assert len(checked.stdout.splitlines()) == sum(path.is_file() for path in folder.rglob("*")) - 1 - 1
    output = folder / "outputs" / history.picture.file_name
    assert output.read_bytes() == source.store.get(history.picture.digest)
    rows = [json.loads(line) for line in (folder / "rows" / "artifacts.jsonl").read_text().splitlines()]
    assert {row["digest"] for row in rows if row["bytes"] == "archived"} == {
        path.name for path in (folder / "objects").rglob("*") if path.is_file()
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == "mutoscope.archive/1"
    assert manifest["roots"] == [
        {"kind": "artifact", "name": str(history.picture), "key": history.picture.digest}
    ]


def test_only_what_something_came_from_goes_along(source: Runtime, history: History, tmp_path: Path) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.first)
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert f"objects/{history.first.digest[:2]}/{history.first.digest}" in names
    assert f"objects/{history.picture.digest[:2]}/{history.picture.digest}" not in names


def test_weights_can_stay_behind(source: Runtime, history: History, target: Runtime, tmp_path: Path) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.picture, include="without_weights")
    done = import_archive(target.catalog, target.store, archive)
    weights = source.catalog.weights.get(f"{CARD_ID}/net@1").digest
    assert (
        done.manifest.left_out == 2
    )  # the component's manifest, and the recipe, which is pinned as weights are
    assert target.store.contains(history.picture)
    assert not target.store.contains(weights)
    assert target.catalog.artifacts.state(weights) == "tombstone"
    assert target.catalog.artifacts.state(history.picture.digest) == "present"
    # The full archive brings them after all.
    full = archive_of(source, tmp_path / "full.tar", history.picture)
    import_archive(target.catalog, target.store, full)
    assert target.catalog.artifacts.state(weights) == "present"
    assert target.store.contains(weights)


def test_weights_that_are_here_already_stay_present(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    publish_weights(target, CARD, RECIPE)
    archive = archive_of(source, tmp_path / "a.tar", history.picture, include="without_weights")
    import_archive(target.catalog, target.store, archive)
    net = target.catalog.weights.get(f"{CARD_ID}/net@1")
    assert target.catalog.artifacts.state(net.digest) == "present"


def test_rows_alone_answer_where_something_came_from(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.picture, include="none")
    done = import_archive(target.catalog, target.store, archive)
    assert (done.manifest.objects, done.stored) == (0, 0)
    graph = target.catalog.lineage.up(history.picture.digest)
    assert history.first.digest in graph.artifacts
    assert not any(node.present for node in graph.artifacts.values())


def test_a_tombstone_is_exported_only_as_a_record(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    tombstone = "update artifacts set state = 'tombstone', collected_at = created_at where digest = :digest"
    execute(source.catalog, tombstone, digest=history.first.digest)
    source.store.trash(history.first.digest)
    path = tmp_path / "a.tar"
    with pytest.raises(InvalidInput, match=f"{history.first} was collected.*mutoscope replay .*--rows-only"):
        archive_of(source, path, history.first)
    assert list(tmp_path.glob("*.tar*")) == []
    assert list(tmp_path.glob(".*")) == []
    # What came of it is whole without it.
    done = import_archive(target.catalog, target.store, archive_of(source, path, history.picture))
    assert done.manifest.collected == 1
    assert target.catalog.artifacts.state(history.first.digest) == "tombstone"
    assert target.catalog.artifacts.state(history.picture.digest) == "present"


def collect(catalog: Catalog, digest: str) -> None:
    """Make a row a tombstone, as a collection does."""
    from sqlalchemy import text

    with catalog._database.write() as connection:
        connection.execute(
            text(
                "update artifacts set state = 'tombstone', collected_at = created_at where digest = :digest"
            ),
            {"digest": digest},
        )


def test_a_workflow_run_under_way_is_not_exported(source: Runtime, history: History, tmp_path: Path) -> None:
    running = source.catalog.workflows.start("test.paint", {})
    with pytest.raises(InvalidInput, match="is still running: export it when it has ended"):
        archive_of(source, tmp_path / "a.tar", running)


def test_what_nobody_knows_is_not_exported(source: Runtime, history: History, tmp_path: Path) -> None:
    with pytest.raises(UnknownReference):
        archive_of(source, tmp_path / "a.tar", history.picture, "video:abc")
    assert not (tmp_path / "a.tar").exists()


def test_damaged_bytes_are_not_exported(source: Runtime, history: History, tmp_path: Path) -> None:
    path = source.store.local_path(history.picture.digest)
    assert path is not None
    for damage in (lambda data: data[:-1] + b"?", lambda data: data + b"?"):
        original = path.read_bytes()
        os.chmod(path, 0o644)
        path.write_bytes(damage(original))
        with pytest.raises(ArtifactCorrupt):
            archive_of(source, tmp_path / "a.tar", history.picture)
        assert list(tmp_path.glob("*.tar*")) == list(tmp_path.glob(".*")) == []
        path.write_bytes(original)


def test_a_name_that_is_taken_gets_the_next_number(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    publish_weights(target, CARD, RECIPE, salt="other")
    own = target.catalog.weights.get(f"{CARD_ID}/net@1")
    archive = archive_of(source, tmp_path / "a.tar", history.picture)
    done = import_archive(target.catalog, target.store, archive)
    arrived = target.catalog.weights.get(f"{CARD_ID}/net@2")
    assert done.merged.renamed == {f"{CARD_ID}/net@1": f"{CARD_ID}/net@2"}
    assert arrived.digest == source.catalog.weights.get(f"{CARD_ID}/net@1").digest
    assert dict(arrived.metrics or {})["origin"] == f"{CARD_ID}/net@1"
    # The recipe is the same bytes in both homes: it keeps the one name it has.
    assert target.catalog.weights.list(CARD_ID)[-1].ordinal == 1
    assert target.catalog.weights.live(CARD_ID)["net"] == own
    assert not import_archive(target.catalog, target.store, archive).changed


def test_an_alias_moves_only_when_it_is_named(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    publish_weights(target, CARD, RECIPE, salt="other")
    archive = archive_of(source, tmp_path / "a.tar", history.picture)
    with pytest.raises(UnknownReference, match="no weights arrive under the alias 'best': there are live"):
        import_archive(target.catalog, target.store, archive, alias="best")
    assert list(target.catalog.weights.list(CARD_ID)) != []
    done = import_archive(target.catalog, target.store, archive, alias="live")
    assert done.merged.moved == [f"{CARD_ID}/net@2"]
    assert str(target.catalog.weights.live(CARD_ID)["net"]) == f"{CARD_ID}/net@2"
    assert not import_archive(target.catalog, target.store, archive, alias="live").changed


def test_a_run_that_says_something_else_is_refused(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.picture)
    import_archive(target.catalog, target.store, archive)
    (run,) = target.catalog.runs.generated_by(history.picture.digest)
    execute(target.catalog, "update runs set seed = 99 where id = :id", id=run.id)
    with pytest.raises(CatalogError, match=f"run {run.id} has seed 99 here and 2 there"):
        import_archive(target.catalog, target.store, archive)
    execute(target.catalog, "update runs set seed = 2 where id = :id", id=run.id)
    execute(target.catalog, "delete from edges where run_id = :id and role = 'image'", id=run.id)
    with pytest.raises(CatalogError, match=f"run {run.id} .* there, and not here"):
        import_archive(target.catalog, target.store, archive)


def test_other_bytes_under_an_equal_key_are_an_incident(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    def otherwise(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        ref = runtime.store.put(b"other", kind="image", media_type="image/png")
        latent = runtime.store.put(b"latent", kind="latent", media_type="application/x")
        return {"image": ref, "latent": latent}

    publish_weights(target, CARD, RECIPE)
    with FakeWorker(target, (CARD_ID,), perform=otherwise).serving():
        own = asyncio.run(submit_run(CARD_ID, seed=1)).run
    archive = archive_of(source, tmp_path / "a.tar", history.first)
    (theirs,) = source.catalog.runs.generated_by(history.first.digest)
    assert own.memo_key == theirs.memo_key
    done = import_archive(target.catalog, target.store, archive)
    assert done.merged.disagreements == 1
    (incident,) = target.catalog.incidents.list()
    assert {incident.run_id, incident.earlier_run_id} == {own.id, theirs.id}
    assert not import_archive(target.catalog, target.store, archive).changed
    assert len(target.catalog.incidents.list()) == 1
    # And it travels on.
    back = archive_of(target, tmp_path / "b.tar", theirs.id)
    import_archive(source.catalog, source.store, back)
    assert [found.id for found in source.catalog.incidents.list()] == [incident.id]


def test_an_end_that_came_later_is_taken_over(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    publish = source.catalog.workflows
    outer = publish.start("test.outer", {"prompt": "around it"})
    execute(
        source.catalog,
        "update workflow_runs set parent_id = :outer where id = :id",
        outer=outer,
        id=history.workflow_run,
    )
    early = archive_of(source, tmp_path / "early.tar", history.workflow_run)
    import_archive(target.catalog, target.store, early)
    assert target.catalog.workflows.get(outer).state == "running"
    publish.finish(outer, "failed", error={"type": "E", "message": "m"})
    late = archive_of(source, tmp_path / "late.tar", history.workflow_run)
    import_archive(target.catalog, target.store, late)
    assert target.catalog.workflows.get(outer).state == "failed"
    assert not import_archive(target.catalog, target.store, early).changed
    assert target.catalog.workflows.get(outer).state == "failed"


def test_two_homes_that_met_hold_the_same(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    other = make_history(target)
    assert other.workflow_run != history.workflow_run
    forth = archive_of(source, tmp_path / "forth.tar", history.workflow_run)
    back = archive_of(target, tmp_path / "back.tar", other.workflow_run)
    import_archive(target.catalog, target.store, forth)
    import_archive(source.catalog, source.store, back)
    ours, theirs = everything(source.catalog), everything(target.catalog)
    for table in ("artifacts", "workflow_runs", "runs", "edges"):
        assert len(ours[table]) == len(theirs[table])
    assert ours["runs"] == theirs["runs"]
    assert ours["edges"] == theirs["edges"]


def test_a_reader_holds_what_is_exported(
    source: Runtime, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str | None]] = []

    def look(done: int, total: int) -> None:
        seen.append({lease.digest for lease in source.catalog.leases.list()})

    written = export_archive(
        source.catalog, source.store, [str(history.picture)], tmp_path / "a.tar", progress=look
    )
    assert len(seen) == written.manifest.objects
    assert all(history.picture.digest in leased for leased in seen)
    assert source.catalog.leases.list() == []


def test_damage_in_the_new_home_is_repaired(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    archive = archive_of(source, tmp_path / "a.tar", history.picture)
    import_archive(target.catalog, target.store, archive)
    path = target.store.local_path(history.picture.digest)
    assert path is not None
    os.chmod(path, 0o644)
    path.write_bytes(b"x" * history.picture.size)
    import_archive(target.catalog, target.store, archive)
    assert sha256(target.store.get(history.picture.digest)) == history.picture.digest


def test_the_store_of_the_archive_need_not_be_ours(tmp_path: Path, source: Runtime, history: History) -> None:
    """Objects of an unpacked archive are a store: `objects/` has the same layout."""
    archive = archive_of(source, tmp_path / "a.tar", history.picture)
    subprocess.run(["tar", "xf", str(archive), "-C", str(tmp_path), "objects"], check=True)
    assert ArtifactStore.open(tmp_path.as_uri()).get(history.picture.digest)
