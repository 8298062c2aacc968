"""fsck: does everything here keep its word?

Four parts, in an order in which each may rely on what the one before has set right:

    the database     its schema, its file, its references            (fsck_rows)
    rows and bytes   both ways, by presence, size and digest         (fsck_bytes, fsck_inventory)
    manifests        what weights list against what is on record     (fsck_rows)
    rows             states that cannot be true together             (fsck_rows)

What can be found, and what is done about it, is in `fsck_findings` and `fsck_repair`. Nothing here needs the
stack to stop: no transaction is open while bytes are read, and a suspect is looked at twice. Two checks at a
time do no harm either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.fsck_bytes import ByteCheck, Tally
from mutoscope.platform.custody.fsck_findings import Finding
from mutoscope.platform.custody.fsck_repair import Repair, Repairer
from mutoscope.platform.custody.fsck_rows import database_findings, manifest_findings, row_findings

__all__ = ["Repair", "Report", "Tally", "fsck"]


@dataclass(slots=True)
class Report:
    """What a check came to, filled as it goes.

    Attributes:
        found: findings by code.
        left: faults that are still there, by code: all of them, unless repairs were asked for.
        bytes_found: bytes concerned, by code.
    """

    tally: Tally = field(default_factory=Tally)
    found: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    bytes_found: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        """No fault is left. Notes do not count."""
        return not self.left

    def note(self, repair: Repair) -> None:
        """Count one finding and what became of it."""
        code = repair.finding.rule.code
        self.found[code] += 1
        self.bytes_found[code] += repair.finding.size
        if repair.finding.is_fault and repair.did is None:
            self.left[code] += 1


def fsck(
    catalog: Catalog,
    store: ArtifactStore,
    *,
    deep: bool = True,
    repair: bool = False,
    report: Report | None = None,
    watch: Callable[[Tally], None] = lambda tally: None,
) -> Iterator[Repair]:
    """Check, and repair if asked; yields what is found as it is found.

    Args:
        deep: read every object; else only presence, sizes and manifests are checked.
        report: filled along the way; whole when the iteration has ended.
        watch: called often with how far the check has come; must return at once.

    Raises:
        StoreUnavailable, CatalogError: one side does not answer, which says nothing about what it holds.
    """
    report = report if report is not None else Report()
    repairer = Repairer(catalog, store)
    for finding in _findings(catalog, store, deep, report.tally, watch):
        outcome = repairer(finding) if repair else Repair(finding, None)
        report.note(outcome)
        yield outcome


def _findings(
    catalog: Catalog, store: ArtifactStore, deep: bool, tally: Tally, watch: Callable[[Tally], None]
) -> Iterator[Finding]:
    yield from database_findings(catalog, deep=deep)
    yield from ByteCheck(catalog, store, deep, watch, tally).findings()
    tally.phase = "manifests"
    watch(tally)
    yield from manifest_findings(catalog, store)
    tally.phase = "rows"
    watch(tally)
    yield from row_findings(catalog)
