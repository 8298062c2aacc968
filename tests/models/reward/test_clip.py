"""CLIP similarity against transformers' own model, on a tiny folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPImageProcessorPil, CLIPModel

from mutoscope.models.reward.clip.card import CARD
from mutoscope.models.reward.clip.program import cosines
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.errors import InvalidFolder
from mutoscope.platform.reward import Reward
from tests.models.reward.scoring import request_of, reward_of, score_of
from tests.support.tiny_reward import CLIP_TOKENS, clip_tokenizer, make

PROMPT = "a red circle left of a blue square"


def pictures(count: int, height: int = 40, width: int = 56) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Noise of another size and shape than the model's, so that resizing is on the path."""
    return np.random.default_rng(3).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def clip(tiny: Callable[[str], Instance]) -> Instance:
    return tiny(CARD.id)


def expected(folder: Path, prompt: str, frames: np.ndarray[Any, Any]) -> list[float]:
    """`logits_per_image` of transformers' model without its temperature."""
    model = CLIPModel.from_pretrained(folder).eval()
    pixels = CLIPImageProcessorPil.from_pretrained(folder)(
        [Image.fromarray(f) for f in frames], return_tensors="pt"
    )
    tokens = clip_tokenizer()([prompt], return_tensors="pt")
    with torch.inference_mode():
        output = model(tokens.input_ids, pixels.pixel_values, tokens.attention_mask)
        return (output.logits_per_image[:, 0] / model.logit_scale.exp()).tolist()


def test_an_image_scores_what_the_model_says(tmp_path: Path) -> None:
    folder = make(tmp_path / "clip", CARD.id)
    (image,) = pictures(1)
    score = score_of(load_instance(CARD, folder), image=image, prompt=PROMPT)
    assert score == pytest.approx(expected(folder, PROMPT, image[None])[0], abs=2e-6)
    assert abs(score) > 1e-3


def test_a_video_scores_the_mean_of_its_frames(tmp_path: Path) -> None:
    folder = make(tmp_path / "clip", CARD.id)
    video = pictures(7)
    reward = reward_of(load_instance(CARD, folder), video=video, prompt=PROMPT, frames=3)
    said = expected(folder, PROMPT, video[[0, 3, 6]])
    assert reward.details["cosine"] == pytest.approx(said, abs=2e-6)
    assert reward.score == pytest.approx(sum(said) / 3, abs=2e-6)
    assert reward.details["clip_score"] == pytest.approx(2.5 * max(sum(said) / 3, 0), abs=1e-5)


def test_shared_calls_change_no_bit(clip: Instance) -> None:
    batching = calibrate(clip, most=8).prepare(clip)
    requests = [
        request_of(batching, f"{n}", image=image, prompt=PROMPT) for n, image in enumerate(pictures(12))
    ]
    serial = [Engine().run(batching, request).outputs["reward"].value for request in requests]
    engine = Engine()
    tickets = [engine.submit(batching, request) for request in requests]
    steps = 0
    while engine.step():
        steps += 1
    assert [ticket.result().outputs["reward"].value for ticket in tickets] == serial
    assert len({value["score"] for value in serial}) == 12
    assert steps < 2 * len(requests)  # a text and a scoring step each, if none had shared a call


def test_a_prompt_is_read_once(clip: Instance) -> None:
    """Its features are kept by the model's digest and the prompt."""
    known = Instance(
        clip.card, clip.program, clip.recipe, clip.device, clip.dtype, clip.components,
        {"scorer": "a" * 64, "tokenizer": "b" * 64, "image_processor": "c" * 64},
    )  # fmt: skip
    engine = Engine(node_cache=FeatureCache())
    for image in pictures(3):
        engine.run(known, request_of(known, image=image, prompt=PROMPT))
    assert engine.node_cache is not None
    assert (engine.node_cache.stats.hits, engine.node_cache.stats.misses) == (2, 1)


def test_a_prompt_that_is_cut_is_said_to_be(clip: Instance) -> None:
    long = " ".join(["a red circle"] * 6)
    (image,) = pictures(1)
    result = Engine().run(clip, request_of(clip, image=image, prompt=long))
    assert result.warnings == (
        f"prompt has 20 tokens; CLIP reads {CLIP_TOKENS}: the last 4 were cut: 'circle a red circle'",
    )
    assert Engine().run(clip, request_of(clip, image=image, prompt=PROMPT)).warnings == ()


def test_features_without_a_direction_have_no_score() -> None:
    assert np.isnan(cosines(torch.zeros(1, 4), torch.ones(1, 4))).all()
    reward = Reward.of(CARD.id, "", float(cosines(torch.zeros(1, 4), torch.ones(1, 4)).mean()))
    assert reward.status == "non_finite"


def test_a_scorer_whose_image_tower_is_dead_says_so(tmp_path: Path) -> None:
    instance = load_instance(CARD, make(tmp_path / "clip", CARD.id))
    instance.components["scorer"].visual_projection.weight.data.zero_()
    (image,) = pictures(1)
    reward = reward_of(instance, image=image, prompt=PROMPT)
    assert (reward.status, reward.score, reward.reason) == ("non_finite", None, "the scorer's value is nan")


def test_a_published_folder_is_flat(tmp_path: Path) -> None:
    summary = CARD.inspect(make(tmp_path / "clip", CARD.id))
    assert dict(summary.components) == {
        "scorer": ("config.json", "model.safetensors"),
        "tokenizer": ("tokenizer.json", "tokenizer_config.json"),
        "image_processor": ("preprocessor_config.json",),
    }
    assert {summary.root(name) for name in summary.components} == {summary.folder}
    assert (summary.recipe.height, summary.recipe.max_sequence_length) == (32, CLIP_TOKENS)


@pytest.mark.parametrize(
    ("lost", "line"),
    [
        ("config.json", "config.json is missing"),
        ("model.safetensors", "has no weights"),
        ("tokenizer.json", "has no tokenizer.json"),
        ("tokenizer_config.json", "has no tokenizer_config.json"),
        ("preprocessor_config.json", "has no preprocessor_config.json"),
    ],
)
def test_an_incomplete_folder_is_refused(lost: str, line: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "clip", CARD.id)
    (folder / lost).unlink()
    with pytest.raises(InvalidFolder, match=line):
        CARD.inspect(folder)


def test_another_model_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "clip", CARD.id)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["SiglipModel"]}))
    with pytest.raises(InvalidFolder, match="holds a SiglipModel, not a CLIPModel"):
        CARD.inspect(folder)


def test_the_processors_newer_file_is_read_too(tmp_path: Path) -> None:
    folder = make(tmp_path / "clip", CARD.id)
    (image,) = pictures(1)
    before = score_of(load_instance(CARD, folder), image=image, prompt=PROMPT)
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": processor}))
    (folder / "preprocessor_config.json").unlink()
    # As a worker lays it out: every component in a folder of its own.
    summary = CARD.inspect(folder)
    assert summary.components["image_processor"] == ("processor_config.json",)
    apart = {}
    for name, files in summary.components.items():
        apart[name] = tmp_path / "apart" / name
        apart[name].mkdir(parents=True)
        for file in files:
            shutil.copy(folder / file, apart[name] / file)
    instance = load_instance(CARD, apart, recipe=summary.recipe)
    assert score_of(instance, image=image, prompt=PROMPT) == before
