"""One run of any card, the ones without a workflow of their own among them."""

from __future__ import annotations

from typing import Any

from mutoscope.flows.parameters import (
    CardParameters,
    OptionalImage,
    OptionalPrompt,
    OptionalVideo,
    Seed,
    ServedCard,
)
from mutoscope.models.registry import cards
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef

SERVED = tuple(card.id for card in cards().values() if card.run_kind != "train_step")


@workflow("card.serve", requires=list(SERVED))
async def serve(
    card: ServedCard,
    prompt: OptionalPrompt = None,
    seed: Seed = None,
    image: OptionalImage = None,
    video: OptionalVideo = None,
    parameters: CardParameters = None,
) -> dict[str, ArtifactRef]:
    """Run one card and keep all of its outputs. `mutoscope cards CARD` tells what it takes."""
    named: dict[str, Any] = {"prompt": prompt, "seed": seed, "image": image, "video": video}
    for name in set(parameters or {}) & set(named):
        raise InvalidParameter(f"parameters.{name}", (parameters or {})[name], f"give it as {name}=...")
    if card not in SERVED:
        raise InvalidParameter("card", card, f"use one of {', '.join(SERVED)}")
    return await engine_run(card, **named, **(parameters or {}))
