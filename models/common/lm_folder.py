"""Inspection of a language model's folder, without torch.

A language model is published as one folder: `config.json`, safetensors, `generation_config.json` and the
tokenizer's files side by side. The model and its tokenizer are two components that share this folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutoscope.models.common.files import read_json, weight_files
from mutoscope.models.common.folder import config_class
from mutoscope.platform.errors import InvalidFolder

CONFIG = "config.json"
GENERATION = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json")
TOKENIZER_FILES = (
    TOKENIZER_CONFIG,
    *VOCABULARIES,
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    CHAT_TEMPLATE,
)

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0, 0.0),
    "min_p": (0, 0.0),
    "typical_p": (1, 1.0),
    "epsilon_cutoff": (0, 0.0),
    "eta_cutoff": (0, 0.0),
    "top_h": (),
    "no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "bad_words_ids": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1, 1.0),
    "sequence_bias": (),
}
"""Options of `generate` that change which tokens come out and are not implemented here, with the values, null
aside, under which they change nothing."""


@dataclass(frozen=True, slots=True)
class LmContents:
    """A checked folder.

    Attributes:
        config, generation, tokenizer: its three configurations; `generation` is empty without a file.
        kind: the model's class.
        model_files, tokenizer_files: names in the folder.
        chat: whether a chat template comes with the tokenizer.
    """

    folder: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    kind: str
    model_files: tuple[str, ...]
    tokenizer_files: tuple[str, ...]

    @property
    def chat(self) -> bool:
        return bool(self.tokenizer.get("chat_template")) or CHAT_TEMPLATE in self.tokenizer_files

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """What ends an answer, as `generate` decides it: the generation configuration, then the model's."""
        named = self.generation.get("eos_token_id", self.config.get("eos_token_id"))
        return () if named is None else tuple(named) if isinstance(named, list) else (int(named),)


def inspect_lm(folder: Path, classes: Sequence[str]) -> LmContents:
    """Check a folder that holds one of `classes` and its tokenizer.

    Raises:
        InvalidFolder: one line that names the file at fault and the remedy.
    """
    if not folder.is_dir():
        raise InvalidFolder(f"{folder} is not a folder: give the path of a language model's folder")
    config = read_json(folder / CONFIG)
    kind = config_class(config)
    if kind is None or kind not in classes:
        raise InvalidFolder(f"{folder / CONFIG} is of a {kind}: the card needs {' or '.join(classes)}")
    _check_attention(folder, config)
    generation = read_json(folder / GENERATION) if (folder / GENERATION).is_file() else {}
    _check_generation(folder, generation)
    own = (CONFIG, GENERATION) if generation else (CONFIG,)
    tokenizer = read_json(folder / TOKENIZER_CONFIG)
    names = tuple(name for name in TOKENIZER_FILES if (folder / name).is_file())
    _check_vocabulary(folder, config, names)
    return LmContents(folder, config, generation, tokenizer, kind, (*own, *weight_files(folder)), names)


def _check_attention(folder: Path, config: Mapping[str, Any]) -> None:
    """Every layer must attend its whole past: the cache keeps all of it."""
    windowed = config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ())
    if windowed:
        raise InvalidFolder(
            f"{folder / CONFIG} has layers of windowed attention, which are not supported: "
            "use a model that attends its whole context"
        )


def _check_generation(folder: Path, generation: Mapping[str, Any]) -> None:
    for option, neutral in _NEUTRAL.items():
        value = generation.get(option)
        if value is not None and value not in neutral:
            raise InvalidFolder(
                f"{folder / GENERATION} sets {option}={value!r}, which is not supported: remove the option"
            )


def _check_vocabulary(folder: Path, config: Mapping[str, Any], names: Sequence[str]) -> None:
    """A tokenizer is there, and the model has an embedding for each of its tokens."""
    if not set(VOCABULARIES) & set(names):
        raise InvalidFolder(f"{folder} has no tokenizer: copy {VOCABULARIES[0]} into it")
    if VOCABULARIES[0] not in names:
        return
    told = read_json(folder / VOCABULARIES[0])
    vocabulary = (told.get("model") or {}).get("vocab") or ()
    listed = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    added = (token.get("id", 0) for token in told.get("added_tokens") or ())
    highest = max((*listed, *added), default=0)
    if highest >= (rows := config.get("vocab_size", 0)):
        raise InvalidFolder(
            f"{folder} mixes models: its tokenizer names token {highest} but {CONFIG} has vocab_size {rows}; "
            "take both from one model"
        )
