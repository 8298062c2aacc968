"""What a rollout recorded, held against what its weights say now.

The log-probability of every recorded step is computed again under the weights that the record names, from the
recorded latents or tokens, and compared with the captured one (C2). Where they agree, the recorded latents
are those that the named weights were asked about, and a ratio of policies over them means what it says. Other
weights than those named, another prompt, or one number changed in a latent, and they do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mutoscope.models.common.causal_lm import token_log_probs
from mutoscope.models.common.sampling import Sampling
from mutoscope.platform.artifacts import ArtifactStore, codecs
from mutoscope.platform.catalog import Catalog, RunRecord
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity.gates import C2_LIMIT
from mutoscope.platform.engine.recompute import recompute_log_probs
from mutoscope.platform.engine.request import Profile, Request
from mutoscope.platform.engine.roles import by_slot
from mutoscope.platform.errors import InvalidInput, InvalidParameter
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.trajectory import Floats, TrajectoryGroup

GROUP_CARD = "rollout-group"
_TOKENS, _LLM = "tokens", "llm"
"""A refiner's slot and its language model, as its own card calls them."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What is on record of one rollout.

    Attributes:
        run: that sampled it, with its seed, parameters and weights.
        trajectory: a group of this one sample; or
        tokens: what a language model read and wrote, and `part`, the component that did.
    """

    run: RunRecord
    trajectory: TrajectoryGroup | None = None
    tokens: Mapping[str, Any] | None = None
    part: str = ""

    @property
    def weights(self) -> dict[str, str]:
        """The weights that sampled it, digest by component: those that the record itself names go before
        those of its run."""
        pinned: Mapping[str, str] = (self.run.key_parts or {}).get("weights", {})
        return {**pinned, **self.named}

    @property
    def named(self) -> dict[str, str]:
        """The weights that the record itself names, by the components of the run's card."""
        if self.trajectory is not None:
            return dict(self.trajectory.facts.weights)
        told: Mapping[str, str] = (self.tokens or {})["weights"]
        if self.part == "llm":
            return dict(told)
        return {
            self.part if name == "llm" else f"{self.part}_{name}": digest for name, digest in told.items()
        }

    @property
    def contradiction(self) -> str | None:
        """Where record and run name different weights or seeds; None where they agree."""
        pinned: Mapping[str, str] = (self.run.key_parts or {}).get("weights", {})
        for component, digest in self.named.items():
            if pinned.get(component, digest) != digest:
                return f"its {component} is {digest[:12]}, that of its run {pinned[component][:12]}"
        if self.trajectory is not None and self.trajectory.facts.seeds != (self.run.seed,):
            return f"its seed is {self.trajectory.facts.seeds[0]}, that of its run {self.run.seed}"
        return None

    @property
    def captured(self) -> Floats:
        """The recorded log-probabilities, float32 (steps,)."""
        if self.trajectory is not None:
            return self.trajectory.samples[0].log_probs_W
        return np.array((self.tokens or {})["log_probs"], np.float32)

    @property
    def first_step(self) -> int:
        """Where the recorded steps begin, in the schedule or in the answer."""
        return self.trajectory.facts.window[0] if self.trajectory is not None else 0


@dataclass(frozen=True, slots=True)
class Audited:
    """One rollout's steps, recorded and recomputed.

    Attributes:
        deltas: recomputed minus recorded log-probability of each step.
        contradiction: where record and run disagree about what sampled it.
    """

    run: str
    seed: int
    first_step: int
    deltas: tuple[float, ...]
    contradiction: str | None = None

    @property
    def largest(self) -> float:
        """The largest |Δlog p|; 0 without steps, NaN where one is."""
        return float(np.abs(np.array(self.deltas)).max()) if self.deltas else 0.0

    @property
    def holds(self) -> bool:
        """Whether every step agrees, and the record with its run."""
        return self.contradiction is None and self.largest < C2_LIMIT  # NaN does not


def per_step(audited: Sequence[Audited]) -> dict[int, float]:
    """The largest |Δlog p| of all samples at each step, in order."""
    found: dict[int, float] = {}
    for each in audited:
        for at, delta in enumerate(each.deltas, each.first_step):
            # `max` would pass over a NaN.
            found[at] = abs(delta) if math.isnan(delta) else max(found.get(at, 0.0), abs(delta))
    return dict(sorted(found.items()))


def recompute(instance: Instance, request: Request, evidence: Evidence) -> Audited:
    """Compare a rollout with what an instance says of it.

    Args:
        instance: at the weights to be tried, usually `evidence.weights`.
        request: the one that the run was, its inputs decoded.

    Raises:
        InvalidParameter: the request is not one that the trajectory can come from.
    """
    if evidence.trajectory is not None:
        (again,) = recompute_log_probs(instance, request, evidence.trajectory)
    else:
        again = _token_log_probs(instance, evidence)
    deltas = tuple(float(delta) for delta in again.astype(np.float64) - evidence.captured)
    return Audited(evidence.run.id, request.seed, evidence.first_step, deltas, evidence.contradiction)


def _token_log_probs(instance: Instance, evidence: Evidence) -> Floats:
    tokens = evidence.tokens or {}
    sampling = Sampling(do_sample=True, temperature=tokens["temperature"])
    with torch.inference_mode():
        found = token_log_probs(
            instance.components[evidence.part], tokens["prompt"], tokens["answer"], sampling
        )
    array: Floats = found.float().cpu().numpy()
    return array


def evidence_of(catalog: Catalog, store: ArtifactStore, ref: ArtifactRef) -> list[Evidence]:
    """The rollouts that an artifact records: one, or those that a group's trajectory joins.

    Raises:
        InvalidInput: no rollout made it, or it records no log-probabilities.
        ArtifactMissing, ArtifactCorrupt: of its bytes.
    """
    made_by = [run for run in catalog.runs.generated_by(ref.digest) if run.state == "succeeded"]
    rolled = [run for run in made_by if run.profile == Profile.ROLLOUT]
    joining = [run for run in made_by if run.card == GROUP_CARD]
    value = codecs.decode(ref.kind, store.get(ref.digest), ref.media_type)
    if rolled and isinstance(value, TrajectoryGroup):
        return [Evidence(rolled[0], value)]
    if joining and isinstance(value, TrajectoryGroup):
        return _rows(catalog, joining[0], value)
    for run in rolled:
        for slot, made in catalog.runs.outputs(run.id).items():
            if made.digest == ref.digest and (slot == _TOKENS or slot.endswith(f"_{_TOKENS}")):
                return [Evidence(run, tokens=value, part=slot.removesuffix(_TOKENS).rstrip("_") or _LLM)]
    raise InvalidInput(
        f"{ref} records no rollout: name a trajectory, or the tokens that a refiner wrote in a rollout"
    )


def find(catalog: Catalog, store: ArtifactStore, ref: ArtifactRef) -> list[Evidence]:
    """The rollouts behind a trajectory, a group's trajectory, a refiner's tokens, or a group's record.

    Raises:
        InvalidInput: it is none of these.
        ArtifactMissing, ArtifactCorrupt: of its bytes, or of a part's.
    """
    for run in catalog.runs.generated_by(ref.digest):
        outputs = catalog.runs.outputs(run.id)
        if run.card == GROUP_CARD and outputs["rollout"].digest == ref.digest:
            used = by_slot(catalog.runs.inputs(run.id))
            joined = [outputs["trajectory"]] if "trajectory" in outputs else used.get("trajectories", [])
            parts = [*joined, *used.get("tokens", [])]
            return [each for part in parts for each in evidence_of(catalog, store, part)]
    return evidence_of(catalog, store, ref)


def _rows(catalog: Catalog, joining: RunRecord, group: TrajectoryGroup) -> list[Evidence]:
    """A joined group's rows with the rollouts that they are of."""
    parts = by_slot(catalog.runs.inputs(joining.id))["trajectories"]
    runs: dict[int | None, RunRecord] = {}
    for part in parts:
        rolled = [run for run in catalog.runs.generated_by(part.digest) if run.profile == Profile.ROLLOUT]
        runs |= {run.seed: run for run in rolled[:1]}
    found = []
    for row, seed in enumerate(group.facts.seeds):
        if seed not in runs:
            raise InvalidParameter("trajectory.seeds", seed, "no rollout of its group has that seed")
        found.append(Evidence(runs[seed], group.row(row)))
    return found
