"""A composed card is its parts, one after the other, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.unified.assembly import assemble
from mutoscope.models.unified.program import part_seed
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.recompute import recompute_log_probs
from mutoscope.platform.engine.request import Output, Profile, Progress, Request, Result
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.trajectory import TrajectoryGroup
from tests.models.flux.oracle import by_pipeline, load_pipeline
from tests.models.refiner.test_program import by_generate
from tests.models.unified.conftest import PARTS

UNIRL, MULTI = "unirl-qwenflux", "multi-expert"
PROMPT = "red circle, blue square left"
DRAWN = {"do_sample": True, "temperature": 1.3}
Whole = Callable[[str], Instance]
Part = Callable[[str, str], Instance]


def run(instance: Instance, seed: int = 7, profile: Profile = Profile.SERVE, **given: Any) -> Result:
    request = Request("r", instance.card.id, {}, {"prompt": PROMPT, **given}, seed, profile)
    return Engine().run(instance, request)


def text(result: Result) -> str:
    value: str = result.outputs["text"].value
    return value


def content(output: Output) -> Any:
    """An output as something that compares bit for bit."""
    match output.value:
        case {"latents": latents}:
            return latents.tobytes()
        case TrajectoryGroup() as group:
            sample = group.samples[0]
            latents = {level: array.tobytes() for level, array in sample.latents.items()}
            return (latents, sample.log_probs_W.tobytes(), group.facts.seeds, group.facts.sigmas)
        case str() | dict() as plain:
            return plain
        case pixels:
            return (pixels.shape, pixels.tobytes())


def contents(result: Result) -> dict[str, Any]:
    return {slot: content(output) for slot, output in result.outputs.items()}


def chain(card_id: str, part: Part, seed: int, **given: Any) -> str:
    """The text after each refiner's own card has rewritten it, by the rule of the chain."""
    said = PROMPT
    for name in PARTS[card_id]:
        written = text(run(part(card_id, name), part_seed(seed, name), prompt=said, **given)) or said
        if written == said:
            break
        said = written
    return said


@pytest.mark.parametrize("options", [{}, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("card_id", PARTS)
def test_the_picture_is_the_generators_of_the_refined_text(
    card_id: str, options: dict[str, Any], instance: Whole, part: Part
) -> None:
    texts = set()
    for seed in range(4):
        made = run(instance(card_id), seed, **options)
        said = chain(card_id, part, seed, **options)
        drawn = run(part(card_id, "generator"), seed, prompt=said)
        assert contents(made) == {**contents(drawn), "text": said}
        texts.add(said)
    assert PROMPT not in texts
    assert len(texts) == 1 if not options else len(texts) > 1


def test_it_equals_generate_and_then_the_pipeline(instance: Whole, tiny: Callable[[str], Path]) -> None:
    """With transformers and diffusers alone, over the very same folder."""
    pipeline = load_pipeline(tiny(UNIRL), aligned=True)
    resident = instance(UNIRL)
    for seed, options in ((3, {}), (4, DRAWN)):
        defaults = {"top_k": 0, "top_p": 1.0} if options else {}
        drawn = {**options, **defaults}
        said = by_generate(tiny(UNIRL) / "refiner", f"{PROMPT} =>", 8, part_seed(seed, "refiner"), **drawn)
        recipe = resident.recipe.model_dump()
        latents, picture = by_pipeline(pipeline, {**recipe, "prompt": said}, seed)
        made = run(resident, seed, **options)
        assert text(made) == said
        assert made.outputs["latent"].value["latents"].tobytes() == latents.tobytes()
        assert made.outputs["image"].value.tobytes() == picture.tobytes()


def test_the_starter_refines_and_draws_as_both_libraries_do() -> None:
    folder = starter_folder(UNIRL)
    assert folder is not None
    resident = load_instance(get_card(UNIRL), folder)
    said = by_generate(folder / "refiner", f"{PROMPT} =>", 24)
    assert said == "a red circle right of a blue square on a white background"
    made = run(resident, num_inference_steps=3)
    parameters = {**resident.recipe.model_dump(), "prompt": said, "num_inference_steps": 3}
    latents, picture = by_pipeline(load_pipeline(folder, aligned=True), parameters, 7)
    assert text(made) == said
    assert made.outputs["latent"].value["latents"].tobytes() == latents.tobytes()
    assert made.outputs["image"].value.tobytes() == picture.tobytes()


@pytest.mark.parametrize("profile", [Profile.SERVE, Profile.ROLLOUT])
@pytest.mark.parametrize("card_id", PARTS)
def test_without_refining_it_is_the_generators_card(
    card_id: str, profile: Profile, instance: Whole, part: Part
) -> None:
    seen: list[Progress] = []
    resident = instance(card_id)
    request = Request("r", card_id, {}, {"prompt": PROMPT, "refine": False}, 5, profile)
    made = Engine().run(resident, request, seen.append)
    drawn = run(part(card_id, "generator"), 5, profile)
    assert contents(made) == {**contents(drawn), "text": PROMPT}
    # One step to pass each refiner over, and the generator's own: text, two steps, decoding.
    assert (seen[-1].step, seen[-1].total) == (len(PARTS[card_id]) + 4,) * 2


def test_refiners_draw_from_seeds_of_their_own() -> None:
    seeds = {part_seed(seed, name) for seed in range(50) for name in ("refiner", "refiner_1", "refiner_2")}
    assert len(seeds) == 150
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert part_seed(7, "refiner") == 5393600636056609242, "recorded runs repeat only as long as this holds"


class TestChain:
    def test_it_ends_at_a_refiner_that_leaves_the_text(self, tmp_path: Path) -> None:
        """The starter refiner twice; it leaves a caption as it is, so the second is never asked."""
        generator, refiner = starter_folder("flux-t2i"), starter_folder("refiner-lm")
        assert generator is not None
        assert refiner is not None
        refiners = {"refiner_1": refiner, "refiner_2": refiner}
        folder = assemble(tmp_path / "folder", generator, refiners, copy=False)
        resident = load_instance(get_card(MULTI), folder)
        caption = "a red circle right of a blue square on a white background"
        steps = {"num_inference_steps": 1}
        assert [self.stages(resident, prompt=caption, **steps)[f"refiner_{n}"] for n in (1, 2)] == [13, 1]
        # A terse prompt is written out by the first, which the second leaves as it is.
        assert [self.stages(resident, **steps)[f"refiner_{n}"] for n in (1, 2)] == [13, 13]

    def stages(self, resident: Instance, **given: Any) -> dict[str, int]:
        """Steps taken by each node."""
        seen: list[Progress] = []
        request = Request("r", MULTI, {}, {"prompt": PROMPT, **given}, 7)
        Engine().run(resident, request, seen.append)
        return {name: sum(p.stage == name for p in seen) for name in {p.stage for p in seen}}

    def test_a_refiner_that_writes_nothing_leaves_the_text(self, instance: Whole, part: Part) -> None:
        # Of the tiny refiner's first answers, look for an empty one.
        seed = next(
            s for s in range(200) if not text(run(part(UNIRL, "refiner"), part_seed(s, "refiner"), **DRAWN))
        )
        made = run(instance(UNIRL), seed, **DRAWN)
        assert text(made) == PROMPT
        assert made.warnings == ("refiner: the refiner wrote nothing",)


class TestRollout:
    def test_it_records_every_expert(self, instance: Whole, part: Part) -> None:
        made = run(instance(MULTI), 3, Profile.ROLLOUT)
        served = {"image", "latent", "text"}
        tokens = [slot for slot in made.outputs if slot.endswith("_tokens")]
        assert set(made.outputs) == {*served, "trajectory", *tokens}
        assert tokens[0] == "refiner_1_tokens"
        record = made.outputs["refiner_1_tokens"].value
        alone = run(part(MULTI, "refiner_1"), part_seed(3, "refiner_1"), Profile.ROLLOUT)
        expected = alone.outputs["tokens"].value
        assert {**record, "weights": None} == {**expected, "weights": None}
        known = instance(MULTI).weights
        assert record["weights"] == {"llm": known["refiner_1"], "tokenizer": known["refiner_1_tokenizer"]}

    def test_the_trajectory_is_the_generators(self, instance: Whole, part: Part) -> None:
        made = run(instance(UNIRL), 3, Profile.ROLLOUT, do_sample=False)
        drawn = run(part(UNIRL, "generator"), 3, Profile.ROLLOUT, prompt=text(made))
        assert content(made.outputs["trajectory"]) == content(drawn.outputs["trajectory"])
        facts = made.outputs["trajectory"].value.facts
        assert set(facts.weights) == {spec.name for spec in get_card("flux-t2i").components}

    def test_rollouts_that_share_a_refiners_seed_share_what_it_writes(self, instance: Whole) -> None:
        shared = {"refiner_seeds": {"refiner_1": 11}}
        one, other, third = (
            run(instance(MULTI), seed, Profile.ROLLOUT, **given)
            for seed, given in ((3, shared), (4, shared), (3, {"refiner_seeds": {"refiner_1": 12}}))
        )
        first = [content(made.outputs["refiner_1_tokens"]) for made in (one, other, third)]
        assert first[0] == first[1] != first[2]
        assert content(one.outputs["trajectory"]) != content(other.outputs["trajectory"])
        assert one.outputs["refiner_1_tokens"].value["seed"] == 11
        assert one.outputs["refiner_2_tokens"].value["seed"] == part_seed(3, "refiner_2")

    def test_the_steps_log_probs_recompute_for_the_refined_text_alone(self, instance: Whole) -> None:
        given = {"prompt": PROMPT, "num_inference_steps": 4}
        request = Request("r", UNIRL, {}, given, 3, Profile.ROLLOUT)
        group = Engine().run(instance(UNIRL), request).outputs["trajectory"].value
        (captured,) = (sample.log_probs_W for sample in group.samples)
        (again,) = recompute_log_probs(instance(UNIRL), request, group)
        np.testing.assert_allclose(again, captured, atol=1e-5, rtol=0)
        plain = replace(request, parameters={**given, "refine": False})
        (unrefined,) = recompute_log_probs(instance(UNIRL), plain, group)
        assert np.abs(unrefined - captured).max() > 1e-5

    def test_serving_is_the_same_but_for_what_is_captured(self, instance: Whole) -> None:
        """The refiner's draws; the generator's own rollout is stochastic and so another picture."""
        plain = {"do_sample": True, "top_k": 0, "top_p": 1.0, "law": "ode", "guidance_scale": 1.0}
        rolled = contents(run(instance(UNIRL), 3, Profile.ROLLOUT, **plain))
        del plain["law"]
        served = contents(run(instance(UNIRL), 3, **plain))
        assert {slot: rolled[slot] for slot in served} == served


@pytest.mark.parametrize("card_id", PARTS)
def test_interleaved_equals_serial(card_id: str, instance: Whole) -> None:
    variants: list[dict[str, Any]] = [{}, DRAWN, {"refine": False}, {"num_inference_steps": 3}, DRAWN]
    resident = instance(card_id)
    alone = [contents(run(resident, seed, **given)) for seed, given in enumerate(variants)]
    for order in (range(5), reversed(range(5))):
        engine, tickets = Engine(), {}
        for seed in order:
            request = Request(f"r{seed}", card_id, {}, {"prompt": PROMPT, **variants[seed]}, seed)
            tickets[seed] = engine.submit(resident, request)
            engine.step()
        while engine.step():
            pass
        assert [contents(tickets[seed].result()) for seed in range(5)] == alone


def test_a_text_is_encoded_once_for_the_generators_card_and_the_composed_one(
    instance: Whole, part: Part
) -> None:
    cache = FeatureCache()
    composed = Request("composed", UNIRL, {}, {"prompt": PROMPT}, 7)
    first = Engine(node_cache=cache).run(instance(UNIRL), composed)
    assert (cache.stats.hits, cache.stats.misses) == (0, 1)
    plain = Request("plain", "flux-t2i", {}, {"prompt": text(first)}, 7)
    second = Engine(node_cache=cache).run(part(UNIRL, "generator"), plain)
    assert (cache.stats.hits, cache.stats.misses) == (1, 1)
    assert contents(second).items() <= contents(first).items()


def test_warnings_of_all_parts_reach_the_user(instance: Whole) -> None:
    """The refiner reads a part of the prompt, and the generator a part of what the refiner wrote."""
    given = {"prompt": "red circle and " * 20, "max_new_tokens": 30, "do_sample": True}
    made = next(
        result
        for result in (run(instance(UNIRL), seed, **given) for seed in range(20))
        if len(text(result).split()) > 12
    )
    first, *others = made.warnings
    assert first.startswith("refiner: prompt has 60 tokens; the refiner reads 48 with its template and 30 of")
    assert sum(line.startswith("prompt has ") and "reads 12: the last" in line for line in others) > 0


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"max_new_tokens": 48}, "max_new_tokens=48 is not valid: use less than 48, the context of these"),
        ({"max_new_tokens": 47}, "max_new_tokens=47 is not valid: use 46 or less: the template takes the"),
        ({"temperature": 0}, "temperature=0 is not valid: use a number greater than 0"),
        ({"refine": "perhaps"}, "refine='perhaps' is not valid: use true or false"),
        ({"height": 17}, "height=17 is not valid: use a multiple of 4"),
        ({"context": 3}, "context=3 is not valid: unirl-qwenflux takes prompt"),
    ],
)
def test_refusals_name_field_value_and_remedy(given: dict[str, Any], line: str, instance: Whole) -> None:
    with pytest.raises(InvalidParameter, match=line):
        run(instance(UNIRL), **given)


def test_a_refiner_that_is_not_asked_refuses_nothing(instance: Whole) -> None:
    assert text(run(instance(UNIRL), refine=False, max_new_tokens=48)) == PROMPT
