"""The two towers of a Cosmos3OmniTransformer, each run by itself.

Every layer holds both: the understanding tower, causal over text, and the generation tower, whose tokens read
each other and the text's keys and values. The text never reads the latents, so what it gives them is the same
at every denoising step: it is computed once, and a step runs the generation tower alone. Module by module,
this is what `Cosmos3OmniTransformer.forward` computes for both towers at once, bit for bit.

Nothing here keeps anything of a request: what is known of a text is a value.

Shape suffixes
    B  batch              S  new text tokens     P  text tokens read before     N  latent patches
    L  layers             H  key-value heads     D  width of a head             E  width of the model
    C  latent channels    T, Y, X  latent frames, height, width                 V  vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from diffusers import Cosmos3OmniTransformer
from diffusers.models.attention_dispatch import dispatch_attention_fn
from diffusers.models.transformers.transformer_cosmos3 import Cosmos3PackedMoTAttention as Attention
from diffusers.models.transformers.transformer_cosmos3 import Cosmos3VLTextMoTDecoderLayer as Layer
from torch import Tensor, nn

from mutoscope.platform.engine.loop import Rows

Rotary = tuple[Tensor, Tensor]
"""Cosines and sines, each (B, tokens, 1, D)."""


@dataclass(frozen=True, slots=True)
class Past:
    """Keys and values of a text, of every layer: (B, L, P, H, D) each."""

    keys: Tensor
    values: Tensor


class Understanding:
    """The causal tower: continues a text, and reads one on behalf of the generation tower.

    As a `Causal` it drives the module's own language head token by token.
    """

    def __init__(self, module: Cosmos3OmniTransformer) -> None:
        self.module = module

    def extend(self, tokens_S: Tensor, cache: Past | None) -> tuple[Tensor, Past]:
        """Logits (V,) of what follows the tokens, and the past that includes them."""
        extended: tuple[Tensor, Past] = self.rows(tokens_S, cache).alone()
        return extended

    def rows(self, tokens_S: Tensor, cache: Past | None) -> Rows:
        """`extend` as a row."""
        return Rows(self.forward, 1, partial(self._row, tokens_S, cache), partial(_grown, cache))

    def forward(self, rows: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (B, V) after the last token of stacked rows; keys and values (B, L, S, H, D) of their new
        tokens.
        """
        tokens_BS, past = rows["tokens_BS"], None
        if "keys_BLPHD" in rows:
            past = Past(rows["keys_BLPHD"], rows["values_BLPHD"])
        states_BSE, keys, values, _ = self._walk(tokens_BS, past)
        logits_BV = self.module.lm_head(self.module.norm(states_BSE[:, -1:]))[:, 0]
        return logits_BV, keys, values

    def read(self, tokens_S: Tensor) -> Past:
        """What the generation tower attends to of a text."""
        _, _, values, keys = self._walk(tokens_S[None], None)
        return Past(keys, values)

    def _row(self, tokens_S: Tensor, cache: Past | None) -> list[dict[str, Tensor]]:
        row = {"tokens_BS": tokens_S[None].to(self.module.device)}
        if cache is not None:
            row |= {"keys_BLPHD": cache.keys, "values_BLPHD": cache.values}
        return [row]

    def _walk(self, tokens_BS: Tensor, past: Past | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """States after the last layer; keys, values, and keys as the generation tower takes them."""
        module, before = self.module, 0 if past is None else past.keys.shape[2]
        states = module.embed_tokens(tokens_BS)
        positions = torch.arange(before, before + tokens_BS.shape[1], device=states.device)
        rotary = _rotary(module, positions.expand(3, len(tokens_BS), -1), states)
        if before and tokens_BS.shape[1] > 1:
            raise ValueError("a text is continued by one token at a time")
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for index, layer in enumerate(module.layers):
            known = None if past is None else (past.keys[:, index], past.values[:, index])
            states, new = self._layer(layer, states, rotary, known)
            found.append(new)
        keys, values, shown = (torch.stack(column, dim=1) for column in zip(*found, strict=True))
        return states, keys, values, shown

    def _layer(
        self, layer: Layer, states: Tensor, rotary: Rotary, known: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        attn = layer.self_attn
        normed = layer.input_layernorm(states)
        query = _rotate(attn.norm_q(_heads(attn, attn.to_q(normed))), rotary)
        bare = attn.norm_k(_heads(attn, attn.to_k(normed)))
        key, value = _rotate(bare, rotary), _heads(attn, attn.to_v(normed))
        shown = key if attn.k_norm_und_for_gen is None else _rotate(attn.k_norm_und_for_gen(bare), rotary)
        keys, values = key, value
        if known is not None:
            keys, values = torch.cat([known[0], key], dim=1), torch.cat([known[1], value], dim=1)
        # A single new token reads all there is; several are a prompt, which begins the text.
        states = states + attn.to_out(_attend(attn, query, keys, values, causal=known is None))
        return states + layer.mlp(layer.post_attention_layernorm(states)), (key, value, shown)


class Generation:
    """The tower that predicts velocities. Rows are {latents_BCTYX, timestep_B, positions_B3N, keys_BLPHD,
    values_BLPHD}, the last two as `Understanding.read` gives them.
    """

    def __init__(self, module: Cosmos3OmniTransformer) -> None:
        self.module = module

    def predict(self, rows: Mapping[str, Tensor]) -> Tensor:
        """The velocity of stacked rows, float32 (B, C, T, Y, X)."""
        return self._predict(rows, held=0)

    def predict_held(self, rows: Mapping[str, Tensor]) -> Tensor:
        """The velocity of stacked rows whose first latent frame is given: it is told no noise level, and its
        velocity is 0.
        """
        return self._predict(rows, held=1)

    def _predict(self, rows: Mapping[str, Tensor], held: int) -> Tensor:
        latents, side = rows["latents_BCTYX"], self.module.config.latent_patch_size
        states = self.module.proj_in(_patches(latents, side))
        given = held * (states.shape[1] // latents.shape[2])
        noisy = states[:, given:]
        states = torch.cat([states[:, :given], noisy + self._time(rows["timestep_B"], noisy)], dim=1)
        rotary = _rotary(self.module, rows["positions_B3N"].transpose(0, 1), states)
        for index, layer in enumerate(self.module.layers):
            known = rows["keys_BLPHD"][:, index], rows["values_BLPHD"][:, index]
            states = self._layer(layer, states, rotary, known)
        patches = self.module.proj_out(self.module.norm_moe_gen(states[:, given:]))
        velocity = _latents(patches, latents[:, :, held:].shape, side).float()
        return nn.functional.pad(velocity, (0, 0, 0, 0, held, 0))

    def _time(self, timestep_B: Tensor, states: Tensor) -> Tensor:
        """The timestep's embedding, shaped as `states`; computed for every token, as the module does."""
        module, (batch, tokens, _) = self.module, states.shape
        timesteps = timestep_B[:, None].expand(batch, tokens).flatten() * module.config.timestep_scale
        waves = module.time_proj(timesteps).to(module.time_embedder.linear_1.weight.dtype)
        return module.time_embedder(waves).to(states.dtype).view_as(states)

    def _layer(self, layer: Layer, states: Tensor, rotary: Rotary, known: tuple[Tensor, Tensor]) -> Tensor:
        attn = layer.self_attn
        normed = layer.input_layernorm_moe_gen(states)
        query = _rotate(attn.norm_added_q(_heads(attn, attn.add_q_proj(normed))), rotary)
        key = _rotate(attn.norm_added_k(_heads(attn, attn.add_k_proj(normed))), rotary)
        value = _heads(attn, attn.add_v_proj(normed))
        keys, values = torch.cat([known[0], key], dim=1), torch.cat([known[1], value], dim=1)
        states = states + attn.to_add_out(_attend(attn, query, keys, values, causal=False))
        return states + layer.mlp_moe_gen(layer.post_attention_layernorm_moe_gen(states))


def _grown(cache: Past | None, results: Sequence[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Past]:
    [(logits_BV, keys, values)] = results
    if cache is not None:
        keys, values = torch.cat([cache.keys, keys], dim=2), torch.cat([cache.values, values], dim=2)
    return logits_BV[0], Past(keys, values)


def _rotary(module: Cosmos3OmniTransformer, positions_3BN: Tensor, states: Tensor) -> Rotary:
    cos, sin = module.rotary_emb(position_ids=positions_3BN, device=states.device, dtype=states.dtype)
    return cos.unsqueeze(2), sin.unsqueeze(2)


def _rotate(heads: Tensor, rotary: Rotary) -> Tensor:
    cos, sin = rotary
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


def _heads(attn: Attention, projected: Tensor) -> Tensor:
    """(B, tokens, heads x D) as (B, tokens, heads, D)."""
    return projected.unflatten(-1, (-1, attn.head_dim))


def _attend(attn: Attention, query: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
    """Heads' outputs side by side, (B, tokens, heads x D), by the backend that the module is set to."""
    mixed: Tensor = dispatch_attention_fn(
        query, keys, values, is_causal=causal, enable_gqa=True, backend=attn.processor._attention_backend
    )
    return mixed.flatten(-2, -1)


def _patches(latents: Tensor, side: int) -> Tensor:
    """Latents (B, C, T, Y, X) as patches (B, N, side x side x C), zeros behind the far edges."""
    batch, channels, frames, height, width = latents.shape
    rows, columns = math.ceil(height / side), math.ceil(width / side)
    latents = nn.functional.pad(latents, (0, columns * side - width, 0, rows * side - height))
    grid = latents.view(batch, channels, frames, rows, side, columns, side)
    return grid.permute(0, 2, 3, 5, 4, 6, 1).reshape(batch, frames * rows * columns, -1)


def _latents(patches: Tensor, shape: Sequence[int], side: int) -> Tensor:
    """Inverse of `_patches` for latents of `shape`."""
    batch, channels, frames, height, width = shape
    rows, columns = math.ceil(height / side), math.ceil(width / side)
    grid = patches.view(batch, frames, rows, columns, side, side, channels)
    latents = grid.permute(0, 6, 1, 2, 4, 3, 5).reshape(batch, channels, frames, rows * side, columns * side)
    return latents[..., :height, :width]
