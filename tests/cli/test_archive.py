"""export, import and pages as people type them."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.settings import get_settings
from tests.cli.conftest import Command
from tests.support.empty import put_catalog


@pytest.fixture
def picture(catalog: Catalog, store: ArtifactStore) -> ArtifactRef:
    """A picture made of a text, within a workflow run."""
    text = store.put(b"a red circle", kind="text", media_type="text/plain")
    image = store.put(b"not really a picture", kind="image", media_type="image/png", meta={"width": 32})
    run_id = catalog.workflows.start("test.paint", {"prompt": "a red circle", "seed": 7})
    catalog.runs.record_completed("import", generated={"text": text})
    catalog.runs.record_completed(
        "engine", card="toy", used={"text": text}, generated={"image": image}, workflow_run_id=run_id
    )
    catalog.workflows.finish(run_id, "succeeded", outputs={"image": image})
    return image


def test_there_and_back(
    picture: ArtifactRef, mutoscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "picture.tar"
    told = mutoscope("export", str(picture), str(file))
    assert told.code == 0
    assert re.search(r"^archive +\S+picture.tar \(\d+\.\d KiB\)$", told.out, re.MULTILINE)
    assert re.search(r"^with bytes +2 \(32 B\)$", told.out, re.MULTILINE)
    assert tarfile.is_tarfile(file)

    monkeypatch.setenv("MUTOSCOPE_HOME", str(tmp_path / "other"))
    get_settings.cache_clear()
    put_catalog(tmp_path / "other")
    planned = mutoscope("import", str(file), "--dry-run")
    assert planned.out.splitlines()[:2] == [
        "would be new    2 artifacts, 1 workflow run, 2 runs, 3 edges",
        "bytes to store  2 objects (32 B)",
    ]
    assert json.loads(mutoscope("ls", "--json").out) == []
    done = json.loads(mutoscope("import", str(file), "--json").out)
    assert (done["changed"], done["stored"], done["new"]["runs"]) == (True, 2, 2)
    assert mutoscope("get", str(picture), "-o", "-").code == 0
    assert "a red circle" in mutoscope("ls", "workflows").out
    assert mutoscope("import", str(file)).out == "nothing is new: all of it is here already\n"
    # The runs that came along have their pages.
    where = mutoscope("pages", "url").out.strip()
    assert Path(where.removeprefix("file://")).is_file()
    assert "0 pages written, 4 were current" in mutoscope("pages", "rebuild").out


def test_a_home_that_was_never_up_can_import(
    picture: ArtifactRef, mutoscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "picture.tar"
    mutoscope("export", str(picture), str(file))
    monkeypatch.setenv("MUTOSCOPE_HOME", str(tmp_path / "fresh"))
    get_settings.cache_clear()
    looked = mutoscope("import", str(file), "--dry-run")
    assert (looked.code, "holds no catalog" in looked.err) == (1, True), "a dry run makes nothing"
    assert not (tmp_path / "fresh").exists()
    assert mutoscope("import", str(file)).code == 0
    assert mutoscope("fsck").out.endswith("clean\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["export", "x.tar"], "error: arguments='x.tar' is not valid: name at least one artifact or run"),
        (["export", "{ref}", "x.zip"], "error: file='x.zip' is not valid: name the archive last"),
        (["export", "video:abc", "x.tar"], "error: no artifact is named 'video:abc'"),
        (["export", "{ref}", "x.tar", "--rows-only", "--without-weights"], "use one of them"),
        (["export", "{ref}", "no/such/folder/x.tar"], "name a file in a writable folder"),
        (["import", "nowhere.tar"], "error: nowhere.tar cannot be read (No such file or directory)"),
        (["pages", "presign", "{run}", "-o", "page.html"], "has no links of its own to give away"),
        (["pages", "presign", "{run}", "-o", "page.html", "--hours", "1000"], "hours=1000.0 is not valid"),
        (["pages", "url", "abc"], "error: no workflow run id starts with 'abc'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_one_line(
    picture: ArtifactRef,
    catalog: Catalog,
    mutoscope: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (run,) = catalog.workflows.list()
    told = mutoscope(*(argument.format(ref=picture, run=run.id) for argument in arguments))
    assert told.code == 2
    assert told.out == ""
    assert line in told.err
    assert told.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == []


def test_show_tells_where_the_page_is(picture: ArtifactRef, catalog: Catalog, mutoscope: Command) -> None:
    (run,) = catalog.workflows.list()
    told = json.loads(mutoscope("show", run.id, "--json").out)
    assert told["workflow run"]["page"] == mutoscope("pages", "url", run.id).out.strip()
    assert told["workflow run"]["page"].endswith("/index.html")
