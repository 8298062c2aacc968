"""Archives of large things: objects beyond memory, histories deeper than a stack, wider than a statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.archive_export import export_archive
from mutoscope.platform.custody.archive_import import import_archive
from mutoscope.platform.errors import InvalidInput
from mutoscope.platform.refs import ArtifactRef
from tests.custody.archives import bring_in, in_a_process, write_out
from tests.support import big, memory
from tests.support.parts import few_now

OBJECT_BYTES = 256 << 20
BASE_BYTES = 64 << 20
"""What a process may need beyond what it has when it begins, whatever it carries."""


def write_out_lean(*arguments: str) -> None:
    before = memory.reset_peak()
    write_out(*arguments)
    _check(before)


def bring_in_lean(*arguments: str) -> None:
    before = memory.reset_peak()
    bring_in(*arguments)
    _check(before)


def _check(before: int) -> None:
    grown = memory.peak() - before
    assert grown <= BASE_BYTES, f"{grown >> 20} MiB"


@pytest.mark.long
def test_an_object_larger_than_what_memory_may_hold(
    catalog: Catalog, store: ArtifactStore, catalog_url: str, tmp_path: Path, empty_catalog: Path
) -> None:
    chunk = bytes(range(256)) * 4096
    ref = store.put(
        (chunk for _ in range(OBJECT_BYTES // len(chunk))), kind="blob", media_type="application/octet-stream"
    )
    catalog.artifacts.record(ref)
    archive, other = tmp_path / "large.tar", tmp_path / "other.db"
    other.write_bytes(empty_catalog.read_bytes())
    assert in_a_process(write_out_lean, catalog_url, store.root_url, str(ref), str(archive)) == 0
    assert archive.stat().st_size > OBJECT_BYTES
    elsewhere = (tmp_path / "elsewhere").as_uri()
    assert in_a_process(bring_in_lean, f"sqlite:///{other}", elsewhere, str(archive)) == 0
    assert ArtifactStore.open(elsewhere).verify(ref.digest) == "sound"


@pytest.mark.parametrize("shape", few_now(["chain", "fan"], lambda shape: shape == "fan"))
def test_deep_and_wide_histories(
    any_catalog: Catalog, tmp_path: Path, empty_catalog: Path, shape: str
) -> None:
    """Deeper than Python's stack, wider than a statement's parameters."""
    made = big.chain(any_catalog, 1500) if shape == "chain" else big.fan(any_catalog, 1500)
    root = made[-1]
    store = ArtifactStore.open((tmp_path / "store").as_uri())
    archive = tmp_path / "history.tar"
    told = export_archive(any_catalog, store, [root], archive, include="none").manifest
    assert told.rows["runs"] >= 1500
    path = tmp_path / "other.db"
    path.write_bytes(empty_catalog.read_bytes())
    other = Catalog.open(f"sqlite:///{path}")
    try:
        import_archive(other, store, archive)
        ours, theirs = (catalog.lineage.closure(root) for catalog in (any_catalog, other))
        assert (set(ours.artifacts), set(ours.runs)) == (set(theirs.artifacts), set(theirs.runs))
        assert not import_archive(other, store, archive).changed
    finally:
        other.close()


def test_a_number_that_json_lacks(catalog: Catalog, store: ArtifactStore, tmp_path: Path) -> None:
    ref = store.put(b"weights", kind="weights", media_type="application/octet-stream")
    catalog.artifacts.record(ArtifactRef(ref.digest, ref.kind, ref.media_type, ref.size))
    catalog.weights.publish("toy", "net", ref.digest, metrics={"loss": float("nan")})
    with pytest.raises(InvalidInput, match=r"WeightVersion .* cannot be exported"):
        export_archive(catalog, store, ["toy/net@1"], tmp_path / "a.tar")
    assert list(tmp_path.glob("*.tar")) == []
