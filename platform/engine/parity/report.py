"""What the gates found: one line each, for people and as plain data."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Verdict(enum.StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "n/a"


@dataclass(frozen=True, slots=True)
class Finding:
    """A gate's verdict, or a control's: the same gate over a card with a planted defect, which passes if the
    gate fails.

    Attributes:
        detail: what was compared, or why it does not apply, as one line.
        figures: numbers worth keeping.
    """

    name: str
    verdict: Verdict
    detail: str
    figures: Mapping[str, float] = field(default_factory=dict)
    control: bool = False

    def __str__(self) -> str:
        kind = "control" if self.control else "gate"
        return f"{self.verdict:<6}  {kind:<7}  {self.name}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings on one card."""

    card: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed: every gate holds, and every control was caught."""
        return all(finding.verdict is not Verdict.FAILED for finding in self.findings)

    def plain(self) -> dict[str, Any]:
        """The report as JSON has it."""
        findings = [
            {
                "name": each.name,
                "control": each.control,
                "verdict": each.verdict.value,
                "detail": each.detail,
                "figures": dict(each.figures),
            }
            for each in self.findings
        ]
        return {"card": self.card, "ok": self.ok, "findings": findings}
