"""A fake worker's work where pixels matter: cards without weights are computed, the others paint noise."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.workers.executor import Executor
from tests.support.fake_worker import paint

MEDIA = ("video-frame", "video-join", "contact-sheet", "line-charts", "picture-statistics", "scene-check")


@cache
def _instance(card_id: str) -> Instance:
    return load_instance(get_card(card_id), {}, recipe={})


def compute_or_paint(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
    """The run's outputs, for `FakeWorker(perform=...)`. Painted clips have the size and length asked for."""
    if run.card not in MEDIA:
        return paint(runtime, run) | _clips(runtime, run)
    inputs = runtime.catalog.runs.inputs(run.id)
    request = Executor(runtime.catalog, runtime.store, "fake").request(run, inputs)
    return {
        slot: _stored(runtime, each.kind, each.value, each.meta)
        for slot, each in Engine().run(_instance(run.card), request).outputs.items()
    }


def _clips(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
    slots = [slot.name for slot in get_card(str(run.card)).outputs if slot.kind == "video"]
    if not slots:
        return {}
    asked = run.parameters
    generator = np.random.default_rng(int(str(run.memo_key), 16))
    size = (asked["num_frames"], asked["height"], asked["width"], 3)
    frames = generator.integers(0, 256, size, dtype=np.uint8)
    return {slot: _stored(runtime, "video", frames, {"fps": asked["fps"]}) for slot in slots}


def _stored(runtime: Runtime, kind: str, value: Any, meta: Mapping[str, Any]) -> ArtifactRef:
    encoded = codecs.encode(kind, value, meta)
    return runtime.store.put(encoded.data, kind=kind, media_type=encoded.media_type, meta=encoded.meta)
