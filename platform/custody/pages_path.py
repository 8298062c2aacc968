"""Where the pages of a run lie: ``runs/<date>/<workflow>/<name>/``.

All of it follows from a workflow run's id, workflow and parameters, so that whoever knows a run knows its
page, also before it is written. Names are ASCII letters, digits, ``-``, ``_`` and ``.``: they mean the same
on every file system, in every bucket and in a URL.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from datetime import date
from typing import Any

from mutoscope.platform.artifacts import layout
from mutoscope.platform.catalog import WorkflowRecord
from mutoscope.platform.catalog.calendar import day_of, moment_of

ROOT = layout.RUNS
INDEX, MANIFEST = "index.html", "manifest.json"

NAME_CHARACTERS = 80
_ID_DIGITS = 8

_WORDS = ("prompt", "text", "image", "name")
"""Parameters that say what a run is about, the most telling first."""


def run_folder(run_id: str, workflow: str, parameters: Mapping[str, Any]) -> str:
    """``runs/2026-11-30/image_video.t2i_i2v/223405-a-red-circle-left-of-a-blue-square-7d2f90ab``: the time,
    the first words, and the end of the id (its beginning says the time, too)."""
    time, ending = moment_of(run_id).strftime("%H%M%S"), run_id.replace("-", "")[-_ID_DIGITS:]
    room = NAME_CHARACTERS - len(time) - len(ending) - 2
    words = slug(subject(parameters), room) or slug(f"seed {parameters.get('seed', '')}", room)
    name = f"{time}-{words}-{ending}"
    return f"{workflow_folder(day_of(run_id), workflow)}/{name}"


def folder_of(record: WorkflowRecord) -> str:
    """The folder of a workflow run's page."""
    return run_folder(record.id, record.workflow, record.parameters)


def page_of(record: WorkflowRecord) -> str:
    """The path of a workflow run's page."""
    return f"{folder_of(record)}/{INDEX}"


def workflow_folder(day: date, workflow: str) -> str:
    """The folder of a workflow's day."""
    return f"{day_folder(day)}/{slug(workflow, NAME_CHARACTERS, keep='._') or 'workflow'}"


def day_folder(day: date) -> str:
    """``runs/2026-11-30``."""
    return f"{ROOT}/{day.isoformat()}"


def sheet_name(number: int) -> str:
    """An index that has several sheets: those before the newest, from 1."""
    return f"page-{number}.html"


def subject(parameters: Mapping[str, Any]) -> str:
    """What a run is about, in its own words; empty where it has none."""
    found = (str(parameters.get(name) or "").strip() for name in _WORDS)
    return next((text for text in found if text), "")


def relative(target: str, folder: str) -> str:
    """The way from a page in `folder` to another path of the store."""
    return "../" * len(folder.split("/")) + target


def slug(text: str, room: int, *, keep: str = "") -> str:
    """`text` in ASCII letters, digits and single dashes (and the characters of `keep`), cut at a word.

    Letters with accents lose them; letters that ASCII has no likeness of are left out.
    """
    plain = unicodedata.normalize("NFKD", text.casefold()).encode("ascii", "ignore").decode()
    words = re.sub(rf"[^a-z0-9{re.escape(keep)}]+", "-", plain).strip("-." if keep else "-")
    if len(words) <= room:
        return words
    cut = words[: room + 1].rpartition("-")[0] or words[:room]
    return cut.strip("-.")
