"""Advantages of a group's samples: their scores against each other. Plain Python, no torch.

    A = clip((r − mean)/(std + ε), ±clip)

with the mean of the group and a population standard deviation (Flow-GRPO, arXiv 2505.05470). A sample without
a score has no advantage, and no part in mean and deviation: the absence of a score is not a low score.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mutoscope.platform.errors import InvalidParameter

Scale = Literal["group", "global", "none"]
"""What deviations are divided by: the group's own deviation, that of all scores of the batch, or nothing."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """Of every sample of every group.

    Attributes:
        values: by group and sample; None where a sample has no score or its group was dropped.
        zero_std_groups: groups whose scores, one or more, are all the same: they say nothing.
        dropped_groups: those of them that were dropped; otherwise their samples have advantage 0.
    """

    values: tuple[tuple[float | None, ...], ...]
    zero_std_groups: int
    dropped_groups: int

    @property
    def empty(self) -> bool:
        """No sample has anything to teach: the weights must stay as they are, momentum or not."""
        return all(not value for group in self.values for value in group)


def group_advantages(
    scores: Sequence[Sequence[float | None]],
    *,
    scale: Scale = "group",
    clip: float = 5.0,
    epsilon: float = 1e-4,
    drop_zero_std: bool = True,
) -> Advantages:
    """The advantages of groups of scores.

    A group of equal scores is recognised by their equality and not by a deviation of 0, which rounding can
    miss: a constant reward must move nothing at all.

    Args:
        scores: by group and sample; None where there is none.
        scale: with ``global`` the deviation is that of every score of the batch about their common mean.
        clip: > 0, the greatest magnitude of an advantage.
        epsilon: >= 0, added to the deviation.
        drop_zero_std: leave groups of equal scores out instead of counting their samples with advantage 0.

    Raises:
        InvalidParameter: a score that is not finite, or an argument out of its range.
    """
    _check(scores, scale, clip, epsilon)
    known = [[score for score in group if score is not None] for group in scores]
    everything = [score for group in known for score in group]
    overall = statistics.pstdev(everything) if everything and scale == "global" else 0.0
    values: list[tuple[float | None, ...]] = []
    silent = 0
    for group, scored in zip(scores, known, strict=True):
        if scored and min(scored) == max(scored):
            silent += 1
            flat = None if drop_zero_std else 0.0
            values.append(tuple(None if score is None else flat for score in group))
            continue
        mean = statistics.fmean(scored) if scored else 0.0
        unit = _unit(scored, scale, overall, epsilon)
        values.append(
            tuple(None if score is None else _clipped((score - mean) / unit, clip) for score in group)
        )
    return Advantages(tuple(values), silent, silent if drop_zero_std else 0)


def _unit(scored: Sequence[float], scale: Scale, overall: float, epsilon: float) -> float:
    match scale:
        case "none":
            return 1.0
        case "global":
            return overall + epsilon
        case "group":
            return (statistics.pstdev(scored) if scored else 0.0) + epsilon


def _clipped(value: float, clip: float) -> float:
    return max(-clip, min(clip, value))


def _check(scores: Sequence[Sequence[float | None]], scale: str, clip: float, epsilon: float) -> None:
    if scale not in get_args(Scale):
        raise InvalidParameter("scale", scale, f"use one of {', '.join(get_args(Scale))}")
    if not clip > 0:
        raise InvalidParameter("clip", clip, "use a number greater than 0")
    if not epsilon >= 0:
        raise InvalidParameter("epsilon", epsilon, "use 0 or a positive number")
    for number, group in enumerate(scores):
        for score in group:
            if score is not None and not math.isfinite(score):
                raise InvalidParameter(f"scores[{number}]", score, "give None where there is no score")
