"""Every number that decides the starter refiner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RefinerLmRecipe:
    """Qwen2ForCausalLM over whole words: terse prompt in, full caption out."""

    seed: int = 31
    width: int = 96
    layers: int = 4
    heads: int = 4
    key_value_heads: int = 2
    inner_width: int = 256
    positions: int = 64
    batch: int = 48
    steps: int = 2_400
    learning_rate: float = 3e-3
    warmup: int = 50
    watch_prompts: int = 100
    """Held-out prompts completed at every evaluation."""
