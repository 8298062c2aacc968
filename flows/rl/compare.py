"""Two versions side by side: the same prompts and seeds, as one picture with scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from pydantic import Field

from mutoscope.flows.lists import AtOnce, Count, seeds_from
from mutoscope.flows.parameters import Seed
from mutoscope.flows.rl.asks import Asks, Rewards, StageParameters
from mutoscope.flows.rl.collect_rollouts import ROLLED, SCORING, T2I
from mutoscope.flows.rl.drawing import picture_of
from mutoscope.flows.rl.evaluate import Judge, Served, Shown, mean, shown
from mutoscope.models.registry import get_card
from mutoscope.platform.errors import InvalidParameter, RunFailed
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.kinds import Image
from mutoscope.platform.orchestration.selection import fixed
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef

MOST_ROWS = 64
"""Pairs on a sheet."""

FRAMES = (0, -1)
"""Which frames of a clip are shown."""

Side = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9-]+(/\w+)?@[\w-]+$",
        description="A version such as flux-t2i/transformer@12, or an alias such as flux-t2i@first.",
    ),
]


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt and a seed on both sides: what each made, and its scores by judge."""

    prompt: str
    seed: int
    made: tuple[str | None, str | None]
    scores: dict[str, tuple[float | None, float | None]]


class Compared(TypedDict):
    """The picture, every pair on it, the mean scores of both sides by judge, and the versions compared."""

    sheet: Image
    pairs: list[Pair]
    means: dict[str, tuple[float | None, float | None]]
    versions: tuple[dict[str, str], dict[str, str]]


@workflow("rl.compare", requires=[*ROLLED, *SCORING, "contact-sheet", "video-frame"])
async def compare(
    left: Side,
    right: Side,
    prompts: Asks,
    count: Count = 2,
    seed: Seed = 1,
    judges: Rewards = {"reward-scene": 1.0, "scene-check": 1.0},  # noqa: B006  (the model copies defaults)
    parameters: StageParameters = None,
    at_once: AtOnce = 8,
) -> Compared:
    """Serve the same prompts and seeds by two versions of a card, and score what they make.

    A card that begins with a picture gets the one that flux-t2i makes of the prompt at its live weights.
    """
    card = left.partition("@")[0].partition("/")[0]
    if right.partition("@")[0].partition("/")[0] != card:
        raise InvalidParameter("right", right, f"compare versions of one card: left is of {card}")
    seeds = seeds_from(seed, count)
    if len(prompts) * count > MOST_ROWS:
        raise InvalidParameter(
            "count", count, f"use {max(1, MOST_ROWS // len(prompts))} or less: {MOST_ROWS} rows"
        )
    versions = await fixed(card, left), await fixed(card, right)
    looking = [Judge(judge) for judge in judges]
    sides = [
        await shown(_stages(card, own, parameters or {}), prompts, seeds, looking, at_once=at_once)
        for own in versions
    ]
    names = list(judges)
    means = {judge: (mean(sides[0], judge), mean(sides[1], judge)) for judge in names}
    return {
        "sheet": await _sheet(sides, (left, right), names[0], means[names[0]]),
        "pairs": [_pair(one, other, names) for one, other in zip(*sides, strict=True)],
        "means": means,
        "versions": versions,
    }


def _stages(card: str, weights: Mapping[str, str], parameters: Mapping[str, Any]) -> list[Served]:
    stage = Served(card, weights, parameters)
    takes_image = any(slot.name == "image" and slot.required for slot in get_card(card).inputs)
    return [Served(T2I, {}), stage] if takes_image else [stage]


def _pair(one: Shown, other: Shown, judges: Sequence[str]) -> Pair:
    made = tuple(None if each.made is None else str(each.made) for each in (one, other))
    return Pair(
        one.ask.prompt,
        one.seed,
        (made[0], made[1]),
        {judge: (one.value(judge), other.value(judge)) for judge in judges},
    )


async def _sheet(
    sides: Sequence[Sequence[Shown]],
    names: tuple[str, str],
    judge: str,
    means: tuple[float | None, float | None],
) -> ArtifactRef:
    rows = [pair for pair in zip(*sides, strict=True) if all(each.made is not None for each in pair)]
    if not rows:
        failed = next(each.reason for side in sides for each in side if each.made is None)
        raise RunFailed(f"there is nothing to compare: {failed}")
    pictures = [picture for pair in rows for each in pair for picture in await _pictures(each)]
    heads = [f"{name}: {judge} {_told(value)}" for name, value in zip(names, means, strict=True)]
    columns = len(pictures) // len(rows)
    labels = [head if at == 0 else "" for head in heads for at in range(columns // 2)]
    outputs = await engine_run(
        "contact-sheet",
        images=pictures,
        columns=columns,
        column_labels=labels,
        row_labels=[
            f"{one.ask.prompt}, seed {one.seed}: {_told(one.value(judge))} -> {_told(other.value(judge))}"
            for one, other in rows
        ],
        title=f"{names[0]} and {names[1]}",
    )
    return outputs["image"]


async def _pictures(each: Shown) -> list[ArtifactRef]:
    """A picture, or some frames of a clip."""
    assert each.made is not None
    if each.made.kind == "image":
        return [each.made]
    return [await picture_of(each.made, at) for at in FRAMES]


def _told(value: float | None) -> str:
    return "no score" if value is None else f"{value:.3f}"
