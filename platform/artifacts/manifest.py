"""Component manifests: how one component's files are named as a single artifact.

A `weights` artifact is a small JSON manifest that lists the files of one component by digest. A safetensors
file is listed with its tensors, each an object of its own, so that two versions share every tensor they have
in common; any other file is one object. The manifest's own digest names the whole component: what a weight
version points to, what a run pins and what its lineage ends in.

    {"component": "vae",
     "files": [{"digest": "…", "path": "config.json", "size": 612},
               {"digest": "…", "path": "model.safetensors", "size": 9282072,
                "header": {"digest": "…", "size": 14744},
                "packs": [{"digest": "…", "size": 65536}],
                "tensors": [{"digest": "…", "dtype": "F16", "name": "proj.weight", "shape": [128, 64],
                             "size": 16384, "pack": 0, "offset": 0}, …]}, …],
     "format": "mutoscope.component/2"}

The header's bytes followed by the tensors' in the order of the list are the file, byte for byte. A tensor
without ``pack`` is the object of its digest; one with it lies in that pack, from ``offset`` on. ``base``
names another component's manifest, on top of which this one holds an adapter's tensors only.

Paths are relative to the component's folder, so equal files give an equal digest wherever the folder lay.
A component of plain files is written as ``mutoscope.component/1``, which knew no others: its digest stays
what it was before files were split.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from mutoscope.platform.errors import ArtifactCorrupt
from mutoscope.platform.ids import is_sha256

FORMAT = "mutoscope.component/2"
PLAIN_FORMAT = "mutoscope.component/1"
KIND = "weights"
FILE_KIND = "blob"
MEDIA_TYPE = "application/vnd.mutoscope.component+json"

BASE_MEMBER = ":base"
"""The path under which a manifest has its base among its members. No file's path begins with a colon."""

PATH_CHARACTERS = 512
"""Longest path of a member, as the catalog stores it."""


@dataclass(frozen=True, slots=True)
class Part:
    """An object that holds some of a file's bytes."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file.

    Attributes:
        dtype: as safetensors spells it, such as ``BF16``.
        digest: SHA-256 of the tensor's bytes; the object that holds them, unless they are packed.
        pack: index of the pack that holds the bytes, from `offset` on; None for an object of its own.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    size: int
    pack: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """How a safetensors file is kept: its header, its tensors in file order, the packs of the small ones."""

    header: Part
    tensors: tuple[StoredTensor, ...]
    packs: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file: its path within the component, the SHA-256 of its bytes, its size in bytes.

    `digest` names an object only where `split` is None.
    """

    path: str
    digest: str
    size: int
    split: Split | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """An object without which the component cannot be read; `size` is None for the base, whose manifest is a
    container itself."""

    path: str
    digest: str
    size: int | None


@dataclass(frozen=True, slots=True)
class ComponentManifest:
    """The files of one component, sorted by path, and the digest of the manifest it builds on, if any."""

    component: str
    files: tuple[ManifestFile, ...]
    base: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.path)))

    @property
    def total_size(self) -> int:
        """Bytes of all files together, the base's aside."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """Canonical JSON: sorted keys, sorted files, no spare blanks. Equal contents, equal bytes."""
        plain = self.base is None and all(file.split is None for file in self.files)
        body = {
            "format": PLAIN_FORMAT if plain else FORMAT,
            "component": self.component,
            "files": [_file_body(file) for file in self.files],
        }
        if self.base is not None:
            body["base"] = self.base
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def parse(cls, data: bytes) -> ComponentManifest:
        """Read `to_bytes`.

        Raises:
            ArtifactCorrupt: not a manifest, a format of a newer version, a path that would leave the
                component's folder, or parts that do not make up their file.
        """
        try:
            body = json.loads(data)
            if body["format"] not in (FORMAT, PLAIN_FORMAT):
                raise ArtifactCorrupt(
                    f"component manifest has format {body['format']!r}: this version reads {FORMAT}"
                )
            files = tuple(_file(entry) for entry in body["files"])
            base = None if body.get("base") is None else _digest(body["base"])
            component = str(body["component"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactCorrupt(f"not a component manifest ({error}): import the folder again") from error
        for file in files:
            check_path(file.path)
        return cls(component, files, base)


def is_manifest(data: bytes) -> bool:
    """Whether an artifact's bytes are a component manifest of any format, as opposed to a recipe's JSON."""
    return b'"format":"mutoscope.component/' in data


def manifest_in(data: bytes) -> ComponentManifest | None:
    """The manifest that an artifact's bytes are; None where they are none. Raises ArtifactCorrupt, as
    `ComponentManifest.parse`."""
    return ComponentManifest.parse(data) if is_manifest(data) else None


def iter_members(manifest: ComponentManifest) -> Iterator[Member]:
    """Every object that the component needs, each under a path of its own."""
    if manifest.base is not None:
        yield Member(BASE_MEMBER, manifest.base, None)
    for file in manifest.files:
        if file.split is None:
            yield Member(file.path, file.digest, file.size)
            continue
        yield Member(header_path(file.path), file.split.header.digest, file.split.header.size)
        for index, pack in enumerate(file.split.packs):
            yield Member(pack_path(file.path, index), pack.digest, pack.size)
        for tensor in file.split.tensors:
            if tensor.pack is None:
                yield Member(tensor_path(file.path, tensor.name), tensor.digest, tensor.size)


# A file's parts lie "below" its path. No other member can be there, because no folder has a file's name.
def header_path(file: str) -> str:
    """The member that holds the file's bytes before its first tensor."""
    return f"{file}/header"


def pack_path(file: str, index: int) -> str:
    """The member that holds some of the file's small tensors."""
    return f"{file}/packs/{index}"


def tensor_path(file: str, name: str) -> str:
    """The member that holds one tensor."""
    return f"{file}/tensors/{name}"


def check_path(path: str) -> None:
    """Raise ArtifactCorrupt for a path that would leave the component's folder."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or path.startswith(":"):
        raise ArtifactCorrupt(f"component manifest names {path!r}, which leaves the component's folder")


def _file_body(file: ManifestFile) -> dict[str, Any]:
    body: dict[str, Any] = {"path": file.path, "digest": file.digest, "size": file.size}
    if file.split is not None:
        body["header"] = _part_body(file.split.header)
        body["packs"] = [_part_body(pack) for pack in file.split.packs]
        body["tensors"] = [_tensor_body(tensor) for tensor in file.split.tensors]
    return body


def _part_body(part: Part) -> dict[str, Any]:
    return {"digest": part.digest, "size": part.size}


def _tensor_body(tensor: StoredTensor) -> dict[str, Any]:
    body = {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "digest": tensor.digest,
        "size": tensor.size,
    }
    return body if tensor.pack is None else {**body, "pack": tensor.pack, "offset": tensor.offset}


def _file(body: Mapping[str, Any]) -> ManifestFile:
    path, size = str(body["path"]), int(body["size"])
    split = _split(body) if "tensors" in body else None
    if split is not None and split.header.size + sum(tensor.size for tensor in split.tensors) != size:
        raise ValueError(f"the parts of {path} do not add up to its {size} bytes")
    return ManifestFile(path, _digest(body["digest"]), size, split)


def _split(body: Mapping[str, Any]) -> Split:
    packs = tuple(_part(pack) for pack in body["packs"])
    tensors = tuple(_tensor(tensor) for tensor in body["tensors"])
    for tensor in tensors:
        # An index from the end would name another pack in other languages than in Python.
        if tensor.pack is not None and not (
            0 <= tensor.pack < len(packs) and 0 <= tensor.offset <= packs[tensor.pack].size - tensor.size
        ):
            raise ValueError(f"tensor {tensor.name} lies outside its pack")
    return Split(_part(body["header"]), tensors, packs)


def _part(body: Mapping[str, Any]) -> Part:
    return Part(_digest(body["digest"]), int(body["size"]))


def _tensor(body: Mapping[str, Any]) -> StoredTensor:
    return StoredTensor(
        str(body["name"]),
        str(body["dtype"]),
        tuple(int(side) for side in body["shape"]),
        _digest(body["digest"]),
        int(body["size"]),
        None if body.get("pack") is None else int(body["pack"]),
        int(body.get("offset", 0)),
    )


def _digest(value: Any) -> str:
    if not is_sha256(value):
        raise ValueError(f"{value!r} is no SHA-256")
    return value
