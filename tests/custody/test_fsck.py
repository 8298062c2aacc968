"""fsck: every kind of fault is found, named and set right as far as that is possible; what is sound is left
alone, also while others write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.fsck import Repair, Report, fsck
from mutoscope.platform.custody.fsck_bytes import GRACE_SECONDS
from mutoscope.platform.custody.fsck_findings import RULES
from mutoscope.platform.errors import ArtifactCorrupt, CatalogError
from mutoscope.platform.ids import new_id, sha256
from tests.support.damage import OTHER, World, execute, flip, make_world, overwrite, remove, store_bytes
from tests.support.records import a_spec, claim
from tests.support.servers import S3Server


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    """One bucket for all tests here: each makes a store of its own in it."""
    s3_server.create_bucket("fsck")
    return "s3://fsck"


@pytest.fixture(params=["file", "memory", "s3"])
def any_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ArtifactStore:
    if request.param == "file":
        return ArtifactStore.open((tmp_path / "store").as_uri())
    if request.param == "memory":
        return ArtifactStore.open(f"memory://{new_id()}")
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.writer.environment(server.endpoint).items():
        monkeypatch.setenv(name, value)
    return ArtifactStore.open(f"{request.getfixturevalue('bucket')}/{new_id()}")


@pytest.fixture
def world(catalog: Catalog, store: ArtifactStore) -> World:
    return make_world(catalog, store)


@pytest.fixture
def any_world(any_catalog: Catalog, any_store: ArtifactStore) -> World:
    return make_world(any_catalog, any_store)


def check(world: World, **options: bool) -> tuple[Report, list[Repair]]:
    report = Report()
    return report, list(fsck(world.catalog, world.store, report=report, **options))


def faults(world: World, **options: bool) -> list[tuple[str, str]]:
    """Code and subject of every fault that is left."""
    _, found = check(world, **options)
    return [(r.finding.rule.code, r.finding.subject) for r in found if r.finding.is_fault and r.did is None]


def notes(world: World) -> list[str]:
    """Code of every note, with the path of a foreign file."""
    found = [repair.finding for repair in check(world)[1] if not repair.finding.is_fault]
    return [f"{n.rule.code} {n.subject}" if n.rule.code == "foreign-file" else n.rule.code for n in found]


@pytest.mark.parametrize("deep", [True, False])
def test_a_sound_home_is_clean_everywhere(any_world: World, deep: bool) -> None:
    report, found = check(any_world, deep=deep)
    assert (found, report.clean) == ([], True)
    assert report.tally.rows == report.tally.objects == 5
    assert report.tally.bytes == (report.tally.listed_bytes if deep else 0)
    assert list(fsck(any_world.catalog, any_world.store, deep=deep, repair=True)) == []


def test_lost_and_damaged_bytes_on_every_medium(any_world: World) -> None:
    world = any_world
    remove(world.store, world.image.digest)
    flip(world.store, world.video.digest)
    overwrite(world.store, world.member.digest, OTHER)
    broken = {
        ("missing-bytes", str(world.image)),
        ("damaged-bytes", str(world.video)),
        ("damaged-bytes", str(world.member)),
    }
    assert set(faults(world)) == broken
    assert set(faults(world, deep=False)) == broken - {("damaged-bytes", str(world.video))}, (
        "a flip needs --deep"
    )

    _, repaired = check(world, repair=True)
    remake = {repair.finding.subject: repair.remake for repair in repaired if repair.did}
    assert remake == {
        str(world.image): f"mutoscope replay {world.image}",
        str(world.video): f"mutoscope replay {world.video}",
        str(world.member): "mutoscope weights import toy-card /weights/net",
    }
    # What is left is what only a person can bring back: the live weights lack a member.
    assert faults(world) == [("incomplete-weights", "toy-card/net@1")]
    assert sorted(notes(world)) == ["quarantined", "quarantined"]
    assert {found.digest for found in world.store.quarantined()} == {world.video.digest, world.member.digest}
    for ref in (world.image, world.video, world.member):
        assert world.catalog.artifacts.state(ref.digest) == "tombstone"
        assert world.catalog.lineage.up(ref.digest).root == ref.digest, "its lineage still answers"
    incidents = {i.details["digest"]: (i.kind, i.run_id) for i in world.catalog.incidents.list()}
    assert incidents == {
        world.image.digest: ("loss", world.first.id),
        world.video.digest: ("damage", world.second.id),
        world.member.digest: ("damage", None),
    }

    # Whoever makes the same bytes again brings the artifact back.
    for name, kind in (("image", "image"), ("video", "video")):
        world.catalog.artifacts.record(store_bytes(world.store, name, kind))
    world.catalog.artifacts.record(
        world.store.put(b"weights" * 99, kind="blob", media_type="application/octet-stream")
    )
    assert faults(world) == []
    assert len(world.catalog.incidents.list()) == 3, "an incident stays on record"


def test_sound_bytes_in_the_trash_are_brought_back(any_world: World) -> None:
    store = any_world.store
    store.trash(any_world.image.digest)
    store.trash(any_world.video.digest)
    overwrite(store, any_world.video.digest, OTHER)
    assert set(faults(any_world)) == {
        ("trashed-bytes", str(any_world.image)),
        ("damaged-bytes", str(any_world.video)),
    }
    check(any_world, repair=True)
    assert faults(any_world) == []
    assert list(store.trashed()) == []
    assert (store.get(any_world.image.digest), store.get(any_world.video.digest)) == (
        b"image" * 64,
        b"video" * 64,
    )
    assert any_world.catalog.incidents.list() == [], "nothing was lost"


@pytest.mark.parametrize("deep", [True, False])
def test_nothing_moves_unless_repairs_are_asked_for(any_world: World, deep: bool) -> None:
    refs = (any_world.image, any_world.weights, any_world.member)
    for ref in refs:
        any_world.store.trash(ref.digest)
    assert set(faults(any_world, deep=deep)) == {("trashed-bytes", str(ref)) for ref in refs}
    assert {stored.digest for stored in any_world.store.trashed()} == {ref.digest for ref in refs}


def test_a_hit_is_no_hit_on_bytes_that_were_cut(any_world: World) -> None:
    overwrite(any_world.store, any_world.image.digest, b"image")
    spec = a_spec("first", key_parts={}, weights={"net": any_world.weights.digest})
    asked = any_world.catalog.runs.enqueue(spec, present=any_world.store.contains)
    assert asked.disposition == "new"
    (call,) = any_world.catalog.calls.of_run(asked.run.id)
    assert call.passed_over is not None
    assert (call.passed_over.reason, call.passed_over.absent) == ("absent", (any_world.image.digest,))


def size_in_the_row(world: World) -> None:
    execute(world.catalog, "update artifacts set size = 1 where digest = :d", d=world.image.digest)


def found_again(world: World) -> None:
    remove(world.store, world.image.digest)
    check(world, repair=True)
    store_bytes(world.store, "image")


def writable(world: World) -> None:
    path = world.store.local_path(world.image.digest)
    assert path is not None
    path.chmod(0o644)


def forgotten_member(world: World) -> None:
    execute(world.catalog, "delete from members where path = 'net.bin'")


def wrong_member(world: World) -> None:
    execute(
        world.catalog, "update members set artifact_digest = :d where path = 'net.bin'", d=world.image.digest
    )


REPAIRED: dict[str, tuple[Callable[[World], None], str, str]] = {
    "size": (size_in_the_row, "wrong-size", "320 bytes"),
    "found": (found_again, "found-bytes", ""),
    "writable": (writable, "writable-object", ""),
    "forgotten": (forgotten_member, "wrong-members", "1 not recorded"),
    "mistaken": (wrong_member, "wrong-members", "1 recorded as others"),
}


@pytest.mark.parametrize("case", REPAIRED)
def test_what_can_be_set_right_is(world: World, case: str) -> None:
    break_it, code, detail = REPAIRED[case]
    break_it(world)
    assert [name for name, _ in faults(world, deep=False)] == [code]
    _, found = check(world)
    (one,) = [repair.finding for repair in found if repair.finding.is_fault]
    assert detail in one.detail
    assert one.rule.repair is not None
    check(world, repair=True)
    assert faults(world) == []
    assert world.catalog.artifacts.state(world.image.digest) == "present"
    assert world.catalog.artifacts.get(world.image.digest) == world.image
    assert world.catalog.audit.members(world.weights.digest)["net.bin"] == world.member.digest


def test_a_size_that_neither_row_nor_name_supports_is_damage(world: World) -> None:
    size_in_the_row(world)
    flip(world.store, world.image.digest)
    assert faults(world, deep=False) == [("damaged-bytes", str(world.image))]


# Rows that cannot be true, each as a statement that some other program ran. Nothing can be set right here:
# the check says so, and fails until somebody has.
UNREPAIRABLE: dict[str, tuple[str, str]] = {
    "no-outputs": ("delete from edges where direction = 'generated' and role = 'video'", "SECOND"),
    "unfinished-outputs": ("update runs set state = 'failed' where id = :second", "SECOND"),
    "impossible-run": ("update runs set finished_at = null where id = :second", "SECOND"),
    "dead-alias": ("update artifacts set state = 'tombstone' where digest = :weights", "toy-card/net@live"),
    "dead-pin": ("update artifacts set state = 'tombstone' where digest = :video", "best"),
}


@pytest.mark.parametrize("code", UNREPAIRABLE)
def test_rows_that_cannot_be_true_are_told(any_catalog: Catalog, store: ArtifactStore, code: str) -> None:
    world = make_world(any_catalog, store)
    any_catalog.pins.add(world.video.digest, "best")
    statement, subject = UNREPAIRABLE[code]
    values = {"second": world.second.id, "weights": world.weights.digest, "video": world.video.digest}
    execute(any_catalog, statement, **{k: v for k, v in values.items() if f":{k}" in statement})
    expected = [(code, subject.replace("SECOND", world.second.id))]
    assert faults(world) == faults(world, repair=True) == expected


def test_rows_that_lead_nowhere(world: World) -> None:
    execute(world.catalog, "delete from artifacts where digest = :d", d=world.video.digest)
    execute(world.catalog, "delete from runs where id = :r", r=world.second.id)
    found = [repair.finding for repair in check(world)[1] if repair.finding.rule.code == "broken-reference"]
    assert [(one.subject, one.detail) for one in found] == [
        ("calls", "1 row refers to runs that are not there"),
        ("edges", "1 row refers to artifacts that are not there"),
        ("edges", "3 rows refer to runs that are not there"),
    ]


def test_a_table_that_lacks_an_index_or_a_column(any_catalog: Catalog, store: ArtifactStore) -> None:
    world = make_world(any_catalog, store)
    execute(any_catalog, "drop index ix_members_artifact_digest_container")
    execute(any_catalog, "alter table pins drop column note")
    details = {
        (r.finding.subject, r.finding.detail)
        for r in check(world)[1]
        if r.finding.rule.code == "wrong-schema"
    }
    assert details == {
        ("members", "ix_members_artifact_digest_container is missing"),
        ("pins", "note is missing"),
    }


def break_the_page_of(world: World, home: Path, at: int, what: bytes) -> None:
    """Overwrite a few bytes of the database page that holds the image's row."""
    world.catalog.close()
    data = bytearray((home / "catalog.db").read_bytes())
    page = data.index(world.image.digest.encode()) // 4096 * 4096
    data[page + at : page + at + len(what)] = what
    (home / "catalog.db").write_bytes(data)


def test_a_database_file_that_still_opens(world: World, home: Path) -> None:
    break_the_page_of(world, home, 1, b"\x0f\xfe")  # where its free space begins
    (one,) = [repair.finding for repair in check(world)[1] if repair.finding.is_fault]
    assert one.rule.code == "damaged-catalog"
    assert faults(world, deep=False) == [], "what it takes to read the whole file, --fast does not see"


def test_a_database_file_that_cannot_be_read(world: World, home: Path) -> None:
    break_the_page_of(world, home, 0, b"\xff\xff\xff\xff")  # what kind of page it is
    with pytest.raises(CatalogError, match=r"is damaged \(.*malformed\): restore it from a backup$"):
        check(world)


def test_an_unreadable_manifest_is_told(world: World) -> None:
    data = b'{"component":"net","files":[],"format":"mutoscope.component/9"}'
    ref = world.store.put(data, kind="weights", media_type="application/json")
    world.catalog.artifacts.record(ref)
    (one,) = [repair.finding for repair in check(world)[1]]
    assert (one.rule.code, one.digest) == ("unreadable-manifest", ref.digest)
    assert "mutoscope.component/9" in one.detail


@pytest.mark.parametrize("deep", [True, False])
def test_a_damaged_manifest_is_damage_and_nothing_else(world: World, deep: bool) -> None:
    """Told once, by what sets it right, whether its size tells or not."""
    flip(world.store, world.weights.digest)
    assert faults(world, deep=deep) == [("damaged-bytes", str(world.weights))]
    overwrite(world.store, world.weights.digest, OTHER)
    assert faults(world, deep=deep) == [("damaged-bytes", str(world.weights))]
    check(world, deep=deep, repair=True)
    assert world.catalog.artifacts.state(world.weights.digest) == "tombstone"
    assert [found.digest for found in world.store.quarantined()] == [world.weights.digest]


def test_what_nothing_depends_on_is_a_note(world: World, home: Path) -> None:
    orphan = store_bytes(world.store, "orphan")
    os.utime(world.store.local_path(orphan.digest) or "", (1, 1))
    collected = store_bytes(world.store, "collected")
    world.catalog.artifacts.record(collected)
    execute(world.catalog, "update artifacts set state = 'tombstone' where digest = :d", d=collected.digest)
    objects = home / "store" / "objects"
    (objects / "7").write_bytes(b"a file where a folder belongs")
    (objects / "a").mkdir()
    (objects / "a" / "abc").write_bytes(b"a prefix of one digit")
    (objects / "zz").mkdir()
    (objects / "zz" / "notes.txt").write_bytes(b"mine")
    (home / "store" / "trash" / world.image.digest[:2]).mkdir(parents=True)
    (home / "store" / "trash" / world.image.digest[:2] / world.image.digest).write_bytes(b"image" * 64)
    before = sorted(path for path in objects.rglob("*") if path.is_file())

    assert check(world)[0].clean
    assert sorted(notes(world)) == [
        "collected-bytes",
        "foreign-file objects/7",
        "foreign-file objects/a/abc",
        "foreign-file objects/zz/notes.txt",
        "orphan",
        "spare-copy",
    ]
    report, _ = check(world, repair=True)
    assert report.clean
    assert sorted(path for path in objects.rglob("*") if path.is_file()) == before, "nothing was removed"
    assert list(world.store.trashed()) == [], "except the second copy"


def test_bytes_that_were_just_stored_are_no_orphan(world: World) -> None:
    fresh = store_bytes(world.store, "fresh")
    report, found = check(world)
    assert (found, report.tally.fresh) == ([], 1)
    path = world.store.local_path(fresh.digest)
    assert path is not None
    aged = path.stat().st_mtime - GRACE_SECONDS - 1
    os.utime(path, (aged, aged))
    assert notes(world) == ["orphan"]


def test_writers_and_collectors_at_work_look_like_no_fault(world: World) -> None:
    """Between the listing and the rows, and between the rows and the second look, the world changes."""
    catalog, store = world.catalog, world.store
    page = catalog.audit.artifacts

    def rows_of_a_moment_later() -> Iterator[object]:
        catalog.artifacts.record(store_bytes(store, "stored and recorded after the listing"))
        execute(catalog, "update artifacts set state = 'tombstone' where digest = :d", d=world.image.digest)
        store.trash(world.image.digest)  # collected after it was listed
        rows = list(page())
        execute(catalog, "update artifacts set state = 'tombstone' where digest = :d", d=world.video.digest)
        store.trash(world.video.digest)  # collected after its row was read
        return iter(rows)

    catalog.audit.artifacts = rows_of_a_moment_later  # type: ignore[method-assign,assignment]
    assert check(world)[1] == []
    collected = {world.image.digest, world.video.digest}
    assert {stored.digest for stored in store.trashed()} == collected, "a look brings nothing back"


def test_a_writer_that_comes_between_look_and_mark_keeps_its_row(world: World) -> None:
    remove(world.store, world.image.digest)
    mark = world.catalog.audit.mark_lost

    def stored_in_between(*arguments: object) -> bool:
        store_bytes(world.store, "image")  # its row is there: such a writer records nothing new
        return mark(*arguments)  # type: ignore[arg-type]

    world.catalog.audit.mark_lost = stored_in_between  # type: ignore[method-assign,assignment]
    check(world, repair=True)
    assert world.catalog.artifacts.state(world.image.digest) == "present"
    assert faults(world) == []


def test_no_transaction_is_open_while_bytes_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read = world.store.verify

    def writes_meanwhile(digest: str) -> str:
        # Would wait a minute for the write lock, and fail, if the check held it.
        world.catalog.artifacts.record(world.image)
        return read(digest)

    monkeypatch.setattr(world.store, "verify", writes_meanwhile)
    flip(world.store, world.video.digest)
    check(world, repair=True)
    assert faults(world) == []


@pytest.mark.parametrize(("looks", "repair"), [(1, False), (1, True), (2, True)])
def test_what_is_collected_between_two_looks_is_nobodys_fault(
    world: World, monkeypatch: pytest.MonkeyPatch, looks: int, repair: bool
) -> None:
    read, digest, seen = world.store.verify, world.image.digest, 0

    def collected_afterwards(wanted: str) -> str:
        nonlocal seen
        condition = read(wanted)
        seen += wanted == digest
        if wanted == digest and seen == looks:
            execute(
                world.catalog,
                "update artifacts set state = 'tombstone', collected_at = 1, purged_at = 1 where digest = :d",
                d=digest,
            )
            assert world.store.trash(digest)
            assert world.store.purge(digest)
        return condition

    size_in_the_row(world)
    monkeypatch.setattr(world.store, "verify", collected_afterwards)
    report, _ = check(world, repair=repair)
    assert seen >= looks
    assert report.clean
    assert world.catalog.incidents.list() == [], "it was not lost"
    assert faults(world) == []


def test_repairing_twice_changes_nothing_more(world: World) -> None:
    flip(world.store, world.image.digest)
    remove(world.store, world.video.digest)
    check(world, repair=True)
    before = world.catalog.incidents.list(), list(world.store.quarantined())
    report, found = check(world, repair=True)
    assert [repair.finding.rule.code for repair in found] == ["quarantined"]
    assert report.clean
    assert (world.catalog.incidents.list(), list(world.store.quarantined())) == before


def test_a_damaged_object_is_out_of_the_way_of_whoever_stores_it_again(world: World) -> None:
    flip(world.store, world.image.digest)
    check(world, repair=True)
    queued = world.catalog.runs.enqueue(
        a_spec("first", key_parts={}, weights={"net": world.weights.digest}), present=world.store.contains
    )
    assert queued.disposition == "new", "the memo does not answer with lost bytes"
    claim(world.catalog)
    world.catalog.runs.succeed(queued.run.id, "worker-a", {"image": store_bytes(world.store, "image")}, {})
    assert faults(world) == []
    assert world.store.get(world.image.digest) == b"image" * 64


def test_a_medium_that_fails_is_no_verdict(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(digest: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(world.store, "verify", refused)
    with pytest.raises(PermissionError):
        check(world, repair=True)
    monkeypatch.undo()
    assert faults(world) == [], "nothing was marked as lost"


def test_every_rule_says_what_to_do() -> None:
    for code, rule in RULES.items():
        assert rule.code == code
        assert rule.remedy
        assert rule.says
        assert len(rule.says) < 80


def test_reads_refuse_what_fsck_calls_damaged(world: World) -> None:
    flip(world.store, world.image.digest)
    with pytest.raises(ArtifactCorrupt):
        world.store.get(world.image.digest)
    assert faults(world) == [("damaged-bytes", str(world.image))]
    assert sha256(b"image" * 64) == world.image.digest
