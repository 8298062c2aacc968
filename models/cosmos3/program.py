"""The Cosmos3 program: rewrite the prompt, read it, encode a first frame if there is one, denoise, decode.

One resident transformer drives both loops. The rewritten prompt is read again, in the form that the
generation tower was trained to see it, rather than drawn from the keys that the rewriting left behind; the
reading is one pass, and it is shared by requests that draw the same text.

With the prompt as given, operations and their order are those of diffusers' `Cosmos3OmniPipeline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mutoscope.models.common.flow import is_guided, trajectory
from mutoscope.models.common.tiles import decode_node
from mutoscope.models.common.video_codec import LatentCodec
from mutoscope.models.cosmos3.card import CosmosRecipe
from mutoscope.models.cosmos3.components import CosmosComponents
from mutoscope.models.cosmos3.denoise import Denoise
from mutoscope.models.cosmos3.picture import PictureEncode, check_picture
from mutoscope.models.cosmos3.prompt import cut, prompt_tokens
from mutoscope.models.cosmos3.reason import Reason, reasoning_steps
from mutoscope.models.cosmos3.towers import Understanding
from mutoscope.platform.engine.loop import BuildContext, ComponentNode, LoopNode, Program
from mutoscope.platform.engine.request import Output, Request


def build(context: BuildContext) -> Program:
    """The program over one folder's loaded components."""
    parts, device = CosmosComponents.of(context.components), torch.device(context.device)
    recipe = context.recipe
    assert isinstance(recipe, CosmosRecipe)
    codec, read = LatentCodec(parts.vae, device), Read(parts, recipe, device)
    image = PictureEncode(codec)
    return Program(
        nodes=(
            LoopNode(Reason(parts), total=reasoning_steps, uses=("transformer",)),
            ComponentNode("read", "text_encode", read, uses=("transformer",), content=read.content),
            ComponentNode("image_encode", "vae_encode", image, uses=("vae",), content=image.content),
            LoopNode(Denoise(parts, codec, recipe, device), total=_steps, uses=("transformer",)),
            decode_node("decode", codec.decoding("latents", "frames_FYXC")),
        ),
        outputs=outputs,
        check=check_picture,
        extent=codec.extent,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What the generation tower attends to: the prompt's keys and values and, if guided, the negative's."""

    parts: CosmosComponents
    recipe: CosmosRecipe
    device: torch.device

    def __call__(self, slots: Mapping[str, Any]) -> Mapping[str, Any]:
        tower = Understanding(self.parts.transformer)
        texts = [torch.tensor(tokens, device=self.device) for tokens in self.content(slots)]
        return {"texts": tuple(tower.read(tokens_S) for tokens_S in texts)}

    def content(self, slots: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
        """The tokens of each text."""
        request: Request = slots["request"]
        parameters, tokenizer = request.parameters, self.parts.text_tokenizer
        texts = [(slots["text"], False)]
        if is_guided(request):
            negative = cut(tokenizer, parameters["negative_prompt"], parameters["max_sequence_length"])
            texts.append((negative, True))
        return tuple(
            prompt_tokens(tokenizer, text, parameters, negative=negative, system=self.recipe.system_prompt)
            for text, negative in texts
        )


def outputs(slots: Mapping[str, Any]) -> Mapping[str, Output]:
    """The card's output slots: a `video`, or an `image` of a single frame; `latent`; `text`."""
    request: Request = slots["request"]
    frames = slots["frames_FYXC"]
    latents = slots["latents"].float().cpu().numpy()
    single = request.parameters["num_frames"] == 1
    shown = (
        Output("image", frames[0]) if single else Output("video", frames, {"fps": request.parameters["fps"]})
    )
    return {
        shown.kind: shown,
        "latent": Output("latent", {"latents": latents}, {"layout": "wan-normalised"}),
        "text": Output("text", slots["text"]),
        **trajectory(slots, keys=slots["texts"][0].keys, values=slots["texts"][0].values),
    }


def _steps(slots: Mapping[str, Any]) -> int:
    return int(slots["request"].parameters["num_inference_steps"])
