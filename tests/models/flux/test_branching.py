"""Denoising left at a step and taken up from there: the same bytes as going on, and FluxPipeline's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mutoscope.models.flux.card import CARD
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.request import Output, Profile, Progress, Request, Result
from mutoscope.platform.errors import InvalidParameter
from tests.models.flux.oracle import load_pipeline
from tests.support.interleaving import content, serve_together

PROMPT = "a red circle left of a blue square"
STEPS = 4

Instances = Callable[[str], Instance]


def asked(
    name: str = "r", start: Any = None, profile: Profile = Profile.SERVE, seed: int = 7, **given: Any
) -> Request:
    inputs = {} if start is None else {"start": start}
    parameters = {"prompt": PROMPT, "num_inference_steps": STEPS, **given}
    return Request(name, CARD.id, inputs, parameters, seed=seed, profile=profile)


def stored(kept: Output) -> Any:
    """Kept latents after their trip through the store."""
    encoded = codecs.encode(kept.kind, kept.value, kept.meta)
    return codecs.decode(kept.kind, encoded.data, encoded.media_type)


def trunk(instance: Instance, step: int, **given: Any) -> tuple[Result, Any]:
    made = Engine().run(instance, asked(keep_step=step, **given))
    return made, stored(made.outputs["kept"])


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("name", ["plain", "shift 3", "dev"])
def test_taken_up_at_any_step_it_ends_in_the_same_bytes(
    instance: Instances, name: str, guidance: float
) -> None:
    served = instance(name)
    plans: list[Progress] = []
    whole = Engine().run(served, asked(guidance_scale=guidance), plans.append)
    for step in range(1, STEPS):
        kept, latents = trunk(served, step, guidance_scale=guidance)
        assert kept.outputs["kept"].meta == {"layout": "flux-packed", "step": step, "of": STEPS}
        seen: list[Progress] = []
        # The seed draws the initial noise, which is behind it: another one changes nothing.
        rest = Engine().run(served, asked(start=latents, guidance_scale=guidance, seed=99), seen.append)
        for made in (kept, rest):
            for slot in ("image", "latent.latents"):
                assert content(made)[slot] == content(whole)[slot], (step, slot)
        assert seen[-1].total == seen[-1].step == len(plans) - step


def test_it_goes_on_as_the_pipeline_does_from_there(tiny: Callable[[str], Path], instance: Instances) -> None:
    """FluxPipeline is given the kept latents and the rest of the schedule, which without shift it keeps."""
    kept, latents = trunk(instance("plain"), 2, guidance_scale=1.0, height=16, width=24)
    levels = np.linspace(1, 1 / STEPS, STEPS)
    pipeline = load_pipeline(tiny("plain"), aligned=True)
    expected = pipeline(
        prompt=PROMPT,
        height=16,
        width=24,
        sigmas=levels[2:].tolist(),
        num_inference_steps=STEPS - 2,
        latents=torch.tensor(latents["latents"]),
        guidance_scale=3.5,
        max_sequence_length=12,
        output_type="latent",
    ).images.numpy()
    np.testing.assert_array_equal(kept.outputs["latent"].value["latents"], expected)


def test_a_branch_is_another_picture_and_depends_on_where_it_begins(instance: Instances) -> None:
    served = instance("plain")
    changed = {"prompt": "a green cross", "guidance_scale": 3.0}
    pictures = [content(Engine().run(served, asked(**changed)))]
    for step in (1, 2):
        whole, latents = trunk(served, step)
        pictures += [content(whole), content(Engine().run(served, asked(start=latents, **changed)))]
    assert len({picture["latent.latents"] for picture in pictures}) == 4  # the two trunks are one picture


def test_a_branch_of_a_branch(instance: Instances) -> None:
    served = instance("plain")
    _, first = trunk(served, 1)
    second = Engine().run(served, asked(start=first, keep_step=3))
    last = Engine().run(served, asked(start=stored(second.outputs["kept"])))
    assert content(last)["image"] == content(Engine().run(served, asked()))["image"]


def test_branches_share_calls_with_others_bit_for_bit(instance: Instances) -> None:
    served = instance("plain")
    _, latents = trunk(served, 2)
    requests = [
        asked("whole"),
        asked("branch", start=latents, prompt="a green cross"),
        asked("keeping", keep_step=1, seed=3),
        asked("late", start=latents),
    ]
    alone = {request.id: content(Engine().run(served, request)) for request in requests}
    assert serve_together(served, requests) == alone
    assert alone["late"] == alone["whole"] != alone["branch"]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"keep_step": 4}, "keep_step=4 is not valid: use 1 to 3: there are 4 steps"),
        ({"keep_step": 0}, "keep_step=0 is not valid: use 1 or more"),
        ({"keep_step": 1, "num_inference_steps": 1}, "keep_step=1 is not valid: there is a single step"),
        ({"start": "kept", "keep_step": 2}, "keep_step=2 is not valid: use more than 2"),
        ({"start": "kept", "num_inference_steps": 5}, "num_inference_steps=5 is not valid: use as many"),
        ({"start": "kept", "height": 32}, "start=(1, 24, 16) is not valid: use the size it was kept at"),
        ({"start": {"array": np.zeros(3)}}, "start='a latent' is not valid: use one that was kept"),
        ({"start": "kept", "profile": Profile.ROLLOUT}, "start='rollout' is not valid: leave it out"),
    ],
)
def test_what_cannot_be_kept_or_taken_up(instance: Instances, given: dict[str, Any], line: str) -> None:
    if given.get("start") == "kept":
        given = {**given, "start": trunk(instance("plain"), 2)[1]}
    with pytest.raises(InvalidParameter) as refusal:
        Engine().submit(instance("plain"), asked(**given))
    assert str(refusal.value).startswith(line)


def test_a_schedule_that_has_the_level_elsewhere_takes_it_up_there(instance: Instances) -> None:
    """Half way of four steps is half way of eight: what counts is the noise level."""
    served = instance("plain")
    _, latents = trunk(served, 2)
    finer = Engine().run(served, asked(start=latents, num_inference_steps=8, keep_step=6))
    assert finer.outputs["kept"].meta["step"] == 6
    assert float(finer.outputs["kept"].value["sigma"]) == 0.25
