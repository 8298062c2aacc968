"""What runs are called in lists: what they are about, the seed, the card and its versions.

a red circle left of a blue square · seed 7        a flow run
flux-t2i@3 · seed 7                                an engine run whose components are all at version 3
flux-t2i@1+transformer@12 · seed 7                 one component ahead of the others
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.errors import CatalogError
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.wording import excerpt

_SUBJECTS = ("prompt", "prompts", "target", "text", "image", "video", "card", "model")
"""Parameters that say what a workflow run is about, the most telling first."""
_MOST_LABELS = 4096

_labels: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}


def flow_run_label(workflow: str, parameters: Mapping[str, Any]) -> str:
    """What a workflow run is about, and its seed if that is known."""
    subject = next((_words(parameters[name]) for name in _SUBJECTS if parameters.get(name)), workflow)
    return with_seed(subject, parameters.get("seed"))


async def run_label(runtime: Runtime, run: RunRecord) -> str:
    """The card of an engine run, at the versions that it pinned, and its seed."""
    return with_seed(await card_label(runtime, run), run.seed)


def with_seed(label: str, seed: Any) -> str:
    return label if seed is None else f"{label} · seed {seed}"


async def card_label(runtime: Runtime, run: RunRecord) -> str:
    """``card@3``; the bare card where it pins no weights, or the catalog does not answer.

    Looked up once for each set of weights: bytes that got their names keep them.
    """
    card, weights = str(run.card), dict((run.key_parts or {}).get("weights", {}))
    key = (card, tuple(sorted(weights.items())))
    if (found := _labels.get(key)) is not None:
        return found
    try:
        ordinals = await asyncio.to_thread(_ordinals, runtime, card, weights)
    except CatalogError:
        return card
    if len(_labels) >= _MOST_LABELS:
        _labels.clear()
    return _labels.setdefault(key, spelled(card, ordinals))


def spelled(card: str, ordinals: Mapping[str, int | None]) -> str:
    """The version that most components are at, and each that differs."""
    if not ordinals:
        return card
    counted = Counter(ordinals.values())
    common = max(counted, key=lambda ordinal: (counted[ordinal], ordinal or 0))
    others = [f"+{name}@{_shown(own)}" for name, own in sorted(ordinals.items()) if own != common]
    return f"{card}@{_shown(common)}{''.join(others)}"


def _shown(ordinal: int | None) -> str:
    return "?" if ordinal is None else str(ordinal)


def _ordinals(runtime: Runtime, card: str, weights: Mapping[str, str]) -> dict[str, int | None]:
    """The newest version of each component with these bytes; None for bytes that never got a name."""
    found: dict[str, int | None] = {}
    for component, digest in weights.items():
        named = runtime.catalog.weights.versions_of_digest(digest)
        own = (version for version in named if (version.card, version.component) == (card, component))
        found[component] = max((version.ordinal for version in own), default=None)
    return found


def _words(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = f" and {len(value) - 1} more" if len(value) > 1 else ""
        return f"{excerpt(str(value[0]), 48)}{more}"
    return excerpt(str(value))
