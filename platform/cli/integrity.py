"""Whether stored weights are whole: every object of a component present, and its bytes what its name says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mutoscope.platform.errors import ArtifactError

if TYPE_CHECKING:
    from mutoscope.platform.artifacts import ArtifactStore

READ_LIMIT_BYTES = 64 << 20
"""Larger objects are checked for presence and size only: a health check must not read a hundred gigabytes."""


def damaged_files(store: ArtifactStore, components: Iterable[str]) -> list[str]:
    """One line per damage among the components' manifests, files and tensors; none when all are whole.

    Args:
        components: digests of `weights` manifests, or of the recipe's JSON, which has no files.
    """
    from mutoscope.platform.artifacts.manifest import iter_members, manifest_in

    damages: list[str] = []
    waiting = list(components)
    for digest in waiting:
        try:
            manifest = manifest_in(store.get(digest))
        except ArtifactError as error:
            damages.append(str(error))
            continue
        if manifest is None:
            continue
        for member in iter_members(manifest):
            if member.size is None:  # the base, a manifest of its own
                waiting.append(member.digest)
                continue
            try:
                _check(store, member.digest, member.size)
            except ArtifactError as error:
                damages.append(f"{manifest.component}/{member.path}: {error}")
    return damages


def _check(store: ArtifactStore, digest: str, size: int) -> None:
    from mutoscope.platform.errors import ArtifactCorrupt

    if store.size(digest) != size:
        raise ArtifactCorrupt(f"object {digest[:12]} has {store.size(digest)} bytes instead of {size}")
    if size <= READ_LIMIT_BYTES:
        with store.open_read(digest) as stream:
            while stream.read(1 << 20):
                pass
