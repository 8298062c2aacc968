"""The text encoders of the image model, taught what a caption *binds* before they ever meet a picture.

Flux gives all text tokens the same position, so the order of words reaches the image tokens only through
what the encoders wrote into each token.  Here a T5 encoder (whose relative position bias can order) learns
to write into every colour and shape word which object it belongs to and *where that object stands*, and both
encoders learn the whole layout in one vector: T5 in its ``[EOS]`` token, CLIP in its pooled output.  Linear
heads read these answers during training and are thrown away afterwards.

Shapes: token ids (B, S); T5 states (B, S, D); CLIP pooled (B, D).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from mutoscope.models.starter.grammar import (
    BACKGROUNDS,
    COLOURS,
    MOTIONS,
    SHAPES,
    Scene,
    Split,
    paraphrase,
    parse,
    sample_scene,
)
from mutoscope.models.starter.image_recipe import TextRecipe
from mutoscope.models.starter.muon import Muon
from mutoscope.models.starter.stage import Metrics, Stage
from mutoscope.models.starter.tokenizer import (
    BOS_ID,
    EOS_ID,
    MAX_TOKENS,
    PAD_ID,
    VOCABULARY,
    clip_tokenizer,
    t5_tokenizer,
)

SLOTS: Final = ("centre", "left", "right", "top", "bottom")
_SLOTS_OF_RELATION: Final = {
    None: ("centre",),
    "left of": ("left", "right"),
    "right of": ("right", "left"),
    "above": ("top", "bottom"),
    "below": ("bottom", "top"),
}
TOKEN_ANSWERS: Final = (len(COLOURS), len(SHAPES), len(SLOTS))
LAYOUT_ANSWERS: Final = (
    *(len(COLOURS) + 1 for _ in SLOTS),
    *(len(SHAPES) + 1 for _ in SLOTS),
    len(BACKGROUNDS),
    len(MOTIONS) + 1,
)
"""Per slot a colour and a shape, each with a last class for 'nothing here'; then background and motion."""


def slots(scene: Scene) -> tuple[str, ...]:
    """The slot each object of ``scene`` stands in, in the order they are said."""
    return _SLOTS_OF_RELATION[scene.relation]


def layout_answers(scene: Scene) -> list[int]:
    """The classes of ``LAYOUT_ANSWERS`` for one scene."""
    here = dict(zip(slots(scene), scene.objects, strict=True))
    colours = [COLOURS.index(here[s].colour) if s in here else len(COLOURS) for s in SLOTS]
    shapes = [SHAPES.index(here[s].shape) if s in here else len(SHAPES) for s in SLOTS]
    motion = len(MOTIONS) if scene.motion is None else MOTIONS.index(scene.motion)
    return [*colours, *shapes, BACKGROUNDS.index(scene.background), motion]


def object_answers(scene: Scene) -> list[tuple[int, int, int]]:
    """Colour, shape and slot classes of each object, in the order they are said."""
    return [
        (COLOURS.index(o.colour), SHAPES.index(o.shape), SLOTS.index(slot))
        for o, slot in zip(scene.objects, slots(scene), strict=True)
    ]


def build_clip(recipe: TextRecipe) -> CLIPTextModel:
    """The untrained CLIP text model, seeded."""
    torch.manual_seed(recipe.seed)
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(VOCABULARY),
            hidden_size=recipe.width,
            projection_dim=recipe.width,
            intermediate_size=2 * recipe.width,
            num_hidden_layers=recipe.clip_layers,
            num_attention_heads=recipe.heads,
            max_position_embeddings=MAX_TOKENS,
            pad_token_id=PAD_ID,
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
        )
    )


def build_t5(recipe: TextRecipe) -> T5EncoderModel:
    """The untrained T5 encoder, seeded."""
    torch.manual_seed(recipe.seed + 1)
    return T5EncoderModel(
        T5Config(
            vocab_size=len(VOCABULARY),
            d_model=recipe.width,
            d_kv=recipe.width // recipe.heads,
            d_ff=2 * recipe.width,
            num_layers=recipe.t5_layers,
            num_heads=recipe.heads,
            relative_attention_num_buckets=32,
            relative_attention_max_distance=64,
            dropout_rate=0.0,
            feed_forward_proj="gated-gelu",
            pad_token_id=PAD_ID,
            eos_token_id=EOS_ID,
            use_cache=False,
        )
    )


class TextStack(nn.Module):
    """Both encoders with the tokenizers the pipeline will use: captions in, embeddings out."""

    def __init__(self, recipe: TextRecipe) -> None:
        super().__init__()
        self.clip, self.t5 = build_clip(recipe), build_t5(recipe)
        self.clip_tokenizer, self.t5_tokenizer = clip_tokenizer(), t5_tokenizer()

    def ids(self, captions: list[str]) -> tuple[Tensor, Tensor]:
        """CLIP and T5 ids, each (B, MAX_TOKENS), padded exactly as FluxPipeline pads."""
        options = {
            "padding": "max_length",
            "max_length": MAX_TOKENS,
            "truncation": True,
            "return_tensors": "pt",
        }
        return (
            self.clip_tokenizer(captions, **options).input_ids,
            self.t5_tokenizer(captions, **options).input_ids,
        )

    def forward(self, clip_ids: Tensor, t5_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled CLIP (B, D) and T5 states (B, S, D).  No attention mask: Flux attends padding, so do we."""
        return self.clip(clip_ids).pooler_output, self.t5(t5_ids)[0]


class BindingHeads(nn.Module):
    """Linear readers of the answers; linear, so that what they find is plain to the image model too."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Linear(width, sum(TOKEN_ANSWERS))
        self.t5_layout = nn.Linear(width, sum(LAYOUT_ANSWERS))
        self.clip_layout = nn.Linear(width, sum(LAYOUT_ANSWERS))


_COLOUR_IDS: Final = [VOCABULARY[c] for c in COLOURS]
_SHAPE_IDS: Final = [VOCABULARY[s] for s in SHAPES]


def _object_tokens(t5_ids: Tensor) -> Tensor:
    """Mask (B, S) of the colour and shape words; they come colour, shape, colour, shape in every caption."""
    return torch.isin(t5_ids, torch.tensor(_COLOUR_IDS + _SHAPE_IDS))


def _score(logits: Tensor, sizes: tuple[int, ...], answers: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross entropy over questions, and (N, questions) booleans of right answers."""
    parts = logits.split(sizes, dim=-1)
    loss = torch.stack([functional.cross_entropy(p, answers[:, i]) for i, p in enumerate(parts)]).mean()
    right = torch.stack([p.argmax(-1) == answers[:, i] for i, p in enumerate(parts)], dim=1)
    return loss, right


class TextStage(Stage):
    """Binding pretraining of both encoders."""

    name = "image_text"

    def __init__(self, recipe: TextRecipe) -> None:
        self.recipe = recipe
        self.stack = TextStack(recipe)
        torch.manual_seed(recipe.seed + 2)
        self.heads = BindingHeads(recipe.width)
        trained = {"stack": self.stack, "heads": self.heads}
        super().__init__(recipe.steps, recipe.warmup, trained, self._build_optimisers())

    def _build_optimisers(self) -> list[torch.optim.Optimizer]:
        """Muon for the matrices inside the encoders; Adam for embeddings, norms and heads."""
        inner: list[nn.Parameter] = []
        outer: list[nn.Parameter] = []
        for name, parameter in [*self.stack.named_parameters(), *self.heads.named_parameters()]:
            through = ".layers." in name or ".block." in name
            matrix = parameter.ndim == 2 and "bias" not in name
            (inner if through and matrix else outer).append(parameter)
        rate = self.recipe.learning_rate
        return [Muon(inner, lr=rate), torch.optim.Adam(outer, lr=rate, betas=(0.9, 0.99))]

    def _captions(self, rng: np.random.Generator, count: int, split: Split) -> tuple[list[str], list[Scene]]:
        captions = [paraphrase(sample_scene(rng, split), rng) for _ in range(count)]
        # What a caption binds follows its own word order, so the answers are taken from the words.
        return captions, [parse(caption) for caption in captions]

    def _read(self, captions: list[str], scenes: list[Scene]) -> tuple[Tensor, dict[str, Tensor]]:
        clip_ids, t5_ids = self.stack.ids(captions)
        pooled, states = self.stack(clip_ids, t5_ids)
        answers = [answer for scene in scenes for answer in object_answers(scene) for _ in range(2)]
        layout = torch.tensor([layout_answers(scene) for scene in scenes])
        end = (t5_ids == EOS_ID).int().argmax(dim=1)
        read = (
            (self.heads.token(states[_object_tokens(t5_ids)]), TOKEN_ANSWERS, torch.tensor(answers)),
            (self.heads.t5_layout(states[torch.arange(len(end)), end]), LAYOUT_ANSWERS, layout),
            (self.heads.clip_layout(pooled), LAYOUT_ANSWERS, layout),
        )
        scored = [_score(*one) for one in read]
        right = dict(zip(("token", "t5_layout", "clip_layout"), (r for _, r in scored), strict=True))
        return torch.stack([loss for loss, _ in scored]).sum(), right

    def step(self) -> Metrics:
        rng = np.random.default_rng((self.recipe.seed, self.steps_done))
        loss, right = self._read(*self._captions(rng, self.recipe.batch, "train"))
        loss.backward()
        self._update()
        return {"loss": loss.item()} | {k: v.all(1).float().mean().item() for k, v in right.items()}

    @torch.no_grad()
    def evaluate(self) -> Metrics:
        """Share of held-out captions (1024) with every question right, per reader."""
        rng = np.random.default_rng((self.recipe.seed, 1 << 31))
        _, right = self._read(*self._captions(rng, 1024, "held_out"))
        return {f"held_out_{k}": v.all(1).float().mean().item() for k, v in right.items()}

    def export(self, folder: Path) -> None:
        self.stack.clip.save_pretrained(folder / "text_encoder")
        self.stack.t5.save_pretrained(folder / "text_encoder_2")
        self.stack.clip_tokenizer.save_pretrained(folder / "tokenizer")
        self.stack.t5_tokenizer.save_pretrained(folder / "tokenizer_2")
