"""What a training step does when numbers go wrong, and the moments that it keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.request import Output
from mutoscope.platform.errors import InvalidParameter, RunFailed, TrainingDiverged
from mutoscope.platform.training.flow_objectives import Grpo
from mutoscope.platform.training.groups import RolloutRecord
from mutoscope.platform.training.objectives import Item, Measured
from mutoscope.platform.training.optimiser import AdamW, norm_of, shorten
from mutoscope.platform.training.state import to_file
from mutoscope.platform.trajectory import TrajectoryGroup, TrajectorySample
from tests.support.training import Rollouts, advanced, collect, given, starter, train

PROMPTS = ["a red circle left of a blue square"]
ASKED: Mapping[str, Any] = {"method": "flow-grpo", "clip_range": 1e-2}


@pytest.fixture(scope="module", autouse=True)
def contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(threads=1))


@pytest.fixture(scope="module")
def served() -> Instance:
    return starter("flux-t2i")


@pytest.fixture(scope="module")
def rollouts(served: Instance) -> Rollouts:
    return collect(served, PROMPTS, [1.0, 0.0, 0.5, 0.2], num_inference_steps=4)


def told(made: Mapping[str, Output]) -> dict[str, Any]:
    metrics: dict[str, Any] = made["metrics"].value
    return metrics


def poison(monkeypatch: pytest.MonkeyPatch, *passes: int) -> None:
    """Make the loss of these passes, counted from 0, NaN."""
    measure, seen = Grpo.measure, iter(range(1_000))

    def poisoned(self: Grpo, items: list[Item]) -> Measured:
        made = measure(self, items)
        if next(seen) in passes:
            made.loss_B = made.loss_B * math.nan
        return made

    monkeypatch.setattr(Grpo, "measure", poisoned)


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(
    served: Instance, rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, 1)
    made = train(served, rollouts, epochs=3, **ASKED)
    metrics = told(made)
    assert [entry["skipped"] for entry in metrics["curve"]] == [False, True, False]
    assert (metrics["updates"], metrics["skipped"], metrics["step"]) == (2, 1, 2)
    assert metrics["curve"][1]["grad_norm"] is None
    assert all(torch.isfinite(tensor).all() for tensor in made["weights"].value.values())
    assert json.loads(made["state"].value["state.json"])["skipped"] == 1


def test_one_bad_pass_spoils_its_whole_update(
    served: Instance, rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other passes of the update had accumulated is dropped with it."""
    poison(monkeypatch, 0)
    made = train(served, rollouts, rows=2, **ASKED)
    assert (told(made)["updates"], told(made)["skipped"]) == (0, 1)
    assert not made["weights"].value


def test_without_a_finite_gradient_it_has_diverged(
    served: Instance, rollouts: Rollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, *range(1, 100))
    with pytest.raises(
        TrainingDiverged, match=r"3 gradients in a row are not finite .* nothing was published"
    ):
        train(served, rollouts, epochs=9, **ASKED)


@pytest.mark.parametrize("rate", [1.0, 1e3, 1e30])
def test_a_huge_learning_rate_is_stopped(served: Instance, rollouts: Rollouts, rate: float) -> None:
    with pytest.raises((TrainingDiverged, InvalidParameter), match="lower it; nothing was published"):
        train(served, rollouts, learning_rate=rate, **ASKED)


def test_rollouts_that_were_altered_are_found_out(served: Instance, rollouts: Rollouts) -> None:
    """C2: a log-probability that these weights do not give fails the step before anything moves."""
    (group,) = rollouts.trajectories
    first = group.samples[0]
    altered = TrajectorySample(first.latents, first.log_probs_W + 2e-5)
    wrong = Rollouts(rollouts.rollouts, [TrajectoryGroup(group.facts, (altered, *group.samples[1:]))])
    with pytest.raises(RunFailed, match=r"differ from the captured ones by 2e-05, 1e-05 is allowed"):
        train(served, wrong, **ASKED)


@pytest.mark.parametrize(
    ("whole", "off", "found_out"), [(False, 2e-5, False), (False, 2e-4, True), (True, 2e-5, True)]
)
def test_tokens_that_were_altered_are_found_out(whole: bool, off: float, found_out: bool) -> None:
    """C2 holds of an answer's mean: what rounding does to one token of several is no alteration."""
    refiner = starter("refiner-lm")
    said = collect(refiner, ["red circle, blue square left"], [1.0, 0.0], temperature=4.0, max_new_tokens=8)
    first, *others = said.tokens
    assert len(first["log_probs"]) == 5
    log_probs = [value - off * (whole or at == 0) for at, value in enumerate(first["log_probs"])]
    wrong = Rollouts(said.rollouts, said.trajectories, [{**first, "log_probs": log_probs}, *others])
    if found_out:
        with pytest.raises(RunFailed, match=r"differ from the captured ones by [24]e-05, 1e-05 is allowed"):
            train(refiner, wrong, method="token-pg")
    else:
        assert told(train(refiner, wrong, method="token-pg"))["updates"] == 1


def test_rollouts_of_other_weights_are_found_out(served: Instance, rollouts: Rollouts) -> None:
    """Weights that go by the pinned digest, but are others."""
    moved = advanced(served, train(served, rollouts, **ASKED)["weights"], 1)
    liar = replace(moved, weights=served.weights)
    with pytest.raises(RunFailed, match="log-probabilities recomputed under the weights that sampled differ"):
        train(liar, rollouts, **ASKED)


def test_a_group_drawn_otherwise_than_its_record_says_is_refused(
    served: Instance, rollouts: Rollouts
) -> None:
    record = RolloutRecord.from_json(rollouts.rollouts[0])
    other = record.model_copy(update={"parameters": {**record.parameters, "noise_scale": 0.3}})
    with pytest.raises(
        InvalidParameter, match=r"trajectory.noise_scale=0.7 is not valid: the request makes 0.3"
    ):
        train(served, Rollouts([other.to_json()], rollouts.trajectories), **ASKED)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"component": "vae"}, "component='vae' is not valid: train one of transformer"),
        ({"component": "tokenizer"}, "component='tokenizer' is not valid: it has no weights"),
        ({"component": "nonesuch"}, "component='nonesuch' is not valid: it has no weights"),
        (
            {"method": "token-pg"},
            "is not valid: none of these|train transformer with flow-grpo, nft or distill",
        ),
        ({"learning_rate": 0.0}, "learning_rate=0.0 is not valid: use a number greater than 0"),
        ({"ratio_low": 3.0}, "ratio_low is below ratio_high"),
        (
            {"guard": True, "staleness": [1], "max_staleness": 1},
            "guard=True is not valid: it compares with the",
        ),
        ({"method": "distill", "distill_steps": 4}, "distill_steps=4 is not valid: the teacher's latents at"),
        ({"nonesuch": 1}, "nonesuch=1 is not valid: flux-t2i-trainer takes component"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    served: Instance, rollouts: Rollouts, asked: dict[str, Any], line: str
) -> None:
    with pytest.raises(InvalidParameter, match=line):
        train(served, rollouts, **{**ASKED, **asked})


def test_grpo_needs_steps_with_a_density(served: Instance) -> None:
    ode = collect(served, PROMPTS, [1.0, 0.0], num_inference_steps=4, law="ode")
    with pytest.raises(
        InvalidParameter, match=r"rollouts.0.law='ode' is not valid: flow-grpo learns from stoch"
    ):
        train(served, ode, **ASKED)


def test_a_state_of_another_training_is_refused(served: Instance, rollouts: Rollouts) -> None:
    state = train(served, rollouts, **ASKED)["state"].value
    late = {"staleness": [1], "max_staleness": 1}
    with pytest.raises(InvalidParameter, match="it belongs to other weights than the pinned ones"):
        train(served, rollouts, state=state, **late, **ASKED)
    with pytest.raises(
        InvalidParameter, match=r"state.method='nft' is not valid: it is of a training with method"
    ):
        train(served, rollouts, state=state, **late, **{**ASKED, "method": "nft"})
    with pytest.raises(InvalidParameter, match="pass the state that a training step made"):
        train(served, rollouts, state={"config.json": b"{}"}, **ASKED)


def test_gradients_are_shortened_to_the_limit(served: Instance, rollouts: Rollouts) -> None:
    """The first moment is (1 − β₁)g, so its length is a tenth of the gradient's."""
    for limit in (1e-3, None):
        made = train(served, rollouts, max_grad_norm=limit, **ASKED)
        moments = load(made["state"].value["state.safetensors"])
        mean = [tensor for name, tensor in moments.items() if name.startswith("adam.mean/")]
        (entry,) = told(made)["curve"]
        expected = entry["grad_norm"] if limit is None else min(limit, entry["grad_norm"])
        assert norm_of(mean) == pytest.approx(0.1 * expected, rel=1e-4)


def test_passes_add_up(served: Instance, rollouts: Rollouts) -> None:
    """The gradient of an update is the same, up to rounding, in however many passes it was made."""
    norms = [
        told(train(served, rollouts, rows=rows, **ASKED))["curve"][0]["grad_norm"] for rows in (1, 3, 64)
    ]
    assert norms[1:] == pytest.approx([norms[0]] * 2, rel=1e-3)


def test_a_moving_average_is_an_output_of_its_own(served: Instance, rollouts: Rollouts) -> None:
    """After one update it is decay·before + (1 − decay)·after."""
    made = train(served, rollouts, ema_decay=0.75, **ASKED)
    before = dict(served.components["transformer"].named_parameters())
    assert made["ema"].meta == made["weights"].meta
    for name, average in made["ema"].value.items():
        after: Tensor = made["weights"].value[name]
        assert torch.allclose(average, 0.75 * before[name] + 0.25 * after, atol=1e-8)
    assert "ema" not in train(served, rollouts, **ASKED)


def test_a_reference_holds_the_policy_back(served: Instance, rollouts: Rollouts) -> None:
    """Away from the reference, the KL is in the metrics and the gradient; at it, it is 0."""
    module = served.components["transformer"]
    same = given("transformer", {"model.safetensors": to_file(module.state_dict())})
    first = train(served, rollouts, reference=same, kl_beta=0.1, epochs=2, **ASKED)
    curve = told(first)["curve"]
    assert curve[0]["kl"] == 0
    assert curve[1]["kl"] > 0
    free = told(train(served, rollouts, epochs=2, **ASKED))["curve"]
    assert free[0]["kl"] is None
    assert free[1]["grad_norm"] != curve[1]["grad_norm"]


class TestAdamW:
    def test_it_is_torchs(self) -> None:
        torch.manual_seed(0)
        leaf = torch.randn(5, 3)
        theirs = leaf.clone().requires_grad_()
        torchs = torch.optim.AdamW([theirs], lr=1e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
        ours = AdamW(learning_rate=1e-2, beta1=0.8, beta2=0.95, epsilon=1e-6, weight_decay=0.1)
        for _ in range(4):
            gradient = torch.randn(5, 3)
            theirs.grad = gradient.clone()
            torchs.step()
            ours.step({"x": leaf}, {"x": gradient})
        assert torch.allclose(leaf, theirs.detach(), atol=1e-6)

    def test_a_first_step_by_hand(self) -> None:
        """m/(1−β₁) = g and s/(1−β₂) = g²: the first step is lr·g/(|g| + ε), whatever g's size."""
        leaf = torch.zeros(2)
        ours = AdamW(learning_rate=0.5, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0)
        ours.step({"x": leaf}, {"x": torch.tensor([4.0, -0.01])})
        assert leaf.tolist() == pytest.approx([-0.5, 0.5], rel=1e-4)

    def test_lengths(self) -> None:
        gradients = [torch.tensor([3.0, 0.0]), torch.tensor([4.0])]
        assert norm_of(gradients) == 5.0
        shorten(gradients, 5.0, 1.0)
        assert norm_of(gradients) == pytest.approx(1.0)
        shorten(gradients, 1.0, 7.0)
        assert norm_of(gradients) == pytest.approx(1.0)
        assert math.isnan(norm_of([torch.tensor([math.nan])]))
        assert norm_of([]) == 0.0
