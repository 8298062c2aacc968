"""A stage by its id, whatever it is: one engine run of a card, or a whole workflow.

    made = await stage("flux-t2i", prompt="a red circle", seed=7)
    made = await stage("image.text_to_image", prompt="a red circle", seed=7)

Ids of cards and workflows share one namespace, so a workflow can be given its stages as texts. Where the
stage is known when the code is written, `engine_run` and a plain call of the workflow say the same.
"""

from __future__ import annotations

from typing import Any

from mutoscope.models.registry import cards
from mutoscope.platform.orchestration.context import current_workflow
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.registry import REGISTRY


async def stage(id: str, **given: Any) -> dict[str, Any]:  # noqa: A002
    """Run a card or a workflow and return its outputs by name.

    Args:
        id: a card's id, or a workflow's id or name.
        given: the card's inputs and parameters, or the workflow's parameters.

    Returns:
        A card's artifacts by slot; a workflow's outputs as it declares them, a lone artifact under its kind.

    Raises:
        UnknownWorkflow: no card or workflow answers to the id.
        InvalidWorkflow: the executing workflow does not declare that it requires it, or it is running
            already.
        MutoscopeError: as the stage fails.
    """
    if id in cards():
        return dict(await engine_run(id, **given))
    context = current_workflow.get()
    found = (context.registry if context else REGISTRY).get(id)
    return found.outputs.by_name(await found.flow(**given))
