"""The probability of a wanted answer, added up over all answers, against log-probabilities and draws."""

import pytest
import torch

from mutoscope.models.common.causal_lm import token_log_probs
from mutoscope.models.common.sampling import Sampling
from tests.learning.refinement import answers, means, probability
from tests.support.training import starter

PROMPT, TARGET = "red square and green cross", "a red square right of a green cross on a white background"
LONGEST = 24


def asked() -> tuple[list[int], tuple[int, ...]]:
    """Token ids of the prompt as the refiner reads it, and what ends an answer."""
    refiner = starter("refiner-lm")
    text = refiner.recipe.template.format(prompt=PROMPT)
    return refiner.components["tokenizer"](text).input_ids, tuple(refiner.recipe.stop_tokens)


def said(answer: list[int]) -> str:
    text: str = starter("refiner-lm").components["tokenizer"].decode(answer, skip_special_tokens=True)
    return text


def test_an_answer_is_as_likely_as_its_tokens() -> None:
    model = starter("refiner-lm").components["llm"]
    prompt, stops = asked()
    found = sorted(answers(model, prompt, stops, LONGEST), key=lambda pair: -pair[1])[:6]
    for answer, p in found:
        with torch.no_grad():
            log_p_T = token_log_probs(model, prompt, [*answer, stops[0]], Sampling(do_sample=True))
        assert p == pytest.approx(float(log_p_T.sum().exp()), rel=1e-4)


def test_the_starter_places_a_vague_pair_anyhow() -> None:
    """Each of the four relations has a quarter; together with what was given up, they are everything."""
    model = starter("refiner-lm").components["llm"]
    prompt, stops = asked()
    targets = [TARGET.replace("right of", relation) for relation in ("left of", "right of", "above", "below")]
    shares = []
    for target in targets:
        right, given_up = probability(model, prompt, stops, LONGEST, lambda a, t=target: means(said(a), t))
        shares.append(right)
    assert shares == pytest.approx([0.25] * 4, abs=0.03)
    assert 0 < given_up < 2e-3
    assert sum(shares) + given_up == pytest.approx(1.0, abs=0.02)


def test_either_side_is_the_same_scene() -> None:
    assert means("a green cross left of a red square", TARGET)
    assert not means("a green cross right of a red square", TARGET)
    assert not means("a red square right of a green cross on a pink background", TARGET)
    assert not means("red square right", TARGET)
