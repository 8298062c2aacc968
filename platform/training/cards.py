"""Trainers: a card for every card that can be trained, whose runs make new weights of one of its components.

A training step is declared like any other work. It uses rollouts, what they captured, the pinned weights and
the state that the step before left; it makes new weights, new state and metrics. Equal inputs make equal
bytes, so a step is remembered, replayed and traced like every run. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from mutoscope.platform.engine.card import Card, Recipe, Slot
from mutoscope.platform.refs import TRAINER_SUFFIX

Method = Literal["flow-grpo", "nft", "token-pg", "distill"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class TrainParameters(BaseModel):
    """How one component learns from a batch of rollouts."""

    model_config = ConfigDict(extra="forbid")

    component: str = Field(description="The component that is trained, such as transformer or llm.")
    method: Method = Field(description="What is maximised; see `training.methods`.")

    learning_rate: Positive = Field(1e-4, description="Of AdamW.")
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's decay of the gradient's mean.")
    beta2: float = Field(0.999, ge=0, lt=1, description="AdamW's decay of the gradient's square.")
    epsilon: Positive = Field(1e-8, description="AdamW's, added to the root of the square.")
    weight_decay: NotNegative = Field(0.0, description="AdamW's, per unit of learning rate.")
    max_grad_norm: Positive | None = Field(1.0, description="Longer gradients are shortened to this.")

    epochs: int = Field(1, ge=1, le=1000, description="Passes over the samples.")
    minibatch: int | None = Field(
        None, ge=1, description="Samples to an optimiser step; left out, all of a pass."
    )
    rows: int = Field(
        16,
        ge=1,
        le=4096,
        description="Rows of one forward and backward pass; gradients accumulate over them.",
    )

    clip_range: NotNegative | None = Field(
        None, description="PPO's ε; left out, 1e-4 for steps of a flow, none for tokens."
    )
    kl_beta: NotNegative = Field(0.0, description="Weight of the KL to the reference, if one is given.")
    guard: bool = Field(False, description="GRPO-Guard: normalised ratios, steps weighed by 1/(-dt).")
    dppo_epsilon: Positive | None = Field(
        None, description="DPPO: a mask at this divergence in place of the clip."
    )
    ratio_low: NotNegative = Field(0.5, description="Ratios below are rejected as too far off-policy.")
    ratio_high: Positive = Field(2.0, description="Ratios above are rejected.")

    advantage_scale: Literal["group", "global", "none"] = Field(
        "group", description="What deviations from the group's mean are divided by."
    )
    advantage_clip: Positive = Field(5.0, description="The greatest magnitude of an advantage.")
    drop_zero_std: bool = Field(
        True, description="Leave groups of equal scores out; otherwise their advantage is 0."
    )
    credit: Literal["shared", "per_expert"] = Field(
        "shared", description="Whose advantage the component's outputs get: the sample's, or their own."
    )

    nft_beta: Positive = Field(1.0, description="DiffusionNFT: how far the two velocities are apart.")
    nft_times: int = Field(2, ge=1, le=1000, description="DiffusionNFT: noise levels drawn for a sample.")
    nft_advantage: Positive = Field(1.0, description="DiffusionNFT: the advantage at which r becomes 1.")
    old_decay: Share = Field(
        0.0, description="DiffusionNFT: how much of the sampling policy stays at the end of the step."
    )
    distill_steps: int | None = Field(
        None, ge=1, le=1000, description="Distillation: steps of the student's schedule."
    )

    lora_rank: int | None = Field(None, ge=1, le=4096, description="Train a LoRA; left out, all weights.")
    lora_alpha: Positive | None = Field(None, description="The LoRA's alpha; left out, its rank.")
    lora_targets: list[str] | None = Field(
        None, description="Ends of names of linear layers; left out, the projections of attention."
    )
    ema_decay: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="Keep a moving average of the weights, as an output of its own."
    )

    staleness: list[Annotated[int, Field(ge=0)]] | None = Field(
        None,
        description="By rollout, how many steps its weights lie behind the pinned ones; left out, none does.",
    )
    max_staleness: int = Field(0, ge=0, description="Rollouts further behind are refused.")

    max_skips: int = Field(3, ge=1, description="So many steps in a row without a finite gradient: diverged.")
    max_shift: Positive = Field(
        1.0, description="A policy that moved by this much in one run has diverged; see `policy_shift`."
    )

    @model_validator(mode="after")
    def _has_a_band(self) -> Self:
        if not self.ratio_low < self.ratio_high:
            raise ValueError(f"ratio_low is below ratio_high, {self.ratio_high}")
        return self


class Unchecked(BaseModel):
    """What a trainer leaves out of its card's recipe: it takes other inputs and parameters."""

    @property
    def needed_inputs(self) -> tuple[str, ...]:
        return ()

    def check_inputs(self, inputs: Mapping[str, Any]) -> None:
        return None

    def check(self, values: Mapping[str, Any]) -> None:
        return None


INPUTS = (
    Slot("rollouts", "json", "Groups on the record, of one training step.", many=True),
    Slot("trajectories", "trajectory", "The rollouts', one record after another.", required=False, many=True),
    Slot("tokens", "json", "What language models wrote, likewise.", required=False, many=True),
    Slot("images", "image", "Images that samples began with, likewise.", required=False, many=True),
    Slot("state", "weights", "What the step before left, for the weights it made.", required=False),
    Slot("reference", "weights", "Weights of the component that the KL is taken to.", required=False),
)

OUTPUTS = (
    Slot("weights", "weights", "The component's new weights, or a LoRA over those it began with."),
    Slot("state", "weights", "What the next step goes on from."),
    Slot("ema", "weights", "The moving average of the weights.", required=False),
    Slot("metrics", "json", "What happened, by optimiser step and on the whole."),
)

_MODULES = (
    "advantages",
    "batch",
    "cards",
    "flow_objectives",
    "groups",
    "learner",
    "methods",
    "metrics",
    "objectives",
    "optimiser",
    "policy",
    "program",
    "setup",
    "state",
    "step",
    "token_objective",
    "trainable",
)


def trainer_of(card: Card) -> Card:
    """The card that trains another one's components."""
    bases: Any = (Unchecked, card.recipe)
    name = f"{card.recipe.__name__}OfTrainer"
    recipe = cast("type[Recipe]", create_model(name, __base__=bases, __module__=__name__))
    return Card(
        id=f"{card.id}{TRAINER_SUFFIX}",
        title=f"Training step of {card.id}",
        components=card.components,
        inputs=INPUTS,
        outputs=OUTPUTS,
        parameters=TrainParameters,
        recipe=recipe,
        inspector=card.inspector,
        loader=card.loader,
        builder="mutoscope.platform.training.program:build",
        sources=(*card.sources, *(f"mutoscope.platform.training.{name}" for name in _MODULES)),
        run_kind="train_step",
        weights_of=card.id,
    )


def flux_t2i(cards: Mapping[str, Card]) -> Card:
    """`flux-t2i-trainer`."""
    return trainer_of(cards["flux-t2i"])


def wan_i2v(cards: Mapping[str, Card]) -> Card:
    """`wan-i2v-trainer`."""
    return trainer_of(cards["wan-i2v"])


def refiner_lm(cards: Mapping[str, Card]) -> Card:
    """`refiner-lm-trainer`."""
    return trainer_of(cards["refiner-lm"])


def unirl_qwenflux(cards: Mapping[str, Card]) -> Card:
    """`unirl-qwenflux-trainer`."""
    return trainer_of(cards["unirl-qwenflux"])


def multi_expert(cards: Mapping[str, Card]) -> Card:
    """`multi-expert-trainer`."""
    return trainer_of(cards["multi-expert"])
