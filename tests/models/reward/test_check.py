"""The scene checks as a card: what the independent judge says, as a reward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.starter.checker import check_image
from mutoscope.models.starter.grammar import parse
from mutoscope.models.starter.motion import sample_clip
from mutoscope.models.starter.render import Placement, render
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.errors import InvalidFolder, InvalidParameter
from tests.models.reward.scoring import reward_of, score_of

PAIR = "a red circle left of a blue square"


@pytest.fixture(scope="module")
def judge() -> Instance:
    return load_instance(get_card("scene-check"), {}, recipe={})


def pair(*, side: int = 64) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return render(parse(PAIR), [Placement(18, 32, 9), Placement(46, 32, 9)], side, side)


@pytest.mark.parametrize("side", [64, 128])
def test_a_picture_that_shows_the_scene_passes_every_check(judge: Instance, side: int) -> None:
    reward = reward_of(judge, image=pair(side=side), prompt=PAIR)
    assert (reward.status, reward.score) == ("score", 1.0)
    assert reward.details == {
        "strict": True,
        **dict.fromkeys(("colour red", "shape red circle", "colour blue", "shape blue square"), 1.0),
        **dict.fromkeys(("relation left of", "background", "count"), 1.0),
    }


def test_a_wrong_relation_costs_one_check_of_seven(judge: Instance) -> None:
    reward = reward_of(judge, image=pair(), prompt=PAIR.replace("left", "right"))
    assert reward.score == pytest.approx(6 / 7)
    assert (reward.details["relation right of"], reward.details["strict"]) == (0.0, False)


def test_the_score_is_the_judges_own(judge: Instance) -> None:
    noise = np.random.default_rng(3).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    assert score_of(judge, image=noise, prompt=PAIR) == check_image(noise, parse(PAIR)).mean


def test_a_clip_is_half_its_motion_and_half_its_last_frame(judge: Instance) -> None:
    scene = parse("a red circle, drifting right")
    clip = sample_clip(scene, np.random.default_rng(0))
    assert score_of(judge, video=clip, prompt="a red circle, drifting right") == 1.0
    left = reward_of(judge, video=clip, prompt="a red circle, drifting left")
    assert (left.score, left.details["motion red"], left.details["strict"]) == (0.5, 0.0, False)
    still = np.stack([render(replace(scene, motion=None), [Placement(32, 32, 12)])] * 9)
    assert score_of(judge, video=still, prompt="a red circle") == 1.0


def test_a_clip_of_one_frame_has_no_score(judge: Instance) -> None:
    reward = reward_of(judge, video=pair()[None], prompt=PAIR)
    assert (reward.status, reward.score) == ("failed", None)


def test_what_is_no_scene_is_refused(judge: Instance) -> None:
    with pytest.raises(InvalidParameter, match="prompt='a cat' is not valid: say a starter scene"):
        reward_of(judge, image=pair(), prompt="a cat")
    with pytest.raises(InvalidFolder, match="cannot be imported"):
        judge.card.inspect(judge.card.inspector)  # type: ignore[arg-type]
