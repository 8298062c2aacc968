"""Browse pages in the store: one folder a run, an index a day and a workflow.

    runs/index.html                                       the days
    runs/2026-11-30/index.html                            a day's runs
    runs/2026-11-30/image_video.t2i_i2v/index.html        those of one workflow
    runs/2026-11-30/image_video.t2i_i2v/<name>/           one run: index.html, and manifest.json for programs

Pages are derived from the catalog and may be deleted and written again. They hold no bytes of artifacts:
pictures are links to ``objects/``, relative ones, so that a page works wherever the store can be looked at.
Sounds are drawn besides, see `pages_sound`.

Indexes are written by whoever ends a run, many processes at once. Nobody edits one: each derives it from the
catalog, writes it, and derives it again until what is there is what would be written. Of two writers the
later one looks at the catalog after both have written; so when all are done, no run that has ended is
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlsplit

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog, WorkflowRecord
from mutoscope.platform.catalog.calendar import day_of
from mutoscope.platform.custody import pages_index
from mutoscope.platform.custody.pages_facts import gather
from mutoscope.platform.custody.pages_path import INDEX, MANIFEST, day_folder, page_of, workflow_folder
from mutoscope.platform.custody.pages_render import HTML, JSON, Links, manifest_json, render
from mutoscope.platform.custody.pages_sound import draw_sounds
from mutoscope.platform.errors import InvalidInput, InvalidParameter

_SETTLE = 8
"""Times an index is derived again. Others are at work on it after that, and each of them does the same."""

_MOST_HOURS = 7 * 24
"""Presigned links live no longer: S3's own limit."""


@dataclass(frozen=True, slots=True)
class Written:
    """Pages that had to be written, of so many that were derived."""

    written: int
    derived: int


class Pages:
    """The pages of one store, over the catalog that describes it. Keeps no state."""

    def __init__(self, catalog: Catalog, store: ArtifactStore) -> None:
        self._catalog = catalog
        self._store = store

    def url(self, record: WorkflowRecord) -> str:
        """Where a run's page is, or will be."""
        return self._store.web_url(page_of(record))

    def write(self, run_ids: Iterable[str]) -> Written:
        """Write the pages of runs that have ended, and the indexes that lead to them.

        Raises:
            UnknownReference: no such run.
            StoreUnwritable: the store refuses.
        """
        records = [self._catalog.workflows.get(run_id) for run_id in run_ids]
        counts = [self._write_run(record) for record in records if record.finished_at is not None]
        sheets: dict[str, Callable[[], bytes]] = {}
        for record in records:
            sheets |= dict(pages_index.sheets_of(self._catalog, record))
        counts += [self._settle(path, derive) for path, derive in sheets.items()]
        for day in {day_of(record.id) for record in records}:
            if not pages_index.lists_day(self._store.published(pages_index.DAYS_PAGE), day):
                counts.append(self._settle_days())
        return Written(sum(counts), len(counts))

    def rebuild(
        self, since: date | None = None, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> Written:
        """Derive every page again, or those of the days from `since` on, and write what differs.

        Args:
            progress: called with days done, of so many.
        """
        days = [day for day in self._catalog.calendar.days() if since is None or day >= since]
        written = derived = 0
        for done, day in enumerate(days, 1):
            counts = [self._write_run(record) for record in self._catalog.calendar.ended(day)]
            counts += [
                self._settle(path, derive) for path, derive in pages_index.all_sheets(self._catalog, day)
            ]
            written, derived = written + sum(counts), derived + len(counts)
            progress(done, len(days))
        return Written(written + self._settle_days(), derived + 1)

    def presigned(self, record: WorkflowRecord, hours: float) -> bytes:
        """A run's page by itself, whose links open without credentials for so long.

        Raises:
            InvalidParameter: `hours` is not above 0, or beyond what stores grant.
            InvalidInput: the store has no such links, or the run has not ended.
        """
        if not 0 < hours <= _MOST_HOURS:
            raise InvalidParameter("hours", hours, f"use more than 0 and at most {_MOST_HOURS}")
        if record.finished_at is None:
            raise InvalidInput(f"workflow run {record.id} is still running: wait for its end")
        seconds = int(hours * 3600)
        probe = self._presign("0" * 64, seconds)
        origin = urlsplit(probe)
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        links = Links(
            bytes=lambda digest: self._presign(digest, seconds),
            page=lambda path: None,
            sources=f"{origin.scheme}://{origin.netloc}",
        )
        facts = gather(self._catalog, record)
        shown = until.strftime("%-d %B %Y, %H:%M UTC")
        sounds = draw_sounds(self._store, facts)
        return render("run.html", links, view=facts, sounds=sounds, trail=(), until=shown)

    def _presign(self, digest: str, seconds: int) -> str:
        url = self._store.presigned_url(digest, seconds)
        if url is None:
            raise InvalidInput(
                f"the store {self._store.root_url} has no links of its own to give away: "
                "serve its folder with any web server, or send an archive (`mutoscope export`)"
            )
        return url

    def _write_run(self, record: WorkflowRecord) -> int:
        facts = gather(self._catalog, record)
        sounds = draw_sounds(self._store, facts)
        page = render("run.html", Links.within(facts.folder), view=facts, sounds=sounds, trail=_trail(record))
        return self._write_if_other(f"{facts.folder}/{MANIFEST}", manifest_json(facts.to_dict()), JSON) | (
            self._write_if_other(f"{facts.folder}/{INDEX}", page, HTML)
        )

    def _write_if_other(self, path: str, data: bytes, media_type: str) -> int:
        if self._store.published(path) == data:
            return 0
        self._store.publish(path, data, media_type)
        return 1

    def _settle_days(self) -> int:
        return self._settle(pages_index.DAYS_PAGE, lambda: pages_index.days_page(self._catalog))

    def _settle(self, path: str, derive: Callable[[], bytes]) -> int:
        """Write an index until it is what the catalog says; 1 if it had to be written."""
        written = 0
        for _ in range(_SETTLE):
            if not self._write_if_other(path, derive(), HTML):
                break
            written = 1
        return written


def _trail(record: WorkflowRecord) -> Sequence[tuple[str, str | None]]:
    day = day_of(record.id)
    return (
        (day.strftime("%-d %B %Y"), f"{day_folder(day)}/{INDEX}"),
        (record.workflow, f"{workflow_folder(day, record.workflow)}/{INDEX}"),
    )
