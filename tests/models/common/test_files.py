"""Reading card folders, apart from any family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mutoscope.models.common.files import read_json, read_safetensors_header, weight_files
from mutoscope.platform.errors import InvalidFolder

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 4), np.int64)}


def test_the_header_of_a_whole_file(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x.safetensors", metadata={"format": "pt"})
    header = read_safetensors_header(tmp_path / "x.safetensors")
    assert set(header) == {"a", "b"}
    assert (header["a"].dtype, header["a"].shape, header["a"].size) == ("F32", (2, 3), 24)


def test_a_file_without_tensors_is_whole(tmp_path: Path) -> None:
    save_file({}, tmp_path / "x.safetensors")
    assert read_safetensors_header(tmp_path / "x.safetensors") == {}


def test_every_truncation_is_found(tmp_path: Path) -> None:
    whole = tmp_path / "whole.safetensors"
    save_file(TENSORS, whole)
    data = whole.read_bytes()
    cut = tmp_path / "cut.safetensors"
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        with pytest.raises(InvalidFolder, match=str(cut)):
            read_safetensors_header(cut)


@pytest.mark.parametrize("header", [b'{"a": 1}', b'{"a": {"data_offsets": []}}', b"[1, 2]", b"null"])
def test_headers_that_are_json_but_no_header(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InvalidFolder, match="has no readable safetensors header"):
        read_safetensors_header(path)


def test_diffusers_and_transformers_names_of_weights(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert weight_files(tmp_path) == ("model.safetensors",)
    save_file(TENSORS, tmp_path / "diffusion_pytorch_model.safetensors")
    assert weight_files(tmp_path) == ("diffusion_pytorch_model.safetensors",)


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidFolder, match="cannot be read"):
        read_json(tmp_path)
