"""The text encoder of the video model: UMT5 on the starter vocabulary, taught to know what moves and how.

The denoiser reads text by cross-attention and needs one thing above all, the motion, which stands in the
last words.  A linear reader of the mean over a caption's tokens therefore asks for the whole layout and the
motion; it is thrown away afterwards, and what it found is spread over all tokens for cross-attention to
find.

Shapes: token ids and mask (B, S); states (B, S, D), zero behind a caption's end as the pipeline leaves
them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import UMT5Config, UMT5EncoderModel

from mutoscope.models.starter.grammar import MOTIONS, Split, paraphrase, sample_scene
from mutoscope.models.starter.stage import Metrics, Stage, seed_for
from mutoscope.models.starter.text import LAYOUT_ANSWERS, layout_answers
from mutoscope.models.starter.tokenizer import EOS_ID, MAX_TOKENS, PAD_ID, VOCABULARY, t5_tokenizer
from mutoscope.models.starter.video_recipe import VideoTextConfig


def build_text_encoder(config: VideoTextConfig) -> UMT5EncoderModel:
    """The untrained encoder, seeded."""
    torch.manual_seed(config.seed)
    return UMT5EncoderModel(
        UMT5Config(
            vocab_size=len(VOCABULARY),
            d_model=config.width,
            d_kv=config.width // config.heads,
            d_ff=2 * config.width,
            num_layers=config.layers,
            num_heads=config.heads,
            relative_attention_num_buckets=32,
            relative_attention_max_distance=64,
            dropout_rate=0.0,
            pad_token_id=PAD_ID,
            eos_token_id=EOS_ID,
            use_cache=False,
        )
    ).eval()


class CaptionEncoder(nn.Module):
    """Tokenizer and encoder as ``WanImageToVideoPipeline`` joins them."""

    def __init__(self, config: VideoTextConfig) -> None:
        super().__init__()
        self.encoder = build_text_encoder(config)
        self.tokenizer = t5_tokenizer()

    def forward(self, captions: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """States (B, S, D), zeroed behind the end of each caption, and the mask (B, S)."""
        tokens = self.tokenizer(
            captions,
            padding="max_length",
            max_length=MAX_TOKENS,
            truncation=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        mask = tokens.attention_mask
        states = self.encoder(tokens.input_ids, mask).last_hidden_state
        return states * mask[..., None], mask

    def save(self, folder: Path) -> None:
        """Write ``text_encoder/`` and ``tokenizer/``."""
        self.encoder.save_pretrained(folder / "text_encoder")
        self.tokenizer.save_pretrained(folder / "tokenizer")


class VideoTextStage(Stage):
    """Layout and motion from captions alone."""

    name = "video_text"

    def __init__(self, config: VideoTextConfig) -> None:
        self.config = config
        self.captions = CaptionEncoder(config)
        torch.manual_seed(config.seed + 1)
        self.reader = nn.Linear(config.width, sum(LAYOUT_ANSWERS))
        optimiser = torch.optim.AdamW(self._parameters(), lr=config.learning_rate, weight_decay=0.01)
        trained = {"captions": self.captions, "reader": self.reader}
        super().__init__(config.total_steps, config.warmup, trained, [optimiser])

    def _parameters(self) -> list[nn.Parameter]:
        return [*self.captions.parameters(), *self.reader.parameters()]

    def _read(self, rng: np.random.Generator, count: int, split: Split) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss, and (count, questions) booleans of right answers; motion is the last question."""
        scenes = [sample_scene(rng, split, motion_share=1 - 1 / (len(MOTIONS) + 1)) for _ in range(count)]
        states, mask = self.captions([paraphrase(scene, rng) for scene in scenes])
        pooled = states.sum(1) / mask.sum(1, keepdim=True)
        answers = torch.tensor([layout_answers(scene) for scene in scenes])
        parts = self.reader(pooled).split(LAYOUT_ANSWERS, dim=-1)
        losses = [functional.cross_entropy(part, answers[:, i]) for i, part in enumerate(parts)]
        right = torch.stack([part.argmax(-1) == answers[:, i] for i, part in enumerate(parts)], dim=1)
        return torch.stack(losses).mean() + losses[-1], right

    def step(self) -> Metrics:
        """One batch of captions."""
        rng = np.random.default_rng(seed_for(self.config.seed, self.steps_done))
        loss, right = self._read(rng, self.config.batch, "train")
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters(), 1.0)
        self._update()
        return {"loss": loss.item(), "layout": right.all(1).float().mean().item()}

    @torch.no_grad()
    def evaluate(self) -> Metrics:
        """Shares of 1024 held-out captions read right: everything, and the motion alone."""
        _, right = self._read(np.random.default_rng(seed_for(self.config.seed, 0, 9)), 1024, "held_out")
        return {
            "held_out_layout": right.all(1).float().mean().item(),
            "held_out_motion": right[:, -1].float().mean().item(),
        }

    def export(self, folder: Path) -> None:
        """Write ``text_encoder/`` and ``tokenizer/``."""
        self.captions.save(folder)
