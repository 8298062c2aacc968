"""What a training made becomes weight versions: the step between a train run and the runs that use it."""

from __future__ import annotations

from collections.abc import Mapping

from mutoscope.models.registry import get_card
from mutoscope.platform.catalog import WeightVersion
from mutoscope.platform.engine.card import RECIPE
from mutoscope.platform.errors import UnknownReference
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef


def publish_trained(
    runtime: Runtime, card_id: str, outputs: Mapping[str, ArtifactRef], *, alias: str
) -> dict[str, WeightVersion]:
    """Make a train run's outputs the card's weights under `alias`, all components at once.

    Args:
        outputs: by role, as the run recorded them. Roles with a colon are files of components, which older
            runs recorded beside them; they are passed over.

    Returns:
        The version of each component, each naming the run that made it.

    Raises:
        UnknownReference: the outputs lack a component that the card needs.
    """
    card = get_card(card_id)
    digests = {name: ref.digest for name, ref in outputs.items() if ":" not in name}
    needed = {part.name for part in card.components if not part.optional} | {RECIPE}
    missing = sorted(needed - set(digests))
    if missing:
        raise UnknownReference(f"the training made no {missing[0]} for {card_id}: train that component too")
    return runtime.catalog.weights.publish_all(card_id, digests, _producer(runtime, digests), alias=alias)


def _producer(runtime: Runtime, digests: Mapping[str, str]) -> str:
    """The run that generated all of them: equal bytes may have several makers, the set has one."""
    makers = [{run.id for run in runtime.catalog.runs.generated_by(digest)} for digest in digests.values()]
    common = set.intersection(*makers)
    if not common:
        raise UnknownReference("no run made all of these weights: publish the outputs of one training")
    return max(common)
