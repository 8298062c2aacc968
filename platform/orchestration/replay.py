"""Making a run's outputs again from its record, and comparing digests.

The record's key parts are the whole recipe: weights, inputs, parameters, seed, numeric contract. A replay is
an ordinary run of the same key that may not be answered from the memo; if its bytes differ, the catalog has
recorded a determinism incident.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mutoscope.models.registry import get_card
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine import numerics
from mutoscope.platform.errors import InvalidInput
from mutoscope.platform.orchestration.context import Observer, observer
from mutoscope.platform.orchestration.plan import Origin, spec_of
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.orchestration.submit import submit_spec
from mutoscope.platform.refs import ArtifactRef


@dataclass(frozen=True, slots=True)
class Replay:
    """An original run, and what the replay of its record made.

    Attributes:
        changed_code: the card's code is not what the original ran; a difference may come from that.
    """

    original: RunRecord
    run: RunRecord
    expected: dict[str, ArtifactRef]
    outputs: dict[str, ArtifactRef]
    changed_code: bool

    @property
    def equal(self) -> bool:
        """Whether every output has the digest that the record names."""
        return self.differing == ()

    @property
    def differing(self) -> tuple[str, ...]:
        """Slots whose digests differ, or that only one side has."""
        slots = sorted({*self.expected, *self.outputs})
        return tuple(s for s in slots if _digest(self.expected, s) != _digest(self.outputs, s))


async def replay_run(run_id: str, *, watch: Observer | None = None, runtime: Runtime | None = None) -> Replay:
    """Run a recorded engine run again, at its recorded weights, and wait.

    Raises:
        UnknownReference: no such run.
        InvalidInput: the run is not one that can be replayed.
        NoWorker: nobody alive keeps the numeric contract of the record; the replay stays queued.
        RunFailed, RunCancelled: how the replay ended.
    """
    runtime = runtime or get_runtime()
    original = await asyncio.to_thread(runtime.catalog.runs.get, run_id)
    if not original.replayable or original.state != "succeeded" or original.key_parts is None:
        raise InvalidInput(
            f"run {run_id} is a {original.state} {original.kind} run: replay a succeeded engine run"
        )
    inputs = await asyncio.to_thread(runtime.catalog.runs.inputs, run_id)
    expected = await asyncio.to_thread(runtime.catalog.runs.outputs, run_id)
    spec = spec_of(runtime, original.key_parts, inputs, Origin())
    token = observer.set(watch)
    try:
        # The memo may not answer; an equal run under way may still be attached to.
        outcome = await submit_spec(runtime, spec, present=None)
    finally:
        observer.reset(token)
    current = await asyncio.to_thread(numerics.card_digest, get_card(spec.card))
    return Replay(original, outcome.run, expected, outcome.outputs, current != spec.card_digest)


def _digest(outputs: dict[str, ArtifactRef], slot: str) -> str | None:
    return outputs[slot].digest if slot in outputs else None
