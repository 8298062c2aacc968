"""Tiles, step by step, equal diffusers' own tiled decode."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, AutoencoderKLWan
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.common.loading import load_module
from mutoscope.models.common.tile_decoders import PictureTiles, VideoTiles
from mutoscope.models.common.tiles import Decoding, TiledDecode, TileDecoder, blend, decode_node
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.card import ComponentSpec
from mutoscope.platform.engine.loop import WorkPlan
from mutoscope.platform.engine.request import Request
from tests.support import forked  # noqa: F401  # sets up what the one fork server of a test process imports
from tests.support.memory import peak, reset_peak

Module = AutoencoderKL | AutoencoderKLWan


@pytest.fixture(scope="module", autouse=True)
def contract() -> None:
    """What a worker does before its first kernel."""
    numerics.configure_torch(numerics.cpu_contract(threads=1))


def picture_vae(**config: Any) -> AutoencoderKL:
    """Factor 4."""
    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 3, "up_block_types": ("UpDecoderBlock2D",) * 3}
    sizes = {"block_out_channels": (4, 8, 8), "norm_num_groups": 2, "latent_channels": 3, "sample_size": 32}
    return AutoencoderKL(**blocks, **sizes, **config).eval().requires_grad_(False)


def video_vae(residual: bool) -> AutoencoderKLWan:
    """Factor 8, or 16 where the pixels are folded."""
    torch.manual_seed(0)
    folded = {"is_residual": True, "patch_size": 2, "in_channels": 12, "out_channels": 12}
    extra = {**folded, "scale_factor_spatial": 16, "decoder_base_dim": 4} if residual else {}
    vae = AutoencoderKLWan(base_dim=4, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1, **extra)
    return vae.eval().requires_grad_(False)


def starter_vae(card: str, kind: str) -> Module:
    folder = starter_folder(card)
    assert folder is not None
    spec = ComponentSpec("vae", "diffusers", (kind,))
    vae: Module = load_module(spec, folder / "vae", device=torch.device("cpu"), dtype=torch.float32)
    return vae


def decoder_of(vae: Module) -> TileDecoder:
    return PictureTiles(vae) if isinstance(vae, AutoencoderKL) else VideoTiles(vae)


def shown(sample: Tensor) -> NDArray[Any]:
    """A sample (1, C, ..., Y, X) as the canvas holds it, not rounded: (1, ..., Y, X, C)."""
    return sample.movedim(1, -1).float().numpy()


def decoding(vae: Module, latents: Tensor) -> Decoding:
    frames = latents.shape[2] if latents.ndim == 5 else 1
    return Decoding(
        slot="pixels",
        size=lambda slots: (frames, *latents.shape[-2:]),
        latents=lambda slots: latents,
        decoder=decoder_of(vae),
        whole=lambda given: vae.decode(given, return_dict=False)[0],
        pixels=shown,
    )


def request(tile: int) -> dict[str, Any]:
    return {"request": Request("r", "card", {}, {"vae_tile": tile}, 0)}


def drive(loop: TiledDecode, tile: int) -> tuple[NDArray[Any], list[WorkPlan]]:
    """The pixels, and the plans it took."""
    state, plans = loop.init(request(tile)), []
    with torch.inference_mode():
        while isinstance(plan := loop.next(state), WorkPlan):
            plans.append(plan)
            loop.advance(state, plan.run())
    return loop.finalize(state)["pixels"], plans


def by_diffusers(vae: Module, latents: Tensor, tile: int) -> NDArray[Any]:
    if isinstance(vae, AutoencoderKL):
        vae.tile_sample_min_size = tile
        vae.tile_latent_min_size = tile // PictureTiles(vae).factor
        vae.enable_tiling()
    else:
        vae.enable_tiling(tile, tile, tile * 3 // 4, tile * 3 // 4)
    try:
        with torch.inference_mode():
            return shown(vae.decode(latents, return_dict=False)[0])
    finally:
        vae.disable_tiling()


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


VAES: dict[str, Callable[[], Module]] = {
    "picture": picture_vae,
    "picture, no quant conv": lambda: picture_vae(use_post_quant_conv=False, mid_block_add_attention=False),
    "video": lambda: video_vae(residual=False),
    "video, residual": lambda: video_vae(residual=True),
    "starter picture": lambda: starter_vae("flux-t2i", "AutoencoderKL"),
    "starter video": lambda: starter_vae("wan-i2v", "AutoencoderKLWan"),
}


def channels(vae: Module) -> int:
    return int(vae.config.latent_channels if isinstance(vae, AutoencoderKL) else vae.config.z_dim)


# Latent sizes in quarters of a tile: many tiles, the last ones cut; and one axis that fits, its second tile
# within the seam.
@pytest.mark.parametrize("quarters", [(7, 9), (3, 6)], ids=str)
@pytest.mark.parametrize("name", VAES)
def test_tiles_equal_diffusers_tiled_decode(name: str, quarters: tuple[int, int]) -> None:
    vae = VAES[name]()
    tile = 8 * decoder_of(vae).factor
    height, width = (2 * quarter for quarter in quarters)
    frames = () if isinstance(vae, AutoencoderKL) else (3,)
    latents = noise(1, channels(vae), *frames, height, width)
    made, plans = drive(TiledDecode("decode", decoding(vae, latents)), tile)
    np.testing.assert_array_equal(made, by_diffusers(vae, latents, tile), strict=True)
    assert len(plans) > 1
    assert {plan.kind for plan in plans} == {"vae_tile"}


@pytest.mark.parametrize(("tile", "side"), [(0, 9), (64, 8), (64, 5)], ids=["off", "one tile", "less"])
def test_whole_where_tiles_are_off_or_one_covers_it(tile: int, side: int) -> None:
    vae = video_vae(residual=False)
    latents = noise(1, 16, 3, side, side)
    made, plans = drive(TiledDecode("decode", decoding(vae, latents)), tile)
    with torch.inference_mode():
        np.testing.assert_array_equal(made, shown(vae.decode(latents, return_dict=False)[0]), strict=True)
    assert [plan.kind for plan in plans] == ["vae_decode"]
    assert decode_node("decode", decoding(vae, latents)).total(request(tile)) == 1


def test_the_total_counts_every_piece_of_every_tile() -> None:
    latents = noise(1, 16, 3, 9, 14)
    parts = decoding(video_vae(residual=False), latents)
    _, plans = drive(TiledDecode("decode", parts), 64)
    # Tiles of 8 latents, 6 apart: 2 rows (0, 6) of 3 (0, 6, 12), each of 3 latent frames.
    assert len(plans) == decode_node("decode", parts).total(request(64)) == 2 * 3 * 3
    assert {plan.shape for plan in plans} == {(16, 3, height, width) for height in (8, 3) for width in (8, 2)}


def test_seams_are_rounded_as_diffusers_rounds_them_in_half_precision() -> None:
    vae = picture_vae()
    before, after = noise(2, 1, 3, 12, 12).bfloat16()
    np.testing.assert_array_equal(
        blend(before, after, 4, axis=-2).float(), vae.blend_v(before, after.clone(), 4).float()
    )
    np.testing.assert_array_equal(
        blend(before, after, 4, axis=-1).float(), vae.blend_h(before, after.clone(), 4).float()
    )


def interleaved(loops: list[TiledDecode], tile: int) -> list[NDArray[Any]]:
    """Pixels of decodes that take turns, piece by piece."""
    states = [loop.init(request(tile)) for loop in loops]
    with torch.inference_mode():
        while any(isinstance(plan := loop.next(s), WorkPlan) for loop, s in zip(loops, states, strict=True)):
            for loop, state in zip(loops, states, strict=True):
                if isinstance(plan := loop.next(state), WorkPlan):
                    loop.advance(state, plan.run())
    return [loop.finalize(state)["pixels"] for loop, state in zip(loops, states, strict=True)]


class FeaturesOnTheModule(VideoTiles):
    """The planted fault: features between frames stay on the VAE, as they do within the class's decode."""

    def decode(self, tile: Tensor, piece: int, carried: Any) -> tuple[Tensor, Any]:
        if piece == 0:
            self.vae.clear_cache()
        signal, self.vae._feat_map = super().decode(tile, piece, self.vae._feat_map)
        return signal, None


@pytest.mark.parametrize(("decoder", "holds"), [(VideoTiles, True), (FeaturesOnTheModule, False)])
def test_interleaved_decodes_equal_those_alone(decoder: type[VideoTiles], holds: bool) -> None:
    """Two videos on one VAE; and a decoder that keeps a request's features on the module is found out."""
    vae = video_vae(residual=False)
    parts = [decoding(vae, noise(1, 16, 3, 9, 9)), decoding(vae, -noise(1, 16, 3, 9, 9))]
    loops = [TiledDecode("decode", replace(part, decoder=decoder(vae))) for part in parts]
    alone = [drive(loop, 64)[0] for loop in loops]
    same = [np.array_equal(*pair) for pair in zip(interleaved(loops, 64), alone, strict=True)]
    assert all(same) == holds


def test_a_step_changes_nothing() -> None:
    """A plan that is run twice, as after it ran out of memory, gives the same twice."""
    vae = video_vae(residual=False)
    loop = TiledDecode("decode", decoding(vae, noise(1, 16, 3, 9, 9)))
    state = loop.init(request(64))
    with torch.inference_mode():
        for _ in range(3):
            plan = loop.next(state)
            assert isinstance(plan, WorkPlan)
            first, again = plan.run(), plan.run()
            torch.testing.assert_close(first[0], again[0], rtol=0, atol=0)
            loop.advance(state, again)


def _added_at_peak(answer: Connection) -> None:
    """Send the bytes that decoding 512 x 512 pixels adds to a process that has decoded 128 x 128: in tiles of
    that size, and whole."""
    numerics.configure_torch(numerics.cpu_contract(threads=1))
    vae, added = picture_vae(), []
    drive(TiledDecode("decode", decoding(vae, noise(1, 3, 32, 32))), 0)
    loop = TiledDecode("decode", decoding(vae, noise(1, 3, 128, 128)))
    for tile in (128, 0):
        before = reset_peak()
        drive(loop, tile)
        added.append(peak() - before)
    answer.send(added)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")
def test_tiles_take_a_fraction_of_the_memory() -> None:
    context = get_context("forkserver")
    answer, there = context.Pipe(duplex=False)
    process = context.Process(target=_added_at_peak, args=(there,))
    process.start()
    there.close()
    tiled, whole = answer.recv()
    process.join()
    print(f"decoding 512 x 512 adds {whole >> 20} MiB whole, {tiled >> 20} MiB in tiles of 128")
    assert tiled < whole / 3
