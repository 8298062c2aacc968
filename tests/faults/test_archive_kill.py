"""Killing an export or an import of an archive at every named point: nothing half-done shows, what was there
stays whole, and doing it again ends well.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.archive_import import import_archive
from mutoscope.platform.custody.fsck import Report, fsck
from tests.custody.archives import archive_of, bring_in, everything, in_a_process, make_history, write_out
from tests.support.parts import few_now
from tests.support.platform import cards_registered, platform_in

IMPORT = (
    "import.verified:kill",
    "store.before_commit:kill@2",
    "import.object:kill@1",
    "import.object:kill@3",
    "import.before_rows:kill",
    "import.rows:kill",
    "import.after_rows:kill",
)
EXPORT = ("export.object:kill@1", "export.object:kill@4", "export.before_rename:kill")


ELSEWHERE = ("store.before_commit:kill@2", "import.object:kill@1", "import.rows:kill")
"""Points that are tried on the other store and database too."""
IN_THE_ROWS = ("import.rows:kill", "import.after_rows:kill")


@pytest.fixture
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """An empty catalog and store."""
    if request.param == "file+sqlite":
        return request.getfixturevalue("catalog_url"), (tmp_path / "store").as_uri()
    return request.getfixturevalue("postgres_catalog_url"), request.getfixturevalue("s3_bucket")


@pytest.mark.parametrize(
    ("urls", "fault"),
    few_now(
        [*(("file+sqlite", fault) for fault in IMPORT), *(("s3+postgres", fault) for fault in ELSEWHERE)],
        lambda urls, fault: fault in IN_THE_ROWS or (urls, fault) == ("file+sqlite", "import.object:kill@3"),
    ),
    indirect=["urls"],
)
def test_an_import_killed_anywhere(
    fault: str, urls: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    with (
        cards_registered(monkeypatch, "tests.support.tinycard.card:CARD"),
        platform_in(tmp_path / "source") as source,
    ):
        history = make_history(source)
        archive = archive_of(source, tmp_path / "a.tar", history.workflow_run)
        expected = everything(source.catalog)
    marker = tmp_path / "fired"
    killed = in_a_process(bring_in, *urls, str(archive), fault=fault, marker=marker)
    assert killed == -signal.SIGKILL
    assert marker.read_text() == fault.partition(":")[0] + "\n", "the fault must have fired"

    catalog, store = Catalog.open(urls[0]), ArtifactStore.open(urls[1])
    try:
        committed = fault.startswith("import.after_rows")
        assert everything(catalog) == (expected if committed else {table: [] for table in expected})
        for ref in catalog.artifacts.list():
            assert store.get(ref.digest), "a row never comes before its bytes"
        again = import_archive(catalog, store, archive)
        assert again.changed != committed
        assert everything(catalog) == expected
        report = Report()
        list(fsck(catalog, store, report=report))
        assert report.clean, report
        assert not import_archive(catalog, store, archive).changed
    finally:
        catalog.close()


@pytest.mark.parametrize("fault", few_now(EXPORT, lambda fault: fault == "export.before_rename:kill"))
def test_an_export_killed_anywhere(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    with (
        cards_registered(monkeypatch, "tests.support.tinycard.card:CARD"),
        platform_in(tmp_path / "source") as source,
    ):
        history = make_history(source)
        name = str(history.picture)
        whole = archive_of(source, tmp_path / "whole.tar", name).read_bytes()
        target, marker = tmp_path / "a.tar", tmp_path / "fired"
        urls = source.settings.database_url, source.settings.store_url
        killed = in_a_process(write_out, *urls, name, str(target), fault=fault, marker=marker)
        assert killed == -signal.SIGKILL
        assert marker.read_text() == fault.partition(":")[0] + "\n", "the fault must have fired"
        assert not target.exists(), "half an archive never has the archive's name"
        assert [path.name for path in tmp_path.glob(".*.partial")] == [".a.tar.partial"]

        assert in_a_process(write_out, *urls, name, str(target)) == 0
        assert target.read_bytes() == whole
        assert list(tmp_path.glob(".*")) == []
