"""Why a call was answered from memo, or was not; and whether an equal one would be now.

The catalog knows the calls and the keys, the store what is still there: a hit needs both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Call, Catalog, RunRecord
from mutoscope.platform.catalog.calls import PassedOver
from mutoscope.platform.catalog.records import Disposition
from mutoscope.platform.catalog.why import Nearest
from mutoscope.platform.refs import ArtifactRef

Reason = Literal["unlike", "first", "absent", "empty", "replay", "unshared", "recorded"]
"""Why a run was computed: no earlier success had its key (`unlike`), the card had none at all (`first`), one
had but its outputs were `absent` or none (`empty`), nobody wanted a hit (`replay`), the run has no key
(`unshared`), or it was no call but work `recorded` when it was done."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A run and its calls.

    Attributes:
        calls: the first ones it answered, oldest first; `answered` counts all.
        passed_over: the equal success that did not answer.
        nearest: the earlier success that came closest, where none was equal.
        failures: equal runs before it that ended without outputs; such a run never answers.
        absent: outputs that are not in the store now; an equal call would be computed.
        incident: id of the determinism incident about the run, if there is one.
    """

    run: RunRecord
    outputs: Mapping[str, ArtifactRef]
    calls: tuple[Call, ...]
    answered: Mapping[Disposition, int]
    reason: Reason
    passed_over: PassedOver | None
    nearest: Nearest | None
    failures: int
    absent: tuple[ArtifactRef, ...]
    incident: str | None

    @property
    def would_hit(self) -> bool:
        """Whether an equal call would be answered from memo now."""
        succeeded = self.run.state == "succeeded" and self.run.memo_key is not None
        return succeeded and bool(self.outputs) and not self.absent


def explain(catalog: Catalog, store: ArtifactStore, run: RunRecord) -> Explanation:
    """Everything about why the run was computed and whom it served."""
    calls = tuple(catalog.calls.of_run(run.id))
    outputs = catalog.runs.outputs(run.id)
    passed_over = next((call.passed_over for call in calls if call.disposition == "new"), None)
    nearest = None if passed_over else catalog.why.nearest(run)
    return Explanation(
        run=run,
        outputs=outputs,
        calls=calls,
        answered=catalog.calls.counts(run.id),
        reason=_reason(run, passed_over, nearest),
        passed_over=passed_over,
        nearest=nearest,
        failures=catalog.why.equal_failures(run),
        absent=tuple(ref for ref in outputs.values() if not store.contains(ref)),
        incident=catalog.incidents.of_run(run.id),
    )


def _reason(run: RunRecord, passed_over: PassedOver | None, nearest: Nearest | None) -> Reason:
    if passed_over is not None:
        return passed_over.reason
    if run.kind != "engine" and run.memo_key is None:
        return "recorded"
    if run.memo_key is None:
        return "unshared"
    if nearest is None:
        return "first"
    # Recorded before calls were: an equal success is on record, and what was wrong with it is not.
    return "unlike" if nearest.differences else "absent"
