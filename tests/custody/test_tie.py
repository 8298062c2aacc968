"""A catalog keeps to one store: the first meeting binds them, another is refused, one that moved is not."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.tie import OtherStore, tie
from mutoscope.platform.errors import ArtifactCorrupt
from tests.support.servers import S3Server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stores"


def store_at(folder: Path, name: str) -> ArtifactStore:
    return ArtifactStore.open((folder / name).as_uri())


def record(catalog: Catalog, store: ArtifactStore, data: bytes) -> None:
    """Bytes, then their row, as a process of an earlier version did."""
    catalog.artifacts.record(store.put(data, kind="text", media_type="text/plain"))


def test_the_first_store_is_the_catalogs(any_catalog: Catalog, folder: Path) -> None:
    one, other = store_at(folder, "one"), store_at(folder, "other")
    tie(any_catalog, one)
    bound = any_catalog.store()
    assert bound is not None
    assert (bound.id, bound.url) == (one.marker(), one.root_url)
    tie(any_catalog, one)
    with pytest.raises(OtherStore) as refused:
        tie(any_catalog, other)
    assert refused.value.exit_code == 2
    assert one.root_url in str(refused.value), "the line names the store to use"
    assert other.marker() is None, "a store that was refused is left as it was"


def test_a_store_that_others_use_too_is_fine(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    shared, url = store_at(folder, "shared"), f"sqlite:///{tmp_path / 'second.db'}"
    Catalog.migrate(url)
    second = Catalog.open(url)
    tie(catalog, shared)
    tie(second, shared)
    assert catalog.store() == second.store()
    second.close()


def test_a_store_that_moved_is_known_by_its_marker(catalog: Catalog, folder: Path) -> None:
    tie(catalog, store_at(folder, "here"))
    shutil.move(folder / "here", folder / "there")
    tie(catalog, store_at(folder, "there"))


@pytest.mark.parametrize("bound_before", [False, True])
def test_without_a_marker_the_bytes_decide(catalog: Catalog, folder: Path, bound_before: bool) -> None:
    """A catalog from before the tie, and a store that was restored without its marker."""
    right, wrong = store_at(folder, "right"), store_at(folder, "wrong")
    record(catalog, right, b"made earlier")
    if bound_before:
        tie(catalog, right)
        (folder / "right" / "store.json").unlink()
    with pytest.raises(OtherStore):
        tie(catalog, wrong)
    tie(catalog, right)
    bound = catalog.store()
    assert bound is not None
    assert bound.id == right.marker()


def test_two_hosts_that_start_at_once_on_different_stores(postgres_catalog_url: str, folder: Path) -> None:
    """One of them wins, whichever; the other is refused."""
    catalogs = [Catalog.open(postgres_catalog_url) for _ in range(2)]
    stores = [store_at(folder, name) for name in ("one", "other")]

    def start(number: int) -> bool:
        try:
            tie(catalogs[number], stores[number])
        except OtherStore:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(start, range(2))) == [False, True]
    for catalog in catalogs:
        catalog.close()


def test_a_marker_that_cannot_be_read_is_not_replaced(catalog: Catalog, folder: Path) -> None:
    store = store_at(folder, "one")
    tie(catalog, store)
    marker = folder / "one" / "store.json"
    marker.chmod(0o644)
    marker.write_text('{"format": "something else"}')
    with pytest.raises(ArtifactCorrupt, match=r"store\.json"):
        tie(catalog, store)
    assert "something else" in marker.read_text()


def test_on_s3_too(catalog: Catalog, s3_bucket: str) -> None:
    store = ArtifactStore.open(f"{s3_bucket}/prefix")
    tie(catalog, store)
    tie(catalog, store)
    with pytest.raises(OtherStore):
        tie(catalog, ArtifactStore.open(f"{s3_bucket}/other"))


def test_who_may_only_read_binds_nothing(
    catalog: Catalog, s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.reader.environment(s3_server.endpoint).items():
        monkeypatch.setenv(name, value)
    tie(catalog, ArtifactStore.open(s3_bucket))
    assert catalog.store() is None
