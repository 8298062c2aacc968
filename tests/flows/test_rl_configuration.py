"""What a training is set up with: read, changed by path, compared, and refused where it cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from mutoscope.flows.rl.configuration import configuration_of, difference, read, recipes
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.registry import discover
from tests.support.trainings import lesson


def test_every_training_workflow_has_a_recipe_that_can_be_read() -> None:
    trains = {w.name for w in discover().all().values() if w.id.startswith("rl.train_")} | {"distill"}
    assert trains == set(recipes())
    for name in recipes():
        assert read(name).trained, name


def test_a_recipe_is_changed_by_path() -> None:
    changes = {"iterations": 2, "stages.0.train.transformer.learning_rate": 0.5, "evaluation.every": 9}
    changed = read("train_nft", changes)
    assert changed.iterations == 2
    assert changed.stage("flux-t2i").parameters_of("transformer").learning_rate == 0.5
    assert changed.evaluation is not None
    assert changed.evaluation.every == 9
    assert changed.prompts == read("train_nft").prompts


@pytest.mark.parametrize(
    ("recipe", "changes", "line"),
    [
        ("train_magic", {}, "recipe='train_magic' is not valid: use one of "),
        ("train_nft", {"stages.7.card": "x"}, "stages.7.card='x' is not valid: 7 names nothing there"),
        ("train_nft", {"iteration": 3}, "iteration=3 is not valid: "),
        ("train_nft", {"iterations": 0}, "iterations=0 is not valid: use 1 or more"),
    ],
)
def test_a_change_that_cannot_be(recipe: str, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        read(recipe, changes)
    assert str(refusal.value).startswith(line)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"prompts": []}, "prompts="),
        ({"samples": 1}, "samples=1 is not valid: use 2 or more"),
        ({"rewards": {}}, "rewards="),
        ({"rewards": {"flux-t2i": 1.0}}, "flux-t2i scores nothing: use a reward card"),
        ({"rewards": {"reward-taste": 1.0}}, "'reward-taste' is unknown"),
        ({"groups": 3}, "groups is 3: use 2 or less"),
        ({"stages": []}, "stages="),
        ({"stages": [{"card": "flux-t2i", "train": {"unet": {"method": "nft"}}}]}, "has no weights unet"),
        (
            {"stages": [{"card": "flux-t2i", "train": {"transformer": {"method": "nft", "staleness": [0]}}}]},
            "train.transformer.staleness is the training's to say",
        ),
        ({"stages": [{"card": "flux-t2i", "teacher": ["flux-t2i@first"]}]}, "name a version of flux-t2i by"),
        ({"stages": [{"card": "flux-t2i"}, {"card": "flux-t2i"}]}, "use each card once"),
        ({"evaluation": {"best_by": "reward-ocr"}}, "best_by is reward-ocr: use a reward or a judge"),
    ],
)
def test_a_configuration_that_cannot_be(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(Exception, match=r"is not valid|unknown") as refusal:
        lesson(**changes)
    assert says in str(refusal.value)


def test_every_prompt_has_its_turn_before_one_comes_again() -> None:
    prompts = [f"a {colour} circle" for colour in ("red", "green", "blue", "yellow", "purple")]
    asked = lesson(prompts=prompts, groups=2)
    turns = [ask.prompt for iteration in range(10) for ask in asked.prompts_of(iteration)]
    rounds = [turns[at : at + 5] for at in range(0, 20, 5)]
    assert all(sorted(each) == sorted(prompts) for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1, "in an order drawn anew each time round"
    assert [ask.prompt for ask in lesson(prompts=prompts, groups=2, seed=8).prompts_of(0)] != turns[:2]


def test_the_first_field_that_differs_is_named_and_what_may_change_is_not() -> None:
    before = lesson().to_json()
    assert difference(before, lesson().to_json()) is None
    freely = lesson(iterations=9, at_once=2, live=True).to_json()
    freely["evaluation"]["limits"]["least_diversity"] = 0.1
    assert difference(before, freely) is None
    other = lesson(seed=8).to_json()
    assert difference(before, other) == ("seed", 7, 8)
    other = lesson().to_json()
    other["stages"][0]["parameters"]["num_inference_steps"] = 9
    assert difference(before, other) == ("stages.0.parameters.num_inference_steps", 3, 9)
    assert configuration_of(other) != lesson()


def test_samples_are_evaluated_as_the_policy_is_without_what_only_rollouts_take() -> None:
    stage = {"card": "flux-t2i", "parameters": {"num_inference_steps": 3, "window_size": 1}}
    assert lesson(stages=[stage]).stages[0].served == {"guidance_scale": 1.0, "num_inference_steps": 3}
    stage["serve"] = {"num_inference_steps": 8}
    assert lesson(stages=[stage]).stages[0].served == {"guidance_scale": 1.0, "num_inference_steps": 8}
