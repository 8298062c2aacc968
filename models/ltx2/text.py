"""Prompts as the transformer takes them: Gemma's states, all layers of them, through the connectors.

Shape suffixes
    B  batch, 1 here     S  prompt tokens, padded in front by the tokenizer; registers take their place
    D, E  width of the video's and of the sound's text
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mutoscope.models.common.prompt import cut_warning
from mutoscope.models.ltx2.components import Ltx2Components
from mutoscope.models.ltx2.guidance import Guidance
from mutoscope.platform.engine.loop import WARNINGS
from mutoscope.platform.engine.request import Request

USES = ("tokenizer", "text_encoder", "connectors")
"""The components whose weights decide what a prompt becomes."""


@dataclass(frozen=True, slots=True)
class Conditioning:
    """A prompt for both modalities, and which of its tokens count."""

    video_BSD: Tensor
    audio_BSE: Tensor
    mask_BS: Tensor


class TextEncode:
    """The prompt and, if any stage is guided by it, the negative prompt."""

    def __init__(self, parts: Ltx2Components, device: torch.device) -> None:
        self.parts, self.device = parts, device

    def __call__(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        length = slots["request"].parameters["max_sequence_length"]
        texts = self._texts(slots["request"])
        return {
            **{name: None if text is None else self.encode(text, length) for name, text in texts.items()},
            WARNINGS: tuple(
                line
                for name, text in texts.items()
                if text is not None
                for line in cut_warning(
                    self.parts.tokenizer, text.strip(), length, name=name, reader="the text encoder"
                )
            ),
        }

    def content(self, slots: Mapping[str, Any]) -> tuple[Any, ...]:
        """Everything that decides the result, besides the weights."""
        request: Request = slots["request"]
        return (*self._texts(request).values(), request.parameters["max_sequence_length"])

    def encode(self, text: str, length: int) -> Conditioning:
        """Text states, one pass: states behind the prompt are the connectors' registers."""
        tokens = self.parts.tokenizer(
            [text.strip()],
            padding="max_length",
            max_length=length,
            truncation=True,
            add_special_tokens=True,
            return_tensors="pt",
        )
        ids_BS, mask_BS = tokens.input_ids.to(self.device), tokens.attention_mask.to(self.device)
        states = self.parts.text_encoder(
            input_ids=ids_BS, attention_mask=mask_BS, output_hidden_states=True
        ).hidden_states
        layers = torch.stack(states, dim=-1).flatten(2, 3)
        video_BSD, audio_BSE, mask_BS = self.parts.connectors(layers, mask_BS, padding_side="left")
        return Conditioning(video_BSD, audio_BSE, mask_BS)

    def _texts(self, request: Request) -> dict[str, str | None]:
        parameters = request.parameters
        guided = Guidance.of(parameters).guided or (
            parameters["two_stages"] and Guidance.of_second_stage(parameters).guided
        )
        return {
            "prompt": parameters["prompt"],
            "negative_prompt": parameters["negative_prompt"] if guided else None,
        }
