"""The parity library itself, on toy cards: what it compares, and how it says what it found."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from mutoscope.platform.clip import Clip
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.batching import Batcher, Mode, Sizes
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity import gates
from mutoscope.platform.engine.parity.check import check, mixture
from mutoscope.platform.engine.parity.content import content, differing, largest_difference
from mutoscope.platform.engine.parity.plants import SharedState, planted, swapped_weights
from mutoscope.platform.engine.parity.report import Finding, Report, Verdict
from mutoscope.platform.engine.parity.serving import orders, together
from mutoscope.platform.engine.request import Output, Result
from tests.engine.rowtoy import ERROR, NAN, row_instance, row_request
from tests.engine.toy import LeakyLoop, toy_instance, toy_request


@pytest.fixture(autouse=True)
def _contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(1))


def result(**outputs: Output) -> Result:
    return Result("r", outputs, {})


class TestContent:
    def test_every_value_has_a_path(self) -> None:
        clip = Clip(np.zeros((1, 2, 2, 3), np.uint8), np.zeros((1, 4), np.float32), 8000)
        made = result(
            video=Output("video", clip, {"fps": 8}),
            latent=Output("latent", {"x": np.ones(2, np.float32)}),
            text=Output("text", "a red circle"),
        )
        assert list(content(made)) == [
            "video.frames_THWC", "video.audio_CN", "video.sample_rate", "video.meta.fps",
            "latent.x", "text",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (np.zeros(2, np.float32), np.zeros((2, 1), np.float32)),
            (np.zeros(2, np.float32), np.zeros(2, np.int32)),
            (np.array([0.0]), np.array([-0.0])),
            ("a", b"a"),
            (1, 1.0),
        ],
    )
    def test_what_is_not_equal_bit_for_bit_differs(self, one: object, other: object) -> None:
        left, right = (content(result(x=Output("json", value))) for value in (one, other))
        assert differing(left, right) == ("x",)

    def test_nan_equals_itself(self) -> None:
        made = content(result(x=Output("latent", np.array([math.nan], np.float32))))
        assert differing(made, dict(made)) == ()

    def test_the_largest_difference_is_over_all_float_arrays(self) -> None:
        one = result(x=Output("latent", {"a": np.zeros(3, np.float32), "n": np.zeros(2, np.int64)}))
        other = result(
            x=Output("latent", {"a": np.array([0, 0.5, -1], np.float32), "n": np.ones(2, np.int64)})
        )
        assert largest_difference(one, other) == 1.0


class TestServingTogether:
    def test_a_sound_card_passes(self) -> None:
        requests = [toy_request("a"), toy_request("b", seed=1), toy_request("c", num_inference_steps=5)]
        found = gates.serving_together(toy_instance(), requests)
        assert found.verdict is Verdict.PASSED
        assert found.figures["mixes"] == 12  # six orders, two staggers
        assert "interleaved only: batching is off" in found.detail

    def test_state_on_the_loop_is_noticed(self) -> None:
        found = gates.serving_together(
            toy_instance(LeakyLoop()), [toy_request("a"), toy_request("b", seed=1)]
        )
        assert found.verdict is Verdict.FAILED
        assert "differ, first interleaved, " in found.detail

    def test_batches_are_compared_in_bitwise_mode(self) -> None:
        instance = _bitwise()
        found = gates.serving_together(instance, [row_request(name, at) for at, name in enumerate("abc")])
        assert found.verdict is Verdict.PASSED
        assert found.figures["shared_calls"] > 0

    def test_a_card_that_fails_by_itself_fails(self) -> None:
        found = gates.serving_together(_bitwise(), [row_request("a", trouble=ERROR), row_request("b")])
        assert found.verdict is Verdict.FAILED
        assert found.detail.startswith("alone, a fails: ArithmeticError")

    def test_an_unserved_request_is_a_finding_and_no_exception(self) -> None:
        found = gates.serving_together(toy_instance(), [toy_request("a", prompt="")])
        assert found.verdict is Verdict.FAILED
        assert "InvalidParameter" in found.detail


def _bitwise() -> Instance:
    instance = row_instance()
    sizes = {("denoise", (8, 8)): Sizes((1, 2, 3, 4))}
    return replace(instance, batcher=Batcher(Mode.BITWISE, sizes))


class TestTolerance:
    def test_figures_are_compared_with_the_limit(self) -> None:
        instance = row_instance(most=4)
        found = gates.within_tolerance(instance, [row_request("a"), row_request("b", 1)])
        assert (found.verdict, found.figures["largest_difference"]) == (Verdict.PASSED, 0.0)

    def test_trouble_fails_it(self) -> None:
        found = gates.within_tolerance(row_instance(most=4), [row_request("a", trouble=NAN)])
        assert found.verdict is Verdict.FAILED

    def test_it_is_for_that_mode_only(self) -> None:
        assert gates.within_tolerance(row_instance(), []).verdict is Verdict.NOT_APPLICABLE


class TestLogProbs:
    @pytest.mark.parametrize(
        ("again", "verdict"),
        [
            ([-1.0, -2.0], Verdict.PASSED),
            ([-1.0, -2.0 + 5e-6], Verdict.PASSED),
            ([-1.0, -2.0 + 2e-5], Verdict.FAILED),
            ([-1.0, math.nan], Verdict.FAILED),
        ],
    )
    def test_the_limit(self, again: list[float], verdict: Verdict) -> None:
        captured = np.array([-1.0, -2.0], np.float32)
        found = gates.compared_log_probs([(captured, np.array(again, np.float32))])
        assert found.verdict is verdict
        assert found.figures["steps"] == 2

    def test_nothing_to_compare_does_not_pass(self) -> None:
        assert gates.compared_log_probs([]).verdict is Verdict.NOT_APPLICABLE


class TestPlants:
    def test_they_leave_the_original_alone(self) -> None:
        instance = toy_instance()
        before = together(instance, [toy_request("a")])
        assert planted(instance, SharedState) is not None
        assert together(instance, [toy_request("a")]) == before

    def test_other_weights_are_gone_afterwards(self) -> None:
        instance = row_instance()
        before = together(instance, [row_request("a")])
        with swapped_weights(instance):
            assert together(instance, [row_request("a")]) != before
        assert together(instance, [row_request("a")]) == before


class TestReport:
    def test_a_control_that_is_not_caught_fails_the_report(self) -> None:
        sound = Finding("gate", Verdict.PASSED, "held")
        missed = Finding("planted", Verdict.FAILED, "not caught by gate: held", control=True)
        assert Report("toy", (sound,)).ok
        assert not Report("toy", (sound, missed)).ok
        assert str(missed) == "failed  control  planted: not caught by gate: held"

    def test_it_is_plain_json(self) -> None:
        report = check(toy_instance(), variants=[{}, {"num_inference_steps": 4}])
        assert json.loads(json.dumps(report.plain())) == report.plain()
        assert report.ok, report
        assert [finding.name for finding in report.findings if finding.control] == ["planted global"]


def test_the_mixture_varies_what_the_card_knows() -> None:
    requests = mixture(toy_instance())
    assert [(request.id, request.seed, dict(request.parameters)) for request in requests] == [
        ("r0", 0, {"prompt": requests[0].parameters["prompt"], "num_inference_steps": 3}),
        (
            "r1",
            1,
            {"prompt": requests[0].parameters["prompt"], "num_inference_steps": 3, "guidance_scale": 1.0},
        ),
        ("r2", 2, {"prompt": requests[0].parameters["prompt"], "num_inference_steps": 2}),
        ("twin", 0, {"prompt": requests[0].parameters["prompt"], "num_inference_steps": 3}),
    ]


def test_orders_begin_with_the_given_one_and_its_reverse() -> None:
    requests = [toy_request(name) for name in "abc"]
    names = ["".join(request.id for request in order) for order in orders(requests, 6)]
    assert names[:2] == ["abc", "cba"]
    assert sorted(names) == sorted({"abc", "acb", "bac", "bca", "cab", "cba"})
    assert [len(orders(requests, most)) for most in (1, 2, 4)] == [1, 2, 4]
    assert len(orders(requests[:1], 6)) == 1
