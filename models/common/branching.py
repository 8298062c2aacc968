"""Leaving a denoising loop at a step, and taking it up from there.

What is kept are the latents and the noise level they are at, which is all that an Euler step reads: where a
request's own schedule has that level, it goes on from there as if it had come the whole way. A solver that
remembers earlier steps, or a rollout, which counts its random steps, cannot be taken up so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.common.branches import KEPT, START
from mutoscope.platform.engine.request import Output, Profile, Request
from mutoscope.platform.errors import InvalidParameter

Levels = NDArray[np.float32]

_LATENTS, _LEVEL = "latents", "sigma"


def check_start(request: Request, shape: Sequence[int], sigmas: Levels) -> None:
    """Refuse latents that the request cannot begin from.

    Args:
        shape: of the request's latents.
        sigmas: its noise levels (steps + 1,), falling.

    Raises:
        InvalidParameter: names what does not fit and what would.
    """
    stored = request.inputs.get(START.name)
    if stored is None:
        return
    if request.profile is not Profile.SERVE:
        raise InvalidParameter(START.name, str(request.profile), "leave it out: a rollout begins with noise")
    if not isinstance(stored, Mapping) or not {_LATENTS, _LEVEL} <= set(stored):
        raise InvalidParameter(START.name, "a latent", "use one that was kept on the way, with keep_step=...")
    if tuple(stored[_LATENTS].shape) != tuple(shape):
        was = tuple(stored[_LATENTS].shape)
        remedy = f"use the size it was kept at: this request's latents are {tuple(shape)}"
        raise InvalidParameter(START.name, was, remedy)
    step = step_of(stored, sigmas)
    keep = request.parameters["keep_step"]
    if keep is not None and keep <= step:
        raise InvalidParameter("keep_step", keep, f"use more than {step}: the request begins after that step")


def step_of(stored: Mapping[str, Any], sigmas: Levels) -> int:
    """How many steps of a schedule lie behind the kept latents. Raises InvalidParameter: it has no such
    level."""
    level = np.float32(stored[_LEVEL])
    (found,) = np.nonzero(sigmas[:-1] == level)
    if not len(found):
        raise InvalidParameter(
            "num_inference_steps",
            len(sigmas) - 1,
            f"use as many as when the latents were kept: no step here begins at their noise level {level:g}",
        )
    return int(found[0])


def started(slots: Mapping[str, Any], latents: Tensor, sigmas: Tensor) -> dict[str, Any]:
    """A state's `step`, `latents` and `keep_step`: at the request's beginning, or where it is taken up.

    Args:
        latents: the noise it begins with otherwise.
    """
    keep_step = slots["request"].parameters["keep_step"]
    stored = slots.get(START.name)
    if stored is None:
        return {"latents": latents, "keep_step": keep_step}
    step = step_of(stored, sigmas.cpu().numpy())
    # They were kept in float32, which holds the values of any narrower dtype exactly. `torch.tensor` copies
    # them into memory aligned as all other latents are: kernels sum in another order where it is not.
    taken = torch.tensor(stored[_LATENTS]).to(latents.device, latents.dtype)
    return {"step": step, "latents": taken, "keep_step": keep_step}


def kept(slots: Mapping[str, Any], **meta: Any) -> dict[str, Output]:
    """The output slot of kept latents; nothing where none were to be kept. `meta` is kept with them."""
    if slots["kept"] is None:
        return {}
    latents, sigma = slots["kept"]
    asked = slots["request"].parameters
    value = {_LATENTS: latents.float().cpu().numpy(), _LEVEL: sigma.float().cpu().numpy()}
    facts = {"step": asked["keep_step"], "of": asked["num_inference_steps"]}
    return {KEPT.name: Output("latent", value, {**meta, **facts})}
