"""Training the starter models as runs: cards whose outputs are weights.

A training is declared like any other work, so it is queued, claimed under a lease, watched, cancelled and
remembered like any other, and its weights have a lineage. A trainer has no components; its recipe is the
training's configuration in `image_recipe`, `video_recipe`, `refiner_recipe` or `scorer_train`. No torch
here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mutoscope.platform.engine.card import Card, FolderSummary, Recipe, Slot
from mutoscope.platform.errors import InvalidFolder


class TrainerRecipe(Recipe):
    """What the trained model will draw; a trainer itself has no weights that could bring a recipe."""

    height: int = 64
    width: int = 64
    num_inference_steps: int = 1
    guidance_scale: float = 1.0
    max_sequence_length: int = 1


class TrainerParameters(BaseModel):
    """Steps per stage. None takes the stage's own number: a full training, hours on one core."""

    model_config = ConfigDict(extra="forbid", strict=True)

    vae_steps: int | None = Field(None, ge=1, le=1_000_000, description="Steps of the autoencoder.")
    text_steps: int | None = Field(None, ge=1, le=1_000_000, description="Steps of the text encoders.")
    dit_steps: int | None = Field(None, ge=1, le=1_000_000, description="Steps of the denoiser.")
    polish_steps: int | None = Field(
        None, ge=1, le=1_000_000, description="Steps of the decoder's last training, all else frozen."
    )
    bank_size: int | None = Field(None, ge=64, le=1_000_000, description="Clips or pictures kept as latents.")


class RefinerTrainerParameters(BaseModel):
    """Steps of the only stage. None takes the stage's own number: minutes on one core."""

    model_config = ConfigDict(extra="forbid", strict=True)

    lm_steps: int | None = Field(None, ge=1, le=1_000_000, description="Steps of the language model.")


class ScorerTrainerParameters(BaseModel):
    """Steps of the only stage. None takes the stage's own number: a quarter of an hour on one core."""

    model_config = ConfigDict(extra="forbid", strict=True)

    scorer_steps: int | None = Field(None, ge=1, le=1_000_000, description="Steps of the scene scorer.")


def _weights(*components: str) -> tuple[Slot, ...]:
    slots = [Slot(name, "weights", f"The trained card's component {name}.") for name in components]
    return (*slots, Slot("recipe", "json", "The trained card's resolved recipe."))


def _trainer(
    subject: str,
    card_id: str,
    components: tuple[str, ...],
    parameters: type[BaseModel] = TrainerParameters,
    sources: tuple[str, ...] = (),
) -> Card:
    """The card that trains the components of `card_id`; `sources` are what it trains beyond this package."""
    return Card(
        id=f"starter-{subject}-trainer",
        title=f"Trains the starter weights of {card_id}",
        components=(),
        inputs=(),
        outputs=_weights(*components),
        parameters=parameters,
        recipe=TrainerRecipe,
        inspector=f"{__name__}:inspect",
        loader=f"{__name__}:load",
        builder=f"mutoscope.models.starter.training:build_{subject}",
        sources=("mutoscope.models.starter", *sources),
        run_kind="train_step",
    )


IMAGE_TRAINER = _trainer(
    "image",
    "flux-t2i",
    ("scheduler", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "transformer", "vae"),
)
VIDEO_TRAINER = _trainer("video", "wan-i2v", ("scheduler", "text_encoder", "tokenizer", "transformer", "vae"))
REFINER_TRAINER = _trainer("refiner", "refiner-lm", ("llm", "tokenizer"), RefinerTrainerParameters)
SCORER_TRAINER = _trainer(
    "scorer", "reward-scene", ("scorer",), ScorerTrainerParameters, ("mutoscope.models.reward.scene",)
)

TRAINED = {
    IMAGE_TRAINER.id: "flux-t2i",
    VIDEO_TRAINER.id: "wan-i2v",
    REFINER_TRAINER.id: "refiner-lm",
    SCORER_TRAINER.id: "reward-scene",
}
"""Which card a trainer makes weights for."""

SHIPPED_SEEDS = {IMAGE_TRAINER.id: 11, VIDEO_TRAINER.id: 20, REFINER_TRAINER.id: 31, SCORER_TRAINER.id: 31}
"""The seeds from which the recipes of the shipped weights count."""


def inspect(folder: Path) -> FolderSummary:
    """A trainer starts from nothing, so no folder is one."""
    raise InvalidFolder(f"{folder} cannot be imported for a trainer: import it for the card it trains")


def load(paths: dict[str, Path], **_: Any) -> dict[str, Any]:
    """No components to load."""
    return {}
