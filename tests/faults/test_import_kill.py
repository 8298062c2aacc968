"""Killing a weights import at every named moment: the live weights are the old set or the new one, whole, and
doing it again ends well.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.assembly import write_file
from mutoscope.platform.artifacts.manifest import ComponentManifest
from mutoscope.platform.catalog import Catalog, WeightVersion
from mutoscope.platform.custody.fsck import Report, fsck
from mutoscope.platform.orchestration.importing import import_folder
from tests.support.parts import later
from tests.support.tinycard.card import CARD
from tests.support.tinycard.folder import write_folder

_IMPORT = """
import sys
from pathlib import Path
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.orchestration.importing import import_folder
from tests.support.tinycard.card import CARD
import_folder(Catalog.open(sys.argv[1]), ArtifactStore.open(sys.argv[2]), CARD, Path(sys.argv[3]))
"""

POINTS = (
    later("store.before_commit:kill@1"),
    "store.before_commit:kill@2",
    later("component.file_stored:kill@1"),
    "component.file_stored:kill@2",
    later("import.stored:kill"),
    "import.recorded:kill",
)


def run_into(fault: str, catalog_url: str, store_url: str, folder: Path) -> None:
    """Have a process killed by the fault while it imports."""
    marker = folder.with_suffix(".fired")
    environment = {**os.environ, "MUTOSCOPE_FAULT": fault, "MUTOSCOPE_FAULT_MARKER": str(marker)}
    process = subprocess.run(
        [sys.executable, "-c", _IMPORT, catalog_url, store_url, folder],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    assert marker.read_text() == fault.partition(":")[0] + "\n", "the fault must have fired"


@pytest.mark.parametrize("fault", POINTS)
def test_the_live_weights_are_whole_and_the_import_can_be_repeated(
    catalog: Catalog, catalog_url: str, store: ArtifactStore, tmp_path: Path, fault: str
) -> None:
    first, second = write_folder(tmp_path / "first"), write_folder(tmp_path / "second", seed=1)
    before = import_folder(catalog, store, CARD, first)
    run_into(fault, catalog_url, store.root_url, second)

    assert catalog.weights.live(CARD.id) == before, "published at once, or not at all"
    assert_live_is(catalog, store, first, tmp_path / "out")
    assert_clean(catalog, store)
    after = import_folder(catalog, store, CARD, second)
    assert after["net"].ordinal == 2
    assert_live_is(catalog, store, second, tmp_path / "out")
    assert_clean(catalog, store)


def assert_live_is(catalog: Catalog, store: ArtifactStore, folder: Path, out: Path) -> None:
    """The live component is the folder's, byte for byte."""
    version: WeightVersion = catalog.weights.live(CARD.id)["net"]
    out.mkdir()
    for file in ComponentManifest.parse(store.get(version.digest)).files:
        write_file(store, file, out / file.path)
        assert (out / file.path).read_bytes() == (folder / "net" / file.path).read_bytes()
    shutil.rmtree(out)


def assert_clean(catalog: Catalog, store: ArtifactStore) -> None:
    """Nothing recorded is missing, damaged or contradicted. Bytes without a row are no fault: nobody was told
    of them."""
    report = Report()
    found = list(fsck(catalog, store, report=report))
    assert report.clean, found
