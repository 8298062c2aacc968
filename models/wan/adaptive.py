"""Wan with steps left out, and for some requests a twin: the same video with every step computed.

The twin's steps and its decode are steps of the request like any other, and what they show goes to the
report. Whether a request has a twin depends on its seed and prompt alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from mutoscope.models.common.in_turn import InTurn
from mutoscope.models.common.quality import psnr, ssim
from mutoscope.models.common.reuse import ReusingLoop, Rules
from mutoscope.models.common.tiles import decode_node
from mutoscope.models.wan import program
from mutoscope.models.wan.adaptive_card import LEAST_PSNR, LEAST_SSIM, AdaptiveRecipe
from mutoscope.models.wan.denoise import Denoise, DenoiseState
from mutoscope.platform import ids
from mutoscope.platform.engine.loop import BuildContext, ComponentNode, Loop, LoopNode, Program
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter

_SAMPLE_DOMAIN = "mutoscope.twin-sample/1"

Slots = Mapping[str, Any]


def build(context: BuildContext) -> Program:
    """The program over one folder's loaded components, whichever of the Wan layouts it has."""
    parts, codec, recipe, device = program.opened(context)
    assert isinstance(recipe, AdaptiveRecipe)
    text = (program.text_node(parts, device),)
    conditions = text if recipe.image == "none" else program.conditions(parts, codec, recipe, device)
    reusing = ReusingLoop(Denoise(parts, codec, recipe, device), rules)
    twin = Twin(parts, codec, recipe, device)
    video = decode_node("decode", codec.decoding("latents", "frames_FYXC"))
    twin_video = decode_node("decode", codec.decoding("twin_latents", "twin_FYXC"))
    return Program(
        nodes=(
            *conditions,
            LoopNode(
                InTurn("denoise", partial(_with_twin, (reusing, twin))),
                total=lambda slots: program.steps(slots) * (1 + has_twin(slots["request"])),
                uses=program.transformers(parts),
            ),
            LoopNode(
                InTurn("decode", partial(_with_twin, (video.loop, twin_video.loop))),
                total=lambda slots: video.total(slots) * (1 + has_twin(slots["request"])),
                uses=("vae",),
            ),
            ComponentNode("report", "compare", report),
        ),
        outputs=outputs,
        extent=partial(program.latent_tokens, codec, parts),
    )


class Twin(Denoise):
    """The same sample with every step computed."""

    def finalize(self, state: DenoiseState) -> dict[str, Any]:
        return {"twin_latents": super().finalize(state)["latents"]}


def rules(slots: Slots) -> Rules:
    """When the request leaves the model out."""
    parameters = slots["request"].parameters
    return Rules(parameters["reuse_threshold"], parameters["max_reuse"], parameters["exit_threshold"])


def has_twin(request: Request) -> bool:
    """Whether the request is one of those that are compared."""
    drawn = ids.digest(_SAMPLE_DOMAIN, {"seed": request.seed, "prompt": request.parameters["prompt"]})
    return int(drawn[:13], 16) / 16**13 < request.parameters["twin_rate"]


def _with_twin(loops: Sequence[Loop[Any]], slots: Slots) -> Sequence[Loop[Any]]:
    """A loop, and the twin's if there is one."""
    return loops if has_twin(slots["request"]) else loops[:1]


def report(slots: Slots) -> dict[str, Any]:
    """What was saved, and how close the video is to its twin.

    Raises:
        InvalidParameter: not close enough; says how close.
    """
    saved = slots["report"]
    found = {**saved, "rules": asdict(rules(slots)), "twin": None}
    if has_twin(slots["request"]):
        found["twin"] = compared(slots, saved)
    return {"report": found}


def compared(slots: Slots, saved: Mapping[str, Any]) -> dict[str, Any]:
    """PSNR, null for equal frames, and SSIM of the video against its twin. Raises as `report`."""
    frames, twin = slots["frames_FYXC"], slots["twin_FYXC"]
    decibels, similarity = psnr(frames, twin), ssim(frames, twin)
    if decibels < LEAST_PSNR or similarity < LEAST_SSIM:
        name = "reuse_threshold" if saved["exited_after_step"] is None else "exit_threshold"
        raise InvalidParameter(
            name,
            slots["request"].parameters[name],
            f"without {saved['saved_steps']} of {saved['steps']} steps the video is {decibels:.2f} dB and "
            f"SSIM {similarity:.4f} from the full one; at least {LEAST_PSNR:g} dB and {LEAST_SSIM} are "
            "needed: lower it",
        )
    return {"psnr_db": decibels if math.isfinite(decibels) else None, "ssim": similarity}


def outputs(slots: Slots) -> Mapping[str, Output]:
    """The video and its latents, as of the base card, and the report."""
    return {**program.outputs(slots), "report": Output("json", slots["report"])}
