"""What is refused before a run is queued, each with one line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mutoscope.flows.rl.asks import Ask
from mutoscope.flows.rl.collecting import collect
from mutoscope.flows.rl.stages import Stage
from mutoscope.platform.errors import InvalidInput, InvalidParameter, UnknownCard, UnknownReference
from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.platform import platform_in
from tests.support.real_engine import publish_folders
from tests.support.rollouts import CAPTION, SCENE, folder_of, plan


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Weights, and nobody who would serve them: what is queued stays queued."""
    with platform_in(tmp_path_factory.mktemp("home")) as opened:
        cards = ("flux-t2i", "unirl-qwenflux", "multi-expert", SCENE)
        publish_folders(opened, {card_id: folder_of(card_id) for card_id in cards})
        yield opened


COMPOSED = {"card": "multi-expert", "samples": 4}
PICTURE = "image:" + "3" * 12


@pytest.mark.parametrize(
    ("asks", "how", "kind", "line"),
    [
        ((), {}, InvalidParameter, r"^prompts=\[\] is not valid: name one prompt or more$"),
        ((CAPTION,), {"samples": 1}, InvalidParameter, r"^samples=1 is not valid: use 2 or more"),
        ((CAPTION,), {"samples": 0}, InvalidParameter, r"^samples=0 is not valid"),
        ((CAPTION,), {"stages": []}, InvalidParameter, r"^stages=\[\] is not valid: name a card"),
        ((CAPTION,), {"card": "flux-t3i"}, UnknownCard, r"^card 'flux-t3i' is unknown: use one of flux-t2i"),
        (
            (CAPTION,),
            {"card": "ltx2-av"},
            InvalidParameter,
            r"^card='ltx2-av' is not valid: no reward sees rollouts of it: use one of flux-t2i",
        ),
        ((CAPTION,), {"card": "refiner-lm"}, InvalidParameter, r"^card='refiner-lm' is not valid: no reward"),
        ((CAPTION,), {"card": SCENE}, InvalidParameter, r"^card='reward-scene' is not valid: no reward"),
        ((CAPTION,), {"card": "wan-t2v"}, UnknownReference, r"^card wan-t2v has no weights: use `mutoscope"),
        (
            (CAPTION,),
            {"weights": "flux-t2i/transformer@9"},
            UnknownReference,
            r"^no weights are named 'flux-t2i/transformer@9'",
        ),
        (
            (CAPTION,),
            {"weights": "flux-t2i@mine"},
            UnknownReference,
            r"^no weights of flux-t2i have the alias 'mine'",
        ),
        (
            (CAPTION,),
            {"parameters": {"guidance_scale": 4.0}},
            InvalidParameter,
            r"^guidance_scale=4.0 is not valid: use 1: a rollout's policy is the model itself",
        ),
        (
            (CAPTION,),
            {"laws": ("sde",)},
            InvalidParameter,
            r"^laws='sde' is not valid: use ode, flow",
        ),
        ((CAPTION,), {"laws": ()}, InvalidParameter, r"^laws=\[\] is not valid"),
        (
            (CAPTION,),
            {"parameters": {"group_seed": 3}},
            InvalidParameter,
            r"^parameters.group_seed=3 is not valid: leave it out",
        ),
        (
            (CAPTION,),
            {"parameters": {"window_size": 9}},
            InvalidParameter,
            r"^window_size=9 is not valid: 4 steps leave room for 3",
        ),
        (
            (CAPTION,),
            {"rewards": {}},
            InvalidParameter,
            r"^rewards=\{\} is not valid: use one or more of reward-scene",
        ),
        (
            (CAPTION,),
            {"rewards": {"reward-taste": 1.0}},
            InvalidParameter,
            r"^rewards='reward-taste' is not valid: no such reward card: use reward-scene",
        ),
        ((CAPTION,), {"rewards": {"flux-t2i": 1.0}}, InvalidParameter, r"^rewards='flux-t2i' is not valid"),
        ((CAPTION,), {"rewards": {SCENE: 0.0}}, InvalidParameter, r"^rewards.reward-scene=0.0 is not valid"),
        (
            (CAPTION,),
            {"rewards": {SCENE: float("nan")}},
            InvalidParameter,
            r"^rewards.reward-scene=nan is not valid: use a finite weight",
        ),
        (
            (CAPTION,),
            {"rewards": {"reward-clip": 1.0}},
            UnknownReference,
            r"^card reward-clip has no weights: use `mutoscope weights import reward-clip",
        ),
        (
            (CAPTION, "a cat"),
            {},
            InvalidParameter,
            r"^prompt='a cat' is not valid: say a starter scene, such as 'a red circle",
        ),
        (
            (Ask(prompt=CAPTION, target="a cat"),),
            {},
            InvalidParameter,
            r"^prompt='a cat' is not valid: say a starter scene",
        ),
        (
            (CAPTION,),
            {"unrefined": 1},
            InvalidParameter,
            r"^unrefined=1 is not valid: leave it out",
        ),
        (
            (CAPTION,),
            {**COMPOSED, "unrefined": 5},
            InvalidParameter,
            r"^unrefined=5 is not valid: a group has 4",
        ),
        (
            (CAPTION,),
            {"branches": (2,)},
            InvalidParameter,
            r"^branches=\[2\] .*: there are no refiners",
        ),
        (
            (CAPTION,),
            {**COMPOSED, "branches": (2,)},
            InvalidParameter,
            r"^branches=\[2\] is not valid: use one number for each of refiner_1, refiner_2",
        ),
        (
            (CAPTION,),
            {**COMPOSED, "branches": (3, 1)},
            InvalidParameter,
            r"^branches=\[3, 1\] is not valid: they make 3 leaves: use a divisor of 4",
        ),
        (
            (Ask(prompt=CAPTION, images=(PICTURE,)),),
            {},
            InvalidParameter,
            r"^images=\['image:3+'\] is not valid: leave them out: flux-t2i takes none",
        ),
        (
            (CAPTION,),
            {"stages": [Stage("flux-t2i"), Stage("unirl-qwenflux")]},
            InvalidParameter,
            r"^stages=\['flux-t2i', 'unirl-qwenflux'\] is not valid: unirl-qwenflux cannot begin with",
        ),
        (
            (CAPTION,),
            {"stages": [Stage("flux-t2i"), Stage("flux-t2i")]},
            InvalidParameter,
            r"^stages=\['flux-t2i', 'flux-t2i'\] is not valid: use a card once",
        ),
        ((CAPTION,), {"at_once": 0}, InvalidParameter, r"^at_once=0 is not valid: use 1 or more"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_queued(
    runtime: Runtime, asks: tuple[str | Ask, ...], how: dict[str, Any], kind: type[InvalidInput], line: str
) -> None:
    with pytest.raises(kind, match=line) as refused:
        asyncio.run(collect(plan(*asks, **how)))
    assert "\n" not in str(refused.value)
    assert [run for run in runtime.catalog.runs.list(limit=50) if run.kind != "import"] == []


def test_a_video_card_needs_its_pictures(tmp_path: Path) -> None:
    with platform_in(tmp_path) as opened:
        publish_folders(opened, {card_id: folder_of(card_id) for card_id in ("wan-i2v", SCENE)})
        given: dict[str, Any] = {"card": "wan-i2v", "samples": 3}
        for images in ((), (PICTURE, PICTURE)):
            with pytest.raises(InvalidParameter, match="begins with one: give 1, or one for each of 3"):
                asyncio.run(collect(plan(Ask(prompt=CAPTION, images=images), **given)))
        asked = plan(Ask(prompt=CAPTION, images=(PICTURE,)), **given)
        with pytest.raises(UnknownReference, match="image:3333"):
            asyncio.run(collect(asked))
        (run,) = [run for run in opened.catalog.runs.list(limit=9) if run.card == SCENE]
        weights = next(iter(opened.catalog.runs.outputs(run.id).values()))
        asked = plan(Ask(prompt=CAPTION, images=(weights.digest,)), **given)
        with pytest.raises(InvalidParameter, match="use an artifact of kind image: it is a "):
            asyncio.run(collect(asked))
