"""A contact sheet of prompts, seeds and weight versions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, TypedDict

from mutoscope.flows.lists import AtOnce, Count, Prompts, Versions, seeds_from
from mutoscope.flows.parameters import Guidance, NegativePrompt, Seed, Size, Steps, height_and_width
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.kinds import Image
from mutoscope.platform.orchestration.selection import fixed
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef

CARD = "flux-t2i"

MOST_CELLS = 400
"""Pictures on a sheet."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A picture of the sheet, in reading order. `weights`: the selected version by component; the others were
    live."""

    prompt: str
    seed: int
    weights: dict[str, str]
    image: str


class Sweep(TypedDict):
    """The sheet, its pictures, and what each of them is."""

    sheet: Image
    images: list[Image]
    cells: list[Cell]


@workflow("image.prompt_sweep", requires=[CARD, "contact-sheet"])
async def prompt_sweep(
    prompts: Prompts,
    versions: Versions = [],  # noqa: B006  (the model copies defaults)
    count: Count = 4,
    seed: Seed = None,
    size: Size = None,
    steps: Steps = None,
    guidance: Guidance = None,
    negative_prompt: NegativePrompt = None,
    at_once: AtOnce = 8,
) -> Sweep:
    """Make a picture for every prompt, weight version and seed, and put them on one sheet.

    A row is a prompt under a version, a column a seed. Aliases are looked up once, before anything is made.
    """
    seeds = seeds_from(seed, count)
    rows = len(prompts) * max(1, len(versions))
    if rows * count > MOST_CELLS:
        raise InvalidParameter("count", count, f"use {MOST_CELLS // rows} or less: a sheet has {MOST_CELLS}")
    selected = [(text, await fixed(CARD, text)) for text in versions] or [("", {})]
    common: dict[str, Any] = {
        "negative_prompt": negative_prompt,
        "num_inference_steps": steps,
        "guidance_scale": guidance,
        **height_and_width(size),
    }

    async def picture(cell: tuple[str, tuple[str, dict[str, str]], int]) -> ArtifactRef:
        prompt, (_, weights), own = cell
        return (await engine_run(CARD, prompt=prompt, seed=own, weights=weights, **common))["image"]

    cells = list(product(prompts, selected, seeds))
    images = await for_each(cells, picture, at_most=at_once)
    sheet = await engine_run(
        "contact-sheet",
        images=images,
        columns=count,
        column_labels=[f"seed {each}" for each in seeds],
        row_labels=[_label(prompt, text, weights) for prompt, (text, weights) in product(prompts, selected)],
    )
    told = [
        Cell(prompt, own, weights, str(image))
        for (prompt, (_, weights), own), image in zip(cells, images, strict=True)
    ]
    return {"sheet": sheet["image"], "images": images, "cells": told}


def _label(prompt: str, text: str, weights: dict[str, str]) -> str:
    """A row's: the prompt and the version; for an alias also what it stood for, where that is one thing."""
    numbers = ", ".join(version.partition("/")[2] for version in weights.values())
    named = text if "/" in text or len(weights) != 1 else f"{text} = {numbers}"
    return f"{prompt} [{named}]" if text else prompt
