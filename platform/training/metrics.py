"""What a training step tells of itself: plain numbers, by optimiser step and on the whole. No torch.

A number that is not finite is told as None, and what did not happen has no number. Nothing here depends on
when or how fast the step was computed: equal steps tell equal metrics.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMAT = "mutoscope.train-metrics/1"


@dataclass(slots=True)
class Update:
    """One optimiser step as it goes on.

    Attributes:
        loss: summed over the passes so far. facts: numbers by name; see `objectives.Measured`.
        grad_norm: before it was shortened; None while it is not known.
        skipped: the gradient was not finite, and nothing moved.
    """

    loss: float = 0.0
    facts: dict[str, list[float]] = field(default_factory=dict)
    grad_norm: float | None = None
    skipped: bool = False

    def add(self, loss: float, facts: Mapping[str, Sequence[float]]) -> None:
        """Count a pass."""
        self.loss += loss
        for name, values in facts.items():
            self.facts.setdefault(name, []).extend(values)

    def told(self) -> dict[str, Any]:
        """The step's entry in the curve."""
        ratio = self.facts.get("ratio", [])
        return {
            "loss": _finite(self.loss),
            "grad_norm": _finite(self.grad_norm),
            "ratio_mean": _mean(ratio),
            "ratio_min": _finite(min(ratio, default=None)),
            "ratio_max": _finite(max(ratio, default=None)),
            "clip_fraction": _mean(self.facts.get("clipped", [])),
            "rejected": int(sum(self.facts.get("rejected", []))),
            "kl": _mean(self.facts.get("kl", [])),
            "delta_log_p": _finite(max(self.facts.get("delta_log_p", []), default=None)),
            "skipped": self.skipped,
        }


def summary(curve: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The curve of a step on the whole: means of means, the extremes of extremes, sums of counts."""
    return {
        "updates": sum(not entry["skipped"] for entry in curve),
        "skipped": sum(entry["skipped"] for entry in curve),
        "rejected": sum(entry["rejected"] for entry in curve),
        **{
            name: _mean([entry[name] for entry in curve if entry[name] is not None])
            for name in ("loss", "grad_norm", "ratio_mean", "clip_fraction", "kl")
        },
        "ratio_min": min((e["ratio_min"] for e in curve if e["ratio_min"] is not None), default=None),
        "ratio_max": max((e["ratio_max"] for e in curve if e["ratio_max"] is not None), default=None),
        "delta_log_p": max((e["delta_log_p"] for e in curve if e["delta_log_p"] is not None), default=None),
    }


def _mean(values: Sequence[float]) -> float | None:
    return _finite(statistics.fmean(values)) if values else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
