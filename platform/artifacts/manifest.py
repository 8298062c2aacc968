"""Component manifests: how one component's files are named as a single artifact.

A `weights` artifact is a small JSON manifest that lists the files of one component by digest. Two versions
that share a file share its bytes, and the manifest's own digest names the whole component: what a weight
version points to, what a run pins and what its lineage ends in.

    {"component": "vae", "files": [{"digest": "…", "path": "config.json", "size": 612}, …],
     "format": "mutoscope.component/1"}

Paths are relative to the component's folder, so equal files give an equal digest wherever the folder lay.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePosixPath

from mutoscope.platform.errors import ArtifactCorrupt

FORMAT = "mutoscope.component/1"
KIND = "weights"
FILE_KIND = "blob"
MEDIA_TYPE = "application/vnd.mutoscope.component+json"


@dataclass(frozen=True, slots=True, order=True)
class ManifestFile:
    """One file: its path within the component, the digest that names its bytes, its size in bytes."""

    path: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class ComponentManifest:
    """The files of one component, sorted by path."""

    component: str
    files: tuple[ManifestFile, ...]

    @property
    def total_size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """Canonical JSON: sorted keys, sorted files, no spare blanks. Equal contents, equal bytes."""
        body = {
            "format": FORMAT,
            "component": self.component,
            "files": [{"path": f.path, "digest": f.digest, "size": f.size} for f in sorted(self.files)],
        }
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def parse(cls, data: bytes) -> ComponentManifest:
        """Read `to_bytes`.

        Raises:
            ArtifactCorrupt: not a manifest, another format, or a path that would leave the component's
                folder.
        """
        try:
            body = json.loads(data)
            if body["format"] != FORMAT:
                raise ArtifactCorrupt(
                    f"component manifest has format {body['format']!r}: this version reads {FORMAT}"
                )
            files = tuple(
                ManifestFile(str(f["path"]), str(f["digest"]), int(f["size"])) for f in body["files"]
            )
            component = str(body["component"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactCorrupt(f"not a component manifest ({error}): import the folder again") from error
        for file in files:
            _check_path(file.path)
        return cls(component, tuple(sorted(files)))


def _check_path(path: str) -> None:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path:
        raise ArtifactCorrupt(f"component manifest names {path!r}, which leaves the component's folder")
