"""What a film's reward and its judge say of its two halves: what it shows, and how that moves."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mutoscope.models.starter.checker import check_video
from mutoscope.models.starter.grammar import parse
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from tests.learning import rolled

Told = dict[str, Any]
Frames = NDArray[np.uint8]

PICTURE, MOTION = "picture", "motion"
HALVES = (PICTURE, MOTION)

CHECKED = tuple(f"check {half}" for half in HALVES)

STRIP = (0, 8, 16)
"""Frames of a strip: the first, the middle one, the last of 17."""
GAP = 3
"""Pixels between them."""


def criteria(runtime: Runtime, record: Mapping[str, Any], reward: str = "reward-scene") -> Told:
    """The halves of the reward over an iteration's rollouts; nothing where it has no criterion of motion."""
    groups = rolled.groups(runtime, record, -1)
    halves: dict[str, list[float]] = {half: [] for half in HALVES}
    for one in (one for group in groups for one in group.samples if one.score is not None):
        by_half: dict[str, list[float]] = {half: [] for half in HALVES}
        for name, value in one.details.get(reward, {}).get("details", {}).items():
            by_half[MOTION if name.startswith(MOTION) else PICTURE].append(value)
        for half, values in by_half.items():
            halves[half] += [statistics.fmean(values)] if values else []
    return {half: statistics.fmean(values) for half, values in halves.items()} if halves[MOTION] else {}


def checked(runtime: Runtime, samples: Sequence[Mapping[str, Any]]) -> Told:
    """The halves of the judge's checks over evaluated films; nothing for pictures."""
    films = [(one["made"], one["target"]) for one in samples if _is_film(one["made"])]
    if not films:
        return {}
    reports = [(check_video(each, parse(said), each[0])) for each, said in _read(runtime, films)]
    picture = statistics.fmean(report.last.mean for report in reports)
    motion = statistics.fmean(statistics.fmean(report.motion) for report in reports)
    return dict(zip(CHECKED, (picture, motion), strict=True))


def strip(runtime: Runtime, made: str) -> Frames | None:
    """Frames of a film side by side; None for a picture."""
    if not _is_film(made):
        return None
    frames_THWC = frames(runtime, made)
    gap_HWC = np.full((frames_THWC.shape[1], GAP, 3), 255, dtype=np.uint8)
    return np.concatenate([part for at in STRIP for part in (frames_THWC[at], gap_HWC)][:-1], axis=1)


def frames(runtime: Runtime, made: str) -> Frames:
    """uint8 (T, H, W, 3)."""
    ref: ArtifactRef = runtime.catalog.artifacts.resolve(made)
    video = codecs.decode(ref.kind, runtime.store.get(ref.digest), ref.media_type)
    return np.asarray(getattr(video, "frames_THWC", video))


def _read(runtime: Runtime, films: Iterable[tuple[str, str]]) -> Iterable[tuple[Frames, str]]:
    return ((frames(runtime, made), said) for made, said in films)


def _is_film(made: str | None) -> bool:
    return made is not None and made.startswith("video:")
