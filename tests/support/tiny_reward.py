"""Tiny folders of reward cards: a scene scorer and a CLIP model with random weights; OCR's real models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar, enable_progress_bar

from mutoscope.models.reward.ocr.folder import packaged_folder
from mutoscope.models.reward.scene.folder import PIPELINE
from mutoscope.models.reward.scene.net import SceneScorer
from mutoscope.models.starter.grammar import BACKGROUNDS, COLOURS, SHAPES

CLIP_TOKENS = 16
_WORDS = ("<s>", "</s>", "<unk>", "a", "red", "blue", "circle", "square", "left", "right", "of")


def make(folder: Path, card_id: str, seed: int = 0) -> Path:
    """Write a folder for a reward card and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    {"reward-scene": _scene, "reward-clip": _clip, "reward-ocr": _ocr}[card_id](folder, seed)
    return folder


def variants(card_id: str) -> list[dict[str, Any]]:
    """Other wishes for the same sample."""
    match card_id:
        case "reward-scene":
            return [{}, {"prompt": "a green ring on a black background"}]
        case "reward-clip":
            return [{}, {"prompt": "a blue square"}]
    return [{}, {"text": "closed"}]


def _scene(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    scorer = SceneScorer(COLOURS, SHAPES, BACKGROUNDS, stem_width=8, width=12)
    scorer.save_pretrained(folder / "scorer")
    index = {"_class_name": PIPELINE, "scorer": [SceneScorer.__module__, SceneScorer.__name__]}
    (folder / "model_index.json").write_text(json.dumps(index))


def _clip(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    tower = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {"vocab_size": 16, "max_position_embeddings": CLIP_TOKENS, "bos_token_id": 0, "eos_token_id": 1}
    config = CLIPConfig(
        text_config={**tower, **text, "pad_token_id": 1},
        vision_config={**tower, "image_size": 32, "patch_size": 8},
        projection_dim=24,
    )
    disable_progress_bar()
    CLIPModel(config).eval().save_pretrained(folder)
    enable_progress_bar()
    square = {"height": 32, "width": 32}
    CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=square).save_pretrained(folder)
    clip_tokenizer().save_pretrained(folder)


def clip_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word between marks, as CLIP's own has them."""
    vocabulary = {word: at for at, word in enumerate(_WORDS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = [("<s>", 0), ("</s>", 1)]
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=marks)
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        unk_token="<unk>",
        model_max_length=CLIP_TOKENS,
    )


def _ocr(folder: Path, seed: int) -> None:
    """There is no tiny OCR model: RapidOCR's own, 30 MB, by links."""
    packaged = packaged_folder()
    assert packaged is not None
    for model in packaged.glob("PP-*.onnx"):
        (folder / model.name).symlink_to(model)
