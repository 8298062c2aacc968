"""CLIP similarity as a program: the prompt's features, then a row for each frame.

The score is the cosine of the angle between a frame's and the prompt's features, in [-1, 1] and neither
scaled nor cut: it is `logits_per_image` of transformers' CLIPModel without the model's temperature. Of a clip
it is the mean over the frames. CLIPScore (arXiv 2104.08718), 2.5 max(cosine, 0), is among the details.

Shape suffixes: B frames, D width of the shared space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import CLIPImageProcessorPil, CLIPModel, PreTrainedTokenizerBase

from mutoscope.models.common.prompt import cut_warning
from mutoscope.models.reward.clip.card import CARD
from mutoscope.models.reward.common.loop import KIND, Verdict, reward_program
from mutoscope.models.reward.common.sample import count_of, frames_of
from mutoscope.platform.engine.loop import WARNINGS, BuildContext, ComponentNode, Program, Rows, WorkPlan
from mutoscope.platform.engine.request import Request

CLIP_SCORE_WEIGHT = 2.5


def build(context: BuildContext) -> Program:
    """The card's program over its loaded components."""
    model, tokenizer = context.components["scorer"], context.components["tokenizer"]
    text = ComponentNode(
        "text_encode",
        "text_encode",
        TextFeatures(model, tokenizer, context.device),
        uses=("scorer", "tokenizer"),
        content=lambda slots: slots["request"].parameters["prompt"],
    )
    scorer = ClipReward(model, context.components["image_processor"], context.device, context.dtype)
    return reward_program(CARD.id, scorer, text)


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """The prompt in the shared space, float32 (1, D), not normalised."""

    model: CLIPModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device

    def __call__(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        prompt = slots["request"].parameters["prompt"]
        positions = self.model.config.text_config.max_position_embeddings
        limit = min(positions, self.tokenizer.model_max_length)
        tokens = self.tokenizer([prompt], truncation=True, max_length=limit, return_tensors="pt").to(
            self.device
        )
        features = self.model.get_text_features(tokens.input_ids, tokens.attention_mask).pooler_output
        warnings = cut_warning(self.tokenizer, prompt, limit, name="prompt", reader="CLIP")
        return {"text_1D": features.float(), WARNINGS: warnings}


@dataclass(frozen=True, eq=False)
class ClipReward:
    """Puts frames into the shared space and measures their angle to the prompt."""

    model: CLIPModel
    processor: CLIPImageProcessorPil
    device: torch.device
    dtype: torch.dtype

    def count(self, request: Request) -> int:
        return 1

    def steps(self, slots: Mapping[str, Any]) -> Sequence[WorkPlan]:
        request: Request = slots["request"]
        frames = count_of(request)
        size = self.model.config.vision_config.image_size
        rows = Rows(self.embed, frames, partial(self.rows, request), _stacked)
        return [WorkPlan.of_rows(KIND, (size, size), rows, cost=float(frames))]

    def rows(self, request: Request) -> list[dict[str, Tensor]]:
        """A row for each frame, as CLIP's image processor prepares it."""
        frames = [Image.fromarray(np.ascontiguousarray(frame)) for frame in frames_of(request)]
        pixels_B3HW = self.processor(frames, return_tensors="pt").pixel_values.to(self.device, self.dtype)
        return [{"pixels_B3HW": row} for row in pixels_B3HW.split(1)]

    def embed(self, rows: Mapping[str, Tensor]) -> Tensor:
        """Stacked rows in the shared space, (B, D)."""
        features_BD: Tensor = self.model.get_image_features(rows["pixels_B3HW"]).pooler_output
        return features_BD

    def conclude(self, slots: Mapping[str, Any], results: Sequence[Tensor]) -> Verdict:
        cosine_B = cosines(results[0], slots["text_1D"])
        score = float(cosine_B.mean())
        details = {"cosine": cosine_B.tolist(), "clip_score": CLIP_SCORE_WEIGHT * max(score, 0.0)}
        return Verdict(score, details)


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    """Features of single frames, (1, D) each, as (B, D)."""
    return torch.cat(list(rows))


def cosines(image_BD: Tensor, text_1D: Tensor) -> NDArray[np.float64]:
    """Cosine of the angle between each image's and the text's features; NaN where one of them has no
    direction. In float64, row by row, so that it cannot depend on what shares a batch.
    """
    images, text = image_BD.double().cpu().numpy(), text_1D[0].double().cpu().numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.array([image @ text / (np.linalg.norm(image) * np.linalg.norm(text)) for image in images])
