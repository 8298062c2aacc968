"""What a check can find: every code, whether it is a fault, and what can be done about it.

A *fault* is a promise broken: bytes that a row says are there and are not, a row that cannot be true. A
*note* is something a person may want to know and nothing depends on: bytes nobody has recorded, files that
are not ours. Only faults make a check fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

Level = Literal["fault", "note"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding.

    Attributes:
        says: what is wrong, as the end of a sentence that begins with the subject.
        remedy: what a person can do.
        repair: what `--repair` does; None where it does nothing.
    """

    code: str
    level: Level
    says: str
    remedy: str
    repair: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Attributes:
        subject: what it is about, as people name it: ``video:3fa9c1d2e4f5``, a run's id, a path.
        digest: of the artifact it is about, if it is about one.
        detail: what is special about this one; may be empty.
        size: bytes concerned, 0 where that means nothing.
    """

    rule: Rule
    subject: str
    digest: str | None = None
    detail: str = ""
    size: int = 0

    @property
    def is_fault(self) -> bool:
        return self.rule.level == "fault"

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.subject} {self.rule.says}{detail}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the rule by its code."""
        return {**asdict(self), "rule": self.rule.code, "level": self.rule.level, "line": str(self)}


_RULES = (
    Rule(
        "missing-bytes",
        "fault",
        "is recorded as present, and the store has no bytes of it",
        "`mutoscope fsck --repair`, then replay or import what it names",
        "marks the row as lost, with an incident; its lineage still answers",
    ),
    Rule(
        "damaged-bytes",
        "fault",
        "has other bytes in the store than its digest says",
        "`mutoscope fsck --repair`, then replay or import what it names",
        "moves the object to quarantine; takes sound bytes from the trash, or marks the row as lost",
    ),
    Rule(
        "trashed-bytes",
        "fault",
        "is recorded as present, and its bytes lie in the trash",
        "`mutoscope fsck --repair`; until then reads find them there",
        "brings them back",
    ),
    Rule(
        "wrong-size",
        "fault",
        "has another size in its row than its sound bytes have",
        "`mutoscope fsck --repair`",
        "corrects the row",
    ),
    Rule(
        "found-bytes",
        "fault",
        "was marked as lost, and its bytes are in the store",
        "`mutoscope fsck --repair`",
        "marks the row as present again if the bytes are sound",
    ),
    Rule(
        "writable-object",
        "fault",
        "can be written to: an edit of a linked copy would damage it",
        "`mutoscope fsck --repair`",
        "makes the file read-only",
    ),
    Rule(
        "wrong-members",
        "fault",
        "has other members on record than its manifest lists",
        "`mutoscope fsck --repair`: what is not recorded is not kept",
        "records what the manifest lists",
    ),
    Rule(
        "unreadable-manifest",
        "fault",
        "is a manifest of weights that cannot be read",
        "upgrade Mutoscope if a newer one wrote it, else import the weights again",
    ),
    Rule(
        "incomplete-weights",
        "fault",
        "lacks members and cannot be loaded",
        "import the weights again, or replay the run that made them",
    ),
    Rule(
        "dead-alias",
        "fault",
        "points to weights whose bytes are gone",
        "import the weights again, or make another version live",
    ),
    Rule(
        "dead-pin",
        "fault",
        "pins an artifact whose bytes are gone",
        "make it again with `mutoscope replay`, or remove the pin",
    ),
    Rule(
        "no-outputs",
        "fault",
        "succeeded and generated nothing",
        "start what asked for it again: such a run never answers an equal request",
    ),
    Rule(
        "unfinished-outputs",
        "fault",
        "did not succeed and has outputs",
        "look at it with `mutoscope show`; the memo does not use it",
    ),
    Rule(
        "impossible-run",
        "fault",
        "has a state and a time of its end that cannot both be true",
        "look at it with `mutoscope show`; restore the catalog from a backup if many are so",
    ),
    Rule(
        "broken-reference",
        "fault",
        "has rows that lead nowhere",
        "restore the catalog from a backup: it was changed by something else",
    ),
    Rule(
        "damaged-catalog",
        "fault",
        "is damaged",
        "restore it from a backup, or save what can be read with `sqlite3 catalog.db .recover`",
    ),
    Rule(
        "wrong-schema",
        "fault",
        "is not the table that this Mutoscope expects",
        "restore the catalog from a backup: it was changed by something else",
    ),
    Rule(
        "collected-bytes",
        "note",
        "is a tombstone, and its bytes are still among the objects",
        "nothing: the next `mutoscope gc` moves them to the trash",
    ),
    Rule(
        "spare-copy",
        "note",
        "is present, and has a second copy in the trash",
        "`mutoscope fsck --repair`",
        "keeps the sound one",
    ),
    Rule(
        "orphan",
        "note",
        "is in the store, and no row names it",
        "nothing: `mutoscope gc` collects what stays unrecorded",
    ),
    Rule(
        "quarantined",
        "note",
        "was set aside because it was damaged",
        "look at it if you want to know how, then delete the file",
    ),
    Rule(
        "foreign-file",
        "note",
        "lies among the objects and is none of ours",
        "move it elsewhere; it is never touched",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in _RULES})
"""Every rule by its code, gravest first."""


def finding(
    code: str, subject: str, digest: str | None = None, *, detail: str = "", size: int = 0
) -> Finding:
    """A finding under one of `RULES`."""
    return Finding(RULES[code], subject, digest, detail, size)
