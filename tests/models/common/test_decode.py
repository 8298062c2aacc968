"""Decoding equals transformers' `generate`, token by token, and its log-probabilities recompute."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, Qwen2ForCausalLM

from mutoscope.models.common.causal_lm import CausalLM, stacked_log_probs, token_log_probs
from mutoscope.models.common.decode import Decode, DecodeState, Start
from mutoscope.models.common.sampling import Sampling
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.loop import Done, Rows
from tests.support.tiny_lm import save_tiny_lm

CLASSES: dict[str, Any] = {"qwen2": Qwen2ForCausalLM, "llama": LlamaForCausalLM}
PROMPT = torch.tensor([3, 6, 7, 10, 4])
STOPS = frozenset({1, 12})
LIMIT = 20
SAMPLINGS = {
    "greedy": Sampling(),
    "greedy, penalty": Sampling(repetition_penalty=1.4),
    "plain": Sampling(do_sample=True),
    "temperature": Sampling(do_sample=True, temperature=0.7),
    "top k": Sampling(do_sample=True, temperature=1.5, top_k=5),
    "top p": Sampling(do_sample=True, top_p=0.8),
    "everything": Sampling(True, temperature=0.9, top_k=8, top_p=0.7, repetition_penalty=1.3),
}


@pytest.fixture(scope="module", autouse=True)
def _contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(1))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A frozen model of a family; kept for the module."""
    made: dict[Any, Any] = {}

    def load(family: Any, seed: int = 3) -> Any:
        if (family, seed) not in made:
            folder = save_tiny_lm(tmp_path_factory.mktemp("lm") / "folder", family=family, seed=seed)
            made[family, seed] = CLASSES[family].from_pretrained(folder).eval().requires_grad_(False)
        return made[family, seed]

    return load


def start(sampling: Sampling = SAMPLINGS["plain"], seed: int = 0, **fields: Any) -> Start:
    fields = {"tokens_S": PROMPT, "stop_tokens": STOPS, "limit": LIMIT, "capture": True, **fields}
    return Start(sampling=sampling, seed=seed, **fields)


def begin(model: Any, asked: Start) -> tuple[Decode, DecodeState]:
    loop = Decode("decode", CausalLM(model), lambda slots: slots["start"], lambda state: {})
    return loop, loop.init({"start": asked})


@torch.inference_mode()
def decode(model: Any, asked: Start) -> DecodeState:
    loop, state = begin(model, asked)
    while not isinstance(plan := loop.next(state), Done):
        loop.advance(state, plan.run())
    return state


def generate(model: Any, sampling: Sampling, seed: int) -> Any:
    """What transformers makes of it. Its draws come from the global generator."""
    torch.manual_seed(seed)
    drawn = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
    return model.generate(
        PROMPT[None],
        attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
        do_sample=sampling.do_sample,
        repetition_penalty=sampling.repetition_penalty,
        max_new_tokens=LIMIT,
        eos_token_id=sorted(STOPS),
        output_logits=True,
        return_dict_in_generate=True,
        **(drawn if sampling.do_sample else {}),
    )


@pytest.mark.parametrize("family", CLASSES)
@pytest.mark.parametrize("name", SAMPLINGS)
def test_tokens_are_those_of_generate(family: str, name: str, model: Callable[..., Any]) -> None:
    sampling, lengths = SAMPLINGS[name], set()
    for seed in range(4):
        state, expected = (
            decode(model(family), start(sampling, seed)),
            generate(model(family), sampling, seed),
        )
        assert state.answer == expected.sequences[0, len(PROMPT) :].tolist()
        # Bit for bit the same logits: so are their log-probabilities.
        temperature = sampling.temperature if sampling.do_sample else 1.0
        logits = torch.stack(expected.logits)[:, 0].float() / temperature
        picked = logits.log_softmax(-1).gather(1, torch.tensor(state.answer)[:, None])[:, 0]
        assert state.capture == picked.tolist()
        lengths.add(len(state.answer))
    assert len(lengths) > 1 or not sampling.do_sample, "answers of several lengths, so stops were met"


def test_a_stop_token_ends_the_answer_and_is_not_said(model: Callable[..., Any]) -> None:
    whole = decode(model("qwen2"), start(stop_tokens=frozenset()))
    assert (len(whole.answer), whole.stopped, whole.said) == (LIMIT, False, whole.answer)
    stop = whole.answer[5]
    at = whole.answer.index(stop)
    cut = decode(model("qwen2"), start(stop_tokens=frozenset({stop})))
    assert (cut.answer, cut.stopped) == (whole.answer[: at + 1], True)
    assert cut.said == whole.answer[:at]


def test_one_token_is_the_prompts_step_alone(model: Callable[..., Any]) -> None:
    assert len(decode(model("qwen2"), start(limit=1)).answer) == 1


def test_a_seed_decides_the_draws(model: Callable[..., Any]) -> None:
    answers = [tuple(decode(model("qwen2"), start(seed=seed)).answer) for seed in (0, 0, 1, 2)]
    assert answers[0] == answers[1]
    assert len(set(answers)) == 3


def test_nothing_but_the_log_probs_is_new_under_capture(model: Callable[..., Any]) -> None:
    captured, plain = (decode(model("qwen2"), start(capture=flag)) for flag in (True, False))
    assert captured.answer == plain.answer
    assert (len(captured.capture or ()), plain.capture) == (len(captured.answer), None)


@torch.inference_mode()
def test_a_plan_changes_nothing_and_may_run_again(model: Callable[..., Any]) -> None:
    loop, state = begin(model("qwen2"), start())
    for _ in range(3):
        plan = loop.next(state)
        assert not isinstance(plan, Done)
        (logits, past), (again, _) = plan.run(), plan.run()
        assert torch.equal(logits, again)
        loop.advance(state, (logits, past))
    assert past.keys_BLHPD.shape == (1, 2, 2, len(PROMPT) + 2, 8)


@torch.inference_mode()
def test_requests_in_lockstep_share_calls(model: Callable[..., Any]) -> None:
    """Four samples of one prompt in one call at each step, until the first of them ends."""
    lm = CausalLM(model("qwen2"))
    asked = [start(seed=seed, stop_tokens=frozenset()) for seed in range(4)]
    loop = Decode("decode", lm, lambda slots: slots["start"], lambda state: {})
    states = [loop.init({"start": each}) for each in asked]
    for _ in range(LIMIT):
        plans = [loop.next(state) for state in states]
        assert len({(plan.kind, plan.shape, plan.rows.call) for plan in plans}) == 1
        for state, result in zip(states, together([plan.rows for plan in plans]), strict=True):
            loop.advance(state, result)
    for state, each in zip(states, asked, strict=True):
        alone = decode(model("qwen2"), each)
        assert state.answer == alone.answer
        # Another batch size may round otherwise.
        assert max(abs(a - b) for a, b in zip(state.capture, alone.capture, strict=True)) < 1e-5


def together(steps: list[Rows]) -> list[Any]:
    """Results of steps of one row each, from one call."""
    rows = [row for step in steps for row in step.make()]
    stacked = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    parts = zip(*(part.split(1) for part in steps[0].call(stacked)), strict=True)
    return [step.combine([part]) for step, part in zip(steps, parts, strict=True)]


class TestLogProbs:
    """C2: what was captured recomputes under the same weights, and under no others."""

    def difference(self, model: Any, sampling: Sampling, recomputing: Any) -> float:
        worst = 0.0
        for seed in range(6):
            state = decode(model, start(sampling, seed))
            again = token_log_probs(recomputing, PROMPT.tolist(), state.answer, sampling)
            worst = max(worst, float((again - torch.tensor(state.capture)).abs().max()))
        return worst

    @pytest.mark.parametrize("family", CLASSES)
    def test_recomputed_equals_captured(self, family: str, model: Callable[..., Any]) -> None:
        for sampling in (SAMPLINGS["plain"], SAMPLINGS["everything"], SAMPLINGS["greedy"]):
            assert self.difference(model(family), sampling, model(family)) < 1e-5

    def test_other_weights_give_others(self, model: Callable[..., Any]) -> None:
        assert self.difference(model("qwen2"), SAMPLINGS["plain"], model("qwen2", seed=4)) > 0.1

    @pytest.mark.parametrize("family", CLASSES)
    def test_answers_of_several_lengths_share_a_pass(self, family: str, model: Callable[..., Any]) -> None:
        """A shorter one is filled up behind its end, which it does not see."""
        policy, sampling = model(family), Sampling(do_sample=True, temperature=0.7)
        asked = [([3, 6], [7, 8, 1]), ([3, 6, 2, 5], [4]), ([9], [2, 2, 2, 2, 2, 2])]
        found = stacked_log_probs(policy, asked, [0.7] * len(asked))
        for (prompt, answer), log_p_T in zip(asked, found, strict=True):
            alone = token_log_probs(policy, prompt, answer, sampling)
            assert log_p_T.shape == (len(answer),)
            assert torch.allclose(log_p_T, alone, atol=1e-5)

    def test_they_are_differentiable_where_they_are_recomputed(self, model: Callable[..., Any]) -> None:
        policy = model("qwen2")
        head = policy.lm_head.weight.requires_grad_(True)
        token_log_probs(policy, [3, 6], [7, 8, 1], Sampling()).sum().backward()
        assert head.grad is not None
        assert float(head.grad.abs().max()) > 0
        head.grad = None
        head.requires_grad_(False)


@torch.inference_mode()
def test_interleaved_requests_are_served_as_if_alone(model: Callable[..., Any]) -> None:
    asked = [start(sampling, seed) for seed, sampling in enumerate(SAMPLINGS.values())]
    loop = Decode("decode", CausalLM(model("llama")), lambda slots: slots["start"], lambda state: {})
    states = [loop.init({"start": each}) for each in asked]
    running = list(states)
    while running:
        for state in list(running):
            plan = loop.next(state)
            if isinstance(plan, Done):
                running.remove(state)
            else:
                loop.advance(state, plan.run())
    for state, each in zip_longest(states, asked):
        alone = decode(model("llama"), each)
        assert (state.answer, state.capture) == (alone.answer, alone.capture)
