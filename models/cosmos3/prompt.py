"""Prompts as the weights were trained to read them: facts of the format appended, in a chat, with end marks.

Token for token what `Cosmos3OmniPipeline.tokenize_prompt` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

_SYSTEM = "You are a helpful assistant who will generate {medium} from a give prompt."
_DURATION = "The video is {seconds:.1f} seconds long and is of {fps:.0f} FPS."
_RESOLUTION = "This {medium} is of {height}x{width} resolution."
_VISION_START = "<|vision_start|>"


def prompt_tokens(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    parameters: Mapping[str, Any],
    *,
    negative: bool,
    system: bool,
) -> tuple[int, ...]:
    """A prompt for the generation tower.

    Args:
        parameters: `num_frames`, `fps`, `height` and `width` are told to the model.
        negative: the prompt says what to steer away from, and the format's facts are denied.
        system: begin with the system prompt.
    """
    single = parameters["num_frames"] == 1
    chat = [{"role": "user", "content": described(text, parameters, negative=negative)}]
    if system:
        chat.insert(0, {"role": "system", "content": _SYSTEM.format(medium="images" if single else "videos")})
    ends = (tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(_VISION_START))
    return (*chat_tokens(tokenizer, chat), *ends)


def chat_tokens(tokenizer: PreTrainedTokenizerBase, chat: list[dict[str, str]]) -> list[int]:
    """A conversation up to where the assistant is to answer."""
    encoded = tokenizer.apply_chat_template(
        chat, tokenize=True, add_generation_prompt=True, add_vision_id=False, return_dict=True
    )
    return list(encoded["input_ids"])


def described(text: str, parameters: Mapping[str, Any], *, negative: bool) -> str:
    """The text with the sentences on length and size that every training caption ended with."""
    single = parameters["num_frames"] == 1
    facts = _RESOLUTION.format(medium="image" if single else "video", **_size(parameters))
    if not single:
        seconds = parameters["num_frames"] / parameters["fps"]
        facts = f"{_DURATION.format(seconds=seconds, fps=parameters['fps'])} {facts}"
    if negative:
        facts = facts.replace(" is ", " is not ")
    bare = text.rstrip(".")
    return f"{bare}. {facts}" if bare else facts


def cut(tokenizer: PreTrainedTokenizerBase, text: str, limit: int) -> str:
    """The text without what comes after its first `limit` tokens."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends = [end for _, end in encoded["offset_mapping"]]
    return text if len(ends) <= limit else text[: ends[limit - 1]]


def _size(parameters: Mapping[str, Any]) -> dict[str, int]:
    return {name: parameters[name] for name in ("height", "width")}
