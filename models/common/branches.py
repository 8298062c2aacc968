"""What a card declares whose denoising can be left at a step and taken up from there. No torch.

A request may keep the latents it has after a step. Another request begins from them: under another prompt or
guidance it is a branch, and with nothing changed it ends in the same bytes as the one that went on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mutoscope.platform.engine.card import Slot
from mutoscope.platform.errors import InvalidParameter

START = Slot(
    "start", "latent", "Latents that another request has kept; denoising begins at their noise level.", False
)
KEPT = Slot("kept", "latent", "The latents after `keep_step` steps, and their noise level.", False)


class BranchParameters(BaseModel):
    """What a request may set about it."""

    keep_step: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        None, description="Keep the latents after this many steps, as output `kept`."
    )


def check_keep_step(values: Mapping[str, Any]) -> None:
    """Refuse to keep what is not there: after the last step the latents are the output `latent`.

    Raises:
        InvalidParameter: names the steps there are.
    """
    keep, steps = values["keep_step"], values["num_inference_steps"]
    if keep is not None and keep >= steps:
        remedy = f"use 1 to {steps - 1}: there are {steps} steps" if steps > 1 else "there is a single step"
        raise InvalidParameter("keep_step", keep, remedy)
