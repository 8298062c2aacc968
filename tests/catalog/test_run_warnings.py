"""What a run that succeeded has to say: kept with it, carried by archives, and taken back by a downgrade."""

from __future__ import annotations

import io

import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.archive_format import read_rows, row_line
from tests.support.records import an_artifact, claim, queue

CUT = "prompt: 93 tokens, of which clip takes 77: the last 16 were cut"
MADE = {"image": an_artifact("image")}


@pytest.mark.parametrize(("said", "kept"), [((), None), ((CUT, "é"), [CUT, "é"])])
def test_warnings_are_kept_with_the_run(
    any_catalog: Catalog, said: tuple[str, ...], kept: list[str] | None
) -> None:
    run = queue(any_catalog)
    claim(any_catalog)
    done = any_catalog.runs.succeed(run.id, "worker-a", MADE, warnings=said)
    assert done.state == "succeeded"
    assert done.warnings == any_catalog.runs.get(run.id).warnings == kept


def test_another_attempt_says_what_it_has_to_say(any_catalog: Catalog) -> None:
    run = queue(any_catalog)
    claim(any_catalog)
    failed = any_catalog.runs.fail(run.id, "worker-a", {"message": "planted"}, retry=True)
    assert failed.warnings is None
    claim(any_catalog, "worker-b")
    assert any_catalog.runs.succeed(run.id, "worker-b", MADE, warnings=[CUT]).warnings == [CUT]


def test_an_archive_carries_them_and_says_nothing_where_there_are_none(any_catalog: Catalog) -> None:
    records = []
    for key, said in (("quiet", ()), ("told", (CUT,))):
        run = queue(any_catalog, key)
        claim(any_catalog)
        records.append(any_catalog.runs.succeed(run.id, "worker-a", MADE, warnings=said))
    lines = [row_line(record) for record in records]
    # A reader of before knows no such field, and takes the rows that do not need it.
    assert [b'"warnings"' in line for line in lines] == [False, True]
    assert list(read_rows("runs", io.BytesIO(b"".join(lines)))) == records
