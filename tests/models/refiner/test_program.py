"""A refiner's answers are transformers' own, whoever it is served with; a rollout is one with its tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from mutoscope.models.common.causal_lm import token_log_probs
from mutoscope.models.common.sampling import Sampling
from mutoscope.models.refiner.card import CARD, INSTRUCTION
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Profile, Request, Result
from mutoscope.platform.errors import InvalidParameter
from tests.models.refiner.conftest import WEIGHTS

PROMPT = "red circle, blue square left"
DRAWN = {"do_sample": True, "temperature": 1.2, "top_k": 12, "top_p": 0.95, "repetition_penalty": 1.1}
Resident = Callable[[str], Instance]


def ask(instance: Instance, seed: int = 7, profile: Profile = Profile.SERVE, **given: Any) -> Result:
    request = Request("r", CARD.id, {}, {"prompt": PROMPT, **given}, seed, profile)
    return Engine().run(instance, request)


def text(result: Result) -> str:
    value: str = result.outputs["text"].value
    return value


def by_generate(folder: Path, asked: str, limit: int, seed: int = 7, **options: Any) -> str:
    """What a script with transformers makes of the same folder and text."""
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()  # memory as an instance has it: alignment can steer a kernel
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    ids = tokenizer(asked, return_tensors="pt", add_special_tokens=not options.pop("chat", False)).input_ids
    torch.manual_seed(seed)
    made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, **options)
    written: str = tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
    return written.strip()


@pytest.mark.parametrize("options", [{}, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_the_answer_is_that_of_generate(
    family: str, options: dict[str, Any], instance: Resident, tiny: Callable[[str], Path]
) -> None:
    answers = set()
    for seed in range(6):
        answer = text(ask(instance(family), seed, **options))
        assert answer == by_generate(tiny(family), f"{PROMPT} =>", 8, seed, **options)
        answers.add(answer)
    assert len(answers) == 1 if not options else len(answers) > 3


@pytest.mark.parametrize("options", [{}, DRAWN], ids=["greedy", "drawn"])
def test_the_starter_refiner_answers_as_generate_does(options: dict[str, Any]) -> None:
    folder = starter_folder(CARD.id)
    assert folder is not None
    resident = load_instance(CARD, folder)
    for seed in range(4):
        expected = by_generate(folder, f"{PROMPT} =>", 24, seed, **options)
        assert text(ask(resident, seed, **options)) == expected


def test_a_chat_model_is_asked_through_its_template(instance: Resident, tiny: Callable[[str], Path]) -> None:
    asked = f"system : {INSTRUCTION} user : {PROMPT} =>"
    assert text(ask(instance("chat"))) == by_generate(tiny("chat"), asked, 6, chat=True)


def test_serving_together_changes_nothing(instance: Resident) -> None:
    variants: list[dict[str, Any]] = [{}, DRAWN, {"max_new_tokens": 3}, {"prompt": "blue cross"}, DRAWN]
    alone = [text(ask(instance("qwen2"), seed, **given)) for seed, given in enumerate(variants)]
    engine = Engine()
    tickets = [
        engine.submit(instance("qwen2"), Request(f"r{seed}", CARD.id, {}, {"prompt": PROMPT, **given}, seed))
        for seed, given in enumerate(variants)
    ]
    while engine.step():
        pass
    assert [text(ticket.result()) for ticket in tickets] == alone


class TestRollout:
    def test_serving_has_the_same_text_and_no_tokens(self, instance: Resident) -> None:
        served = ask(instance("qwen2"), **DRAWN)
        rolled = ask(instance("qwen2"), profile=Profile.ROLLOUT, **DRAWN)
        assert set(served.outputs) == {"text"}
        assert set(rolled.outputs) == {"text", "tokens"}
        assert text(rolled) == text(served)

    def test_it_draws_from_the_whole_policy_unless_told_otherwise(self, instance: Resident) -> None:
        rolled = ask(instance("qwen2"), profile=Profile.ROLLOUT)
        plain = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
        assert text(rolled) == text(ask(instance("qwen2"), **plain))
        assert text(rolled) != text(ask(instance("qwen2")))

    def test_what_it_records_recomputes(self, instance: Resident) -> None:
        resident = instance("qwen2")
        for seed in range(5):
            record = ask(resident, seed, Profile.ROLLOUT, temperature=0.8).outputs["tokens"].value
            assert record["weights"] == WEIGHTS
            assert (record["temperature"], record["seed"]) == (0.8, seed)
            sampling = Sampling(do_sample=True, temperature=record["temperature"])
            again = token_log_probs(resident.components["llm"], record["prompt"], record["answer"], sampling)
            assert float((again - torch.tensor(record["log_probs"])).abs().max()) < 1e-5

    def test_a_seed_repeats_it(self, instance: Resident) -> None:
        first, second = (ask(instance("llama"), 3, Profile.ROLLOUT).outputs["tokens"].value for _ in "ab")
        assert first == second
        assert first != ask(instance("llama"), 4, Profile.ROLLOUT).outputs["tokens"].value


class TestWarnings:
    def test_a_prompt_beyond_the_context_is_cut_and_said(self, instance: Resident) -> None:
        result = ask(instance("qwen2"), prompt="red circle and " * 20 + "black cross")
        # 62 words, <s>, => and 8 tokens of answer are 72, 24 more than the model reads.
        assert result.warnings[0].startswith(
            "prompt has 62 tokens; the refiner reads 48 with its template and 8 of answer: "
            "the last 24 were cut: 'and red circle and red circle"
        )
        shorter = "red circle and " * 12 + "red circle"
        assert text(result) == text(ask(instance("qwen2"), prompt=shorter))
        assert not any("prompt" in line for line in ask(instance("qwen2"), prompt=shorter).warnings)

    def test_an_answer_that_did_not_end_is_said(self, instance: Resident) -> None:
        result = ask(instance("no end"), max_new_tokens=5)
        assert result.warnings == ("the refiner was cut after 5 tokens: raise max_new_tokens",)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"max_new_tokens": 48}, "max_new_tokens=48 is not valid: use less than 48, the context of these"),
        ({"max_new_tokens": 47}, "max_new_tokens=47 is not valid: use 46 or less: the template takes the"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 is not valid: use 1 or more"),
        ({"temperature": 0}, "temperature=0 is not valid: use a number greater than 0"),
        ({"top_p": 1.5}, "top_p=1.5 is not valid: use 1.0 or less"),
        ({"prompt": ""}, "prompt='' is not valid: use at least 1 characters"),
        ({"beams": 2}, "beams=2 is not valid: refiner-lm takes prompt, max_new_tokens"),
    ],
)
def test_refusals_name_field_value_and_remedy(given: dict[str, Any], line: str, instance: Resident) -> None:
    with pytest.raises(InvalidParameter, match=line):
        ask(instance("qwen2"), **given)


def test_a_rollout_takes_no_parameters_of_diffusion(instance: Resident) -> None:
    with pytest.raises(InvalidParameter, match="law='cps' is not valid: refiner-lm takes prompt"):
        ask(instance("qwen2"), profile=Profile.ROLLOUT, law="cps")
