"""Groups that were collected: the record, and the references that its lists stand for.

What a group needs is in the catalog. So a trainer elsewhere, or later, reads groups that others collected by
the references of their records alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mutoscope.platform.engine.roles import by_slot
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.training.groups import RolloutRecord

CARD = "rollout-group"


@dataclass(frozen=True, slots=True)
class Group:
    """A group on the record.

    Attributes:
        rollout: the record's artifact. The lists are those that the record's indices mean.
    """

    record: RolloutRecord
    rollout: ArtifactRef
    trajectories: tuple[ArtifactRef, ...] = ()
    tokens: tuple[ArtifactRef, ...] = ()
    images: tuple[ArtifactRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection made.

    Attributes:
        groups: by card, in the order of the prompts; those that are dropped too.
        stopped: why it ended before all prompts had their group; None if it did not.
    """

    groups: Mapping[str, Sequence[Group]] = field(default_factory=dict)
    stopped: str | None = None

    def kept(self, card: str) -> list[Group]:
        """The groups of a card that can teach something."""
        return [group for group in self.groups.get(card, ()) if group.record.kept]

    def inputs(self, card: str) -> dict[str, list[ArtifactRef]]:
        """The inputs of a trainer: rollouts, trajectories, tokens and images of the kept groups. What there
        is none of is left out."""
        return inputs_of(self.kept(card))

    @property
    def scores(self) -> list[float]:
        """Every score of the last stage, group by group."""
        last = list(self.groups.values())[-1] if self.groups else ()
        return [score for group in last for score in group.record.scores if score is not None]

    def summary(self) -> dict[str, Any]:
        """What people read of it."""
        scores = self.scores
        last = list(self.groups.values())[-1] if self.groups else ()
        return {
            "groups": {card: len(self.kept(card)) for card in self.groups},
            "samples": sum(len(group.record.samples) for group in last),
            "scored": len(scores),
            "mean_score": sum(scores) / len(scores) if scores else None,
            "dropped_groups": [
                {"prompt": group.record.prompt, "reason": group.record.reason}
                for group in last
                if not group.record.kept
            ],
            "dropped_samples": [
                {"prompt": group.record.prompt, **each.model_dump(mode="json")}
                for group in last
                for each in group.record.dropped
            ],
            "versions": {
                card: dict(found[0].record.versions) for card, found in self.groups.items() if found
            },
            "stopped": self.stopped,
        }


def inputs_of(groups: Iterable[Group]) -> dict[str, list[ArtifactRef]]:
    """A trainer's inputs, the lists of several groups one after another; see `groups.offsets`."""
    found = list(groups)
    lists = {
        "rollouts": [group.rollout for group in found],
        "trajectories": [ref for group in found for ref in group.trajectories],
        "tokens": [ref for group in found for ref in group.tokens],
        "images": [ref for group in found for ref in group.images],
    }
    return {name: refs for name, refs in lists.items() if refs}


def group_of(runtime: Runtime, rollout: ArtifactRef) -> Group:
    """A group by its record's artifact.

    Raises:
        InvalidParameter: it is no record, or nothing in the catalog says where its lists are.
        ArtifactMissing, ArtifactCorrupt: of the record.
    """
    catalog = runtime.catalog
    record = RolloutRecord.from_json(json.loads(runtime.store.get(rollout.digest)))
    runs = [run for run in catalog.runs.generated_by(rollout.digest) if run.card == CARD]
    if not runs:
        raise InvalidParameter("rollouts", str(rollout), f"use what a run of {CARD} made")
    used = by_slot(catalog.runs.inputs(runs[0].id))
    single: list[ArtifactRef] = used.get("trajectories", [])
    trajectories = [catalog.runs.outputs(runs[0].id)["trajectory"]] if record.joined else single
    images = [catalog.artifacts.get(digest) for digest in record.images]
    return Group(
        record,
        rollout,
        tuple(trajectories),
        tuple(used.get("tokens", [])),
        tuple(image for image in images if image is not None),
    )
