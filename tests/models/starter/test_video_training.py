"""The stages of the video model stop and continue on the identical curve; the evaluation judges rightly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline
from safetensors.torch import load_file

from mutoscope.models.starter import image_train, video_train
from mutoscope.models.starter.grammar import MOTIONS
from mutoscope.models.starter.muon import Muon, optimisers_for, orthogonalised
from mutoscope.models.starter.stage import Stage
from mutoscope.models.starter.video_bank import ClipBank
from mutoscope.models.starter.video_dit import VideoDitStage, build_dit
from mutoscope.models.starter.video_evaluate import (
    FolderSampler,
    held_out_trials,
    judge_the_judge,
    measure,
    strip_sheet,
)
from mutoscope.models.starter.video_polish import VideoPolishStage
from mutoscope.models.starter.video_recipe import (
    VideoDitConfig,
    VideoPolishConfig,
    VideoRecipe,
    VideoTextConfig,
    VideoVaeConfig,
)
from mutoscope.models.starter.video_text import CaptionEncoder, VideoTextStage
from mutoscope.models.starter.video_vae import VideoVaeStage, build_vae
from mutoscope.platform.errors import InvalidParameter

TINY = VideoRecipe(
    vae=VideoVaeConfig(
        base=8, dim_mult=(1, 1, 1), crop=16, crop_batch=1, crop_share=0.7, total_steps=4, warmup=1
    ),
    text=VideoTextConfig(width=32, heads=2, layers=1, batch=8, total_steps=4, warmup=1),
    dit=VideoDitConfig(
        layers=1,
        heads=2,
        ffn=32,
        frequencies=16,
        bank_start=8,
        bank_growth=4,
        bank_size=16,
        batch=2,
        total_steps=4,
        warmup=1,
        inference_steps=2,
    ),
    polish=VideoPolishConfig(total_steps=4, warmup=1),
)


def _vae() -> VideoVaeStage:
    return VideoVaeStage(TINY.vae)


def _text() -> VideoTextStage:
    return VideoTextStage(TINY.text)


def _dit() -> VideoDitStage:
    return VideoDitStage(build_vae(TINY.vae), CaptionEncoder(TINY.text), TINY)


def _polish() -> VideoPolishStage:
    bank = ClipBank(build_vae(TINY.vae), TINY.dit.bank_seed, 8)
    bank.grow(8)
    return VideoPolishStage(bank, CaptionEncoder(TINY.text), build_dit(TINY.dit, TINY.text.width), TINY)


@pytest.mark.parametrize("build", [_vae, _text, _dit, _polish])
def test_a_stopped_stage_continues_on_the_identical_curve(build: Callable[[], Stage], tmp_path: Path) -> None:
    straight = build()
    wanted = [straight.step() for _ in range(4)]
    assert straight.done

    stopped = build()
    curve = [stopped.step(), stopped.step()]
    torch.save(stopped.state_dict(), tmp_path / "stage.pt")
    resumed = build()
    resumed.load_state_dict(torch.load(tmp_path / "stage.pt", weights_only=True))
    curve += [resumed.step(), resumed.step()]

    assert curve == wanted
    assert wanted[-1]["loss"] != wanted[0]["loss"]


def test_polish_leaves_the_encoder_alone() -> None:
    stage = _polish()
    before = {k: v.clone() for k, v in stage.vae.state_dict().items()}
    stage.step()
    changed = {k.split(".")[0] for k, v in stage.vae.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {"decoder", "post_quant_conv"}


def test_an_exported_folder_makes_a_clip_from_an_image(tmp_path: Path) -> None:
    stage = _dit()
    stage.export(tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder"], "nothing is left beside the folder"
    sampler = FolderSampler(tmp_path / "folder")
    assert isinstance(sampler.pipeline, WanImageToVideoPipeline)
    trial = held_out_trials(1)[0]
    frames = sampler.reference(trial.caption, trial.truth[0], trial.seed)
    assert frames.shape == (17, 64, 64, 3)
    assert np.array_equal(frames, sampler.reference(trial.caption, trial.truth[0], trial.seed))
    assert not np.array_equal(frames, sampler.reference(trial.caption, trial.truth[0], trial.seed + 1))


def test_training_goes_on_from_a_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _dit().export(first)
    recipe = replace(TINY, onward=replace(TINY.dit, seed=9, total_steps=2))
    curriculum = replace(video_train.CURRICULUM, recipe=recipe)
    curriculum.train(second, tmp_path / "work", start=first, say=lambda line: None)

    def tensors(folder: Path, part: str) -> dict[str, torch.Tensor]:
        return load_file(next((folder / part).glob("*.safetensors")))

    before, after = tensors(first, "vae"), tensors(second, "vae")
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("encoder."))
    before, after = tensors(first, "transformer"), tensors(second, "transformer")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(InvalidParameter, match="trained from nothing"):
        image_train.CURRICULUM.train(second, tmp_path / "image", start=first)


@pytest.mark.parametrize("guidance", [1.0, 2.5])
def test_clips_made_together_are_the_pipelines(guidance: float, tmp_path: Path) -> None:
    stage = _dit()
    for parameter in stage.parts.parameters():
        # An untrained velocity is zero, and would hide a wrong condition.
        parameter.data.add_(0.05 * torch.randn_like(parameter, dtype=parameter.dtype))
    stage.average.shadow = {k: v.clone() for k, v in stage.parts.state_dict().items()}
    stage.export(tmp_path / "folder")
    sampler = FolderSampler(tmp_path / "folder")
    sampler.recipe["guidance_scale"] = guidance
    trials = held_out_trials(2)
    together = sampler([t.caption for t in trials], [t.truth[0] for t in trials], [t.seed for t in trials])
    for trial, clip in zip(trials, together, strict=True):
        alone = sampler.reference(trial.caption, trial.truth[0], trial.seed)
        # Rounding to eight bits may fall either way where the two differ in the last float bits.
        assert np.abs(clip.astype(int) - alone.astype(int)).max() <= 1


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, 16, 40), (3, 40, 16)):
        singular = torch.linalg.svdvals(orthogonalised(torch.randn(*shape, generator=generator)))
        # The quintic of Jordan et al. trades exactness for speed: values settle in roughly [0.7, 1.2].
        assert singular.min() > 0.5
        assert singular.max() < 1.3


def test_muon_takes_matrices_and_adam_takes_vectors() -> None:
    vae = build_vae(TINY.vae)
    muon, adam = optimisers_for(vae, 1e-3)
    assert isinstance(muon, Muon)
    matrices = [p for group in muon.param_groups for p in group["params"]]
    vectors = [p for group in adam.param_groups for p in group["params"]]
    assert sum(p.numel() for p in matrices + vectors) == sum(p.numel() for p in vae.parameters())
    assert all(p.numel() == max(p.shape) for p in vectors)


def test_muon_descends() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(8, 12, generator=generator)
    weight = torch.nn.Parameter(torch.zeros(8, 12))
    muon = Muon([weight], lr=0.1)
    losses = []
    for _ in range(100):
        loss = (weight - target).square().mean()
        losses.append(loss.item())
        loss.backward()
        muon.step()
        muon.zero_grad()
    assert losses[-1] < 0.2 * losses[0]


def test_trials_are_held_out_and_even_over_motions() -> None:
    trials = held_out_trials(28)
    assert {t.scene.split for t in trials} == {"held_out"}
    assert [t.scene.motion for t in trials] == list(MOTIONS) * 4
    again = held_out_trials(28)
    assert all(
        np.array_equal(a.truth, b.truth) and a.scene == b.scene for a, b in zip(trials, again, strict=True)
    )


def test_the_judge_passes_true_clips_and_fails_dealt_captions() -> None:
    figures = judge_the_judge(held_out_trials(42))
    assert figures["truth"] >= 0.98
    assert figures["shuffled_captions"] <= 0.1


def test_a_still_clip_is_right_only_where_stillness_is_said() -> None:
    trials = held_out_trials(14)
    figures, clips, _ = measure(
        lambda captions, images, seeds: [np.repeat(i[None], 17, axis=0) for i in images], trials
    )
    assert figures["motion"] == pytest.approx(1 / 7)
    assert figures["motion_by_word"]["standing still"] == 1.0
    assert figures["first_frame_psnr"] == 99.0
    assert figures["last_colour"] == 1.0
    sheet = strip_sheet([t.caption for t in trials[:2]], clips[:2])
    # Eight frames of 128 pixels and nine margins of 4; under one margin two rows of line, frame and margin.
    assert sheet.size == (8 * 128 + 9 * 4, 4 + 2 * (14 + 128 + 4))
