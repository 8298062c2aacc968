"""What the common loader refuses of a component's weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mutoscope.models.registry import get_card
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.errors import InvalidFolder
from tests.support.tiny_flux import make


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path, value: float) -> None:
    folder = make(tmp_path / "flux", "flux-t2i")
    (file,) = (folder / "transformer").glob("*.safetensors")
    tensors = load_file(file)
    name = sorted(tensors)[3]
    tensors[name].view(-1)[-1] = value
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InvalidFolder, match=f"^transformer in .* holds NaN or infinity in {name}: take the"):
        load_instance(get_card("flux-t2i"), folder)
    tensors[name].view(-1)[-1] = 0.0
    save_file(tensors, file, metadata={"format": "pt"})
    assert load_instance(get_card("flux-t2i"), folder).dtype is torch.float32
