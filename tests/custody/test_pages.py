"""Run pages: derived from the catalog, safe whatever a prompt says, and linked so that they work anywhere."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import hashlib
import json
import re
import shutil
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog, WorkflowRecord
from mutoscope.platform.catalog.calendar import day_of
from mutoscope.platform.custody import pages_index
from mutoscope.platform.custody.archive_import import import_archive
from mutoscope.platform.custody.pages import Pages
from mutoscope.platform.custody.pages_path import NAME_CHARACTERS, folder_of, run_folder, slug
from mutoscope.platform.errors import InvalidInput, InvalidParameter
from mutoscope.platform.ids import new_id
from mutoscope.platform.orchestration.plan import Origin
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import submit_run
from tests.custody.archives import CARD_ID, History, archive_of, in_a_process
from tests.custody.test_archive import execute
from tests.support.fake_worker import FakeWorker

TODAY = datetime.now(UTC).date()


class Seen(HTMLParser):
    """What a page holds."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.policy = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes += values.items()
        self.links += [values[name] for name in ("href", "src", "poster") if name in values]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(runtime: Runtime, run_id: str) -> str:
    record = runtime.catalog.workflows.get(run_id)
    data = runtime.store.published(f"{folder_of(record)}/index.html")
    assert data is not None
    return data.decode()


def pages(runtime: Runtime) -> Pages:
    return Pages(runtime.catalog, runtime.store)


def a_run(runtime: Runtime, parameters: Mapping[str, Any], **options: Any) -> str:
    """A workflow run that has ended, without outputs."""
    state, error = options.pop("state", "succeeded"), options.pop("error", None)
    run_id = runtime.catalog.workflows.start(options.pop("workflow", "test.paint"), parameters, **options)
    runtime.catalog.workflows.finish(run_id, state, error=error)
    return run_id


def all_pages(store: ArtifactStore) -> dict[str, bytes]:
    return {path: store.published(path) or b"" for path in store.pages()}


# Names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a red circle left of a blue square", "a-red-circle-left-of-a-blue-square"),
        ("Ein großer Kreis, ganz ROT!", "ein-grosser-kreis-ganz-rot"),
        ("Crème brûlée — ½ portion", "creme-brulee-12-portion"),
        ("../../etc/passwd", "etc-passwd"),
        ("红色圆圈", ""),
        ("красный круг 7", "7"),
        ("🔴 circle 🟦", "circle"),
        ("con\x00trol\nand\ttab", "con-trol-and-tab"),
        ("%2e%2e%2f<script>", "2e-2e-2f-script"),
        ("...", ""),
    ],
)
def test_words_in_names(text: str, expected: str) -> None:
    assert slug(text, 60) == expected


def test_a_long_text_is_cut_at_a_word() -> None:
    assert slug("a red circle left of a blue square", 20) == "a-red-circle-left-of"
    assert slug("x" * 100, 20) == "x" * 20


@pytest.mark.parametrize("prompt", ["a " * 500, "红色圆圈" * 100, "x" * 1000, "../" * 50, "", None, 7, "CON"])
def test_a_folder_name_is_safe_everywhere(prompt: object) -> None:
    run_id = new_id()
    folder = run_folder(run_id, "image_video.t2i_i2v", {"prompt": prompt, "seed": 3})
    runs, day, workflow, name = folder.split("/")
    assert (runs, day, workflow) == ("runs", day_of(run_id).isoformat(), "image_video.t2i_i2v")
    assert len(name) <= NAME_CHARACTERS
    assert re.fullmatch(r"[0-9]{6}-[a-z0-9-]+-[0-9a-f]{8}", name), name


def test_a_workflow_of_any_name_stays_in_its_place() -> None:
    folder = run_folder(new_id(), "../../outside", {})
    assert folder.split("/")[2] == "outside"
    assert run_folder(new_id(), "...", {}).split("/")[2] == "workflow"


# A run's page


def test_every_link_of_every_page_leads_to_something(source: Runtime, history: History) -> None:
    pages(source).write([history.workflow_run])
    root = Path(source.store.root_url.removeprefix("file://"))
    found = list(source.store.pages())
    assert len(found) == 5  # index and manifest of the run, workflow, day, days
    for path in found:
        if not path.endswith(".html"):
            continue
        seen = Seen((root / path).read_text())
        assert seen.links
        for link in seen.links:
            assert not re.match(r"[a-z]+:", link) or link == "data:,", "relative links work anywhere"
            if link != "data:,":
                assert (root / path).parent.joinpath(link).resolve().is_file(), (path, link)


def test_the_page_tells_the_run(source: Runtime, history: History) -> None:
    pages(source).write([history.workflow_run])
    page = page_of(source, history.workflow_run)
    seen = Seen(page)
    (run,) = source.catalog.runs.generated_by(history.picture.digest)
    for told in ("a red circle", "test.paint", "net@1", "recipe@1", str(history.picture), "seed 2", "seed 1"):
        assert told in seen.text
    digest = history.picture.digest
    assert f"../../../../objects/{digest[:2]}/{digest}" in seen.links
    assert "<title>a red circle · Mutoscope</title>" in page
    assert run.card == CARD_ID


def test_calls_of_a_workflow_are_its_steps(source: Runtime, history: History) -> None:
    """What was computed, and what the memo answered, with keys and timings."""
    run_id = source.catalog.workflows.start("test.paint", {"prompt": "again"})

    async def ask() -> None:
        await submit_run(CARD_ID, seed=1, origin=Origin(run_id))
        await submit_run(CARD_ID, seed=77, origin=Origin(run_id))

    with FakeWorker(source, (CARD_ID,)).serving():
        asyncio.run(ask())
    source.catalog.workflows.finish(run_id, "succeeded", outputs={})
    pages(source).write([run_id])
    record = source.catalog.workflows.get(run_id)
    manifest = json.loads(source.store.published(f"{folder_of(record)}/manifest.json") or b"")
    assert [step["how"] for step in manifest["steps"]] == ["memo", "computed"]
    assert all(len(step["memo_key"]) == 64 for step in manifest["steps"])
    assert manifest["steps"][1]["timings"] == {"paint": 0.001}
    assert '<span class="state memo">memo</span>' in page_of(source, run_id)
    # Without outputs of its own, the page shows what its steps made.
    assert history.first.digest in page_of(source, run_id)


def test_the_manifest_says_the_same_to_programs(source: Runtime, history: History) -> None:
    pages(source).write([history.workflow_run])
    record = source.catalog.workflows.get(history.workflow_run)
    manifest = json.loads(source.store.published(f"{folder_of(record)}/manifest.json") or b"")
    assert manifest["format"] == "mutoscope.run-page/1"
    assert manifest["workflow_run"]["parameters"] == {"prompt": "a red circle", "seed": 1}
    picture = manifest["outputs"]["image"]
    assert (picture["digest"], picture["present"]) == (history.picture.digest, True)
    root = Path(source.store.root_url.removeprefix("file://"))
    assert (root / picture["object"]).read_bytes() == source.store.get(history.picture.digest)
    assert {used["name"] for used in manifest["weights"]} == {f"{CARD_ID}/net@1", f"{CARD_ID}/recipe@1"}
    assert history.first.digest in manifest["lineage"]["artifacts"]


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</title></style><script>alert(1)</script>",
        "javascript:alert(1)",
        "{{ 7 * 7 }}{% raw %}",
        "&lt;b&gt; \u202e right to left",
    ],
)
def test_what_people_write_is_text_and_nothing_else(source: Runtime, history: History, evil: str) -> None:
    error = {"type": evil, "message": evil}
    parent = a_run(source, {"prompt": evil})
    run_id = a_run(source, {"prompt": evil, evil: evil}, state="failed", error=error, parent_id=parent)
    pages(source).write([parent, run_id])
    for path, data in all_pages(source.store).items():
        if path.endswith(".html"):
            seen = Seen(data.decode())
            assert not {"script", "iframe", "object", "embed", "form", "base"} & set(seen.tags)
            assert not [name for name, _ in seen.attributes if name.startswith("on")]
            assert not [link for link in seen.links if link.startswith("javascript:")]
            assert seen.tags.count("title") == 1
    assert evil in Seen(page_of(source, run_id)).text


def test_the_policy_allows_pictures_and_the_one_style(source: Runtime, history: History) -> None:
    pages(source).write([history.workflow_run])
    page = page_of(source, history.workflow_run)
    policy = Seen(page).policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert " style=" not in page


def test_pictures_have_alternatives_in_words(source: Runtime, history: History) -> None:
    pages(source).write([history.workflow_run])
    page = page_of(source, history.workflow_run)
    pictures = re.findall(r"<img [^>]*>", page)
    assert pictures
    assert all(' alt="' in picture for picture in pictures)
    assert 'alt="image: a red circle"' in page
    assert '<html lang="en">' in page


@pytest.mark.parametrize("state", ["failed", "cancelled", "crashed"])
def test_a_run_that_ended_badly_says_how(source: Runtime, state: str) -> None:
    error = {"type": "RunFailed", "message": "run 7 of tiny-test failed: out of memory"}
    run_id = a_run(source, {"prompt": "too large"}, state=state, error=error)
    pages(source).write([run_id])
    seen = Seen(page_of(source, run_id))
    for told in (state, "RunFailed", "out of memory", "too large"):
        assert told in seen.text


def test_nested_runs_lead_to_each_other(source: Runtime) -> None:
    outer = source.catalog.workflows.start("test.outer", {"prompt": "outer"})
    inner = a_run(source, {"prompt": "inner"}, workflow="test.inner", parent_id=outer)
    source.catalog.workflows.finish(outer, "succeeded", outputs={})
    pages(source).write([inner, outer])
    folders = {run: folder_of(source.catalog.workflows.get(run)) for run in (outer, inner)}
    assert f"../../../../{folders[inner]}/index.html" in Seen(page_of(source, outer)).links
    assert f"../../../../{folders[outer]}/index.html" in Seen(page_of(source, inner)).links
    # A day lists what people started; a workflow's page lists each of its runs.
    day = Seen((source.store.published(f"runs/{TODAY}/index.html") or b"").decode())
    assert not [link for link in day.links if link.endswith(f"{folders[inner]}/index.html")]
    within = Seen((source.store.published(f"runs/{TODAY}/test.inner/index.html") or b"").decode())
    assert [link for link in within.links if link.endswith(f"{folders[inner]}/index.html")]


def test_collected_bytes_leave_a_placeholder(source: Runtime, history: History) -> None:
    tombstone = "update artifacts set state = 'tombstone', collected_at = created_at where digest = :digest"
    execute(source.catalog, tombstone, digest=history.picture.digest)
    pages(source).write([history.workflow_run])
    seen = Seen(page_of(source, history.workflow_run))
    assert "Its bytes are not in this store" in seen.text
    assert f"mutoscope replay {history.picture}" in seen.text
    digest = history.picture.digest
    assert f"../../../../objects/{digest[:2]}/{digest}" not in seen.links


def test_a_run_under_way_has_no_page(source: Runtime) -> None:
    running = source.catalog.workflows.start("test.paint", {"prompt": "not yet"})
    pages(source).write([running])
    assert not [path for path in source.store.pages() if "not-yet" in path]
    day = source.store.published(f"runs/{TODAY}/index.html") or b""
    assert b"not yet" not in day


# Indexes


def test_pages_can_be_deleted_and_written_again(source: Runtime, history: History) -> None:
    bad = a_run(source, {"prompt": "bad"}, state="failed", error={"type": "E", "message": "m"})
    pages(source).write([history.workflow_run])
    pages(source).write([bad])
    before = all_pages(source.store)
    assert pages(source).rebuild().written == 0, "what is current is left alone"
    shutil.rmtree(Path(source.store.root_url.removeprefix("file://")) / "runs")
    done = pages(source).rebuild()
    assert done.written == done.derived
    assert all_pages(source.store) == before


def test_rebuilding_since_a_day_leaves_earlier_ones(source: Runtime) -> None:
    a_run(source, {"prompt": "today"})
    assert (
        pages(source).rebuild(since=datetime(2999, 1, 1, tzinfo=UTC).date()).derived == 1
    )  # the index of days
    assert pages(source).rebuild(since=TODAY).derived == 4


def test_a_day_of_many_runs_is_several_sheets(source: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_index, "SHEET_RUNS", 3)
    made = []
    for number in range(8):
        made.append(a_run(source, {"prompt": f"number {number}"}))
        pages(source).write([made[-1]])
    before = all_pages(source.store)
    folder = f"runs/{TODAY}"
    expected = {
        f"{folder}/index.html": ([7, 6], {"page-1.html", "page-2.html"}),
        f"{folder}/page-2.html": ([5, 4, 3], {"page-1.html", "index.html"}),
        f"{folder}/page-1.html": ([2, 1, 0], {"index.html"}),
    }
    for path, (numbers, others) in expected.items():
        seen = Seen(before[path].decode())
        assert [int(number) for number in re.findall(r"number (\d)", seen.text)] == numbers
        prefix = f"../../{folder}/"
        assert {
            link.removeprefix(prefix) for link in seen.links if link.count("/") == prefix.count("/")
        } == others
    # As each was written when its runs ended, so a rebuild would write it.
    assert pages(source).rebuild().written == 0


def test_days_are_listed_newest_first(source: Runtime) -> None:
    for day in ("2026-02-28", "2026-03-01"):
        moment = datetime.fromisoformat(f"{day}T12:00:00+00:00")
        prefix = f"{int(moment.timestamp() * 1000):012x}"
        run_id = a_run(source, {"prompt": "then"})
        older = f"{prefix[:8]}-{prefix[8:]}{run_id[13:]}"
        execute(source.catalog, "update workflow_runs set id = :older where id = :id", older=older, id=run_id)
    assert [day.isoformat() for day in source.catalog.calendar.days()] == ["2026-03-01", "2026-02-28"]
    pages(source).rebuild()
    index = Seen((source.store.published("runs/index.html") or b"").decode())
    assert [link for link in index.links if "runs/2026" in link] == [
        "../runs/2026-03-01/index.html",
        "../runs/2026-02-28/index.html",
    ]


def test_a_writer_that_comes_late_corrects_itself(source: Runtime) -> None:
    """Its contents were derived before another run ended, and written after that one's index."""
    slow, quick = a_run(source, {"prompt": "the slow one"}), None
    own = Pages(source.catalog, source.store)
    path, derive = next(
        page
        for page in pages_index.sheets_of(source.catalog, source.catalog.workflows.get(slow))
        if "paint" in page[0]
    )

    def derive_late() -> bytes:
        nonlocal quick
        stale = derive()
        if quick is None:
            quick = a_run(source, {"prompt": "the quick one"})
            own.write([quick])
        return stale

    own._settle(path, derive_late)
    listed = Seen((source.store.published(path) or b"").decode()).text
    assert "the slow one" in listed
    assert "the quick one" in listed


RUNS_EACH, WRITERS = 3, 6


def end_runs(catalog_url: str, store_url: str, name: str) -> None:
    """What a flow process does, several times."""
    catalog, store = Catalog.open(catalog_url), ArtifactStore.open(store_url)
    for number in range(RUNS_EACH):
        run_id = catalog.workflows.start("test.paint", {"prompt": f"writer {name} number {number}"})
        catalog.workflows.finish(run_id, "succeeded", outputs={})
        Pages(catalog, store).write([run_id])


def test_many_processes_at_once_lose_no_entry(any_catalog_url: str, tmp_path: Path) -> None:
    store_url = (tmp_path / "store").as_uri()
    with concurrent.futures.ThreadPoolExecutor(WRITERS) as threads:
        ended = [
            threads.submit(in_a_process, end_runs, any_catalog_url, store_url, str(name))
            for name in range(WRITERS)
        ]
        assert [one.result() for one in ended] == [0] * WRITERS
    store = ArtifactStore.open(store_url)
    for path in (f"runs/{TODAY}/index.html", f"runs/{TODAY}/test.paint/index.html"):
        listed = Seen((store.published(path) or b"").decode())
        found = set(re.findall(r"writer (\d) number (\d)", listed.text))
        assert len(found) == WRITERS * RUNS_EACH


# Elsewhere


def test_an_imported_run_has_its_page(
    source: Runtime, history: History, target: Runtime, tmp_path: Path
) -> None:
    pages(source).write([history.workflow_run])
    archive = archive_of(source, tmp_path / "a.tar", history.workflow_run)
    done = import_archive(target.catalog, target.store, archive)
    pages(target).write(done.merged.workflow_runs)
    assert page_of(target, history.workflow_run) == page_of(source, history.workflow_run)


def test_a_store_without_links_to_give_away_says_so(source: Runtime, history: History) -> None:
    record = source.catalog.workflows.get(history.workflow_run)
    with pytest.raises(InvalidInput, match="serve its folder with any web server, or send an archive"):
        pages(source).presigned(record, 24)
    for hours in (0, -1, 169):
        with pytest.raises(InvalidParameter, match="hours"):
            pages(source).presigned(record, hours)


def test_presigned_links_open_without_credentials(
    s3_bucket: str, source: Runtime, history: History, tmp_path: Path
) -> None:
    store = ArtifactStore.open(s3_bucket)
    for digest in source.store.digests():
        store.put(source.store.get(digest), kind="blob", media_type="image/png")
    record: WorkflowRecord = source.catalog.workflows.get(history.workflow_run)
    seen = Seen(Pages(source.catalog, store).presigned(record, 1).decode())
    (link,) = {link for link in seen.links if history.picture.digest in link}
    with urllib.request.urlopen(link) as response:
        assert response.read() == source.store.get(history.picture.digest)
    origin = link.partition("/" + s3_bucket.removeprefix("s3://"))[0]
    assert f"img-src {origin} " in seen.policy
    assert "writer-secret" not in "".join(seen.links)
    assert not [link for link in seen.links if link.endswith("index.html")], "it stands alone"
