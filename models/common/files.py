"""Files of a card folder, read defensively and without torch. Every problem is a one-line `InvalidFolder`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

from mutoscope.platform.errors import InvalidFolder
from mutoscope.platform.tensorfile import NotSafetensors, TensorSpan, read_layout

_COPY_AGAIN = "copy the folder again from where it came"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises InvalidFolder if it is missing, unreadable or anything else."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InvalidFolder(f"{path} is missing: {_COPY_AGAIN}") from None
    except OSError as error:
        raise InvalidFolder(f"{path} cannot be read ({error.strerror}): check its permissions") from None
    except ValueError as error:
        raise InvalidFolder(f"{path} is not valid JSON ({error}): {_COPY_AGAIN}") from None
    if not isinstance(value, dict):
        raise InvalidFolder(f"{path} holds a JSON {type(value).__name__}, not an object: {_COPY_AGAIN}")
    return value


def read_safetensors_header(path: Path) -> dict[str, TensorSpan]:
    """The tensors a safetensors file holds, by name; its header and length show that it is whole."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            layout = read_layout(lambda start, length: _read(file, start, length), size)
    except FileNotFoundError:
        raise InvalidFolder(f"{path} is missing: {_COPY_AGAIN}") from None
    except OSError as error:
        raise InvalidFolder(f"{path} cannot be read ({error.strerror}): check its permissions") from None
    except NotSafetensors as reason:
        raise InvalidFolder(f"{path} {reason}: {_COPY_AGAIN}") from None
    return {span.name: span for span in layout.spans}


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


def weight_files(folder: Path) -> tuple[str, ...]:
    """Names of the safetensors files that hold a component's weights, checked; the index first when sharded.

    Precision variants (`model.fp16.safetensors`) beside the plain file are left out, as they are when a
    folder is loaded without naming a variant.
    """
    for stem in ("diffusion_pytorch_model", "model"):
        single, index = folder / f"{stem}.safetensors", folder / f"{stem}.safetensors.index.json"
        if single.is_file():
            read_safetensors_header(single)
            return (single.name,)
        if index.is_file():
            return (index.name, *_check_shards(index))
    others = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".ckpt", ".pt", ".pth"))
    if others:
        raise InvalidFolder(
            f"{folder} holds {others[0]} but no safetensors: save it again with safe_serialization"
        )
    raise InvalidFolder(
        f"{folder} has no weights: add diffusion_pytorch_model.safetensors or model.safetensors"
    )


def _check_shards(index: Path) -> tuple[str, ...]:
    """Shard names of an index, in order; every tensor it promises must be in the shard it names."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidFolder(f"{index} has no weight_map: {_COPY_AGAIN}")
    shards = sorted({str(name) for name in weight_map.values()})
    for shard in shards:
        if Path(shard).name != shard:
            raise InvalidFolder(
                f"{index} points outside its folder ({shard}): shards must lie beside the index"
            )
        held = read_safetensors_header(index.parent / shard)
        lost = next(
            (tensor for tensor, home in weight_map.items() if home == shard and tensor not in held), None
        )
        if lost is not None:
            raise InvalidFolder(
                f"{index.parent / shard} lacks tensor {lost} that the index promises: {_COPY_AGAIN}"
            )
    return tuple(shards)
