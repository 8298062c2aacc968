"""What an audit concludes of numbers, apart from where they come from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.training.audit import Audited, Evidence, per_step, recompute
from tests.support.cards import tiny_instance


def audited(*deltas: float, first_step: int = 0, contradiction: str | None = None) -> Audited:
    return Audited("run", 7, first_step, deltas, contradiction)


@pytest.mark.parametrize(
    ("one", "holds"),
    [
        (audited(1e-6, -9e-6), True),
        (audited(1e-6, -1e-5), False),
        (audited(0.0, math.nan), False),
        (audited(math.nan, 0.0), False),
        (audited(math.inf), False),
        (audited(), True),
        (audited(0.0, contradiction="its transformer is another"), False),
    ],
)
def test_it_holds_where_every_step_is_closer_than_the_limit(one: Audited, holds: bool) -> None:
    assert one.holds is holds


def test_steps_are_told_by_their_place_with_the_worst_of_all_samples() -> None:
    found = per_step([audited(1e-7, -3e-7, first_step=2), audited(-2e-7, 1e-7, first_step=2)])
    assert found == {2: 2e-7, 3: 3e-7}
    for order in ([math.nan, 1.0], [1.0, math.nan]):
        (worst,) = per_step([audited(delta) for delta in order]).values()
        assert math.isnan(worst), "no sample hides what is no number in another"


def run_of(request: Any, card_id: str, weights: dict[str, str]) -> RunRecord:
    """The row of a rollout; what an audit does not look at is empty."""
    fields: dict[str, Any] = dict.fromkeys(RunRecord.__dataclass_fields__)
    known = {"id": "run", "card": card_id, "seed": request.seed, "key_parts": {"weights": weights}}
    return RunRecord(**{**fields, **known})


@pytest.mark.parametrize("card_id", ["flux-t2i", "wan-i2v", "wan-t2v", "unirl-qwenflux", "refiner-lm"])
def test_a_rollout_of_every_card_holds_and_another_seeds_does_not(card_id: str, tmp_path: Path) -> None:
    instance = tiny_instance(card_id, tmp_path / "folder")
    steps = {} if card_id == "refiner-lm" else {"num_inference_steps": 4}
    first, second = (
        example_request(instance.card, instance.recipe, profile=Profile.ROLLOUT, seed=seed, **steps)
        for seed in (3, 4)
    )
    run = run_of(first, card_id, dict(instance.weights))
    sampled, other = (Engine().run(instance, request).outputs for request in (first, second))
    if card_id == "refiner-lm":
        evidence = Evidence(run, tokens=sampled["tokens"].value, part="llm")
        wrong = {**sampled["tokens"].value, "answer": sampled["tokens"].value["answer"][::-1]}
        swapped = Evidence(run, tokens=wrong, part="llm")
    else:
        evidence = Evidence(run, sampled["trajectory"].value)
        swapped = Evidence(run, other["trajectory"].value)
        assert swapped.contradiction == f"its seed is {second.seed}, that of its run {first.seed}"
    assert evidence.contradiction is None
    found = recompute(instance, first, evidence)
    assert found.holds
    assert len(found.deltas) == len(evidence.captured) > 0
    assert found.first_step == evidence.first_step
    assert not recompute(instance, first, swapped).holds


def test_a_refiners_weights_are_named_as_the_composed_card_names_them(tmp_path: Path) -> None:
    instance = tiny_instance("unirl-qwenflux", tmp_path / "folder")
    request = example_request(instance.card, instance.recipe, profile=Profile.ROLLOUT)
    tokens = Engine().run(instance, request).outputs["refiner_tokens"].value
    run = run_of(request, "unirl-qwenflux", dict(instance.weights))
    evidence = Evidence(run, tokens=tokens, part="refiner")
    assert set(evidence.named) == {"refiner", "refiner_tokenizer"}
    assert evidence.named["refiner"] == instance.weights["refiner"]
    np.testing.assert_array_equal(evidence.captured, np.array(tokens["log_probs"], np.float32))
    other = run_of(request, "unirl-qwenflux", {**instance.weights, "refiner": "0" * 64})
    told = Evidence(other, tokens=tokens, part="refiner").contradiction
    assert told == f"its refiner is {instance.weights['refiner'][:12]}, that of its run {'0' * 12}"
