"""Indexes of pages: per day, per workflow of a day, and of all days. Each is derived from the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import groupby

from mutoscope.platform.catalog import Catalog, WorkflowRecord
from mutoscope.platform.catalog.calendar import day_of
from mutoscope.platform.custody.pages_path import (
    INDEX,
    ROOT,
    day_folder,
    folder_of,
    sheet_name,
    subject,
    workflow_folder,
)
from mutoscope.platform.custody.pages_render import Links, render
from mutoscope.platform.refs import ArtifactRef

SHEET_RUNS = 200
"""Runs on one sheet. Which sheet a run is on never changes, so that a run that ends concerns two sheets at
most, however many a day has."""

DAYS_PAGE = f"{ROOT}/{INDEX}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A run on a sheet. `cover` is a picture of it, if there is one; `labelled`: say of which workflow."""

    record: WorkflowRecord
    folder: str
    about: str
    cover: ArtifactRef | None
    labelled: bool


@dataclass(frozen=True, slots=True)
class SheetView:
    """One sheet: number `number` of `sheets`, its entries newest first."""

    title: str
    kicker: str
    folder: str
    trail: tuple[tuple[str, str | None], ...]
    workflows: tuple[tuple[str, int, str], ...]
    entries: tuple[Entry, ...]
    number: int
    sheets: int

    @property
    def newest(self) -> str:
        """The path of the newest sheet."""
        return f"{self.folder}/{INDEX}"

    @property
    def earlier(self) -> list[tuple[str, int, int]]:
        """The sheets before this one, newest first, with the numbers of their runs.

        Nothing tells of later ones: a full sheet never changes for the sake of those that follow."""
        return [
            (f"{self.folder}/{sheet_name(number)}", (number - 1) * SHEET_RUNS + 1, number * SHEET_RUNS)
            for number in range(self.number - 1, 0, -1)
        ]


Page = tuple[str, Callable[[], bytes]]
"""A path, and what derives its contents afresh."""


def sheets_of(catalog: Catalog, record: WorkflowRecord) -> Iterator[Page]:
    """The sheets that a run that has ended concerns: its own and the newest, of its workflow and its day."""
    day = day_of(record.id)
    for workflow in (record.workflow, None):
        rank = catalog.calendar.count(day, workflow, before=record.id)
        own, newest = rank // SHEET_RUNS + 1, _sheets(catalog, day, workflow)
        # The one before the newest, too: it was the newest until somebody began the next one.
        for number in sorted({own, max(1, newest - 1), newest}):
            yield _page(catalog, day, workflow, number, newest)


def all_sheets(catalog: Catalog, day: date) -> Iterator[Page]:
    """Every sheet of a day."""
    for workflow in (*catalog.calendar.workflows(day), None):
        newest = _sheets(catalog, day, workflow)
        for number in range(1, newest + 1):
            yield _page(catalog, day, workflow, number, newest)


def days_page(catalog: Catalog) -> bytes:
    """The index of all days. The newest day has no count: it may not be over."""
    days = catalog.calendar.days()
    rows = [
        (
            day.strftime("%A, %-d"),
            catalog.calendar.count(day) if day != days[0] else None,
            f"{day_folder(day)}/{INDEX}",
            day.strftime("%B %Y"),
        )
        for day in days
    ]
    months = [(month, [row[:3] for row in group]) for month, group in groupby(rows, key=lambda row: row[3])]
    return render("days.html", Links.within(ROOT), months=months)


def lists_day(page: bytes | None, day: date) -> bool:
    """Whether the index of all days leads to a day."""
    return page is not None and f'href="../{day_folder(day)}/{INDEX}"'.encode() in page


def _page(catalog: Catalog, day: date, workflow: str | None, number: int, newest: int) -> Page:
    folder = day_folder(day) if workflow is None else workflow_folder(day, workflow)
    name = INDEX if number == newest else sheet_name(number)

    def derive() -> bytes:
        return render("day.html", Links.within(folder), view=_view(catalog, day, workflow, number, folder))

    return f"{folder}/{name}", derive


def _sheets(catalog: Catalog, day: date, workflow: str | None) -> int:
    return max(1, -(-catalog.calendar.count(day, workflow) // SHEET_RUNS))


def _view(catalog: Catalog, day: date, workflow: str | None, number: int, folder: str) -> SheetView:
    records = catalog.calendar.list(day, workflow, offset=(number - 1) * SHEET_RUNS, limit=SHEET_RUNS)
    shown = day.strftime("%A, %-d %B %Y")
    trail: tuple[tuple[str, str | None], ...] = ((shown, None),)
    if workflow is not None:
        trail = ((shown, f"{day_folder(day)}/{INDEX}"), (workflow, None))
    sheets = _sheets(catalog, day, workflow)
    counts = catalog.calendar.workflows(day) if workflow is None and number == sheets else {}
    return SheetView(
        title=shown if workflow is None else workflow,
        kicker="Workflow runs" if workflow is None else shown,
        folder=folder,
        trail=trail,
        workflows=tuple(
            (name, count, f"{workflow_folder(day, name)}/{INDEX}") for name, count in counts.items()
        ),
        entries=tuple(reversed(list(_entries(catalog, records, labelled=workflow is None)))),
        number=number,
        sheets=sheets,
    )


def _entries(catalog: Catalog, records: list[WorkflowRecord], *, labelled: bool) -> Iterator[Entry]:
    known = catalog.calendar.artifacts(
        digest for record in records for digest in (record.outputs or {}).values()
    )
    for record in records:
        outputs = [known[digest] for digest in (record.outputs or {}).values() if digest in known]
        there = [found.ref for found in outputs if found.collected_at is None]
        # An image before a video: it loads at once, and lazily.
        covers = sorted(
            (ref for ref in there if ref.kind in ("image", "video")), key=lambda ref: (ref.kind, ref.digest)
        )
        cover = covers[0] if covers else None
        yield Entry(record, folder_of(record), subject(record.parameters), cover, labelled)
