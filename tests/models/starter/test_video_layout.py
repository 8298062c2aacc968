"""What training feeds the denoiser is what the reference pipeline feeds it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline
from diffusers.models.autoencoders.autoencoder_kl_wan import WanRMS_norm

from mutoscope.models.starter.grammar import caption_of
from mutoscope.models.starter.video_bank import (
    CHUNK,
    ClipBank,
    condition,
    denormalised,
    draw_chunk,
    encode,
    encode_image,
    normalised,
)
from mutoscope.models.starter.video_clips import sample_clips, sample_crops
from mutoscope.models.starter.video_dit import build_dit, noise_levels
from mutoscope.models.starter.video_folder import build_scheduler
from mutoscope.models.starter.video_recipe import (
    FRAMES,
    SIDE,
    VideoDitConfig,
    VideoTextConfig,
    VideoVaeConfig,
    Z,
)
from mutoscope.models.starter.video_text import CaptionEncoder
from mutoscope.models.starter.video_vae import build_vae, decode_clip, encode_clip, lean

VAE = VideoVaeConfig(base=8, dim_mult=(1, 1, 1))
DIT = VideoDitConfig(layers=1, heads=2, ffn=32, frequencies=16)
TEXT = VideoTextConfig(width=32, heads=2, layers=1)


@pytest.fixture(scope="module")
def pipeline() -> WanImageToVideoPipeline:
    vae = build_vae(VAE)
    statistics = np.random.default_rng(3)
    vae.register_to_config(
        latents_mean=statistics.normal(0, 1, Z).tolist(), latents_std=statistics.uniform(0.5, 2, Z).tolist()
    )
    captions = CaptionEncoder(TEXT)
    return WanImageToVideoPipeline(
        tokenizer=captions.tokenizer,
        text_encoder=captions.encoder,
        vae=vae,
        scheduler=build_scheduler(DIT),
        transformer=build_dit(DIT, TEXT.width).eval(),
    )


@torch.no_grad()
def test_one_pass_equals_the_chunked_autoencoder(pipeline: WanImageToVideoPipeline) -> None:
    clip = torch.rand(2, 3, 9, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    posterior = pipeline.vae.encode(clip).latent_dist
    with lean(pipeline.vae):
        parameters = encode_clip(pipeline.vae, clip)
        decoded = decode_clip(pipeline.vae, parameters[:, :Z])
    torch.testing.assert_close(parameters[:, :Z], posterior.mode(), atol=1e-5, rtol=1e-4)
    chunked = pipeline.vae.decode(posterior.mode()).sample
    torch.testing.assert_close(decoded.clamp(-1, 1), chunked, atol=1e-5, rtol=1e-4)


def test_lean_forms_are_taken_back(pipeline: WanImageToVideoPipeline) -> None:
    norm = next(m for m in pipeline.vae.modules() if isinstance(m, WanRMS_norm))
    with lean(pipeline.vae):
        assert "forward" in vars(norm)
    assert "forward" not in vars(norm)


@torch.no_grad()
def test_the_posterior_keeps_its_fixed_deviation() -> None:
    clip = torch.rand(1, 3, 5, 16, 16)
    deviation = build_vae(VAE).encode(clip).latent_dist.std
    torch.testing.assert_close(deviation, torch.full_like(deviation, VAE.latent_noise))


@torch.no_grad()
def test_condition_is_the_pipelines(pipeline: WanImageToVideoPipeline) -> None:
    image = torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1)) * 2 - 1
    _, wanted = pipeline.prepare_latents(
        image, 1, Z, SIDE, SIDE, FRAMES, torch.float32, torch.device("cpu"), torch.Generator().manual_seed(2)
    )
    made = condition(encode_image(pipeline.vae, image))
    assert made.shape == wanted.shape == (1, 20, 5, 8, 8)
    assert torch.equal(made[:, :4], wanted[:, :4])
    torch.testing.assert_close(made, wanted, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_text_states_are_the_pipelines(pipeline: WanImageToVideoPipeline) -> None:
    captions = CaptionEncoder(TEXT)
    captions.encoder = pipeline.text_encoder
    said = ["a red circle left of a blue square, drifting right", ""]
    states, _ = captions(said)
    wanted, _ = pipeline.encode_prompt(said, do_classifier_free_guidance=False, max_sequence_length=20)
    torch.testing.assert_close(states, wanted)
    assert states[1, 1:].abs().max() == 0, "an empty caption is its end token alone"


def test_noise_levels_follow_the_schedulers_shift() -> None:
    scheduler = build_scheduler(DIT)
    drawn = noise_levels(1000, DIT.shift, torch.Generator().manual_seed(0))
    # Stratum k of 1000 holds u in [k, k+1] / 1000; the scheduler's training grid is u = 1, 0.999, ..., 0.001.
    grid = scheduler.sigmas.flip(0)
    assert torch.all(drawn <= grid + 1e-6)
    assert torch.all(drawn[1:] >= grid[:-1] - 1e-6)


def test_normalising_is_undone(pipeline: WanImageToVideoPipeline) -> None:
    latents = torch.randn(2, Z, 5, 8, 8, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(denormalised(pipeline.vae, normalised(pipeline.vae, latents)), latents)


def test_a_bank_entry_depends_on_its_number_alone(pipeline: WanImageToVideoPipeline, tmp_path) -> None:
    grown = ClipBank(pipeline.vae, seed=5, capacity=2 * CHUNK)
    grown.grow(1)
    assert len(grown) == CHUNK
    grown.save(tmp_path / "bank.pt")
    grown.grow(2 * CHUNK + 1)
    assert len(grown) == 2 * CHUNK, "a bank stops at its capacity"
    resumed = ClipBank(pipeline.vae, seed=5, capacity=2 * CHUNK)
    resumed.load(tmp_path / "bank.pt")
    resumed.grow(2 * CHUNK)
    assert torch.equal(resumed.latents, grown.latents)
    assert torch.equal(resumed.images, grown.images)
    assert resumed.captions == grown.captions


def test_bank_latents_are_encodings_of_training_clips(pipeline: WanImageToVideoPipeline) -> None:
    bank = ClipBank(pipeline.vae, seed=6, capacity=CHUNK)
    bank.grow(CHUNK)
    clips, images, captions = draw_chunk(6, 0)
    assert bank.captions == captions
    torch.testing.assert_close(bank.latents, encode(pipeline.vae, clips))
    softened = (images != clips[:, :, 0]).flatten(1).any(1)
    assert 0 < softened.sum() < CHUNK, "some images are softened, others given as they are"


def test_clips_are_drawn_from_the_training_split_unless_asked() -> None:
    for split in ("train", "held_out"):
        scenes, clips = sample_clips(np.random.default_rng(7), 6, split)  # type: ignore[arg-type]
        assert {scene.split for scene in scenes} == {split}, [caption_of(s) for s in scenes]
        assert clips.shape == (6, 3, FRAMES, SIDE, SIDE)
        assert clips.min() >= -1
        assert clips.max() <= 1


def test_crops_hold_part_of_an_object() -> None:
    crops = sample_crops(np.random.default_rng(8), 12, 32)
    assert crops.shape == (12, 3, FRAMES, 32, 32)
    spread = crops.flatten(3).std(3).amax(dim=(1, 2))
    assert torch.all(spread > 0.05), "a crop of plain background teaches nothing"


def test_configurations_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        VAE.base = 4  # type: ignore[misc]
