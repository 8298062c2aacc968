"""The store contract over every backend, and proof that none is left out."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

import mutoscope.platform.artifacts as package
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.backend import Backend
from mutoscope.platform.artifacts.local import LocalBackend
from mutoscope.platform.artifacts.remote import FsspecBackend
from mutoscope.platform.artifacts.s3 import S3Backend
from mutoscope.platform.ids import new_id
from tests.contract.shelves_contract import Damage, Plant
from tests.contract.store_contract import StoreContract
from tests.support import buckets
from tests.support.buckets import Bucket
from tests.support.servers import S3Server

LONG_AGO = 1_000_000_000.0

REGISTERED: dict[type, list[type[StoreContract]]] = {}


def covers(backend: type) -> Callable[[type[StoreContract]], type[StoreContract]]:
    """Registers a contract class as the proof of a backend."""

    def register(contract: type[StoreContract]) -> type[StoreContract]:
        REGISTERED.setdefault(backend, []).append(contract)
        return contract

    return register


@covers(LocalBackend)
class TestFileStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
        return ArtifactStore.open(tmp_path_factory.mktemp("store").as_uri())

    @pytest.fixture
    def damage(self, store: ArtifactStore) -> Damage:
        def overwrite(digest: str, data: bytes) -> None:
            path = store.local_path(digest)
            assert path is not None
            path.chmod(0o644)
            path.write_bytes(data)

        return overwrite

    @pytest.fixture
    def plant(self, store: ArtifactStore) -> Plant:
        def write(name: str, data: bytes) -> None:
            path = folder(store) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        return write

    @pytest.fixture
    def age(self, store: ArtifactStore) -> Callable[[str], None]:
        """Makes an object look old, where a medium lets anybody do that."""

        def touch(digest: str) -> None:
            path = store.local_path(digest)
            assert path is not None
            os.utime(path, (LONG_AGO, LONG_AGO))

        return touch

    def all_objects(self, store: ArtifactStore) -> Iterator[str]:
        files = (path for path in folder(store).rglob("*") if path.is_file())
        return (str(path) for path in files if path.name != "README.txt")


def folder(store: ArtifactStore) -> Path:
    return Path(store.root_url.removeprefix("file://"))


@covers(LocalBackend)
class TestDurableFileStore(TestFileStore):
    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
        return ArtifactStore.open(tmp_path_factory.mktemp("store").as_uri(), durable=True)


class FsspecContract(StoreContract):
    """Damage and listing through fsspec itself."""

    @pytest.fixture
    def damage(self, store: ArtifactStore) -> Damage:
        def overwrite(digest: str, data: bytes) -> None:
            filesystem, path = fsspec.core.url_to_fs(store.url(digest))
            filesystem.pipe_file(path, data)

        return overwrite

    @pytest.fixture
    def plant(self, store: ArtifactStore) -> Plant:
        def write(name: str, data: bytes) -> None:
            filesystem, root = fsspec.core.url_to_fs(store.root_url)
            path = f"{root}/{name}"
            filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            filesystem.pipe_file(path, data)

        return write

    @pytest.fixture
    def age(self) -> Callable[[str], None]:
        """These give an object the time of its last copy, and no way to set another."""
        return lambda digest: None

    def all_objects(self, store: ArtifactStore) -> Iterator[str]:
        filesystem, path = fsspec.core.url_to_fs(store.root_url)
        return iter(filesystem.find(path))


@covers(FsspecBackend)
class TestMemoryStore(FsspecContract):
    @pytest.fixture
    def store(self) -> Iterator[ArtifactStore]:
        url = f"memory://{new_id()}"
        yield ArtifactStore.open(url)
        filesystem, path = fsspec.core.url_to_fs(url)
        if filesystem.exists(path):
            filesystem.rm(path, recursive=True)


@covers(FsspecBackend)
class TestFsspecFolderStore(FsspecContract):
    """A file system behind fsspec, where uploads are visible while they grow: they go through ``tmp/``."""

    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
        folder = tmp_path_factory.mktemp("store")
        return ArtifactStore(FsspecBackend(f"local://{folder}"), f"local://{folder}")


@covers(FsspecBackend)
class TestAtomicUploadStore(TestMemoryStore):
    """The path of object stores, where a finished upload appears by itself: no ``tmp/``, no move."""

    @pytest.fixture
    def store(self) -> Iterator[ArtifactStore]:
        url = f"memory://{new_id()}"
        backend = FsspecBackend(url)
        backend.atomic_uploads = True
        yield ArtifactStore(backend, url)
        filesystem, path = fsspec.core.url_to_fs(url)
        if filesystem.exists(path):
            filesystem.rm(path, recursive=True)


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> Iterator[Bucket]:
    with buckets.opened(s3_server) as bucket:
        yield bucket


@covers(S3Backend)
class TestS3Store(StoreContract):
    """A real server. Each test has a prefix of its own."""

    @pytest.fixture
    def store(self, bucket: Bucket) -> ArtifactStore:
        return bucket.store()

    @pytest.fixture
    def damage(self, store: ArtifactStore, bucket: Bucket) -> Damage:
        return lambda digest, data: bucket.objects.pipe_file(store.url(digest), data)

    @pytest.fixture
    def plant(self, store: ArtifactStore, bucket: Bucket) -> Plant:
        return lambda name, data: bucket.objects.pipe_file(f"{store.root_url}/{name}", data)

    @pytest.fixture
    def age(self) -> Callable[[str], None]:
        """S3 lets nobody set an object's time."""
        return lambda digest: None

    @pytest.fixture(autouse=True)
    def _listing(self, bucket: Bucket) -> None:
        self.objects = bucket.objects

    def all_objects(self, store: ArtifactStore) -> Iterator[str]:
        return (name for name in self.objects.find(store.root_url) if not name.endswith("/README.txt"))


def backends() -> set[type]:
    """Every concrete class below `platform.artifacts` that offers what `Backend` asks for."""
    asked = {name for name, value in vars(Backend).items() if inspect.isfunction(value) and name[0] != "_"}
    modules = [
        importlib.import_module(m.name)
        for m in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    ]
    return {
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and value is not Backend and all(hasattr(value, name) for name in asked)
    }


def unproven(found: set[type]) -> set[str]:
    return {backend.__name__ for backend in found if not REGISTERED.get(backend)}


def test_every_backend_runs_the_contract() -> None:
    assert backends() >= {LocalBackend, FsspecBackend, S3Backend}
    assert unproven(backends()) == set()


def test_a_backend_nobody_registered_is_noticed() -> None:
    class Forgotten(LocalBackend):
        pass

    assert unproven(backends() | {Forgotten}) == {"Forgotten"}


@pytest.mark.parametrize("contract", [c for contracts in REGISTERED.values() for c in contracts])
def test_no_contract_class_switches_a_test_off(contract: type[StoreContract]) -> None:
    names = [name for name in dir(StoreContract) if name.startswith("test_")]
    assert len(names) >= 30
    assert all(getattr(contract, name) is getattr(StoreContract, name) for name in names)
