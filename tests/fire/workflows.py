"""The workflow under fire: sixty runs of the test card, three workflows deep.

    fire.film  -> 4 x fire.reel -> (1 opening run, 2 x fire.strip -> chain of 7 runs)

Every run has a seed of its own, `seed` + its number, so that whoever counts can tell them apart. Runs of a
chain feed each other their picture; reels and strips go on side by side.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mutoscope.flows.parameters import ImageReference, Seed
from mutoscope.platform.orchestration.approval import approval
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef
from tests.fire.shape import LINKS, PER_REEL, REELS, STRIPS
from tests.support.tinycard.card import CARD


@workflow("fire.strip", requires=[CARD.id])
async def fire_strip(image: ImageReference, seed: Seed) -> dict[str, Any]:
    """A chain of runs, each of which starts from the picture of the one before."""
    for number in range(LINKS):
        made = await engine_run(CARD.id, image=image, seed=int(seed or 0) + number)
        image = made["image"]
    return {"image": image}


@workflow("fire.reel", requires=[CARD.id, "fire.strip"])
async def fire_reel(seed: Seed) -> dict[str, ArtifactRef]:
    """An opening picture, and strips that go on from it."""
    first = int(seed or 0)
    opening = await engine_run(CARD.id, seed=first)
    strips = await asyncio.gather(
        *(fire_strip(image=opening["image"], seed=first + 1 + number * LINKS) for number in range(STRIPS))
    )
    return {f"strip_{number}": strip["image"] for number, strip in enumerate(strips)}


@workflow("fire.film", requires=["fire.reel"])
async def fire_film(seed: Seed) -> dict[str, ArtifactRef]:
    """Reels side by side."""
    first = int(seed or 0)
    reels = await asyncio.gather(*(fire_reel(seed=first + number * PER_REEL) for number in range(REELS)))
    return {f"reel_{reel}_{name}": ref for reel, strips in enumerate(reels) for name, ref in strips.items()}


@workflow("fire.one", requires=[CARD.id])
async def fire_one(
    seed: Seed,
    gate: str | None = None,
    gate_step: int = 0,
    trouble: str | None = None,
) -> dict[str, ArtifactRef]:
    """One run, which can be made to wait or to fail."""
    return await engine_run(CARD.id, seed=seed, gate=gate, gate_step=gate_step, trouble=trouble)


@workflow("fire.nest", requires=["fire.one"])
async def fire_nest(seed: Seed, gate: str | None = None) -> dict[str, ArtifactRef]:
    """One run inside another workflow."""
    return await fire_one(seed=seed, gate=gate)


@workflow("fire.ask", requires=[CARD.id])
async def fire_ask(seed: Seed) -> dict[str, ArtifactRef]:
    """One run, and a person's word on it."""
    made = await engine_run(CARD.id, seed=seed)
    await approval("picture", made["image"], question="Is this what you wanted?")
    return made
