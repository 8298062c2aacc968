"""Inspection of LTX-2 folders: what is accepted, what it finds, and one line for every kind of misfit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diffusers import LTX2Pipeline

from mutoscope.models.ltx2.card import CARD, Ltx2Recipe
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.errors import InvalidFolder, InvalidParameter

FolderOf = Callable[[str], Path]


@pytest.fixture
def folder(folder_of: FolderOf, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(folder_of("2.0"), tmp_path / "ltx2"))


def edit(folder: Path, part: str, **changes: Any) -> None:
    """Change fields of a component's configuration, or of the recipe."""
    names = {"scheduler": "scheduler/scheduler_config.json", "recipe": "recipe.json"}
    path = folder / names.get(part, f"{part}/config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("layout", ["2.0", "2.3"])
def test_every_layout_is_accepted_and_is_a_pipelines_folder(layout: str, folder_of: FolderOf) -> None:
    summary = CARD.inspect(folder_of(layout))
    assert set(summary.components) == {spec.name for spec in CARD.components}
    vocoder = {"2.0": "LTX2Vocoder", "2.3": "LTX2VocoderWithBWE"}[layout]
    assert summary.classes["vocoder"] == vocoder
    assert type(LTX2Pipeline.from_pretrained(folder_of(layout)).vocoder).__name__ == vocoder
    recipe = summary.recipe
    assert isinstance(recipe, Ltx2Recipe)
    found = (recipe.frame_multiple, recipe.size_multiple, recipe.smallest_size, recipe.sequence_multiple)
    assert found == (8, 32, 64, 8)
    assert recipe.upsamples
    assert recipe.two_stages


def test_a_folder_without_upsampler_has_one_stage(folder: Path) -> None:
    shutil.rmtree(folder / "latent_upsampler")
    summary = CARD.inspect(folder)
    assert "latent_upsampler" not in summary.components
    with pytest.raises(InvalidParameter, match=r"two_stages=True .*this folder has no latent_upsampler"):
        CARD.resolve({"prompt": "a circle", "two_stages": True}, summary.recipe)
    assert load_instance(CARD, folder).components["vae"] is not None
    edit(folder, "recipe", two_stages=True)
    with pytest.raises(InvalidFolder, match="two_stages needs a latent_upsampler folder beside it: add it"):
        CARD.inspect(folder)


def test_without_a_recipe_the_released_practice_holds(folder: Path) -> None:
    (folder / "recipe.json").unlink()
    recipe = CARD.inspect(folder).recipe
    assert (recipe.height, recipe.width, recipe.num_inference_steps) == (1024, 1536, 40)
    shutil.rmtree(folder / "latent_upsampler")
    assert (CARD.inspect(folder).recipe.height, CARD.inspect(folder).recipe.width) == (512, 768)


def test_what_the_weights_are_is_not_for_a_recipe_to_say(folder: Path) -> None:
    edit(folder, "recipe", frame_multiple=3, size_multiple=1, upsamples=False)
    recipe = CARD.inspect(folder).recipe
    assert isinstance(recipe, Ltx2Recipe)
    assert (recipe.frame_multiple, recipe.size_multiple, recipe.upsamples) == (8, 32, True)


def test_the_decoder_of_the_newer_release_is_accepted(folder: Path) -> None:
    """Four levels of three kinds, which make the same ratios; without reflection one latent will do."""
    kinds = ["spatiotemporal", "spatiotemporal", "temporal", "spatial"]
    edit(
        folder,
        "vae",
        decoder_spatio_temporal_scaling=[True] * 4,
        upsample_type=kinds,
        decoder_spatial_padding_mode="zeros",
    )
    recipe = CARD.inspect(folder).recipe
    assert isinstance(recipe, Ltx2Recipe)
    assert recipe.smallest_size == 32
    edit(folder, "vae", upsample_type=[*kinds[:3], "temporal"])
    with pytest.raises(InvalidFolder, match="its decoder makes 16 and 16: set spatial_compression_ratio"):
        CARD.inspect(folder)


MISFITS: list[tuple[str, dict[str, Any], str]] = [
    ("vae", {"timestep_conditioning": True}, "vae/config.json sets timestep_conditioning: use a VAE"),
    ("vae", {"decoder_inject_noise": [False, True, False, False]}, "sets decoder_inject_noise: use a VAE"),
    (
        "vae",
        {"spatial_compression_ratio": 16},
        "states 16 pixels and 8 frames a latent where its decoder makes 32 and 8: set spatial",
    ),
    ("vae", {"latent_channels": 4}, "transformer in_channels is 8 but vae latent_channels is 4"),
    ("transformer", {"patch_size_t": 2}, "sets patch_size_t to 2: .*set it to 1"),
    ("transformer", {"vae_scale_factors": [8, 16, 16]}, r"vae_scale_factors is \[8, 16, 16\] but vae"),
    ("transformer", {"audio_hop_length": 80}, "audio_hop_length is 80 but audio_vae mel_hop_length is 160"),
    ("transformer", {"caption_channels": 8}, "caption_channels is 8 but connectors width of the video"),
    ("audio_vae", {"mel_bins": 32}, "audio_in_channels is 16 but audio_vae latent_channels x mel_bins / 4"),
    ("audio_vae", {"base_channels": 8}, "audio_vae base_channels is 8 but audio_vae latent_channels"),
    (
        "connectors",
        {"text_proj_in_factor": 4},
        r"text_proj_in_factor is 4 but text_encoder num_hidden_layers",
    ),
    ("connectors", {"caption_channels": 8}, "connectors caption_channels is 8 but text_encoder hidden_size"),
    (
        "vocoder",
        {"in_channels": 16},
        "vocoder in_channels is 16 but audio_vae output_channels x mel_bins is 32",
    ),
    (
        "vocoder",
        {"output_sampling_rate": 24000},
        "names 24000 samples per second where its upsample_factors make 16000: take vocoder",
    ),
    ("vocoder", {"out_channels": 3}, "sets out_channels to 3: use mono or stereo"),
    ("latent_upsampler", {"in_channels": 16}, "latent_upsampler in_channels is 16 but vae latent_channels"),
    ("latent_upsampler", {"rational_spatial_scale": 1.5}, "does not double height and width alone: use"),
    ("latent_upsampler", {"temporal_upsample": True}, "does not double height and width alone: use"),
    ("scheduler", {"use_karras_sigmas": True}, "use_karras_sigmas=True is not supported"),
    ("recipe", {"stg_blocks": [2]}, "stg_blocks names block 2 of 2: use 0 to 1"),
    ("recipe", {"stage_2_sigmas": [0.4, 0.9]}, "stage_2_sigmas do not fall: list noise levels from high"),
    ("recipe", {"sigmas": [0.9, 1.0]}, "sigmas do not fall: list noise levels from high to low"),
    ("recipe", {"sigmas": [1.5]}, "sigmas.0=1.5 is not valid: use 1"),
    ("recipe", {"guidance": 3}, "guidance"),
]


@pytest.mark.parametrize(("part", "changes", "line"), MISFITS, ids=lambda value: str(value)[:40])
def test_a_misfit_is_one_line_with_a_remedy(
    part: str, changes: dict[str, Any], line: str, folder: Path
) -> None:
    edit(folder, part, **changes)
    with pytest.raises(InvalidFolder, match=line) as refused:
        CARD.inspect(folder)
    assert "\n" not in str(refused.value)


def test_a_vocoder_beyond_what_an_mp4_plays(folder: Path) -> None:
    edit(folder, "audio_vae", sample_rate=20000, mel_hop_length=200)
    edit(folder, "transformer", audio_sampling_rate=20000, audio_hop_length=200)
    edit(folder, "vocoder", upsample_factors=[8, 5, 5], output_sampling_rate=20000)
    with pytest.raises(InvalidFolder, match="sets output_sampling_rate to 20000: an MP4 plays 8000, 11025"):
        CARD.inspect(folder)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"num_frames": 10}, "num_frames=10 .*use 9 or 17"),
        ({"height": 96}, "height=96 .*use a multiple of 64: the first of two stages makes half of it"),
        ({"width": 64}, "width=64 .*use 128 or more"),
        ({"two_stages": False, "width": 32}, "width=32 .*use 64 or more"),
        ({"height": 100}, "height=100 .*use a multiple of 32"),
        ({"max_sequence_length": 12}, "max_sequence_length=12 .*use a multiple of 8"),
        ({"vae_tile": 64}, "vae_tile=64 .*use 0 or a multiple of 128"),
        (
            {"two_stages": False, "height": 224, "vae_tile": 128},
            "vae_tile=128 .*use another: tiles would leave 32 pixels of the height, and the VAE decodes 64",
        ),
        ({"guidance_scale": -1}, "guidance_scale=-1 .*use 0.* or more"),
        ({"fps": 0}, "fps=0 .*use a number greater than 0"),
        ({"audio_guidance_rescale": 2}, "audio_guidance_rescale=2 .*use 1.* or less"),
        ({"audio_scale": 2}, "audio_scale=2 .*ltx2-av takes prompt, negative_prompt"),
    ],
)
def test_parameters_are_checked_against_the_weights(
    asked: dict[str, Any], line: str, folder_of: FolderOf
) -> None:
    recipe = CARD.inspect(folder_of("2.0")).recipe
    with pytest.raises(InvalidParameter, match=line):
        CARD.resolve({"prompt": "a circle", **asked}, recipe)


def test_a_distilled_folder_has_its_own_noise_levels(folder: Path) -> None:
    edit(folder, "recipe", sigmas=[1.0, 0.7, 0.4], num_inference_steps=3, stg_blocks=[])
    recipe = CARD.inspect(folder).recipe
    with pytest.raises(InvalidParameter, match=r"num_inference_steps=4 .*use 3: these weights are distilled"):
        CARD.resolve({"prompt": "a circle", "num_inference_steps": 4}, recipe)
    with pytest.raises(InvalidParameter, match=r"stg_scale=1.0 .*use 0: the recipe names no stg_blocks"):
        CARD.resolve({"prompt": "a circle", "stg_scale": 1.0}, recipe)


def test_inspection_needs_no_torch(folder_of: FolderOf) -> None:
    code = (
        "import sys; from pathlib import Path; from mutoscope.models.ltx2.card import CARD;"
        f"CARD.inspect(Path({str(folder_of('2.0'))!r}));"
        "print(sorted({'torch', 'diffusers', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
