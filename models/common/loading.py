"""Loading components with the real diffusers and transformers classes. Imports torch.

Each component is loaded from its own folder, so that a worker can assemble a card from components that lie in
different places: every one at the weight version a run has pinned.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from torch import nn

from mutoscope.models.common.files import read_json
from mutoscope.models.common.folder import config_class
from mutoscope.platform.engine.card import ComponentSpec
from mutoscope.platform.engine.finite import require_finite_weights
from mutoscope.platform.engine.sampling import FlowSchedule
from mutoscope.platform.errors import InvalidFolder


def load_components(
    specs: Sequence[ComponentSpec], paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """Load those components of `specs` that `paths` names.

    Weighted components become frozen modules in eval mode on `device`, in `dtype`; tokenizers become
    transformers tokenizers, an `image_processor` CLIP's; a `FlowMatchEulerDiscreteScheduler` becomes the
    `FlowSchedule` it describes (a scheduler object holds the step index of one request, and an instance must
    hold nothing of any request), other schedulers their configuration as a mapping.

    Raises:
        InvalidFolder: a component's weights do not fill its class, or hold NaN or infinity.
    """
    loaded: dict[str, Any] = {}
    with _quiet():
        for spec in specs:
            if spec.name not in paths:
                continue
            if spec.weighted:
                loaded[spec.name] = load_module(spec, paths[spec.name], device=device, dtype=dtype)
            elif spec.name.startswith("scheduler"):
                loaded[spec.name] = load_schedule(paths[spec.name])
            elif spec.name == "image_processor":
                loaded[spec.name] = load_image_processor(paths[spec.name])
            else:
                loaded[spec.name] = load_tokenizer(paths[spec.name])
    return loaded


def load_module(spec: ComponentSpec, path: Path, *, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """One weighted component. A tensor that the folder lacks is an error, never random numbers."""
    name = config_class(read_json(path / "config.json")) or spec.classes[0]
    if name not in spec.classes:
        raise InvalidFolder(f"{path} holds a {name}: {spec.name} must be a {' or '.join(spec.classes)}")
    precision = {"torch_dtype": dtype} if spec.library.startswith("diffusers") else {"dtype": dtype}
    try:
        module, info = getattr(importlib.import_module(spec.library), name).from_pretrained(
            path, local_files_only=True, use_safetensors=True, output_loading_info=True, **precision
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidFolder(
            f"{path} does not load as {name} ({error}): take the component from its source"
        ) from None
    problems = [*info["missing_keys"], *info["mismatched_keys"]]
    if problems:
        raise InvalidFolder(
            f"{path} lacks weights for {name}, first {problems[0]}: take the component from its source"
        )
    module.eval().requires_grad_(False)
    module = _own_memory(module.to(device))
    require_finite_weights(f"{spec.name} in {path}", module)
    return module


def _own_memory(module: nn.Module) -> nn.Module:
    """Move CPU weights out of the memory-mapped file into aligned memory of their own.

    A map keeps the file's layout, whose alignment can steer a kernel and so the last bits; it also dies with
    SIGBUS if the file is cut while it is in use.
    """
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device.type == "cpu":
            tensor.data = tensor.data.clone()
    return module


def load_tokenizer(path: Path, kind: Any = None) -> Any:
    """A tokenizer of that class, or else of the one its `tokenizer_config.json` names."""
    name = read_json(path / "tokenizer_config.json").get("tokenizer_class")
    kind = kind or getattr(transformers, str(name), None) or transformers.AutoTokenizer
    try:
        return kind.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidFolder(
            f"{path} does not load as a tokenizer ({error}): take it from its source"
        ) from None


def load_image_processor(path: Path) -> transformers.CLIPImageProcessorPil:
    """CLIP's resize, crop and normalisation; on PIL, so that pixels never depend on torchvision."""
    try:
        return transformers.CLIPImageProcessorPil.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise InvalidFolder(
            f"{path} does not load as an image processor ({error}): take it from its source"
        ) from None


def load_schedule(path: Path) -> FlowSchedule | Mapping[str, Any]:
    """The schedule a scheduler folder describes."""
    config = read_json(path / "scheduler_config.json")
    if config_class(config) == "FlowMatchEulerDiscreteScheduler":
        return FlowSchedule.from_config(config)
    return config


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no advice from the libraries on a worker's stderr while components load."""
    levels = [
        (logging.getLogger(name), logging.getLogger(name).level) for name in ("diffusers", "transformers")
    ]
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    for logger, _ in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)
        diffusers.utils.logging.enable_progress_bar()
        transformers.utils.logging.enable_progress_bar()
