"""How a token is chosen, on logits small enough to follow by hand."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from mutoscope.models.common.sampling import Sampling, choose, log_prob

LOGITS = torch.tensor([0.5, 2.0, 1.0, 1.0, -1.0]).log_softmax(-1)
NOTHING = torch.tensor([], dtype=torch.long)


def drawn(sampling: Sampling, said: torch.Tensor = NOTHING, count: int = 800) -> Counter[int]:
    generator = torch.Generator().manual_seed(1)
    return Counter(choose(LOGITS, said, sampling, generator) for _ in range(count))


def test_greedy_takes_the_likeliest_and_draws_nothing() -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    assert choose(LOGITS, NOTHING, Sampling(temperature=9.0, top_k=1), generator) == 1
    assert torch.equal(generator.get_state(), before)


def test_draws_follow_the_softmax_over_the_temperature() -> None:
    for temperature in (0.5, 1.0, 2.0):
        counts = drawn(Sampling(do_sample=True, temperature=temperature))
        shares = torch.tensor([counts[token] / 800 for token in range(5)])
        # The standard deviation of a share is 0.018 at most.
        torch.testing.assert_close(shares, (LOGITS / temperature).softmax(-1), atol=0.07, rtol=0)


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        (Sampling(do_sample=True, top_k=1), {1}),
        # Tokens 2 and 3 tie for the second place, so both stay.
        (Sampling(do_sample=True, top_k=2), {1, 2, 3}),
        (Sampling(do_sample=True, top_k=9), {0, 1, 2, 3, 4}),
        # Shares are 0.11, 0.50, 0.18, 0.18 and 0.03.
        (Sampling(do_sample=True, top_p=0.45), {1}),
        (Sampling(do_sample=True, top_p=0.85), {1, 2, 3}),
        (Sampling(do_sample=True, top_p=1e-9), {1}),
    ],
)
def test_what_may_be_drawn(sampling: Sampling, allowed: set[int]) -> None:
    assert set(drawn(sampling)) == allowed


def test_a_penalty_makes_what_was_said_less_likely_whatever_its_sign() -> None:
    logits = torch.tensor([2.0, -1.0, 1.5])
    generator = torch.Generator()
    # 2.0 / 2 = 1.0 falls behind 1.5; said twice counts once.
    assert choose(logits, torch.tensor([0, 0]), Sampling(repetition_penalty=2.0), generator) == 2
    # -1.0 x 2 = -2.0 falls behind -1.5.
    assert (
        choose(torch.tensor([-1.0, -1.5]), torch.tensor([0]), Sampling(repetition_penalty=2.0), generator)
        == 1
    )


def test_log_prob_is_of_the_whole_policy() -> None:
    narrowed = Sampling(do_sample=True, temperature=2.0, top_k=1, top_p=0.1, repetition_penalty=3.0)
    expected = (LOGITS / 2.0).log_softmax(-1)
    assert log_prob(LOGITS, 4, narrowed) == float(expected[4])
    assert log_prob(LOGITS, 1, Sampling(temperature=2.0)) == float(LOGITS.log_softmax(-1)[1])
