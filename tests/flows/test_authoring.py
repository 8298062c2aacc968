"""The shipped workflows that nest, fan out, choose and compare: what they make, and what they make again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mutoscope.flows.generate.best_of_n import best_of_n
from mutoscope.flows.generate.branch_image import branch_image
from mutoscope.flows.generate.extend_video import extend_video
from mutoscope.flows.generate.fan_out import fan_out
from mutoscope.flows.generate.prompt_sweep import prompt_sweep
from mutoscope.flows.generate.t2i_i2v_extend import t2i_i2v_extend
from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.errors import InvalidParameter, RunFailed
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.reward import Reward
from tests.flows.conftest import COMMON, Studio, Work
from tests.support.computing import compute_or_paint
from tests.support.fake_worker import publish_weights

pytestmark = pytest.mark.usefixtures("prefect_server")

PROMPT = "a red circle"


SHORT: dict[str, Any] = {"prompt": PROMPT, "seed": 7, "size": "64x64", "frames": 5}


async def test_a_video_is_extended_from_its_last_frame_and_joined(studio: Studio) -> None:
    made = await t2i_i2v_extend(**SHORT, extensions=2, then="a blue square")
    assert studio.computed() == {"flux-t2i": 1, "wan-i2v": 3, "video-frame": 2, "video-join": 2}
    parts = [studio.pixels(part) for part in made["parts"]]
    whole = studio.pixels(made["video"])
    assert (len(whole), made["video"].meta["fps"]) == (13, made["parts"][0].meta["fps"])
    # The first frame of each further part repeats the last one before it, and is left out.
    expected = np.concatenate([parts[0], parts[1][1:], parts[2][1:]])
    assert np.abs(whole.astype(int) - expected.astype(int)).mean() < 12  # H.264, twice over

    rows = {row.id: row for row in studio.runtime.catalog.workflows.list()}
    nested = {row.workflow: rows[row.parent_id].workflow for row in rows.values() if row.parent_id}
    assert nested == {
        "image_video.t2i_i2v": "image_video.t2i_i2v_extend",
        "video.extend": "image_video.t2i_i2v_extend",
        "video.image_to_video": "video.extend",
    }
    (outer,) = [row for row in rows.values() if row.parent_id is None]
    assert outer.outputs is not None
    assert set(outer.outputs) == {"video", "image", "parts.0", "parts.1", "parts.2"}
    prompts = [row.parameters["prompt"] for row in rows.values() if row.workflow == "video.extend"]
    assert prompts == ["a blue square"] * 2
    origin = studio.runtime.catalog.lineage.weights_of(made["video"].digest)
    assert {use.card for use in origin} == {"flux-t2i", "wan-i2v"}


CONES: list[tuple[dict[str, Any], dict[str, int]]] = [
    # What comes later depends on what is earlier, never the other way round.
    ({"extensions": 1, "then": "a blue square"}, {"wan-i2v": 1, "video-join": 1}),
    ({"extensions": 1, "video_steps": 3}, {"wan-i2v": 2, "video-frame": 1, "video-join": 1}),
    ({"extensions": 0}, {}),
]
FURTHER_CONES: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"extensions": 1}, {}),
    ({"extensions": 2}, {"wan-i2v": 1, "video-frame": 1, "video-join": 1}),
    ({"extensions": 1, "seed": 8}, {"flux-t2i": 1, "wan-i2v": 2, "video-frame": 1, "video-join": 1}),
]


@pytest.mark.parametrize(
    "cones",
    [pytest.param(CONES, id="some"), pytest.param(FURTHER_CONES, id="others", marks=pytest.mark.long)],
)
async def test_changing_one_input_runs_its_cone_again_and_nothing_else(
    studio: Studio, cones: list[tuple[dict[str, Any], dict[str, int]]]
) -> None:
    await t2i_i2v_extend(**SHORT, extensions=1)
    assert studio.computed() == {"flux-t2i": 1, "wan-i2v": 2, "video-frame": 1, "video-join": 1}
    for changed, cone in cones:
        await t2i_i2v_extend(**{**SHORT, **changed})
        assert studio.computed() == cone, changed


async def test_without_extensions_the_first_video_is_the_result(studio: Studio) -> None:
    made = await t2i_i2v_extend(**SHORT, extensions=0)
    assert made["parts"] == [made["video"]]
    assert studio.computed() == {"flux-t2i": 1, "wan-i2v": 1}


@pytest.mark.long
async def test_a_video_from_the_catalog_is_extended(studio: Studio) -> None:
    made = await t2i_i2v_extend(**SHORT, extensions=0)
    longer = await extend_video(video=f"video:{made['video'].digest[:10]}", prompt=PROMPT, seed=9, frames=5)
    assert len(studio.pixels(longer["video"])) == 9
    with pytest.raises(InvalidParameter, match=r"^video=.* is not valid: use a reference such as video:3fa9"):
        await extend_video(video=made["image"], prompt=PROMPT)


async def test_prompts_and_seeds_fan_out_in_order(studio: Studio) -> None:
    made = await fan_out(prompts="a red circle | a blue square", count=2, seed=2**63 - 1, at_once=3)
    assert studio.computed() == {"flux-t2i": 4}
    rows = studio.runtime.catalog.workflows.list(workflow="image.text_to_image")
    asked = {(row.outputs or {})["image"]: row.parameters for row in rows}
    told = [(asked[ref.digest]["prompt"], asked[ref.digest]["seed"]) for ref in made["images"]]
    assert told == [(p, s) for p in ("a red circle", "a blue square") for s in (2**63 - 1, 0)]
    await fan_out(prompts=["a red circle", "a green ring"], count=1, seed=2**63 - 1)
    assert studio.computed() == {"flux-t2i": 1}


def scored(scores: dict[int, float | str]) -> Work:
    """A worker whose scorer gives the picture of a seed what `scores` says; a text is why it cannot."""
    seeds: dict[str, int] = {}

    def work(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        if run.card == "flux-t2i":
            if scores[run.seed or 0] == "unmade":
                raise RuntimeError("out of memory")
            made = compute_or_paint(runtime, run)
            seeds[made["image"].digest] = run.seed or 0
            return made
        given = scores[seeds[runtime.catalog.runs.inputs(run.id)["image"].digest]]
        if given == "broken":
            raise RuntimeError("the scorer broke")
        reward = (
            Reward.failed("reward-scene", "", given)
            if isinstance(given, str)
            else Reward.of("reward-scene", str(run.id), given)
        )
        encoded = codecs.encode("reward", reward.to_json(), reward.meta)
        ref = runtime.store.put(encoded.data, kind="reward", media_type=encoded.media_type, meta=encoded.meta)
        return {"reward": ref}

    return work


async def test_the_best_score_wins_and_no_score_never_does(studio: Studio) -> None:
    # Every score there is lies below 0: a missing one that counted as 0 would win.
    studio.work = scored({0: -3.0, 1: "blank", 2: -1.0, 3: "broken", 4: "unmade", 5: -1.0, 6: float("nan")})
    made = await best_of_n(prompt=PROMPT, count=7, seed=0)
    told = {each.seed: (each.status, each.score) for each in made["candidates"]}
    assert told == {
        0: ("score", -3.0),
        1: ("failed", None),
        2: ("score", -1.0),
        3: ("failed", None),
        4: ("failed", None),
        5: ("score", -1.0),
        6: ("non_finite", None),
    }
    assert str(made["image"]) == made["candidates"][2].image  # of two equal scores the first seed's
    assert json.loads(studio.runtime.store.get(made["reward"].digest))["score"] == -1.0
    assert "out of memory" in str(made["candidates"][4].reason)
    (row,) = studio.runtime.catalog.workflows.list(workflow="image.best_of_n")
    assert row.outputs is not None
    kept = json.loads(studio.runtime.store.get(row.outputs["candidates"]))
    assert [each["score"] for each in kept] == [told[seed][1] for seed in range(7)]


async def test_further_rounds_are_made_only_while_no_score_is_enough(studio: Studio) -> None:
    studio.work = scored({0: 0.1, 1: 0.2, 2: 0.1, 3: 0.7, 4: 0.9, 5: 0.3})
    one = await best_of_n(prompt=PROMPT, count=2, seed=0)
    assert studio.computed() == {"flux-t2i": 2, "reward-scene": 2}
    two = await best_of_n(prompt=PROMPT, count=2, seed=0, enough=0.6, rounds=3)
    assert studio.computed() == {"flux-t2i": 2, "reward-scene": 2}
    assert [each.seed for each in two["candidates"]] == [0, 1, 2, 3]
    assert str(two["image"]) == two["candidates"][3].image
    assert str(one["image"]) == one["candidates"][1].image
    three = await best_of_n(prompt=PROMPT, count=2, seed=0, enough=0.95, rounds=3)
    assert str(three["image"]) == three["candidates"][4].image


async def test_without_any_score_it_fails_and_says_why(studio: Studio) -> None:
    studio.work = scored({0: "blank", 1: "blank"})
    with pytest.raises(RunFailed, match=r"^none of 2 candidates has a score: blank$"):
        await best_of_n(prompt=PROMPT, count=2, seed=0)


async def test_a_changed_variation_computes_its_branch_alone(studio: Studio) -> None:
    made = await branch_image(prompt=PROMPT, variations=["a blue square", "a green ring"], at=2, seed=7)
    assert studio.computed() == {"flux-t2i": 3}
    for branch in made["branches"]:
        (run,) = studio.runtime.catalog.runs.generated_by(branch.digest)
        assert studio.runtime.catalog.runs.inputs(run.id) == {"start": made["kept"]}
    again = await branch_image(prompt=PROMPT, variations=["a blue square", "a red ring"], at=2, seed=7)
    assert studio.computed() == {"flux-t2i": 1}
    assert again["branches"][0] == made["branches"][0]
    with pytest.raises(InvalidParameter, match=r"^keep_step=4 is not valid: use 1 to 3: there are 4 steps"):
        await branch_image(prompt=PROMPT, variations=["a blue square"], at=4, seed=7)


async def test_a_sweep_puts_prompts_versions_and_seeds_on_one_sheet(studio: Studio) -> None:
    flux, catalog = get_card("flux-t2i"), studio.runtime.catalog
    recipe = flux.recipe.model_validate({**COMMON, "max_sequence_length": 16})
    publish_weights(studio.runtime, flux, recipe, salt="other")
    versions = ["flux-t2i/transformer@1", "flux-t2i/transformer@2"]
    made = await prompt_sweep(prompts=[PROMPT, "a blue square"], versions=versions, count=2, seed=5)
    assert studio.computed() == {"flux-t2i": 8, "contact-sheet": 1}
    assert len(set(made["images"])) == 8
    (run,) = catalog.runs.generated_by(made["sheet"].digest)
    assert catalog.runs.inputs(run.id) == {f"images.{at}": ref for at, ref in enumerate(made["images"])}
    assert run.parameters["column_labels"] == ["seed 5", "seed 6"]
    assert run.parameters["row_labels"][:2] == [f"{PROMPT} [{version}]" for version in versions]
    assert [(c.prompt, c.weights["transformer"], c.seed) for c in made["cells"]] == [
        (prompt, version, seed)
        for prompt in (PROMPT, "a blue square")
        for version in versions
        for seed in (5, 6)
    ]
    # The sheet's lineage names both versions.
    used = {
        use.digest
        for use in catalog.lineage.weights_of(made["sheet"].digest)
        if use.component == "transformer"
    }
    assert len(used) == 2

    # One prompt changes: its rows and the sheet are made again, the others are there.
    await prompt_sweep(prompts=[PROMPT, "a green ring"], versions=versions, count=2, seed=5)
    assert studio.computed() == {"flux-t2i": 4, "contact-sheet": 1}


async def test_a_sweep_has_an_end(studio: Studio) -> None:
    with pytest.raises(InvalidParameter, match=r"^count=64 is not valid: use 40 or less: a sheet has 400"):
        await prompt_sweep(prompts=[str(at) for at in range(10)], count=64)
