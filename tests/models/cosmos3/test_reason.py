"""The understanding tower decodes text as the module's own forward and as transformers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import Cosmos3OmniTransformer
from torch import Tensor
from transformers import Cosmos3OmniConfig, Cosmos3OmniForConditionalGeneration

from mutoscope.models.common.sampling import Sampling, choose
from mutoscope.models.cosmos3.card import CARD
from mutoscope.models.cosmos3.prompt import chat_tokens
from mutoscope.models.cosmos3.reason import Reason
from mutoscope.models.cosmos3.towers import Understanding
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import WARNINGS, WorkPlan
from mutoscope.platform.engine.request import Request
from tests.models.cosmos3.oracle import logits_by_forward

PROMPT = "a red circle"
TOKENS = 24
SAMPLED = {"temperature": 1.3, "top_p": 0.9}


def request(**parameters: Any) -> Request:
    return Request("r", CARD.id, {}, {"prompt": PROMPT, "reasoning_tokens": TOKENS, **parameters}, 7)


def asked(instance: Instance) -> list[int]:
    """The tokens of the conversation that the answer continues."""
    chat = [
        {"role": "system", "content": instance.recipe.reasoning_instruction},
        {"role": "user", "content": PROMPT},
    ]
    return chat_tokens(instance.components["text_tokenizer"], chat)


def answered(instance: Instance, **parameters: Any) -> list[int]:
    """The tokens the loop came to, the one it stopped at included."""
    loop = instance.program.nodes[0].loop
    assert isinstance(loop, Reason)
    given = request(**parameters)
    resolved = Request("r", CARD.id, {}, CARD.resolve(given.parameters, instance.recipe), given.seed)
    state = loop.init({"request": resolved})
    with torch.inference_mode():
        while isinstance(plan := loop.next(state), WorkPlan):
            loop.advance(state, plan.run())
    return state.decoding.answer


def recomputed(instance: Instance, sampling: Sampling) -> list[int]:
    """The same by a forward pass of the whole module over the whole text for every token."""
    module, tokenizer = instance.components["transformer"], instance.components["text_tokenizer"]
    prompt, said = asked(instance), list[int]()
    generator = torch.Generator("cpu").manual_seed(7)
    with torch.inference_mode():
        while len(said) < TOKENS and not {tokenizer.eos_token_id, tokenizer.pad_token_id} & set(said):
            logits_V = logits_by_forward(module, [*prompt, *said])[-1]
            said.append(choose(logits_V, torch.tensor([*prompt, *said]), sampling, generator))
    return said


@pytest.mark.parametrize("name", ["qwen3", "nemotron"])
@pytest.mark.parametrize(
    ("parameters", "sampling"),
    [({"temperature": 0.0}, Sampling()), (SAMPLED, Sampling(do_sample=True, **SAMPLED))],
    ids=["greedy", "sampled"],
)
def test_tokens_equal_a_full_recomputation(
    name: str, parameters: dict[str, Any], sampling: Sampling, instance_of: Callable[[str], Instance]
) -> None:
    """With keys and values kept, against none kept and both towers run."""
    instance = instance_of(name)
    answer = answered(instance, **parameters)
    assert answer == recomputed(instance, sampling)
    assert len(answer) > 4


@pytest.mark.parametrize("name", ["qwen3", "nemotron"])
def test_logits_with_the_cache_equal_those_without_it(
    name: str, instance_of: Callable[[str], Instance]
) -> None:
    """To rounding: a pass over one token sums in another order than one over all."""
    module = instance_of(name).components["transformer"]
    tower, tokens = Understanding(module), asked(instance_of(name))
    with torch.inference_mode():
        wanted_SV = logits_by_forward(module, tokens)
        logits_V, cache = tower.extend(torch.tensor(tokens[:5]), None)
        torch.testing.assert_close(logits_V, wanted_SV[4], rtol=0, atol=1e-5)
        for at in range(5, len(tokens)):
            before = cache.keys.clone()
            logits_V, grown = tower.extend(torch.tensor(tokens[at : at + 1]), cache)
            torch.testing.assert_close(logits_V, wanted_SV[at], rtol=0, atol=1e-5)
            assert torch.equal(cache.keys, before), "a step changed the cache that it was given"
            cache = grown


@pytest.mark.parametrize("parameters", [{"temperature": 0.0}, SAMPLED], ids=["greedy", "sampled"])
def test_tokens_equal_generate_of_transformers(
    parameters: dict[str, Any], instance_of: Callable[[str], Instance]
) -> None:
    """The Reasoner that transformers reads from a unified checkpoint, over the same weights."""
    instance = instance_of("qwen3")
    tokenizer = instance.components["text_tokenizer"]
    reasoner, prompt = reasoner_of(instance.components["transformer"]), asked(instance)
    draw = (
        {"do_sample": True, "top_k": 0, **parameters} if parameters["temperature"] else {"do_sample": False}
    )
    torch.manual_seed(7)
    with torch.inference_mode():
        [tokens] = reasoner.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=TOKENS,
            eos_token_id=[tokenizer.eos_token_id, tokenizer.pad_token_id],
            pad_token_id=tokenizer.pad_token_id,
            **draw,
        ).tolist()
    assert answered(instance, **parameters) == tokens[len(prompt) :]


NAMES = {
    "to_q": "q_proj",
    "to_k": "k_proj",
    "to_v": "v_proj",
    "to_out": "o_proj",
    "norm_q": "q_norm",
    "norm_k": "k_norm",
}
"""The understanding tower's modules, as transformers calls them; the others have one name in both."""


def reasoner_of(module: Cosmos3OmniTransformer) -> Cosmos3OmniForConditionalGeneration:
    """transformers' class over the understanding tower's weights; its vision part is not asked."""
    config = module.config
    text = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": config.rope_theta,
            "mrope_section": list(config.rope_axes_dim),
        },
    }
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": config.hidden_size,
        "deepstack_visual_indexes": [0],
        "num_position_embeddings": 16,
    }
    reasoner = Cosmos3OmniForConditionalGeneration(
        Cosmos3OmniConfig(text_config=text, vision_config=vision)
    ).eval()
    weights: dict[str, Tensor] = {}
    for name, tensor in module.state_dict().items():
        parts = [NAMES.get(part, part) for part in name.split(".")]
        weights[".".join(parts) if parts[0] == "lm_head" else ".".join(["model.language_model", *parts])] = (
            tensor
        )
    lost = [
        name for name in reasoner.load_state_dict(weights, strict=False).missing_keys if "visual" not in name
    ]
    assert lost == []
    return reasoner


def test_a_text_is_what_the_tower_wrote(instance_of: Callable[[str], Instance]) -> None:
    instance = instance_of("qwen3")
    answer = answered(instance)
    result = Engine().run(instance, request())
    decoded = instance.components["text_tokenizer"].decode(answer, skip_special_tokens=True).strip()
    assert result.outputs["text"].value == decoded


def test_seed_and_temperature_decide_a_drawn_text_and_no_other(
    instance_of: Callable[[str], Instance],
) -> None:
    instance = instance_of("qwen3")

    def text(seed: int, **parameters: Any) -> str:
        given = Request("r", CARD.id, {}, {"prompt": PROMPT, "reasoning_tokens": 8, **parameters}, seed)
        value: str = Engine().run(instance, given).outputs["text"].value
        return value

    assert text(1) == text(2)
    assert text(1, **SAMPLED) == text(1, **SAMPLED)
    assert len({text(seed, **SAMPLED) for seed in range(4)}) > 1


class Silent(Understanding):
    """A tower whose first word is the end."""

    def forward(self, rows: Any) -> tuple[Tensor, Tensor, Tensor]:
        logits_BV, keys, values = super().forward(rows)
        logits_BV = logits_BV.clone()
        logits_BV[:, 3] = 1e4  # <|im_end|>
        return logits_BV, keys, values


def test_an_empty_answer_leaves_the_prompt(
    instance_of: Callable[[str], Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = instance_of("qwen3")
    loop = instance.program.nodes[0].loop
    monkeypatch.setattr(loop.tokens, "model", Silent(instance.components["transformer"]))
    result = Engine().run(instance, request())
    assert result.outputs["text"].value == PROMPT
    assert result.warnings == ("the model rewrote the prompt as nothing: it was drawn as given",)


def test_cut_texts_are_said(instance_of: Callable[[str], Instance]) -> None:
    instance = instance_of("qwen3")
    long = "red circle blue square green triangle left right"
    given = {"prompt": long, "negative_prompt": "blurry " * 5, "max_sequence_length": 4}
    result = Engine().run(instance, request(**given, reasoning_tokens=0))
    assert result.outputs["text"].value == "red circle blue square"
    assert result.warnings == (
        "prompt has 8 tokens; the model reads 4: the last 4 were cut: 'green triangle left right'",
        "negative_prompt has 5 tokens; the model reads 4: the last 1 was cut: 'blurry'",
    )
    rewritten = Engine().run(instance, request(reasoning_tokens=2))
    assert rewritten.warnings == ("the rewritten prompt was cut at 2 tokens: raise reasoning_tokens",)
    assert WARNINGS not in rewritten.outputs
