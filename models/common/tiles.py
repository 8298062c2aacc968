"""Decoding a latent tile by tile, every tile one or several steps of the engine.

A whole decode is the longest single step of most cards and the one that takes most memory. In tiles it can be
interleaved with other requests and cancelled on the way, and the device holds one tile's activations and the
seams in place of the whole picture's. Tiles overlap and are blended as diffusers' `enable_tiling()` does, so
the result equals `tiled_decode` bit for bit. It differs from the whole decode: a tile sees nothing beyond its
edges.

Tiles do not share calls with other tiles: decoding is bound by memory, which a batch would multiply.

Shape legend, for pictures and videos alike
    ...   every axis before the last two: batch, channels and, in a video, frames
    H, W  latent height, width        Y, X  pixel height, width, `factor` times as many
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.common.tiling import OVERLAP
from mutoscope.platform.engine.loop import Done, LoopNode, LoopState, WorkPlan

Slots = Mapping[str, Any]


class TileDecoder(Protocol):
    """How one VAE decodes a tile. An implementation holds nothing of any request."""

    @property
    def factor(self) -> int:
        """Pixels per latent, along height and width."""

    def pieces(self, frames: int) -> int:
        """Steps that a tile of so many latent frames takes."""

    def decode(self, tile: Tensor, piece: int, carried: Any) -> tuple[Tensor, Any]:
        """One piece of a tile's signal, and what the next piece needs; the first is given None.

        The pieces of a tile follow each other along the axis before height. A signal may be coarser than its
        pixels. `carried` itself stays as it is.
        """

    def finish(self, signal: Tensor) -> Tensor:
        """A blended signal, or any part of it, as the VAE's whole decode would return it, (..., Y, X)."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """A card's way from latents to pixels.

    Attributes:
        slot: what the node fills with the pixels.
        size: latent (frames, height, width) of a request; a picture has 1 frame.
        latents: what the VAE decodes, (..., H, W).
        decoder: the decode in tiles.
        whole: the decode in one step: latents to what the VAE returns, (..., Y, X).
        pixels: what the VAE returns, or any part of it, as a user gets it, uint8 (..., Y, X, 3).
    """

    slot: str
    size: Callable[[Slots], tuple[int, int, int]]
    latents: Callable[[Slots], Tensor]
    decoder: TileDecoder
    whole: Callable[[Tensor], Tensor]
    pixels: Callable[[Tensor], NDArray[np.uint8]]


def decode_node(name: str, decoding: Decoding) -> LoopNode:
    """A node that decodes in tiles of the request's `vae_tile` pixels, or, where that is 0, in one step."""
    return LoopNode(TiledDecode(name, decoding), total=partial(_steps, decoding), uses=("vae",))


@dataclass(frozen=True, slots=True)
class Tile:
    """Where a tile lies, in latents."""

    row: int
    column: int
    top: int
    left: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Square tiles over a latent of `height` x `width`, `stride` apart: row by row, cut at the far edges."""

    height: int
    width: int
    side: int

    @property
    def stride(self) -> int:
        return self.side - self.overlap

    @property
    def overlap(self) -> int:
        return self.side // OVERLAP

    @property
    def tiles(self) -> tuple[Tile, ...]:
        tops = enumerate(range(0, self.height, self.stride))
        lefts = tuple(enumerate(range(0, self.width, self.stride)))
        return tuple(Tile(row, column, top, left) for row, top in tops for column, left in lefts)

    def cut(self, latents: Tensor, tile: Tile) -> Tensor:
        """The tile's latents."""
        return latents[..., tile.top : tile.top + self.side, tile.left : tile.left + self.side]


def _grid(decoding: Decoding, slots: Slots) -> Grid | None:
    """The request's tiles; None where it is decoded whole, as it is too if a single tile covers it."""
    _, height, width = decoding.size(slots)
    side = slots["request"].parameters["vae_tile"] // decoding.decoder.factor
    return Grid(height, width, side) if side and max(height, width) > side else None


def _steps(decoding: Decoding, slots: Slots) -> int:
    grid = _grid(decoding, slots)
    return 1 if grid is None else len(grid.tiles) * decoding.decoder.pieces(decoding.size(slots)[0])


@dataclass(slots=True)
class Mosaic:
    """The pixels so far, and what of the finished tiles is still to be blended into their neighbours.

    Attributes:
        below: by column, the last rows of the tile above the next one; beside: the last columns of the tile
            to its left. Both are as they were blended themselves.
        canvas: uint8 (..., Y, X, 3), on the host.
    """

    grid: Grid
    below: dict[int, Tensor] = field(default_factory=dict)
    beside: Tensor | None = None
    canvas: NDArray[np.uint8] | None = None

    def add(self, tile: Tile, signal: Tensor, decoding: Decoding) -> None:
        """Blend a tile's signal with its neighbours, and put what no later tile covers on the canvas."""
        scale = signal.shape[-1] // min(self.grid.side, self.grid.width - tile.left)
        seam, shown = self.grid.overlap * scale, self.grid.stride * scale
        if tile.row:
            signal = blend(self.below[tile.column], signal, seam, axis=-2)
        if tile.column:
            assert self.beside is not None
            signal = blend(self.beside, signal, seam, axis=-1)
        self.below[tile.column] = signal[..., -seam:, :].clone()
        self.beside = signal[..., -seam:].clone()
        self._paint(tile, decoding.pixels(decoding.decoder.finish(signal[..., :shown, :shown])), decoding)

    def _paint(self, tile: Tile, pixels: NDArray[np.uint8], decoding: Decoding) -> None:
        factor = decoding.decoder.factor
        if self.canvas is None:
            size = (self.grid.height * factor, self.grid.width * factor)
            self.canvas = np.empty((*pixels.shape[:-3], *size, pixels.shape[-1]), pixels.dtype)
        top, left = tile.top * factor, tile.left * factor
        height, width = pixels.shape[-3:-1]
        self.canvas[..., top : top + height, left : left + width, :] = pixels


def blend(before: Tensor, after: Tensor, seam: int, axis: int) -> Tensor:
    """`after`, whose first elements along `axis` fade in over the last ones of `before`.

    The arithmetic is that of `blend_v` and `blend_h`: products are rounded to the signal's dtype and then
    added, with weights k / seam in float32.
    """
    seam = min(before.shape[axis], after.shape[axis], seam)
    shape = [1] * after.ndim
    shape[axis] = seam
    rise = torch.tensor([at / seam for at in range(seam)], device=after.device).view(shape)
    fall = torch.tensor([1 - at / seam for at in range(seam)], device=after.device).view(shape)
    old = before.narrow(axis, before.shape[axis] - seam, seam)
    new = after.narrow(axis, 0, seam)
    mixed = (old * fall).to(after.dtype) + (new * rise).to(after.dtype)
    return torch.cat([mixed, after.narrow(axis, seam, after.shape[axis] - seam)], dim=axis)


@dataclass(slots=True, kw_only=True)
class DecodeState(LoopState):
    """One request's decode.

    Attributes:
        mosaic: None where the latents are decoded whole.
        signal: the pieces of the current tile so far; carried: what the next one needs.
        pixels: uint8 (..., Y, X, 3), at the end.
    """

    latents: Tensor
    mosaic: Mosaic | None
    signal: list[Tensor] = field(default_factory=list)
    carried: Any = None
    pixels: NDArray[np.uint8] | None = None


class TiledDecode:
    """One plan for the whole, or one for each piece of each tile."""

    def __init__(self, name: str, decoding: Decoding) -> None:
        self.name, self.decoding = name, decoding

    def init(self, slots: Slots) -> DecodeState:
        grid = _grid(self.decoding, slots)
        return DecodeState(
            total=_steps(self.decoding, slots),
            latents=self.decoding.latents(slots),
            mosaic=None if grid is None else Mosaic(grid),
        )

    def next(self, state: DecodeState) -> WorkPlan | Done:
        if state.step == state.total:
            return Done()
        if state.mosaic is None:
            shape = tuple(state.latents.shape[1:])
            return WorkPlan("vae_decode", shape, partial(self.decoding.whole, state.latents))
        tile, piece = self._at(state, state.mosaic)
        latents = state.mosaic.grid.cut(state.latents, tile)
        run = partial(self.decoding.decoder.decode, latents, piece, state.carried)
        return WorkPlan("vae_tile", tuple(latents.shape[1:]), run, cost=1 / state.total)

    def advance(self, state: DecodeState, result: Any) -> None:
        if state.mosaic is None:
            state.pixels = self.decoding.pixels(result)
        else:
            self._add(state, state.mosaic, *result)
        state.step += 1

    def finalize(self, state: DecodeState) -> Slots:
        return {self.decoding.slot: state.pixels}

    def _at(self, state: DecodeState, mosaic: Mosaic) -> tuple[Tile, int]:
        """The tile and the piece of it that the next step decodes."""
        tiles = mosaic.grid.tiles
        index, piece = divmod(state.step, state.total // len(tiles))
        return tiles[index], piece

    def _add(self, state: DecodeState, mosaic: Mosaic, signal: Tensor, carried: Any) -> None:
        tile, piece = self._at(state, mosaic)
        state.signal.append(signal)
        state.carried = carried
        if piece + 1 < state.total // len(mosaic.grid.tiles):
            return
        whole = state.signal[0] if len(state.signal) == 1 else torch.cat(state.signal, dim=-3)
        state.signal, state.carried = [], None
        mosaic.add(tile, whole, self.decoding)
        state.pixels = mosaic.canvas
