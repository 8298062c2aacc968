"""What every store must do with objects that are collected, damaged, or none of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore
from mutoscope.platform.artifacts.layout import object_name, trash_name
from mutoscope.platform.errors import ArtifactMissing, InvalidParameter
from mutoscope.platform.ids import sha256

DATA = b"bytes that somebody may want back"
ABSENT = sha256(b"never stored")
CLOCK_SLACK_S = 5.0
"""Object stores keep whole seconds, and their clock may be another machine's."""

Damage = Callable[[str, bytes], None]
"""Overwrites the object of a digest behind the store's back."""

Plant = Callable[[str, bytes], None]
"""Writes a file of any name below the root behind the store's back."""


def put(store: ArtifactStore, source: object, meta: dict[str, object] | None = None) -> ArtifactRef:
    return store.put(source, kind="blob", media_type="application/octet-stream", meta=meta)  # type: ignore[arg-type]


class ShelvesContract:
    """Subclasses provide `store`, empty, `damage` and `plant`."""

    def test_the_inventory_says_what_and_when(self, store: ArtifactStore) -> None:
        started = time.time()
        refs = [put(store, bytes([n]) * n) for n in range(1, 4)]
        listed = {stored.digest: stored for stored in store.inventory()}
        assert {d: s.size for d, s in listed.items()} == {ref.digest: ref.size for ref in refs}
        for digest, stored in listed.items():
            assert stored.name == object_name(digest)
            assert started - CLOCK_SLACK_S <= stored.modified <= time.time() + CLOCK_SLACK_S
        assert list(store.trashed()) == list(store.quarantined()) == list(store.foreign()) == []

    def test_trash_hides_an_object_and_a_read_brings_it_back(
        self, store: ArtifactStore, tmp_path: Path
    ) -> None:
        digest = put(store, DATA).digest

        def download() -> bytes:
            store.download(digest, tmp_path / "out")
            return (tmp_path / "out").read_bytes()

        def stream() -> bytes:
            with store.open_read(digest) as reader:
                return reader.read()

        for read in (lambda: store.get(digest), stream, download, lambda: store.read_range(digest, 0, 100)):
            assert store.trash(digest)
            assert not store.contains(digest)
            assert store.verify(digest) == "missing"
            assert [(t.digest, t.size) for t in store.trashed()] == [(digest, len(DATA))]
            with pytest.raises(ArtifactMissing):
                store.size(digest)
            assert read() == DATA
            assert store.contains(digest)
            assert list(store.trashed()) == []

    def test_moves_are_idempotent(self, store: ArtifactStore) -> None:
        digest = put(store, DATA).digest
        assert not store.restore(digest)
        assert not store.purge(digest)
        assert [store.trash(digest), store.trash(digest)] == [True, False]
        assert [store.restore(digest), store.restore(digest)] == [True, False]
        store.trash(digest)
        assert [store.purge(digest), store.purge(digest), store.restore(digest)] == [True, False, False]
        assert not store.trash(ABSENT)
        with pytest.raises(ArtifactMissing):
            store.get(digest)

    def test_the_trash_says_since_when(self, store: ArtifactStore, age: Callable[[str], None]) -> None:
        digest = put(store, DATA).digest
        age(digest)
        before = time.time()
        store.trash(digest)
        (trashed,) = store.trashed()
        assert trashed.name == trash_name(digest)
        assert before - CLOCK_SLACK_S <= trashed.modified <= time.time() + CLOCK_SLACK_S

    def test_a_put_does_not_count_on_the_trash(self, store: ArtifactStore) -> None:
        for source in (DATA, [DATA]):
            digest = put(store, DATA).digest
            store.trash(digest)
            put(store, source)
            assert store.contains(digest)
            assert [t.digest for t in store.trashed()] == [digest]
            assert store.purge(digest)
            assert store.get(digest) == DATA

    def test_restoring_leaves_a_sound_object_and_repairs_a_damaged_one(
        self, store: ArtifactStore, damage: Damage
    ) -> None:
        digest = put(store, DATA).digest
        store.trash(digest)
        put(store, DATA)
        assert store.restore(digest)
        assert list(store.trashed()) == list(store.quarantined()) == []
        store.trash(digest)
        put(store, DATA)
        damage(digest, DATA[:-1])
        assert store.restore(digest)
        assert store.get(digest) == DATA
        assert [(q.digest, q.size) for q in store.quarantined()] == [(digest, len(DATA) - 1)]

    def test_a_damaged_object_is_not_restored(self, store: ArtifactStore, damage: Damage) -> None:
        digest = put(store, DATA).digest
        damage(digest, DATA[:-1])
        store.trash(digest)
        assert not store.restore(digest)
        assert not store.contains(digest)
        assert list(store.trashed()) == []
        assert [q.digest for q in store.quarantined()] == [digest]

    @pytest.mark.parametrize(
        "stored", [DATA[:-1], DATA + b"!", b""], ids=["truncated", "extended", "emptied"]
    )
    def test_a_put_keeps_what_it_replaces(self, store: ArtifactStore, damage: Damage, stored: bytes) -> None:
        for count, source in enumerate((DATA, [DATA]), 1):
            digest = put(store, DATA).digest
            damage(digest, stored)
            assert store.verify(digest) == "damaged"
            put(store, source)
            assert store.verify(digest) == "sound"
            assert [(q.digest, q.size) for q in store.quarantined()] == [(digest, len(stored))] * count
        assert list(store.foreign()) == []

    def test_quarantine_takes_what_is_damaged_and_nothing_else(
        self, store: ArtifactStore, damage: Damage
    ) -> None:
        digest = put(store, DATA).digest
        store.quarantine(digest)
        store.quarantine(ABSENT)
        assert store.get(digest) == DATA
        damage(digest, b"?")
        store.quarantine(digest)
        assert not store.contains(digest)
        assert [q.digest for q in store.quarantined()] == [digest]
        with pytest.raises(ArtifactMissing):
            store.get(digest)

    def test_foreign_files_are_listed_and_left_alone(self, store: ArtifactStore, plant: Plant) -> None:
        digest = put(store, DATA).digest
        foreign = {
            "objects/notes.txt",
            f"objects/{'00' if digest[:2] != '00' else '01'}/{digest}",
            f"objects/{digest[:2]}/{digest}.part",
            f"objects/{ABSENT[:2]}/{ABSENT[:12]}",
            "trash/thing",
            "quarantine/thing",
        }
        for name in foreign:
            plant(name, b"?")
        plant("runs/a/index.html", b"page")
        assert set(store.foreign()) == foreign
        assert list(store.digests()) == [digest]
        assert list(store.trashed()) == list(store.quarantined()) == []

    def test_slices(self, store: ArtifactStore) -> None:
        digest = put(store, DATA).digest
        assert store.read_range(digest, 0, 5) == DATA[:5]
        assert store.read_range(digest, 6, 4) == DATA[6:10]
        assert store.read_range(digest, 0, len(DATA)) == DATA
        assert store.read_range(digest, len(DATA) - 3, 100) == DATA[-3:]
        assert store.read_range(digest, 4, 0) == b""
        assert store.read_range(digest, len(DATA) + 5, 4) == b""
        with pytest.raises(ArtifactMissing):
            store.read_range(ABSENT, 0, 1)
        with pytest.raises(InvalidParameter, match="0 or more"):
            store.read_range(digest, -1, 4)

    def test_unfinished_writes_can_be_cleared_away(self, store: ArtifactStore, plant: Plant) -> None:
        digest = put(store, DATA).digest
        plant("tmp/left-by-a-killed-writer", b"half")
        assert store.discard_unfinished(before=time.time() - 3600) == 0
        assert store.discard_unfinished(before=time.time() + 3600) == 1
        assert store.discard_unfinished(before=time.time() + 3600) == 0
        assert store.get(digest) == DATA


class PagesContract:
    """Browse pages. Subclasses provide `store`, empty."""

    def test_pages_are_replaceable_documents(self, store: ArtifactStore) -> None:
        path = "runs/2026-11-30/generate.text_to_image/a red circle é/index.html"
        assert store.published(path) is None
        for text in (b"<p>one", b"<p>the second", b""):
            store.publish(path, text, "text/html; charset=utf-8")
            assert store.published(path) == text
        assert list(store.inventory()) == list(store.foreign()) == []
        assert [store.unpublish(path), store.unpublish(path)] == [True, False]
        assert store.published(path) is None

    def test_pages_are_listed_by_folder(self, store: ArtifactStore) -> None:
        paths = ["runs/index.html", "runs/a/index.html", "runs/a/b/index.html", "runs/ab/index.html"]
        for path in paths:
            store.publish(path, b"page", "text/html")
        assert sorted(store.pages()) == sorted(paths)
        assert sorted(store.pages("runs/a")) == sorted(paths[1:3])
        assert list(store.pages("runs/none")) == []

    @pytest.mark.parametrize(
        "path",
        ["index.html", "runs", "runs/", "/runs/a", "runs/../objects/a", "runs/./a", "runs//a", "runs/a\\b",
         "runs/a\n", "objects/00/x", "../runs/a"],
    )  # fmt: skip
    def test_pages_stay_in_their_folder(self, store: ArtifactStore, path: str) -> None:
        for attempt in (
            lambda: store.publish(path, b"", "text/html"),
            lambda: store.published(path),
            lambda: store.unpublish(path),
            lambda: store.page_url(path),
        ):
            with pytest.raises(InvalidParameter, match="below runs/"):
                attempt()

    def test_a_page_has_an_address(self, store: ArtifactStore) -> None:
        store.publish("runs/a/index.html", b"page", "text/html")
        assert store.page_url("runs/a/index.html").endswith("/runs/a/index.html")
