"""What recipes and requests say about a VAE's tiles. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mutoscope.platform.engine.card import Recipe
from mutoscope.platform.errors import InvalidParameter

OVERLAP = 4
"""Neighbouring tiles share one part in so many of their side, as diffusers' tiling does by default."""


class TiledRecipe(Recipe):
    """Of weights whose VAE can decode in tiles. Families that do so extend it in place of Recipe."""

    vae_tile: int = Field(
        0, ge=0, description="Side of the VAE's tiles, pixels; 0 decodes the picture as a whole."
    )
    vae_tile_multiple: int = Field(
        32,
        ge=1,
        description="A tile's side is a multiple of this, pixels, so that seams fall between latents.",
    )

    def check(self, values: Mapping[str, Any]) -> None:
        """Tiles that are no whole number of latents and seams."""
        super().check(values)
        if values["vae_tile"] % self.vae_tile_multiple:
            remedy = f"use 0 or a multiple of {self.vae_tile_multiple}"
            raise InvalidParameter("vae_tile", values["vae_tile"], remedy)


class TileParameters(BaseModel):
    """What a request may set about the VAE's tiles."""

    vae_tile: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Side of the VAE's tiles, pixels; 0 decodes the picture as a whole."
    )
