"""What a training step takes of its rollouts, and what it refuses in one line. No model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.ids import sha256
from mutoscope.platform.training.batch import Batch, Gathering
from mutoscope.platform.training.cards import TrainParameters
from mutoscope.platform.training.groups import Draw, RolloutRecord, Sample
from mutoscope.platform.trajectory import TrajectoryFacts, TrajectoryGroup, TrajectorySample

CARD = "flux-t2i"
NEW, OLD = sha256(b"new"), sha256(b"old")
DRAW = Draw(seed=0, iteration=0, prompt_index=0)


def record(
    scores: Sequence[float | None] = (1.0, 0.0),
    *,
    weights: str = NEW,
    nodes: Sequence[Mapping[str, str]] = (),
    tokens: Sequence[Mapping[str, int]] = (),
    **fields: Any,
) -> RolloutRecord:
    samples = [
        Sample(
            seed=at,
            prompt="a circle",
            status="failed" if score is None else "score",
            score=score,
            trajectory=(0, at),
            nodes=nodes[at] if nodes else {},
            tokens=tokens[at] if tokens else {},
        )
        for at, score in enumerate(scores)
    ]
    told = {
        "card": CARD,
        "prompt": "a circle",
        "target": "a circle",
        "draw": DRAW,
        "parameters": {},
        "group_seed": 0,
        "law": "flow-sde",
        "window": (0, 1),
        "noise_scale": 0.7,
        "weights": {"transformer": weights, "refiner": weights},
        "versions": {},
        "rewards": {"reward-scene": 1.0},
        "samples": tuple(samples),
        "joined": True,
        "trajectories": tuple(sha256(bytes([at])) for at in range(len(samples))),
        "tokens": tuple(sha256(bytes([at])) for at in range(len(samples) if tokens else 0)),
    }
    return RolloutRecord.model_validate({**told, **fields})


def trajectory(count: int = 2, *, weights: str = NEW, first_seed: int = 0) -> TrajectoryGroup:
    facts = TrajectoryFacts(
        seeds=tuple(range(first_seed, first_seed + count)),
        sigmas=(1.0, 0.5, 0.0),
        law="flow-sde",
        window=(0, 1),
        weights={"transformer": weights},
        prompt_embedding=sha256(b"prompt"),
        law_parameters={"noise_scale": 0.7},
    )
    latents = {level: np.zeros((2, 2), np.float32) for level in (0, 1, 2)}
    sample = TrajectorySample(latents, np.zeros(1, np.float32))
    return TrajectoryGroup(facts, (sample,) * count)


def batch(*records: RolloutRecord, lists: Mapping[str, Any] | None = None, **asked: Any) -> Batch:
    parameters = TrainParameters.model_validate(
        {"component": "transformer", "method": "flow-grpo", **asked}
    ).model_dump()
    gathering = Gathering(
        card=CARD,
        component=parameters["component"],
        experts=["refiner", "transformer"],
        parameters=parameters,
        weights={"transformer": NEW, "refiner": NEW},
        lists={"trajectories": [trajectory(len(each.samples)) for each in records if each.samples]}
        if lists is None
        else lists,
    )
    return gathering.batch([each.to_json() for each in records])


def test_samples_become_examples_of_their_records_own_files() -> None:
    made = batch(record((1.0, 0.0)), record((0.0, None, 1.0)))
    assert [(e.group, e.sample.seed, round(e.advantage, 2)) for e in made.examples] == [
        (0, 0, 1.0),
        (0, 1, -1.0),
        (1, 0, -1.0),
        (1, 2, 1.0),
    ]
    assert [e.row for e in made.examples] == [0, 1, 0, 2]
    assert len({id(e.trajectory) for e in made.examples}) == 2
    summary = made.summary()
    assert (summary["samples"], summary["groups"], summary["reward_mean"]) == (4, 2, 0.5)


def test_groups_without_a_contrast_are_counted() -> None:
    dropped = record((1.0, None), reason="1 of its samples have a score")
    made = batch(record(), record((0.5, 0.5)), dropped)
    assert (len(made.examples), made.zero_std_groups, made.dropped_groups) == (2, 1, 1)
    kept = batch(record(), record((0.5, 0.5)), drop_zero_std=False)
    assert [e.advantage for e in kept.examples[2:]] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("given", "asked", "line"),
    [
        (record(card="wan-i2v"), {}, "rollouts.0.card='wan-i2v' is not valid: this step trains flux-t2i"),
        (record(weights=OLD), {}, r"rollouts.0.weights.transformer='\w+' is not valid: .* tell staleness"),
        (record((1.0,)), {}, "rollouts.0.samples=1 is not valid: a group has 2 samples with a score"),
        (record((1.0, None)), {}, "rollouts.0.samples=1 is not valid: a group has 2 samples with a score"),
        (record(()), {}, "rollouts.0.samples=0 is not valid: a group has 2 samples with a score"),
        (record((), reason="a storm"), {}, "rollouts=1 is not valid: none of these groups .*: a storm"),
        (
            record(),
            {"staleness": [3], "max_staleness": 2},
            "rollouts.0.staleness=3 .* may lie 2 steps behind",
        ),
        (record(), {"staleness": [0, 0]}, "say it of each of the 1 rollouts"),
        (record(), {"credit": "per_expert"}, "no sample says at which node transformer wrote"),
    ],
)
def test_what_cannot_teach_is_refused(given: RolloutRecord, asked: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidParameter, match=line):
        batch(given, **asked)


def test_weights_behind_are_taken_within_the_limit() -> None:
    old = {"trajectories": [trajectory(weights=OLD)]}
    made = batch(record(weights=OLD), lists=old, staleness=[2], max_staleness=2)
    assert [e.staleness for e in made.examples] == [2, 2]
    assert made.summary()["staleness_max"] == 2


def test_a_trajectory_of_another_record_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"samples.0.seed=0 is not valid: row 0 .* of another sample"):
        batch(record(), lists={"trajectories": [trajectory(first_seed=5)]})
    with pytest.raises(
        InvalidParameter, match=r"samples.0.weights.transformer=.*: its trajectory was sampled"
    ):
        batch(record(), lists={"trajectories": [trajectory(weights=OLD)]})
    with pytest.raises(
        InvalidParameter, match="it is number 0 of the trajectories of all rollouts, and 0 are"
    ):
        batch(record(), lists={})
    with pytest.raises(InvalidParameter, match=r"samples.1.seed=1 is not valid: row 1"):
        batch(record(), lists={"trajectories": [trajectory(1)]})


def test_what_is_no_record_is_refused() -> None:
    gathering = Gathering(
        CARD, "transformer", [], TrainParameters(component="x", method="nft").model_dump(), None
    )
    with pytest.raises(InvalidParameter):
        gathering.batch([{"format": "mutoscope.rollout/1"}])


def test_tokens_are_examples_where_the_component_wrote() -> None:
    """Samples that no refiner wrote for are part of the contrast, and teach the refiner nothing."""
    told = record((1.0, 0.0, 0.5), tokens=[{"refiner": 0}, {}, {"refiner": 1}])
    files = {"tokens": [{"answer": [1]}, {"answer": [2]}, {"answer": [3]}]}
    made = batch(told, lists=files, component="refiner", method="token-pg")
    assert [(e.sample.seed, e.tokens) for e in made.examples] == [(0, {"answer": [1]}), (2, {"answer": [2]})]
    assert made.examples[0].advantage == pytest.approx(0.5 / (np.std([1.0, 0.0, 0.5]) + 1e-4))


def test_an_expert_is_credited_once_for_each_of_its_outputs() -> None:
    """Two texts, each drawn twice: a text's return is the mean of its pictures, 0.8 and 0.2."""
    nodes = [{"refiner": text, "transformer": f"{text}{at}"} for text in "ab" for at in range(2)]
    tokens = [{}, {"refiner": 0}, {"refiner": 1}, {"refiner": 1}]
    told = record((1.0, 0.6, 0.4, 0.0), nodes=nodes, tokens=tokens)
    files = {"tokens": [{"answer": [at]} for at in range(4)]}
    made = batch(told, lists=files, component="refiner", method="token-pg", credit="per_expert")
    # The first of a text's samples has no file of what was written: the next one has.
    assert [(e.sample.seed, round(e.advantage, 2)) for e in made.examples] == [(1, 1.0), (2, -1.0)]
    pictures = batch(told, credit="per_expert", advantage_scale="none")
    assert [round(e.advantage, 2) for e in pictures.examples] == [0.2, -0.2, 0.2, -0.2]
    shared = batch(told, credit="shared", advantage_scale="none")
    assert [round(e.advantage, 2) for e in shared.examples] == [0.5, 0.1, -0.1, -0.5]


def test_a_teacher_needs_no_scores() -> None:
    told = record((None, None), reason="nobody has a score", weights=OLD)
    made = batch(told, lists={"trajectories": [trajectory(weights=OLD)]}, method="distill")
    assert [e.advantage for e in made.examples] == [1.0, 1.0]
