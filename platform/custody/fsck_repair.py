"""Repairs: what `--repair` does about a finding.

Each looks again before it acts and can be killed anywhere and done again. Bytes move first where that keeps
them readable, rows change in transactions of their own that read no bytes, and nothing that could be the
only copy of something is ever removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.fsck_bytes import ANYONE_MAY_WRITE
from mutoscope.platform.custody.fsck_findings import Finding
from mutoscope.platform.custody.fsck_rows import listed_members
from mutoscope.platform.errors import ArtifactError, ArtifactMissing


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done about a finding.

    Attributes:
        did: in words; None when nothing could be done.
        remake: the command that makes lost bytes again, where the record tells one.
    """

    finding: Finding
    did: str | None
    remake: str | None = None


class Repairer:
    """Repairs over one store and catalog."""

    def __init__(self, catalog: Catalog, store: ArtifactStore) -> None:
        self._catalog = catalog
        self._store = store
        self._repairs: dict[str, Callable[[Finding, str], Repair]] = {
            "missing-bytes": self._lost,
            "damaged-bytes": self._damaged,
            "trashed-bytes": self._trashed,
            "wrong-size": self._wrong_size,
            "found-bytes": self._found,
            "writable-object": self._writable,
            "wrong-members": self._wrong_members,
            "spare-copy": self._trashed,
        }

    def __call__(self, finding: Finding) -> Repair:
        """Set one finding right as far as that is possible."""
        if finding.digest is None:
            return Repair(finding, None)
        repair = self._repairs.get(finding.rule.code)
        if repair is None:
            return Repair(finding, None, self._remake(finding.digest) if finding.is_fault else None)
        faults.hit("fsck.before_repair")
        try:
            return repair(finding, finding.digest)
        except (ArtifactMissing, FileNotFoundError):
            return Repair(finding, "nothing: it was collected meanwhile")

    def _trashed(self, finding: Finding, digest: str) -> Repair:
        if self._store.restore(digest):
            return Repair(finding, "brought back from the trash")
        return self._lost(finding, digest)

    def _damaged(self, finding: Finding, digest: str) -> Repair:
        self._store.quarantine(digest)
        faults.hit("fsck.quarantined")
        if self._store.restore(digest):
            return Repair(finding, "moved to quarantine; sound bytes brought back from the trash")
        return self._lost(finding, digest, kind="damage")

    def _lost(self, finding: Finding, digest: str, kind: str = "loss") -> Repair:
        """No sound bytes anywhere: the row says so from now on."""
        if self._store.verify(digest) == "sound":
            return Repair(finding, "nothing: a writer has brought the bytes meanwhile")
        details = {"artifact": finding.subject, "size": finding.size}
        marked = self._catalog.audit.mark_lost(digest, kind, details)
        faults.hit("fsck.marked")
        # A writer who stored the bytes after our look, and whose row was there already, relies on that row.
        if marked and self._store.contains(digest) and self._store.verify(digest) == "sound":
            self._catalog.tombstones.revive(digest)
            return Repair(finding, "nothing: a writer has brought the bytes meanwhile")
        moved = "moved to quarantine, and " if kind == "damage" else ""
        return Repair(finding, f"{moved}marked as lost, with an incident", self._remake(digest))

    def _wrong_size(self, finding: Finding, digest: str) -> Repair:
        if self._store.verify(digest) != "sound":
            return self._damaged(finding, digest)
        self._catalog.audit.set_size(digest, self._store.size(digest))
        return Repair(finding, "size corrected in the row")

    def _found(self, finding: Finding, digest: str) -> Repair:
        if self._store.verify(digest) != "sound":
            return Repair(finding, None)
        self._catalog.tombstones.revive(digest)
        return Repair(finding, "marked as present again")

    def _writable(self, finding: Finding, digest: str) -> Repair:
        path = self._store.object_path(digest)
        assert path is not None, "only a local object can be writable"
        path.chmod(path.stat().st_mode & ~ANYONE_MAY_WRITE)
        return Repair(finding, "made read-only")

    def _wrong_members(self, finding: Finding, digest: str) -> Repair:
        try:
            wanted = listed_members(self._store, digest)
        except ArtifactError:
            return Repair(finding, None)
        wanted = wanted or {}
        unknown = set(wanted.values()) - self._catalog.audit.standing(wanted.values()).keys()
        if unknown:
            # Without a row of its own a member cannot be recorded, nor kept: only an import makes one.
            return Repair(finding, None, self._remake(digest))
        self._catalog.audit.set_members(digest, wanted)
        return Repair(finding, f"{len(wanted)} members recorded")

    def _remake(self, digest: str) -> str | None:
        """The command that makes the bytes of an artifact, or a container of it, again: by the first run on
        record that can."""
        for made in (digest, *self._catalog.audit.containers_of(digest)):
            ref = self._catalog.artifacts.get(made)
            for run in self._catalog.runs.generated_by(made):
                if run.replayable and run.state == "succeeded" and run.key_parts is not None:
                    return f"mutoscope replay {ref}"
                if run.kind == "import" and run.card is not None and "folder" in run.parameters:
                    return f"mutoscope weights import {run.card} {run.parameters['folder']}"
        return None
