"""The curves of a training, as the series that the card `line-charts` draws. No torch.

x is the iteration. Rewards and metrics stand at the iteration that they are of, evaluations before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Records = Mapping[int, Mapping[str, Any]]
"""Notes by iteration."""

_METRICS = (
    ("KL to the reference", "kl"),
    ("ratio, mean", "ratio_mean"),
    ("clip fraction", "clip_fraction"),
    ("zero-std groups", "zero_std_groups"),
    ("staleness, most", "staleness_max"),
    ("|log p now - as captured|, most", "delta_log_p"),
    ("loss", "loss"),
    ("gradient norm", "grad_norm"),
)


def series(
    name: str, iterations: Records, evaluations: Records, timings: Records, halts: Records
) -> dict[str, Any]:
    """All panels; one that would be empty is left out.

    Args:
        iterations, evaluations, timings, halts: what the training noted under these titles.
    """
    panels = [
        _panel("reward of the rollouts", _rewards(iterations)),
        _panel("scores of the evaluations", _scores(evaluations, "scores"), halts),
        _panel("scores, held-out prompts", _scores(evaluations, "held_out"), halts),
        *(_panel(title, _metric(iterations, metric)) for title, metric in _METRICS),
        _panel("pictures, against the beginning", _statistics(evaluations)),
        _panel("rollouts per second", {"rollouts/s": _points(timings, _rate)}),
    ]
    return {"title": name, "panels": [panel for panel in panels if any(panel["lines"].values())]}


def _panel(title: str, lines: Mapping[str, list[Any]], halts: Records = {}) -> dict[str, Any]:  # noqa: B006
    held = {name: line for name, line in lines.items() if any(y is not None for _, y in line)}
    return {"title": title, "lines": held, "marks": [[iteration, "halted"] for iteration in halts]}


def _points(found: Records, value: Callable[[Mapping[str, Any]], float | None]) -> list[list[Any]]:
    return [[iteration, value(record)] for iteration, record in sorted(found.items())]


def _rewards(iterations: Records) -> dict[str, list[Any]]:
    return {
        "mean": _points(iterations, lambda record: record["rewards"]["mean"]),
        "std": _points(iterations, lambda record: record["rewards"]["std"]),
    }


def _scores(evaluations: Records, of: str) -> dict[str, list[Any]]:
    """A line for each judge."""
    judges = sorted({judge for record in evaluations.values() for judge in record[of] or ()})
    return {
        judge: [[iteration, _mean(record[of], judge)] for iteration, record in sorted(evaluations.items())]
        for judge in judges
    }


def _mean(scores: Mapping[str, Any] | None, judge: str) -> float | None:
    found: float | None = (scores or {}).get(judge, {}).get("mean")
    return found


def _metric(iterations: Records, metric: str) -> dict[str, list[Any]]:
    """A line for each component that is trained."""
    parts = sorted({part for record in iterations.values() for part in record["metrics"]})
    return {
        part: [
            [iteration, record["metrics"].get(part, {}).get(metric)]
            for iteration, record in sorted(iterations.items())
        ]
        for part in parts
    }


def _statistics(evaluations: Records) -> dict[str, list[Any]]:
    """Readings of the pictures, each against its first value."""
    lines: dict[str, list[Any]] = {}
    for reading in ("diversity", "edge_density", "colour_entropy", "dark_fraction"):
        values = [
            (iteration, (record["statistics"] or {}).get(reading))
            for iteration, record in sorted(evaluations.items())
        ]
        first = next((value for _, value in values if value), None)
        lines[reading.replace("_", " ")] = [
            [iteration, None if value is None or first is None else value / first]
            for iteration, value in values
        ]
    return lines


def _rate(timing: Mapping[str, Any]) -> float | None:
    """Samples per second of collecting; None where a part was there before."""
    seconds = timing["collect"]
    return timing["samples"] / seconds if timing["whole"] and seconds > 0 else None
