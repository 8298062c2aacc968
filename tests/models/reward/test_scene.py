"""The scene scorer with the weights that ship: against true renderings, against the independent judge, and in
shared calls.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.reward.scene.card import CARD
from mutoscope.models.starter.checker import check_image
from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.starter.grammar import MOTIONS, Scene, SceneObject, caption_of, parse, sample_scene
from mutoscope.models.starter.motion import sample_clip
from mutoscope.models.starter.render import Placement, place, render
from mutoscope.models.starter.scorer_evaluate import agreement
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request
from mutoscope.platform.errors import InvalidFolder, InvalidParameter
from tests.models.reward.scoring import request_of, reward_of, score_of
from tests.support.tiny_reward import make

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

PAIR = "a red circle left of a blue square"


def scenes(count: int, *, motion: float = 0.0, seed: int = 41) -> list[Scene]:
    """Held-out scenes."""
    rng = np.random.default_rng(seed)
    return [sample_scene(rng, "held_out", motion_share=motion) for _ in range(count)]


def pictures(shown: list[Scene]) -> list[Pixels]:
    rng = np.random.default_rng(42)
    return [render(scene, place(scene, rng)) for scene in shown]


def drawn(caption: str, *spots: tuple[float, float, float], side: int = 64) -> Pixels:
    """A caption's objects at given places: x, y and radius on a canvas of 64 pixels."""
    scene = parse(caption)
    return render(
        scene, [Placement(*spot) for spot in spots] or place(scene, np.random.default_rng(0)), side, side
    )


def test_true_pictures_score_nearly_everything(scorer: Instance) -> None:
    shown = scenes(100)
    scores = [
        score_of(scorer, image=p, prompt=caption_of(s)) for s, p in zip(shown, pictures(shown), strict=True)
    ]
    assert np.mean(scores) >= 0.98
    assert min(scores) >= 0.95


def test_other_captions_score_what_chance_gives(scorer: Instance) -> None:
    """What the judge gives to the same pairs is chance: both say the same of a caption that was shuffled."""
    shown = scenes(100)
    others = shown[1:] + shown[:1]
    shuffled = list(zip(others, pictures(shown), strict=True))
    ours = np.mean([score_of(scorer, image=picture, prompt=caption_of(scene)) for scene, picture in shuffled])
    chance = np.mean([check_image(picture, scene).mean for scene, picture in shuffled])
    assert ours < 0.35
    assert abs(ours - chance) < 0.03


def test_true_clips_score_nearly_everything_and_other_motions_do_not(scorer: Instance) -> None:
    rng = np.random.default_rng(43)
    for scene in scenes(7, motion=1.0):
        clip = sample_clip(scene, rng)
        assert score_of(scorer, video=clip, prompt=caption_of(scene)) >= 0.95
        for motion in MOTIONS:
            if motion != scene.motion:
                reward = reward_of(scorer, video=clip, prompt=caption_of(replace(scene, motion=motion)))
                motions = [value for name, value in reward.details.items() if name.startswith("motion")]
                assert max(motions) < 0.5
                assert reward.score is not None
                assert reward.score < 0.8


def test_a_clip_without_a_said_motion_should_stand_still(scorer: Instance) -> None:
    scene = parse("a red circle")
    still = np.stack([render(scene, [Placement(32, 32, 12)])] * 9)
    moving = sample_clip(replace(scene, motion="drifting right"), np.random.default_rng(0))
    assert score_of(scorer, video=still, prompt="a red circle") >= 0.97
    assert score_of(scorer, video=moving, prompt="a red circle") < 0.6


@pytest.mark.parametrize(
    ("wrong", "criterion"),
    [
        ("a red ring left of a blue square", "shape red ring"),
        ("a red circle right of a blue square", "relation right of"),
        ("a red circle above a blue square", "relation above"),
        ("a red circle left of a blue square on a pink background", "background"),
        ("a red circle", "count"),
    ],
)
def test_a_criterion_fails_for_its_own_reason(scorer: Instance, wrong: str, criterion: str) -> None:
    reward = reward_of(scorer, image=drawn(PAIR), prompt=wrong)
    assert reward.details[criterion] < 0.1
    others = {name: value for name, value in reward.details.items() if name != criterion}
    assert min(others.values()) > 0.85, others


def test_a_missing_object_earns_nothing_but_the_rest_does(scorer: Instance) -> None:
    details = reward_of(scorer, image=drawn(PAIR), prompt="a green circle left of a blue square").details
    lost = {"colour green", "shape green circle", "relation left of"}
    assert max(details[name] for name in lost) < 0.1
    assert min(value for name, value in details.items() if name not in lost) > 0.85


def test_credit_is_partial_and_grows_with_the_picture(scorer: Instance) -> None:
    """A square that turns into the wanted circle, an object that appears, one that moves to its side."""
    circle, square = drawn("a red circle", (32, 32, 12)), drawn("a red square", (32, 32, 12))
    empty = np.broadcast_to(circle[0, 0], circle.shape)
    for start in (square, empty):
        path = [_blend(start, circle, share) for share in (0.0, 0.3, 0.5, 0.7, 1.0)]
        scores = [score_of(scorer, image=picture, prompt="a red circle") for picture in path]
        assert scores == sorted(scores)
        assert scores[0] < 0.8 < 0.95 < scores[-1]
        assert any(scores[0] + 0.05 < score < scores[-1] - 0.05 for score in scores)
    asides = [drawn(PAIR, (32 - apart, 20, 9), (32 + apart, 44, 9)) for apart in (-14, -6, 0, 6, 14)]
    relation = [
        reward_of(scorer, image=picture, prompt=PAIR).details["relation left of"] for picture in asides
    ]
    assert relation == sorted(relation)
    assert relation[0] < 0.05
    assert relation[-1] > 0.5


def _blend(one: Pixels, other: Pixels, share: float) -> Pixels:
    return (one * (1 - share) + other * share).round().astype(np.uint8)


@pytest.mark.parametrize("side", [40, 128, 200])
def test_pictures_of_other_sizes_are_read_alike(scorer: Instance, side: int) -> None:
    assert score_of(scorer, image=drawn(PAIR, side=side), prompt=PAIR) >= 0.95


@pytest.fixture(scope="module")
def generated() -> list[tuple[str, Pixels]]:
    """Pictures of the starter image model, half of them with too few steps to be right."""
    folder = starter_folder("flux-t2i")
    assert folder is not None
    flux = load_instance(get_card("flux-t2i"), folder)
    engine, made = Engine(), []
    for number, scene in enumerate(scenes(12, seed=44)):
        for steps in (3, 10):
            request = Request(
                f"{number}.{steps}", "flux-t2i", {},
                {"prompt": caption_of(scene), "num_inference_steps": steps}, number,
            )  # fmt: skip
            made.append((caption_of(scene), engine.run(flux, request).outputs["image"].value))
    return made


@pytest.mark.long
def test_scorer_and_judge_agree_on_generated_pictures(
    scorer: Instance, generated: list[tuple[str, Pixels]]
) -> None:
    """They share no code, only the words: what RL gains under one must show under the other."""
    ours = [score_of(scorer, image=picture, prompt=caption) for caption, picture in generated]
    theirs = [check_image(picture, parse(caption)).mean for caption, picture in generated]
    assert len(set(theirs)) > 3, "some pictures must be wrong, or agreement says nothing"
    figures = agreement(ours, theirs)
    assert figures["pearson"] > 0.8, figures
    assert figures["right_above_wrong"] > 0.8, figures


def test_shared_calls_change_no_bit(scorer: Instance) -> None:
    batching = calibrate(scorer, most=8).prepare(scorer)
    shown = scenes(24)
    samples = list(zip(shown, pictures(shown), strict=True))
    requests = [
        request_of(batching, f"{n}", image=picture, prompt=caption_of(scene))
        for n, (scene, picture) in enumerate(samples)
    ]
    moving = parse("a green ring, growing")
    clip = sample_clip(moving, np.random.default_rng(1))
    requests.append(request_of(batching, "clip", video=clip, prompt=caption_of(moving)))
    serial = [Engine().run(batching, request).outputs["reward"].value for request in requests]
    engine = Engine()
    tickets = [engine.submit(batching, request) for request in requests]
    steps = 0
    while engine.step():
        steps += 1
    assert [ticket.result().outputs["reward"].value for ticket in tickets] == serial
    assert steps < len(requests) / 3


def test_a_clip_of_one_frame_cannot_be_judged(scorer: Instance) -> None:
    reward = reward_of(scorer, video=drawn("a red circle")[None], prompt="a red circle, growing")
    assert (reward.status, reward.score) == ("failed", None)
    assert reward.reason == "a clip of one frame has no motion: give more frames, or a picture"


@pytest.mark.parametrize("prompt", ["a red dog", "two red circles", "a red circle left of a red square"])
def test_words_outside_the_grammar_are_refused(scorer: Instance, prompt: str) -> None:
    with pytest.raises(
        InvalidParameter, match=r"^prompt=.* is not valid: say a starter scene, such as 'a red"
    ):
        reward_of(scorer, image=drawn(PAIR), prompt=prompt)


def test_a_folder_that_lacks_a_word_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "scene", CARD.id)
    path = folder / "scorer" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"colours": ["red", "green"]}))
    with pytest.raises(InvalidFolder, match="knows no blue among its colours: train it again on the grammar"):
        CARD.inspect(folder)


def test_the_words_of_a_scene_are_known_by_name_not_by_place(tmp_path: Path, scorer: Instance) -> None:
    """A scorer whose answers come in another order scores the same."""
    net = scorer.components["scorer"]
    order = [5, 3, 1, 0, 2, 4]
    folder = tmp_path / "other"
    net.save_pretrained(folder / "scorer")
    other = type(net).from_pretrained(folder / "scorer")
    other.ink.weight.data = net.ink.weight.data[[*order, 6]].clone()
    other.ink.bias.data = net.ink.bias.data[[*order, 6]].clone()
    sizes = other.count[0].weight.data
    sizes[:, -6:] = net.count[0].weight.data[:, -6:][:, order]
    other.register_to_config(colours=[net.config.colours[at] for at in order])
    other.save_pretrained(folder / "scorer")
    assert starter_folder(CARD.id) is not None
    (folder / "model_index.json").write_text((starter_folder(CARD.id) / "model_index.json").read_text())  # type: ignore[operator]
    reordered = load_instance(CARD, folder)
    assert score_of(reordered, image=drawn(PAIR), prompt=PAIR) == pytest.approx(
        score_of(scorer, image=drawn(PAIR), prompt=PAIR), abs=1e-5
    )


def test_objects_may_be_named_in_either_order(scorer: Instance) -> None:
    scene = Scene((SceneObject("red", "circle"), SceneObject("blue", "square")), "left of")
    image = drawn(caption_of(scene))
    assert score_of(scorer, image=image, prompt=caption_of(scene.swapped())) == pytest.approx(
        score_of(scorer, image=image, prompt=caption_of(scene)), abs=1e-6
    )
