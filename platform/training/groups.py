"""What a group of rollouts is on the record: how it was drawn, at which weights, and what every sample got.

A `RolloutRecord` is the JSON of one group, small enough to pass around. The numbers lie in artifacts beside
it, in four lists that belong to the record: trajectories, tokens, images, and the rewards it was made of. An
index in the record is a place in its own list. Who reads several records puts their lists one after another
and finds each record's begin with `offsets`.

A group is dropped where fewer than two of its samples have a score: there is nothing to compare. Its record
is kept all the same and says why. A sample without a score never has a number in its place. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mutoscope.platform import ids
from mutoscope.platform.engine.card import invalid_parameter
from mutoscope.platform.reward import Reward, Status

LEAST_SCORED = 2
"""Samples with a score that a group needs: an advantage contrasts a sample with others of its group."""

_DOMAIN = "mutoscope.rollout-draw/1"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Draw(_Record):
    """Where a group's randomness comes from; see `group_seed`.

    Attributes:
        seed: the training's.
        iteration: of the training, from 0 on.
        prompt_index: the prompt's place in the list of the iteration.
    """

    seed: int = Field(ge=0, lt=2**63)
    iteration: int = Field(ge=0)
    prompt_index: int = Field(ge=0)

    @property
    def group_seed(self) -> int:
        """The seed of what the group shares, such as its window, 0 <= n < 2**63."""
        return _drawn(self, "group")

    def sample_seed(self, place: int, attempt: int = 0) -> int:
        """The seed of the sample at a place of the group, 0 <= n < 2**63.

        Args:
            attempt: 0, and one more for each refill of the place.
        """
        return _drawn(self, "sample", place, attempt)

    def one_of(self, what: str, choices: Sequence[str]) -> str:
        """The group's own choice, such as of a law."""
        return choices[_drawn(self, what) % len(choices)]

    def node_seed(self, expert: str, path: Sequence[int]) -> int:
        """The seed of what an expert writes at a node of the group's tree, 0 <= n < 2**63.

        Args:
            path: the branch taken at every expert so far, its own the last.
        """
        return _drawn(self, "node", expert, *path)


def _drawn(draw: Draw, *what: str | int) -> int:
    place = [draw.seed, draw.iteration, draw.prompt_index]
    return int(ids.digest(_DOMAIN, [*place, *what])[:16], 16) >> 1


class Sample(_Record):
    """One sample of a group.

    Attributes:
        seed: of its rollout.
        prompt: as the generator drew it; the group's own where nothing rewrote it.
        refined: whether refiners rewrote the prompt, or were asked to.
        status: of the combined score; see `combined`.
        score: finite; None exactly if the status is another than ``score``.
        reason: why there is no score.
        details: by reward card, its reward as `Reward.to_json` writes it.
        trajectory: which trajectory file, and which row of it.
        tokens: by part, such as ``refiner``, which tokens file holds what it wrote.
        image: which image file the sample began with.
        nodes: by expert, its node in the group's tree, named by the seed that it drew with. Samples of one
            node share the expert's output and all before it; an expert that was passed over is left out.
    """

    seed: int = Field(ge=0, lt=2**63)
    prompt: str
    refined: bool = False
    status: Status
    score: float | None = Field(allow_inf_nan=False)
    reason: str | None = None
    details: Mapping[str, Mapping[str, Any]] = {}
    trajectory: tuple[int, int] | None = None
    tokens: Mapping[str, int] = {}
    image: int | None = None
    nodes: Mapping[str, str] = {}

    @model_validator(mode="after")
    def _has_score_or_reason(self) -> Sample:
        if (self.status == "score") != (self.score is not None):
            raise ValueError("use a score exactly where the status is score")
        return self


class Dropped(_Record):
    """A sample that is not in the group: its rollout ended without one, or it was refilled.

    Attributes:
        replaced_by: seed of the sample in its place, if there is one.
    """

    seed: int = Field(ge=0, lt=2**63)
    status: Status
    reason: str
    replaced_by: int | None = None


class RolloutRecord(_Record):
    """A group, as the artifact ``rollout`` of the card `rollout-group` holds it.

    Attributes:
        card: that was rolled out.
        prompt: as it was asked; target: what rewards hold its samples against, which is often the prompt.
        parameters: resolved and complete; what differs between samples, `request_parameters` puts in.
        law, window, noise_scale: how the group's steps were drawn; None for a card that draws tokens alone.
        weights: digest of each component's weights, `versions`: the name of each version.
        rewards: by reward card, its weight in the combined score.
        samples: in the order of their places.
        joined: whether the samples' trajectories are rows of one file. Otherwise each is a file of its own.
        trajectories: digests of the trajectories that the rollouts made, in the order of the samples that
            have one; where `joined` is set they are the rows of the one file.
        tokens, images: digests, in the order that the samples' indices mean.
        reason: why the group is dropped; None if it is not.
    """

    format: Literal["mutoscope.rollout/1"] = "mutoscope.rollout/1"
    card: str
    prompt: str
    target: str
    draw: Draw
    parameters: Mapping[str, Any]
    group_seed: int = Field(ge=0, lt=2**63)
    law: str | None
    window: tuple[int, int] | None
    noise_scale: float | None
    weights: Mapping[str, str]
    versions: Mapping[str, str]
    rewards: Mapping[str, float]
    samples: tuple[Sample, ...]
    dropped: tuple[Dropped, ...] = ()
    joined: bool = False
    trajectories: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def kept(self) -> bool:
        """Whether the group can teach anything."""
        return self.reason is None

    @property
    def scores(self) -> list[float | None]:
        """By sample."""
        return [sample.score for sample in self.samples]

    @property
    def files(self) -> Files:
        """How long the record's own lists are."""
        trajectories = min(1, len(self.trajectories)) if self.joined else len(self.trajectories)
        return Files(trajectories, len(self.tokens), len(self.images))

    def request_parameters(self, sample: Sample) -> dict[str, Any]:
        """The parameters with which the sample's request was made."""
        if "refine" not in self.parameters:
            return dict(self.parameters)
        seeds = {part: int(sample.nodes[part]) for part in sample.tokens} or None
        return {**self.parameters, "refine": sample.refined, "refiner_seeds": seeds}

    def to_json(self) -> dict[str, Any]:
        """As the artifact holds it."""
        return self.model_dump(mode="json")

    @classmethod
    def from_json(cls, value: Any) -> RolloutRecord:
        """The record that `to_json` wrote. Raises InvalidParameter for anything else."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise invalid_parameter(error, {"rollout": value}) from None


class Files(NamedTuple):
    """Numbers of files, or places in lists of them."""

    trajectories: int
    tokens: int
    images: int


def offsets(records: Iterable[RolloutRecord]) -> list[Files]:
    """Where each record's files begin in the lists of all of them, put one after another."""
    begins, at = [], Files(0, 0, 0)
    for record in records:
        begins.append(at)
        at = Files(*(begin + count for begin, count in zip(at, record.files, strict=True)))
    return begins


class Combined(_Record):
    """One sample's rewards as one score: `Sample` has the same fields."""

    status: Status
    score: float | None
    reason: str | None


def combined(rewards: Mapping[str, Reward], weights: Mapping[str, float]) -> Combined:
    """The weighted sum of a sample's rewards; without a score as soon as one of them has none.

    Args:
        rewards: by card, one for each of `weights`.
    """
    for card in weights:
        reward = rewards[card]
        if reward.score is None:
            return Combined(status=reward.status, score=None, reason=f"{card}: {reward.reason}")
    total = sum(weight * _score(rewards[card]) for card, weight in weights.items())
    return Combined(status="score", score=total, reason=None)


def verdict(statuses: Iterable[Status]) -> str | None:
    """Why a group of such samples is dropped; None if it is not."""
    counts: dict[Status, int] = {}
    for status in statuses:
        counts[status] = counts.get(status, 0) + 1
    scored, others = counts.pop("score", 0), sorted(counts.items())
    if scored >= LEAST_SCORED:
        return None
    told = ", ".join(f"{count} {status}" for status, count in others) or "nothing else was sampled"
    return f"{scored} of its samples have a score, {LEAST_SCORED} are needed ({told})"


def _score(reward: Reward) -> float:
    assert reward.score is not None, "only what has a score is summed"
    return reward.score
