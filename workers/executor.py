"""The two ends of a run: stored inputs become a request, outputs become stored artifacts and rows.

Between the ends is the engine, which knows neither store nor catalog.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from typing import Any

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore, codecs, manifest
from mutoscope.platform.artifacts.components import StoredComponent, put_component
from mutoscope.platform.artifacts.replacing import put_replaced
from mutoscope.platform.catalog import Catalog, Members, RunRecord
from mutoscope.platform.engine.request import Output, Profile, Progress, Request, Result
from mutoscope.platform.engine.roles import by_slot
from mutoscope.platform.errors import MutoscopeError
from mutoscope.workers.tensors import open_weights, to_raw

_MAX_MESSAGE = 500
_MAX_TRACEBACK = 16_000
"""Characters kept of an error: enough to read, bounded because it goes into a row."""


class Executor:
    """Reads inputs and records outputs for one worker."""

    def __init__(self, catalog: Catalog, store: ArtifactStore, worker_id: str) -> None:
        self._catalog = catalog
        self._store = store
        self._worker_id = worker_id

    def request(self, run: RunRecord, inputs: Mapping[str, ArtifactRef]) -> Request:
        """The engine's request, `inputs` decoded.

        Raises:
            ArtifactMissing, ArtifactCorrupt: an input's bytes are gone or damaged.
            InvalidParameter: an input cannot be decoded.
        """
        assert run.card is not None
        assert run.seed is not None
        return Request(
            id=run.id,
            card=run.card,
            inputs=by_slot({role: self._decode(ref) for role, ref in inputs.items()}),
            parameters=run.parameters,
            seed=run.seed,
            profile=Profile(run.profile or Profile.SERVE),
            group=run.workflow_run_id or "",
            priority=_share(run.priority),
        )

    def deliver(
        self, run: RunRecord, result: Result, timings: Mapping[str, float], at: Progress | None = None
    ) -> dict[str, ArtifactRef]:
        """Store the outputs, then record them with their edges and the run's success in one transaction.

        Bytes before rows: a worker that dies in between leaves unreferenced bytes, which the next attempt
        finds and names again.

        Args:
            timings: seconds the worker spent around the engine; kept beside the engine's own.
            at: where the run was at its end; noted with the rest, to save a transaction.

        Raises:
            LeaseLost: the run belongs to somebody else by now; its rows are untouched.
        """
        faults.hit("worker.before_put")
        started = time.perf_counter()
        outputs: dict[str, ArtifactRef] = {}
        members: dict[str, Members] = {}
        for slot, output in result.outputs.items():
            outputs[slot] = self._put(slot, output, members)
        stored = {"worker.outputs": time.perf_counter() - started}
        faults.hit("worker.after_put")
        spent = {**timings, **result.timings, **stored}
        self._catalog.runs.succeed(
            run.id,
            self._worker_id,
            outputs,
            spent,
            members=members,
            warnings=result.warnings,
            progress=None if at is None else (at.stage, at.step, at.total),
        )
        faults.hit("worker.after_succeed")
        return outputs

    def _put(self, slot: str, output: Output, members: dict[str, Members]) -> ArtifactRef:
        """Store an output. Weights are a component, whose manifest is the output; its members are added."""
        if output.kind == manifest.KIND:
            component = self._put_weights(slot, output)
            members[component.manifest.digest] = component.members
            return component.manifest
        encoded = codecs.encode(output.kind, output.value, output.meta)
        return self._store.put(
            encoded.data, kind=output.kind, media_type=encoded.media_type, meta=encoded.meta
        )

    def _put_weights(self, slot: str, output: Output) -> StoredComponent:
        """Store files as a component, or tensors in place of those of the component they are `like`."""
        like = output.meta.get("like")
        if like is not None:
            tensors = {name: to_raw(tensor) for name, tensor in output.value.items()}
            return put_replaced(self._store, like, tensors, tied=output.meta.get("tied", {}))
        name = output.meta.get("component", slot)
        return put_component(self._store, name, output.value, base=output.meta.get("base"))

    def _decode(self, ref: ArtifactRef) -> Any:
        if ref.kind == manifest.KIND:
            return open_weights(self._store, ref.digest)
        return codecs.decode(ref.kind, self._store.get(ref.digest), ref.media_type)


def _share(priority: int) -> float:
    """The share of the device that a place in the queue comes with: each level doubles it, and so that nobody
    starves, no more than ten levels count either way."""
    return float(2.0 ** max(-10, min(10, priority)))


def error_record(error: BaseException) -> dict[str, str]:
    """An error as its run keeps it: a message of one line, and the traceback for whoever debugs it."""
    message = " ".join(str(error).split())
    if not isinstance(error, MutoscopeError):
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return {
        "type": type(error).__name__,
        "message": message[:_MAX_MESSAGE],
        "traceback": "".join(traceback.format_exception(error))[-_MAX_TRACEBACK:],
    }
