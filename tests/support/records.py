"""Made-up artifacts and runs, for tests of the catalog: no bytes exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mutoscope.platform.catalog import Catalog, RunRecord, RunSpec
from mutoscope.platform.ids import sha256
from mutoscope.platform.refs import ArtifactRef

CARD = "toy-card"
CONTRACT = sha256(b"numeric contract")
CODE = sha256(b"code")
SERVES = {CARD: CONTRACT}
LEASE = 600.0
"""Seconds; longer than any test."""


def an_artifact(name: str, kind: str = "image", meta: Mapping[str, Any] | None = None) -> ArtifactRef:
    """The reference that bytes `name` would have."""
    return ArtifactRef(sha256(name.encode()), kind, "application/octet-stream", len(name), meta or {})


def a_spec(key: str | None = "key", **changes: Any) -> RunSpec:
    """An engine run of `CARD`; `key` names its memo key."""
    memo_key = sha256(key.encode()) if key is not None else None
    fields: dict[str, Any] = {
        "kind": "engine",
        "card": CARD,
        "card_digest": CODE,
        "contract": CONTRACT,
        "parameters": {"prompt": "a red circle"},
        "seed": 7,
        "memo_key": memo_key,
    }
    return RunSpec(**{**fields, **changes})


def present(ref: ArtifactRef) -> bool:
    """A store that holds everything."""
    return True


def absent(ref: ArtifactRef) -> bool:
    """A store that holds nothing."""
    return False


def queue(catalog: Catalog, key: str | None = "key", **changes: Any) -> RunRecord:
    """Queue a run that is new."""
    queued = catalog.runs.enqueue(a_spec(key, **changes), present=absent)
    assert queued.disposition == "new"
    return queued.run


def claim(catalog: Catalog, worker: str = "worker-a", **changes: Any) -> RunRecord:
    """Claim the one run there is to claim."""
    (run,) = catalog.runs.claim(worker, SERVES, changes.pop("lease", LEASE), limit=10, **changes)
    return run


def make(
    catalog: Catalog, key: str, outputs: Mapping[str, ArtifactRef], worker: str = "worker-a", **changes: Any
) -> RunRecord:
    """Queue, claim and finish a run."""
    run = queue(catalog, key, **changes)
    claim(catalog, worker)
    return catalog.runs.succeed(run.id, worker, outputs, {"denoise": 0.5})
