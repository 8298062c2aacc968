"""The card of CLIP similarity, for any CLIPModel folder. No torch."""

from __future__ import annotations

from pydantic import Field

from mutoscope.models.reward.common.parameters import INPUTS, OUTPUTS, RewardParameters, RewardRecipe
from mutoscope.platform.engine.card import Card, ComponentSpec

TOKENIZERS = ("CLIPTokenizer", "CLIPTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")
IMAGE_PROCESSORS = ("CLIPImageProcessor", "CLIPImageProcessorPil", "CLIPImageProcessorFast")


class ClipParameters(RewardParameters):
    """What a request may set."""

    prompt: str = Field(
        min_length=1, description="What the sample should show; cut where CLIP reads no more."
    )


CARD = Card(
    id="reward-clip",
    title="Scores how near picture and prompt are to a CLIP model",
    components=(
        ComponentSpec("scorer", "transformers", ("CLIPModel",)),
        ComponentSpec("tokenizer", "transformers", TOKENIZERS, weighted=False),
        ComponentSpec("image_processor", "transformers", IMAGE_PROCESSORS, weighted=False),
    ),
    inputs=INPUTS,
    outputs=OUTPUTS,
    parameters=ClipParameters,
    recipe=RewardRecipe,
    inspector="mutoscope.models.reward.clip.folder:inspect",
    loader="mutoscope.models.reward.clip.components:load",
    builder="mutoscope.models.reward.clip.program:build",
    sources=("mutoscope.models.reward.clip", "mutoscope.models.reward.common", "mutoscope.models.common"),
    run_kind="reward",
    seeded=False,
)
