"""What every store must do, whatever lies beneath. `test_stores` runs it over each backend."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.store import CHUNK_BYTES
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing, InvalidParameter
from mutoscope.platform.ids import sha256
from tests.contract.shelves_contract import ABSENT, Damage, PagesContract, ShelvesContract, put

DATA = b"the quick brown fox jumps over the lazy dog"


class StoreContract(ShelvesContract, PagesContract):
    """Subclasses provide `store`, empty, `damage`, `plant` and `age`."""

    def test_a_key_is_the_sha256_of_its_bytes(self, store: ArtifactStore) -> None:
        ref = put(store, DATA, {"note": 1})
        assert ref.digest == hashlib.sha256(DATA).hexdigest()
        assert (ref.size, ref.kind, ref.media_type) == (len(DATA), "blob", "application/octet-stream")
        assert ref.meta == {"note": 1}
        assert store.get(ref.digest) == DATA
        assert store.size(ref.digest) == len(DATA)

    @pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 1])
    def test_every_kind_of_source_stores_the_same_bytes(
        self, store: ArtifactStore, tmp_path: Path, size: int
    ) -> None:
        data = bytes(range(256)) * (size // 256) + bytes(size % 256)
        path = tmp_path / "source"
        path.write_bytes(data)
        thirds = [data[: size // 3], data[size // 3 : size // 2], data[size // 2 :]]
        sources = [data, bytearray(data), memoryview(data), path, io.BytesIO(data), iter(thirds), thirds]
        assert {put(store, source).digest for source in sources} == {sha256(data)}
        assert store.get(sha256(data)) == data
        assert list(store.digests()) == [sha256(data)]

    def test_put_is_idempotent(self, store: ArtifactStore) -> None:
        assert put(store, DATA) == put(store, DATA) == put(store, [DATA])
        assert list(store.digests()) == [sha256(DATA)]

    def test_contains(self, store: ArtifactStore) -> None:
        assert not store.contains(ABSENT)
        put(store, DATA)
        assert store.contains(sha256(DATA))
        assert not store.contains(ABSENT)

    def test_absent_objects_are_missing(self, store: ArtifactStore, tmp_path: Path) -> None:
        for ask in (store.get, store.open_read, store.size):
            with pytest.raises(ArtifactMissing, match=ABSENT[:12]):
                ask(ABSENT)
        with pytest.raises(ArtifactMissing):
            store.download(ABSENT, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []

    def test_a_prefix_is_no_key(self, store: ArtifactStore) -> None:
        put(store, DATA)
        with pytest.raises(InvalidParameter, match="64 hex digits"):
            store.get(sha256(DATA)[:12])

    @pytest.mark.parametrize(
        "stored",
        [DATA[:-1] + b"!", DATA[:-1], DATA + b"!", b""],
        ids=["flipped", "truncated", "extended", "emptied"],
    )
    def test_reads_notice_damage_and_a_put_repairs_it(
        self, store: ArtifactStore, damage: Damage, tmp_path: Path, stored: bytes
    ) -> None:
        for again in (DATA, [DATA]):
            ref = put(store, DATA)
            damage(ref.digest, stored)
            assert store.contains(ref.digest)
            assert store.contains(ref) == (len(stored) == len(DATA)), "a reference knows its size"
            with pytest.raises(ArtifactCorrupt, match="damaged"):
                store.get(ref.digest)
            with pytest.raises(ArtifactCorrupt), store.open_read(ref.digest) as reader:
                reader.read()
            with pytest.raises(ArtifactCorrupt):
                store.download(ref.digest, tmp_path / "out")
            assert list(tmp_path.iterdir()) == []
            put(store, again)
            assert store.get(ref.digest) == DATA

    def test_a_stream_withholds_the_last_bytes_of_a_damaged_object(
        self, store: ArtifactStore, damage: Damage
    ) -> None:
        data = bytes(2 * CHUNK_BYTES + 10)
        ref = put(store, data)
        damage(ref.digest, data[:-1] + b"\x01")
        received: list[bytes] = []

        def read_what_is_expected() -> None:
            # Such a reader stops at the size it expects, and never asks whether the stream has ended.
            with store.open_read(ref.digest) as reader:
                while sum(map(len, received)) < len(data):
                    received.append(reader.read(CHUNK_BYTES))

        with pytest.raises(ArtifactCorrupt):
            read_what_is_expected()
        assert 0 < sum(map(len, received)) < len(data)

    def test_streams_give_the_bytes_in_any_piece_size(self, store: ArtifactStore) -> None:
        ref = put(store, DATA)
        for piece in (1, 7, len(DATA), 1000):
            with store.open_read(ref.digest) as reader:
                assert b"".join(iter(lambda r=reader, n=piece: r.read(n), b"")) == DATA

    def test_an_empty_object_reads_as_such(self, store: ArtifactStore, tmp_path: Path) -> None:
        ref = put(store, b"")
        assert store.get(ref.digest) == b""
        with store.open_read(ref.digest) as reader:
            assert reader.read() == b""
        store.download(ref.digest, tmp_path / "empty")
        assert (tmp_path / "empty").read_bytes() == b""

    def test_download_replaces_the_file_at_once(self, store: ArtifactStore, tmp_path: Path) -> None:
        ref = put(store, DATA)
        target = tmp_path / "out.bin"
        target.write_bytes(b"older")
        store.download(ref.digest, target)
        assert target.read_bytes() == DATA
        assert list(tmp_path.iterdir()) == [target]

    def test_a_source_that_fails_leaves_nothing(self, store: ArtifactStore) -> None:
        class SourceBrokeError(Exception):
            pass

        def broken() -> Iterator[bytes]:
            yield bytes(CHUNK_BYTES)
            raise SourceBrokeError

        put(store, DATA)
        before = set(self.all_objects(store))
        with pytest.raises(SourceBrokeError):
            put(store, broken())
        with pytest.raises(OSError, match="pulled out"):
            put(store, PulledOut())
        assert set(self.all_objects(store)) == before

    def test_bad_references_are_refused_before_a_byte_is_written(self, store: ArtifactStore) -> None:
        consumed: list[bytes] = []

        def source() -> Iterator[bytes]:
            consumed.append(DATA)
            yield DATA

        with pytest.raises(InvalidParameter, match="kind"):
            store.put(source(), kind="picture", media_type="image/png")
        with pytest.raises(InvalidParameter, match="meta"):
            store.put(source(), kind="blob", media_type="x/y", meta={"big": "x" * 2000})
        with pytest.raises(InvalidParameter, match="chunks of bytes"):
            store.put(["text"], kind="blob", media_type="x/y")  # type: ignore[list-item]
        assert consumed == []
        assert list(store.digests()) == []

    def test_writers_of_one_object_do_not_meet(self, store: ArtifactStore) -> None:
        data, errors = bytes(300_000), []

        def write() -> None:
            try:
                for _ in range(5):
                    assert store.get(put(store, [data[:7], data[7:]]).digest) == data
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert list(store.digests()) == [sha256(data)]

    def test_a_writable_store_says_nothing_and_keeps_nothing(self, store: ArtifactStore) -> None:
        store.check_writable()
        assert list(self.all_objects(store)) == []

    def test_the_url_names_the_object(self, store: ArtifactStore) -> None:
        ref = put(store, DATA)
        assert store.url(ref.digest).endswith(f"/objects/{ref.digest[:2]}/{ref.digest}")

    def test_a_local_path_holds_the_bytes_where_there_is_one(self, store: ArtifactStore) -> None:
        ref = put(store, DATA)
        path = store.local_path(ref.digest)
        assert path is None or path.read_bytes() == DATA

    def all_objects(self, store: ArtifactStore) -> Iterator[str]:
        """Every file below the root, finished or not."""
        raise NotImplementedError


class PulledOut(io.RawIOBase):
    """A file whose medium goes away while it is read: an error of the source, not of the store."""

    def read(self, size: int = -1) -> bytes:
        raise OSError("pulled out")
