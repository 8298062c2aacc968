"""Stored weights as an update for a weight sync: tensors that are read when asked for, and what they hash to.

The chain has no gap: the manifest's digest names the version, the manifest lists each tensor's SHA-256, the
sync compares with it what it was given, and compares with that what has arrived on the device.
"""

from __future__ import annotations

from mutoscope.platform.artifacts.manifest import ComponentManifest, manifest_in
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.engine.staging import Update
from mutoscope.platform.errors import SyncFailed
from mutoscope.platform.refs import SHOWN_DIGITS
from mutoscope.workers.tensors import open_tensors


def update_of(store: ArtifactStore, component: str, digest: str) -> Update:
    """The update that brings a component to a stored version.

    Raises:
        ArtifactMissing, ArtifactCorrupt: the manifest is gone or damaged; from the tensors, when they are
            read, a part of them is.
        SyncFailed: an adapter or a recipe, which are no module's whole state.
    """
    manifest = manifest_in(store.get(digest))
    if manifest is None or manifest.base is not None:
        kind = "no weights" if manifest is None else f"an adapter for {str(manifest.base)[:SHOWN_DIGITS]}"
        raise SyncFailed(f"{component} {digest[:SHOWN_DIGITS]} is {kind}: sync a whole version, or pin it")
    return Update(component, digest, open_tensors(store, manifest), _proofs(manifest))


def _proofs(manifest: ComponentManifest) -> dict[str, str] | None:
    """Digest by tensor; None where a file was stored as one object, which reading it verifies."""
    proofs: dict[str, str] = {}
    for file in manifest.files:
        if file.split is not None:
            proofs |= {tensor.name: tensor.digest for tensor in file.split.tensors}
        elif file.path.endswith(".safetensors"):
            return None
    return proofs
