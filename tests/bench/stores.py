"""The stores that `bench_store` compares, each behind the same five calls.

Only the standard library is imported here: every store runs in a process of its own, under the interpreter
that has it, and imports itself when it is made.

What a store does beyond the work differs, and `NOTES` says so: which digest it takes, whether reads verify.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

CHUNK = 1 << 20


class Store(Protocol):
    """One store in a fresh folder. A put is acknowledged when it returns: killed after it, nothing is lost;
    with `durable`, power may fail as well."""

    def __init__(self, folder: Path, durable: bool) -> None: ...
    def put(self, data: bytes) -> str: ...
    def put_file(self, path: Path) -> str: ...
    def get(self, key: str) -> bytes: ...
    def files(self) -> Path:
        """The folder with its objects, to see what a duplicate changes."""
        ...


class Floor:
    """The least a content-addressed store can do: hash, temporary file, rename. A duplicate is a name that
    exists; what stands under it is believed."""

    def __init__(self, folder: Path, durable: bool) -> None:
        self._root, self._durable = str(folder), durable
        self._shards: set[str] = set()

    def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        path = self._path(name)
        if not os.path.exists(path):
            with open(path + ".tmp", "wb") as file:
                file.write(data)
                self._sync(file.fileno())
            self._commit(path)
        return name

    def put_file(self, path: Path) -> str:
        hasher, temporary = hashlib.sha256(), f"{self._root}/incoming.tmp"
        with open(path, "rb", buffering=0) as source, open(temporary, "wb", buffering=0) as target:
            while chunk := source.read(CHUNK):
                target.write(chunk)
                hasher.update(chunk)
            self._sync(target.fileno())
        name = hasher.hexdigest()
        target_path = self._path(name)
        os.rename(temporary, target_path + ".tmp")
        self._commit(target_path)
        return name

    def get(self, key: str) -> bytes:
        with open(self._path(key), "rb") as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != key:
            raise ValueError(key)
        return data

    def files(self) -> Path:
        return Path(self._root)

    def _path(self, name: str) -> str:
        shard = f"{self._root}/{name[:2]}"
        if shard not in self._shards:
            os.makedirs(shard, exist_ok=True)
            self._shards.add(shard)
        return f"{shard}/{name}"

    def _commit(self, path: str) -> None:
        os.rename(path + ".tmp", path)
        if self._durable:
            folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(folder)
            os.close(folder)

    def _sync(self, descriptor: int) -> None:
        if self._durable:
            os.fsync(descriptor)


class Mutoscope:
    """`ArtifactStore` over a folder."""

    def __init__(self, folder: Path, durable: bool) -> None:
        from mutoscope.platform.artifacts import ArtifactStore

        self._folder = folder
        self._store = ArtifactStore.open(folder.as_uri(), durable=durable)

    def put(self, data: bytes) -> str:
        return self._store.put(data, kind="blob", media_type="application/octet-stream").digest

    def put_file(self, path: Path) -> str:
        return self._store.put(path, kind="blob", media_type="application/octet-stream").digest

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def files(self) -> Path:
        return self._folder / "objects"


class Redun:
    """`ValueStore` as the scheduler uses it: the value's tagged hash is its name."""

    def __init__(self, folder: Path, durable: bool) -> None:
        from redun.backends.value_store import ValueStore
        from redun.hashing import hash_tag_bytes

        self._folder, self._hash, self._store = folder, hash_tag_bytes, ValueStore(str(folder))

    def put(self, data: bytes) -> str:
        name: str = self._hash("Value", data)
        self._store.put(name, data)
        return name

    def put_file(self, path: Path) -> str:
        return self.put(path.read_bytes())

    def get(self, key: str) -> bytes:
        data, found = self._store.get(key)
        assert found
        return bytes(data)

    def files(self) -> Path:
        return self._folder


class Metaflow:
    """`ContentAddressedStore` over its local storage, uncompressed as ours is."""

    def __init__(self, folder: Path, durable: bool) -> None:
        from metaflow.datastore.content_addressed_store import ContentAddressedStore
        from metaflow.plugins.datastores.local_storage import LocalStorage

        self._folder = folder
        self._store = ContentAddressedStore("data", LocalStorage(str(folder)))

    def put(self, data: bytes) -> str:
        (result,) = self._store.save_blobs(iter([data]), raw=True)
        return str(result.key)

    def put_file(self, path: Path) -> str:
        return self.put(path.read_bytes())

    def get(self, key: str) -> bytes:
        ((_, data),) = self._store.load_blobs([key])
        return bytes(data)

    def files(self) -> Path:
        return self._folder


class DiskObjectstore:
    """Loose objects: one file each, always synced to disk."""

    def __init__(self, folder: Path, durable: bool) -> None:
        from disk_objectstore import Container

        self._folder, self._durable = folder, durable
        self._container: Any = Container(folder)
        self._container.init_container(clear=False)

    def put(self, data: bytes) -> str:
        return str(self._container.add_object(data))

    def put_file(self, path: Path) -> str:
        with path.open("rb") as source:
            return str(self._container.add_streamed_object(source))

    def get(self, key: str) -> bytes:
        return bytes(self._container.get_object_content(key))

    def files(self) -> Path:
        return self._folder


class DiskObjectstorePacked(DiskObjectstore):
    """Objects appended to a pack, each recorded in its index before the put returns."""

    def put(self, data: bytes) -> str:
        return self.put_all([data])[0]

    def put_all(self, blocks: Sequence[bytes]) -> list[str]:
        return list(self._container.add_objects_to_pack(list(blocks), do_fsync=self._durable, no_holes=True))

    def put_file(self, path: Path) -> str:
        with path.open("rb") as source:
            return str(self._container.add_streamed_object_to_pack(source, do_fsync=self._durable))


class DiskObjectstoreBatch(DiskObjectstorePacked):
    """All objects in one call: nothing is acknowledged before the last."""


class Dvc:
    """`HashFileDB` of dvc-data: bytes through `add_bytes`, files through `build` and `transfer`."""

    def __init__(self, folder: Path, durable: bool) -> None:
        from dvc_data.hashfile.db.local import LocalHashFileDB
        from dvc_objects.fs.local import LocalFileSystem

        self._folder, self._fs = folder, LocalFileSystem()
        self._database: Any = LocalHashFileDB(self._fs, str(folder / "files"), tmp_dir=str(folder / "tmp"))

    def put(self, data: bytes) -> str:
        name = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if not self._database.exists(name):
            self._database.add_bytes(name, data)
        return name

    def put_file(self, path: Path) -> str:
        from dvc_data.hashfile.build import build
        from dvc_data.hashfile.transfer import transfer

        staging, _, found = build(self._database, str(path), self._fs, "md5")
        transfer(staging, self._database, {found.hash_info}, hardlink=False, shallow=False)
        return str(found.hash_info.value)

    def get(self, key: str) -> bytes:
        with self._database.fs.open(self._database.oid_to_path(key), "rb") as file:
            return bytes(file.read())

    def files(self) -> Path:
        return self._folder / "files"


STORES: dict[str, type[Store]] = {
    "floor": Floor,
    "mutoscope": Mutoscope,
    "metaflow": Metaflow,
    "redun": Redun,
    "dvc-data": Dvc,
    "disk-objectstore": DiskObjectstore,
    "disk-objectstore packed": DiskObjectstorePacked,
    "disk-objectstore batch": DiskObjectstoreBatch,
}
PACKAGES = {name: name.partition(" ")[0] for name in STORES if name not in ("floor", "mutoscope")}
"""Store to the requirement that brings it."""

AT_MOST = {"disk-objectstore packed": 100}
"""Objects a round, where the whole number would take minutes."""

LOOSE = [name for name in STORES if name not in ("disk-objectstore",)]
"""Measured without fsync: all but the one that always syncs."""
SYNCED = ["floor", "mutoscope", "disk-objectstore", "disk-objectstore packed"]
"""Measured with fsync: those that can."""

NOTES = {
    "floor": "SHA-256; a duplicate is a name that exists; reads verify",
    "mutoscope": "SHA-256; a duplicate is compared with the stored bytes; reads verify",
    "metaflow": "SHA-1, uncompressed; writes a second file of metadata per object; reads do not verify; "
    "files are read into memory",
    "redun": "SHA-512; writes in place, so a killed put leaves a half object under its name; reads do not "
    "verify; files are read into memory",
    "dvc-data": "MD5; reads do not verify; files are hashed first and then copied",
    "disk-objectstore": "SHA-256; reads do not verify; a duplicate is written, synced, then hashed "
    "again; syncs the folder above the object's, not the object's own",
    "disk-objectstore packed": "SHA-256; one transaction per put; reads do not verify",
    "disk-objectstore batch": "SHA-256; all objects in one call, acknowledged together: a kill loses them "
    "all, so no bar compares with it",
}
