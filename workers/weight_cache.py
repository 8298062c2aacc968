"""Pinned components as folders on the local disk.

A run pins each component by the digest of its manifest. This cache turns such a digest into a folder that
`from_pretrained` can read: ``<root>/<digest>/<path>``. A file that the store keeps as tensors is put together
here; any other is a hard link into the store where that is a folder on the same filesystem, and else
downloaded. Either way the bytes are verified before they are used, and a folder appears complete or not at
all.

Weights put together here lie on the disk twice. The copies make way, least recently used first, when the
disk runs full (`cache_room`); a worker holds the folders it is loading from. From a store elsewhere only
those tensors are fetched that no cached version of the component has already.

Reading hundreds of gigabytes at every start only to find them unchanged would be wasteful, so each folder
keeps what its files looked like (size, mtime, inode) when they were verified. A file that still looks the
same is trusted; any other one is hashed again, and a folder that fails is rebuilt from the store.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mutoscope.platform.artifacts.appearing import appearing
from mutoscope.platform.artifacts.assembly import Place, tensor_places, write_file
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.errors import ArtifactCorrupt
from mutoscope.platform.ids import new_id
from mutoscope.workers.cache_room import held, last_use, make_room, note_use

_STAMPS = ".verified.json"
_MANIFEST = ".component.json"
_NEARBY_FOLDERS = 16
"""Cached folders looked into for tensors, the latest used."""

_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP})

Stamp = list[int]


class WeightCache:
    """Component folders by manifest digest. Several workers may share one root."""

    def __init__(self, store: ArtifactStore, root: Path) -> None:
        self._store = store
        self._root = root

    def manifest(self, digest: str) -> ComponentManifest:
        """The manifest itself. Raises ArtifactMissing or ArtifactCorrupt."""
        return ComponentManifest.parse(self._store.get(digest))

    @contextmanager
    def hold(self, digest: str) -> Iterator[Path]:
        """As `folder`, which no worker removes while the block runs."""
        while True:
            folder = self.folder(digest)
            with held(folder) as there:
                if there:
                    yield folder
                    return

    def layers(self, digest: str) -> tuple[Path, ...]:
        """The folders that make up a component: what it builds on, if anything, and last its own. An adapter
        is loaded in that order."""
        base = self.manifest(digest).base
        return (*(() if base is None else self.layers(base)), self.folder(digest))

    def folder(self, digest: str) -> Path:
        """The component's own files as a folder, verified.

        Raises:
            ArtifactMissing, ArtifactCorrupt: the store lacks a file, or holds it damaged.
        """
        manifest = self.manifest(digest)
        folder = self._root / digest
        if not (folder.is_dir() and _is_intact(folder, manifest)):
            make_room(self._root, manifest.total_size)
            self._build(folder, manifest)
        note_use(folder)
        return folder

    def _build(self, folder: Path, manifest: ComponentManifest) -> None:
        staging = self._root / f".{new_id()}"
        staging.mkdir(parents=True)
        with held(staging) as ours:
            if not ours:  # a worker that makes room took it for a leftover
                return self._build(folder, manifest)
            try:
                nearby = self._nearby(manifest)
                for file in manifest.files:
                    path = staging / file.path
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self._materialise(file, path, nearby)
                (staging / _MANIFEST).write_bytes(manifest.to_bytes())
                _write_stamps(staging, manifest)
                _install(staging, folder, manifest)
            finally:
                shutil.rmtree(staging, ignore_errors=True)

    def _nearby(self, manifest: ComponentManifest) -> dict[str, Place]:
        """Where cached versions of the component have its tensors; nothing where the store itself is near."""
        parts = [file.split.header.digest for file in manifest.files if file.split]
        if not parts or self._store.is_local:
            return {}
        others = sorted(self._root.glob(f"[!.]*/{_MANIFEST}"), key=lambda path: last_use(path.parent))
        places: dict[str, Place] = {}
        for path in others[-_NEARBY_FOLDERS:]:
            with contextlib.suppress(OSError, ArtifactCorrupt):
                cached = ComponentManifest.parse(path.read_bytes())
                if cached.component == manifest.component:
                    places |= tensor_places(cached, path.parent)
        return places

    def _materialise(self, file: ManifestFile, path: Path, nearby: Mapping[str, Place]) -> None:
        source = None if file.split else self._store.local_path(file.digest)
        if source is None or not _link(source, path):
            write_file(self._store, file, path, nearby)
        elif (found := _sha256(path)) != file.digest:
            raise ArtifactCorrupt(
                f"artifact {file.digest[:12]} ({file.path}) is damaged in the store, its bytes hash "
                f"to {found[:12]}: import the weights again to repair it"
            )


def _link(source: Path, path: Path) -> bool:
    """Hard-link, or say that this filesystem cannot."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    return True


def _is_intact(folder: Path, manifest: ComponentManifest) -> bool:
    """Whether every file is what the manifest says. Those that changed since they were verified, by hash."""
    stamps = _read_stamps(folder)
    changed = False
    for file in manifest.files:
        path = folder / file.path
        stamp = _stamp(path)
        if stamp is None or stamp[0] != file.size:
            return False
        if stamps.get(file.path) != stamp:
            if _sha256(path) != file.digest:
                return False
            changed = True
    if changed:
        _write_stamps(folder, manifest)
    return True


def _stamp(path: Path) -> Stamp | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _read_stamps(folder: Path) -> dict[str, Stamp]:
    try:
        stamps = json.loads((folder / _STAMPS).read_bytes())
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def _write_stamps(folder: Path, manifest: ComponentManifest) -> None:
    stamps = {file.path: _stamp(folder / file.path) for file in manifest.files}
    with appearing(folder / _STAMPS) as temporary:
        temporary.write_text(json.dumps(stamps))


def _install(staging: Path, folder: Path, manifest: ComponentManifest) -> None:
    """Rename into place. Damage makes way; what another worker has just built stays, it may be in use."""
    while True:
        try:
            staging.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        if _is_intact(folder, manifest):
            return
        discarded = folder.with_name(f".{new_id()}")
        with contextlib.suppress(FileNotFoundError):
            folder.rename(discarded)
        shutil.rmtree(discarded, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
