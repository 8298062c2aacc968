"""The starter refiner: a small causal language model that writes terse prompts out in full.

Shapes: token ids (B, S); logits (B, S, vocabulary).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from mutoscope.models.starter.grammar import WORDS
from mutoscope.models.starter.muon import Muon
from mutoscope.models.starter.refiner_recipe import RefinerLmRecipe
from mutoscope.models.starter.stage import Metrics, Stage
from mutoscope.models.starter.terse import TERSE_WORDS, Pair, sample_pair
from mutoscope.models.starter.tokenizer import BOS, BOS_ID, EOS, EOS_ID, PAD, PAD_ID, SPECIALS, UNK

TURN: Final = "=>"
"""Closes the terse prompt; the full caption follows."""
TEMPLATE: Final = f"{{prompt}} {TURN}"
VOCABULARY: Final = {
    word: index for index, word in enumerate(dict.fromkeys((*SPECIALS, TURN, *WORDS, *TERSE_WORDS)))
}
LONGEST_CAPTION: Final = 24
"""Tokens that are enough for any caption of the grammar and its end."""


def refiner_tokenizer(positions: int) -> PreTrainedTokenizerFast:
    """Whole words after ``[BOS]``; what follows ``[EOS]`` is not said, so text is left open."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token=UNK))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, BOS_ID)]
    )
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNK,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=positions,
        padding_side="right",
    )


def build_lm(recipe: RefinerLmRecipe) -> Qwen2ForCausalLM:
    """The untrained model, seeded."""
    torch.manual_seed(recipe.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(VOCABULARY),
            hidden_size=recipe.width,
            intermediate_size=recipe.inner_width,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.key_value_heads,
            max_position_embeddings=recipe.positions,
            tie_word_embeddings=True,
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            pad_token_id=PAD_ID,
        )
    )
    model.generation_config = GenerationConfig(
        bos_token_id=BOS_ID, eos_token_id=EOS_ID, pad_token_id=PAD_ID, do_sample=False
    )
    return model


def encode_pairs(tokenizer: Any, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Token ids (B, S), padded on the right, and the mask (B, S) of tokens to be predicted: the full
    caption's and its end.
    """
    prompts = [tokenizer(TEMPLATE.format(prompt=pair.terse)).input_ids for pair in pairs]
    answers = [[*tokenizer(pair.full, add_special_tokens=False).input_ids, EOS_ID] for pair in pairs]
    longest = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids = torch.full((len(pairs), longest), PAD_ID)
    learned = torch.zeros(len(pairs), longest, dtype=torch.bool)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor([*prompt, *answer])
        learned[row, len(prompt) : end] = True
    return ids, learned


def complete(model: Qwen2ForCausalLM, tokenizer: Any, terse: str, **options: Any) -> str:
    """The model's full caption of a terse prompt, by transformers' own ``generate``; greedy by default."""
    ids = tokenizer(TEMPLATE.format(prompt=terse), return_tensors="pt").input_ids
    made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=LONGEST_CAPTION, **options)
    text: str = tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
    return text


class RefinerStage(Stage):
    """Training on fresh pairs; the loss counts the caption's tokens alone."""

    name = "refiner_lm"

    def __init__(self, recipe: RefinerLmRecipe) -> None:
        self.recipe = recipe
        self.model, self.tokenizer = build_lm(recipe), refiner_tokenizer(recipe.positions)
        super().__init__(recipe.steps, recipe.warmup, {"model": self.model}, self._build_optimisers())

    def _build_optimisers(self) -> list[torch.optim.Optimizer]:
        """Muon for the matrices inside the layers; Adam for embeddings, norms and biases."""
        inner: list[nn.Parameter] = []
        outer: list[nn.Parameter] = []
        for name, parameter in self.model.named_parameters():
            (inner if ".layers." in name and parameter.ndim == 2 else outer).append(parameter)
        rate = self.recipe.learning_rate
        return [Muon(inner, lr=rate), torch.optim.Adam(outer, lr=rate, betas=(0.9, 0.99))]

    def step(self) -> Metrics:
        rng = np.random.default_rng((self.recipe.seed, self.steps_done))
        pairs = [sample_pair(rng) for _ in range(self.recipe.batch)]
        ids, learned = encode_pairs(self.tokenizer, pairs)
        logits = self.model(ids, attention_mask=(ids != PAD_ID).long()).logits[:, :-1]
        answers, wanted = ids[:, 1:], learned[:, 1:]
        loss = functional.cross_entropy(logits[wanted], answers[wanted])
        loss.backward()
        self._update()
        right = (logits.argmax(-1) == answers)[wanted].float().mean()
        return {"loss": loss.item(), "tokens_right": right.item()}

    @torch.no_grad()
    def evaluate(self) -> Metrics:
        """Share of held-out prompts completed with the caption expected, and with any that says the same."""
        rng = np.random.default_rng((self.recipe.seed, 1 << 31))
        pairs = [sample_pair(rng, "held_out") for _ in range(self.recipe.watch_prompts)]
        self.model.eval()
        texts = [complete(self.model, self.tokenizer, pair.terse) for pair in pairs]
        self.model.train()
        same = [pair.completed_by(text) for pair, text in zip(pairs, texts, strict=True)]
        exact = [pair.full == text for pair, text in zip(pairs, texts, strict=True) if not pair.vague]
        return {"held_out_exact": float(np.mean(exact)), "held_out_same_scene": float(np.mean(same))}

    def export(self, folder: Path) -> None:
        """A folder as ``save_pretrained`` of a language model and its tokenizer writes it, and a recipe."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        recipe = {"template": TEMPLATE, "max_new_tokens": LONGEST_CAPTION}
        (folder / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n")
