"""A group's record: its randomness, its lists, its scores, and the card that holds it against its inputs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform import ids
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.reward import Reward
from mutoscope.platform.training.groups import (
    Draw,
    Files,
    RolloutRecord,
    Sample,
    combined,
    offsets,
    verdict,
)
from mutoscope.platform.trajectory import TrajectoryFacts, TrajectoryGroup, TrajectorySample

WEIGHTS = {"transformer": ids.sha256(b"transformer")}
DRAW = Draw(seed=7, iteration=3, prompt_index=1)


def reward(score: float | None, card: str = "reward-scene") -> Reward:
    if score is None:
        return Reward.failed(card, "subject", "it shows nothing")
    return Reward(card, "subject", "score", score)


def trajectory(seed: int, prompt: bytes = b"prompt") -> TrajectoryGroup:
    facts = TrajectoryFacts((seed,), (1.0, 0.5, 0.0), "flow-sde", (0, 1), WEIGHTS, ids.sha256(prompt))
    latents = {level: np.full((2, 2), seed + level, np.float32) for level in (0, 1, 2)}
    return TrajectoryGroup(facts, (TrajectorySample(latents, np.full(1, seed, np.float32)),))


def sample(place: int, score: float | None, **more: Any) -> Sample:
    given = {"reward-scene": reward(score)}
    whole = combined(given, {"reward-scene": 1.0})
    return Sample(
        seed=place,
        prompt="a red circle",
        status=whole.status,
        score=whole.score,
        reason=whole.reason,
        details={name: each.to_json() for name, each in given.items()},
        trajectory=(place, 0),
        **more,
    )


def record(scores: list[float | None], **more: Any) -> RolloutRecord:
    samples = tuple(sample(place, score) for place, score in enumerate(scores))
    given: dict[str, Any] = {
        "card": "flux-t2i",
        "prompt": "a red circle",
        "target": "a red circle",
        "draw": DRAW,
        "parameters": {},
        "group_seed": DRAW.group_seed,
        "law": "flow-sde",
        "window": (0, 1),
        "noise_scale": 0.7,
        "weights": WEIGHTS,
        "versions": {},
        "rewards": {"reward-scene": 1.0},
        "samples": samples,
        "trajectories": tuple(ids.sha256(str(place).encode()) for place in range(len(samples))),
        "reason": verdict(each.status for each in samples),
    }
    return RolloutRecord(**(given | more))


@cache
def instance() -> Instance:
    return load_instance(get_card("rollout-group"), {}, recipe={})


def made(
    of: RolloutRecord, parts: list[TrajectoryGroup] | None = None, rewards: list[Reward] | None = None
) -> dict[str, Output]:
    """The card's outputs; by default the inputs are those that the record names."""
    parts = [trajectory(each.seed) for each in of.samples] if parts is None else parts
    told = [reward(each.score) for each in of.samples] if rewards is None else rewards
    inputs: dict[str, Any] = {"trajectories": parts, "rewards": [each.to_json() for each in told]}
    filled = {name: value for name, value in inputs.items() if value}
    request = Request("r", "rollout-group", filled, {"record": of.to_json()}, seed=0)
    return dict(Engine().run(instance(), request).outputs)


def test_every_draw_of_a_training_is_its_own() -> None:
    draws = [
        Draw(seed=seed, iteration=iteration, prompt_index=prompt)
        for seed in range(3)
        for iteration in range(3)
        for prompt in range(3)
    ]
    seeds = [draw.group_seed for draw in draws]
    seeds += [
        draw.sample_seed(place, attempt) for draw in draws for place in range(3) for attempt in range(2)
    ]
    seeds += [draw.node_seed(expert, [0, 1]) for draw in draws for expert in ("refiner_1", "refiner_2")]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_draws_are_pinned_for_good() -> None:
    draw = Draw(seed=1, iteration=2, prompt_index=3)
    encoded = ids.digest("mutoscope.rollout-draw/1", [1, 2, 3, "sample", 4, 5])
    assert draw.sample_seed(4, 5) == int(encoded[:16], 16) >> 1
    assert (draw.group_seed, draw.sample_seed(0)) == (8779849422567414555, 4152905034010549424)


def test_a_sample_has_a_score_exactly_where_its_status_says_so() -> None:
    for status, score in (("failed", 0.0), ("score", None)):
        with pytest.raises(ValueError, match="a score exactly where the status is score"):
            Sample(seed=0, prompt="a", status=status, score=score)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finite"):
        Sample(seed=0, prompt="a", status="score", score=float("nan"))


def test_rewards_are_summed_by_weight_and_a_missing_one_is_no_zero() -> None:
    weights = {"reward-scene": 2.0, "reward-clip": -0.5}
    both = {"reward-scene": reward(0.75), "reward-clip": reward(0.5, "reward-clip")}
    assert combined(both, weights).score == 2.0 * 0.75 - 0.5 * 0.5
    one = combined(both | {"reward-clip": reward(None, "reward-clip")}, weights)
    assert (one.status, one.score) == ("failed", None)
    assert one.reason == "reward-clip: it shows nothing"


@pytest.mark.parametrize(
    ("statuses", "reason"),
    [
        (["score", "score", "failed"], None),
        (
            ["score", "timeout", "failed", "failed"],
            "1 of its samples have a score, 2 are needed (2 failed, 1 timeout)",
        ),
        ([], "0 of its samples have a score, 2 are needed (nothing else was sampled)"),
    ],
)
def test_a_group_needs_two_scores(statuses: list[Any], reason: str | None) -> None:
    assert verdict(statuses) == reason


def test_the_lists_of_several_records_are_put_one_after_another() -> None:
    single = record([0.1, 0.2], tokens=("x",), images=("y", "z"))
    whole = RolloutRecord.from_json(made(record([0.1, 0.2, 0.3]))["rollout"].value)
    assert (single.files, whole.files) == (Files(2, 1, 2), Files(1, 0, 0))
    assert offsets([single, whole, single]) == [Files(0, 0, 0), Files(2, 1, 2), Files(3, 1, 2)]


def test_a_record_survives_json_and_anything_else_is_refused() -> None:
    one = record([0.5, None])
    assert RolloutRecord.from_json(one.to_json()) == one
    with pytest.raises(InvalidParameter, match=r"^format='mutoscope.rollout/2' is not valid"):
        RolloutRecord.from_json({**one.to_json(), "format": "mutoscope.rollout/2"})


def test_samples_that_share_their_conditioning_become_rows_of_one_file() -> None:
    outputs = made(record([0.5, None, 0.25]))
    whole, stored = outputs["trajectory"].value, RolloutRecord.from_json(outputs["rollout"].value)
    assert whole.facts.seeds == (0, 1, 2)
    assert stored.joined
    assert [each.trajectory for each in stored.samples] == [(0, 0), (0, 1), (0, 2)]
    for each in stored.samples:
        assert each.trajectory is not None
        assert whole.samples[each.trajectory[1]].log_probs_W.tolist() == [each.seed]
    assert outputs["rollout"].meta == {"samples": 3, "scored": 2, "kept": True, "mean_score": 0.375}


def test_samples_that_began_otherwise_stay_files_of_their_own() -> None:
    one = record([0.5, 0.25])
    outputs = made(one, [trajectory(0, b"a"), trajectory(1, b"b")])
    assert "trajectory" not in outputs
    assert RolloutRecord.from_json(outputs["rollout"].value) == one


def test_a_dropped_group_has_a_record_and_no_trajectory() -> None:
    outputs = made(record([0.5, None]))
    stored = RolloutRecord.from_json(outputs["rollout"].value)
    assert "trajectory" not in outputs
    assert not stored.kept
    assert stored.reason == "1 of its samples have a score, 2 are needed (1 failed)"
    assert stored.scores == [0.5, None]


@pytest.mark.parametrize(
    ("parts", "refusal"),
    [
        ([trajectory(0)], r"trajectories=1 is not valid: the record has 2 samples with one"),
        ([trajectory(0), trajectory(9)], r"trajectories.1.seeds=\(9,\) is not valid: the record says \(1,\)"),
    ],
)
def test_trajectories_of_others_are_refused(parts: list[TrajectoryGroup], refusal: str) -> None:
    with pytest.raises(InvalidParameter, match=refusal):
        made(record([0.5, 0.25]), parts)


def test_a_score_that_no_reward_gave_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"record.samples.1=0.25 is not valid: give the reward"):
        made(record([0.5, 0.25]), rewards=[reward(0.5)])
    with pytest.raises(InvalidParameter, match="no sample of the record has that reward"):
        made(record([0.5, 0.25]), rewards=[reward(0.5), reward(0.25), reward(0.125)])
    flattered = sample(1, 0.25).model_copy(update={"score": 0.5})
    with pytest.raises(
        InvalidParameter, match=r"samples.1.score=0.5 is not valid: its rewards come to score 0.25"
    ):
        made(record([0.5, 0.25], samples=(sample(0, 0.5), flattered)), rewards=[reward(0.5), reward(0.25)])


def test_a_group_of_one_cannot_pass_for_a_kept_one() -> None:
    with pytest.raises(
        InvalidParameter, match=r"record.reason=None is not valid: say why the group is dropped"
    ):
        made(record([0.5, None], reason=None))


def test_weights_that_the_record_does_not_name_are_refused() -> None:
    other = {"transformer": ids.sha256(b"another")}
    with pytest.raises(InvalidParameter, match=r"trajectories.0.weights"):
        made(record([0.5, 0.25], weights=other))
