"""The collector, step by step: what goes, what comes back, and what happens in between."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.collections import CollectionUnderWay
from mutoscope.platform.custody import collect, trash, users
from mutoscope.platform.custody.collect import Collector
from mutoscope.platform.custody.plan import plan
from mutoscope.platform.custody.users import SharedStore
from mutoscope.platform.errors import ArtifactMissing, LeaseLost, UnknownReference
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import ArtifactRef
from tests.support.collecting import DAY, Holdings
from tests.support.records import a_spec, claim


@pytest.fixture
def held(any_catalog: Catalog, store: ArtifactStore) -> Holdings:
    """Files beside each kind of database; latents may go after a day."""
    any_catalog.retention.add("latents", DAY, kind="latent")
    return Holdings(any_catalog, store)


def at(point: str, act: Callable[[], object], times: int = 1) -> Callable[[str], None]:
    """What a collector passes its points to: does `act` at the first `times` passes of `point`."""
    left = [times]

    def hit(passed: str) -> None:
        if passed == point and left[0]:
            left[0] -= 1
            act()

    return hit


def test_what_goes_lies_in_the_trash_until_its_grace_is_over(held: Holdings) -> None:
    old, new = held.make("old", age=2 * DAY), held.make("new")
    first = held.collect(grace=DAY)
    assert first.state == "finished"
    assert (first.counts["collected"], first.counts["collected_bytes"]) == (1, old.size)
    assert held.states(old, new) == ["tombstone, in the trash", "present"]
    assert held.catalog.artifacts.get(old.digest) == old, "its row still answers"
    assert [run.kind for run in held.catalog.runs.generated_by(old.digest)] == ["engine"]

    assert held.collect(grace=DAY).counts.get("removed", 0) == 0
    gone = held.collect(grace=0.0)
    assert (gone.counts["removed"], gone.counts["removed_bytes"]) == (1, old.size)
    assert held.states(old) == ["tombstone"]
    with pytest.raises(ArtifactMissing):
        held.store.get(old.digest)
    assert held.catalog.lineage.up(old.digest).artifacts[old.digest].present is False
    assert held.collect(grace=0.0).counts.get("removed", 0) == 0, "nothing is counted twice"


def test_a_collected_artifact_comes_back_with_what_it_cannot_be_read_without(held: Holdings) -> None:
    held.catalog.retention.add("weights", DAY, kind="weights")
    held.catalog.retention.add("blobs", DAY, kind="blob")
    tensor = held.make("tensor", "blob", age=2 * DAY)
    component = held.make("component", "weights", members={"t": tensor})
    for ref in (tensor, component):
        held.age(ref, 2 * DAY)
    held.collect(grace=DAY)
    assert held.states(tensor, component) == ["tombstone, in the trash"] * 2
    assert {item.ref for item in trash.contents(held.catalog, held.store)} == {tensor, component}

    assert set(trash.restore(held.catalog, held.store, component.digest)) == {component, tensor}
    assert held.states(tensor, component) == ["present", "present"]
    assert trash.restore(held.catalog, held.store, component.digest) == []
    assert held.collect(grace=0.0).counts["collected"] == 0, "it counts as made now"

    held.age(tensor, 2 * DAY)
    held.age(component, 2 * DAY)
    held.collect(grace=0.0)
    with pytest.raises(ArtifactMissing, match="was removed for good: replay the run that made it"):
        trash.restore(held.catalog, held.store, component.digest)
    with pytest.raises(UnknownReference):
        trash.restore(held.catalog, held.store, "0" * 64)


def test_a_memo_hit_needs_the_bytes_and_a_recompute_revives_the_row(held: Holdings) -> None:
    def compute() -> ArtifactRef:
        run = held.catalog.runs.enqueue(a_spec("key"), present=held.store.contains)
        assert run.disposition == "new"
        claim(held.catalog)
        ref = held.put("output")
        held.catalog.runs.succeed(run.run.id, "worker-a", {"latent": ref}, {})
        return ref

    first = compute()
    assert held.catalog.runs.enqueue(a_spec("key"), present=held.store.contains).disposition == "hit"
    held.age(first, 2 * DAY)
    held.collect(grace=DAY)
    assert compute() == first, "a miss: bytes in the trash are no hit"
    assert held.states(first) == ["present, in the trash"]
    held.collect(grace=0.0)
    assert held.states(first) == ["present"]
    assert held.catalog.runs.enqueue(a_spec("key"), present=held.store.contains).disposition == "hit"


def test_a_reader_brings_back_what_it_reads_and_the_next_collection_takes_it(held: Holdings) -> None:
    old = held.make("old", age=2 * DAY)
    held.collect(grace=DAY)
    assert held.store.get(old.digest) == b"old" * 10
    assert held.states(old) == ["tombstone, bytes there"]
    held.collect(grace=DAY)
    assert held.states(old) == ["tombstone, in the trash"]


def test_a_reader_under_lease_loses_nothing_however_short_the_grace(held: Holdings) -> None:
    old = held.make("old", age=2 * DAY)
    held.collect(grace=DAY)
    with held.catalog.leases.reading([old.digest], "a reader"):
        held.collect(grace=0.0)
        assert held.store.get(old.digest) == b"old" * 10
        held.collect(grace=0.0)
        assert held.store.contains(old.digest), "what is being read stays where it is"
    held.collect(grace=0.0)
    assert held.states(old) == ["tombstone"]


@pytest.mark.parametrize(
    "point", ["gc.after_mark", "gc.after_tombstone", "gc.after_trash", "gc.after_settle"]
)
def test_what_is_pinned_or_made_again_meanwhile_stays(held: Holdings, point: str) -> None:
    pinned, again = held.make("pinned", age=2 * DAY), held.make("again", age=2 * DAY)

    def interfere() -> None:
        if held.catalog.artifacts.state(pinned.digest) == "present":
            held.catalog.pins.add(pinned.digest, "late")
        held.make("again")

    held.collect(grace=DAY, at=at(point, interfere))
    expected = "present" if point == "gc.after_mark" else "tombstone, in the trash"
    assert held.states(pinned) == [expected]
    assert held.store.get(again.digest) == b"again" * 10
    held.collect(grace=0.0)
    assert held.states(again) == ["present"]


def test_a_pin_with_inputs_set_during_the_mark_is_heeded_for_all_it_keeps(held: Holdings) -> None:
    source = held.make("source", age=2 * DAY)
    product = held.make("product", used=[source], age=2 * DAY)
    late = at("gc.after_mark", lambda: held.catalog.pins.add(product.digest, "late", with_inputs=True))
    assert held.collect(grace=0.0, at=late).counts.get("collected", 0) == 0
    assert held.states(source, product) == ["present", "present"]


@pytest.mark.parametrize("point", ["gc.after_tombstone", "gc.after_settle"])
def test_what_the_memo_hands_out_while_it_is_collected_stays(held: Holdings, point: str) -> None:
    run = held.catalog.runs.enqueue(a_spec("key"), present=held.store.contains).run
    claim(held.catalog)
    ref = held.put("output")
    held.catalog.runs.succeed(run.id, "worker-a", {"latent": ref}, {})
    held.age(ref, 2 * DAY)

    def ask() -> None:
        # As one who looked at the bytes a moment earlier, when they were still there.
        answer = held.catalog.runs.enqueue(a_spec("key"), present=lambda wanted: True)
        assert answer.disposition == "hit"

    held.collect(grace=0.0, at=at(point, ask))
    assert held.states(ref) == ["present"]
    assert held.store.get(ref.digest) == b"output" * 10


def relying_writer(held: Holdings, ref: ArtifactRef) -> tuple[Callable[[], None], Callable[[], None]]:
    """A writer in two steps: it finds the bytes there and so writes none; later it records them."""
    lease: list[object] = []

    def put() -> None:
        writing = held.catalog.leases.writing("a writer")
        writing.__enter__()
        lease.append(writing)
        held.put("wanted")

    def record() -> None:
        held.catalog.runs.record_completed("engine", generated={"made": ref})
        lease.pop().__exit__(None, None, None)  # type: ignore[attr-defined]

    return put, record


def interleave(held: Holdings) -> ArtifactRef:
    """A writer relies on bytes just before they go to the trash, and records them just after the collector
    has looked again. Then the collector empties the trash, without grace."""
    wanted = held.make("wanted", age=2 * DAY)
    put, record = relying_writer(held, wanted)
    held.collect(grace=0.0, at=at("gc.after_tombstone", put))
    record()
    held.collect(grace=0.0)
    return wanted


def test_a_writer_that_relied_on_bytes_already_doomed_keeps_them(held: Holdings) -> None:
    wanted = interleave(held)
    assert held.states(wanted) == ["present"]
    assert held.store.get(wanted.digest) == b"wanted" * 10


def test_without_waiting_for_writers_those_bytes_would_be_lost(
    held: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy import Double, cast, null, select

    from mutoscope.platform.catalog import tombstones

    monkeypatch.setattr(tombstones, "_oldest_writer", lambda: select(cast(null(), Double)).scalar_subquery())
    wanted = interleave(held)
    assert held.states(wanted) == ["present, bytes not there"], "the test above can fail"


def test_without_looking_again_a_revived_row_would_wait_for_its_bytes(
    held: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = type(held.catalog.tombstones).settle
    again = held.make("again", age=2 * DAY)
    revive = at("gc.after_tombstone", lambda: held.make("again"))
    held.collect(grace=DAY, at=revive)
    assert held.states(again) == ["present"]

    held.age(again, 2 * DAY)
    monkeypatch.setattr(type(held.catalog.tombstones), "settle", lambda *given: settle(*given) and [])
    monkeypatch.setattr(type(held.catalog.tombstones), "judge", _judge_nothing)
    held.collect(grace=DAY, at=at("gc.after_tombstone", lambda: held.make("again")))
    assert held.states(again) == ["present, bytes not there"]


def _judge_nothing(*given: object) -> object:
    from mutoscope.platform.catalog.tombstones import Verdict

    return Verdict([], [], [], [])


def test_orphans_go_when_they_are_old_and_nobody_can_still_record_them(held: Holdings) -> None:
    orphan = held.put("orphan")
    path = held.store.local_path(orphan.digest)
    assert path is not None
    held.collect(grace=DAY)
    assert held.store.contains(orphan.digest), "it is young"

    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 2 * DAY))
    with held.catalog._database.write() as connection:
        connection.exec_driver_sql(
            "insert into leases (id, holder, kind, started_at, expires_at) values "
            f"('slow', 'a slow writer', 'writer', {held.catalog.reachability.now() - 3 * DAY}, 1e12)"
        )
    held.collect(grace=DAY)
    assert held.store.contains(orphan.digest), "somebody has been writing for longer than it is there"

    held.catalog.leases.release(["slow"])
    looked = plan(held.catalog, held.store, DAY)
    assert (looked.orphans.count, looked.orphans.size) == (1, orphan.size)
    counts = held.collect(grace=DAY).counts
    assert (counts["orphans"], counts["orphans_bytes"]) == (1, orphan.size)
    assert [item.digest for item in held.store.trashed()] == [orphan.digest]
    (trashed,) = trash.contents(held.catalog, held.store)
    assert trashed.ref is None


def test_a_plan_changes_nothing(held: Holdings) -> None:
    old, new = held.make("old", age=2 * DAY), held.make("new")
    looked = plan(held.catalog, held.store, 0.0)
    assert (looked.total.count, looked.total.size) == (1, old.size)
    assert [candidate.digest for candidate in looked.largest] == [old.digest]
    assert looked.trash.count == 0
    assert held.states(old, new) == ["present", "present"]
    assert held.catalog.collections.list() == []
    assert list(held.store.pages("users")) == []


def test_one_collects_at_a_time_and_a_dead_one_is_succeeded(held: Holdings) -> None:
    old = held.make("old", age=2 * DAY)
    collections = held.catalog.collections
    dead = collections.begin("host:1 dead", DAY)
    collections.add(dead.id, "host:1 dead", {"collected": 7})
    with pytest.raises(
        CollectionUnderWay, match=r"host:1 dead is collecting \(mark\): wait for it, or, if it is"
    ):
        held.collect(grace=DAY)
    collections.leave(dead.id, "host:1 dead")
    done = held.collect(grace=DAY)
    assert (done.id, done.counts["collected"]) == (dead.id, 8), "its counts go on"
    with pytest.raises(LeaseLost, match="another process has taken it over"):
        collections.enter(dead.id, "host:1 dead", "sweep")
    assert [record.state for record in collections.list()] == ["finished"]
    assert held.states(old) == ["tombstone, in the trash"]


def test_a_collector_that_was_overtaken_does_nothing_more(held: Holdings) -> None:
    old = held.make("old", age=2 * DAY)

    def overtake() -> None:
        (record,) = held.catalog.collections.list()
        held.catalog.collections.leave(record.id, record.holder)
        held.catalog.collections.begin("another", DAY)

    with pytest.raises(LeaseLost):
        held.collect(grace=DAY, at=at("gc.after_mark", overtake))
    assert held.states(old) == ["present"]


def test_a_collector_that_fails_lets_the_next_one_in_at_once(held: Holdings) -> None:
    held.make("old", age=2 * DAY)
    with faults.armed("gc.after_tombstone:raise"), pytest.raises(faults.InjectedError):
        held.collect(grace=DAY)
    assert held.collect(grace=DAY).counts["collected"] == 1


def test_nothing_is_collected_while_an_unseen_catalog_uses_the_store(held: Holdings, second: Catalog) -> None:
    shared, ours = held.make("shared", age=2 * DAY), held.make("ours", age=2 * DAY)
    theirs = Holdings(second, held.store)
    theirs.make("shared", age=2 * DAY)
    only_theirs = theirs.make("theirs", age=2 * DAY)
    users.register(second, held.store)
    with pytest.raises(
        SharedStore, match=r"is also used by .* on .*: give each with --also URL, or, if it is gone"
    ):
        held.collect(grace=0.0)
    assert [user.id for user in plan(held.catalog, held.store, 0.0).strangers] == [second.identity()]
    assert held.states(shared, ours) == ["present", "present"]

    held.collect(grace=0.0, also=[second])
    held.collect(grace=0.0, also=[second])
    assert held.states(ours) == ["tombstone"]
    assert theirs.states(shared, only_theirs) == ["present", "present"], "what another catalog has stays"

    second.retention.add("latents", DAY, kind="latent")
    theirs.collect(grace=0.0, also=[held.catalog])
    theirs.collect(grace=0.0, also=[held.catalog])
    assert theirs.states(shared, only_theirs) == ["tombstone", "tombstone"]
    with pytest.raises(ArtifactMissing):
        held.store.get(shared.digest)


def test_a_writer_of_another_catalog_is_waited_for(held: Holdings, second: Catalog) -> None:
    wanted = held.make("wanted", age=2 * DAY)
    theirs = Holdings(second, held.store)
    put, record = relying_writer(theirs, wanted)
    held.collect(grace=0.0, also=[second], at=at("gc.after_tombstone", put))
    held.collect(grace=0.0, also=[second])
    record()
    held.collect(grace=0.0, also=[second])
    assert theirs.states(wanted) == ["present"]
    assert held.store.get(wanted.digest) == b"wanted" * 10


def test_a_catalog_that_is_gone_can_be_forgotten(held: Holdings, second: Catalog) -> None:
    users.register(second, held.store)
    users.register(held.catalog, held.store)
    assert {user.id for user in users.users(held.store)} == {second.identity(), held.catalog.identity()}
    with pytest.raises(UnknownReference, match=r"0 catalogs registered in .* begin with 'zz'"):
        users.forget(held.store, "zz")
    assert users.forget(held.store, second.identity()[:12]).url == second.url
    held.collect(grace=0.0)


def test_a_copied_database_is_another_user(catalog: Catalog, catalog_url: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import shutil

    identity = catalog.identity()
    source = catalog_url.removeprefix("sqlite:///")
    with catalog._database.write() as connection:
        connection.exec_driver_sql("select 1")
    shutil.copy(source, tmp_path / "copy.db")
    for ending in ("-wal", "-shm"):
        if os.path.exists(source + ending):
            shutil.copy(source + ending, tmp_path / f"copy.db{ending}")
    copy = Catalog.open(f"sqlite:///{tmp_path / 'copy.db'}")
    assert copy.identity() != identity
    copy.close()
    again = Catalog.open(catalog_url)
    assert again.identity() == identity
    again.close()


@pytest.fixture
def second(tmp_path, empty_catalog):  # type: ignore[no-untyped-def]
    """Another catalog, to share the store."""
    import shutil

    shutil.copy(empty_catalog, tmp_path / "second.db")
    catalog = Catalog.open(f"sqlite:///{tmp_path / 'second.db'}")
    yield catalog
    catalog.close()


def test_more_objects_than_one_batch_holds(any_catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "BATCH", 50)
    any_catalog.retention.add("all", 0.0)
    store = ArtifactStore.open(f"memory://{new_id()}")
    refs = [store.put(f"{n}".encode(), kind="blob", media_type="text/plain") for n in range(123)]
    any_catalog.runs.record_completed("import", generated={f"file:{n}": ref for n, ref in enumerate(refs)})
    Holdings(any_catalog, store).age(refs[0], 1.0)
    collector = Collector(any_catalog, store)
    assert collector.collect(0.0).counts["removed"] == 123
    assert list(store.inventory()) == list(store.trashed()) == []
