"""Group advantages by numbers worked by hand."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.advantages import group_advantages

EPSILON = 1e-4


def test_a_group_by_hand() -> None:
    # mean 3, squares 4 1 0 9, their mean 3.5 (population), std √3.5 = 1.870829
    [values] = group_advantages([[1.0, 2.0, 3.0, 6.0]]).values
    unit = math.sqrt(3.5) + EPSILON
    assert values == pytest.approx((-2 / unit, -1 / unit, 0.0, 3 / unit))
    assert values == pytest.approx((-1.06898, -0.53449, 0.0, 1.60348), abs=1e-5)


def test_groups_do_not_mix() -> None:
    alone = group_advantages([[0.2, 0.9, 0.4]]).values
    beside = group_advantages([[5.0, -5.0], [0.2, 0.9, 0.4]]).values
    assert beside[1:] == alone


def test_only_differences_of_a_group_count() -> None:
    scores = [0.2, 0.9, 0.4, 0.7]
    [values] = group_advantages([scores], epsilon=0).values
    [moved] = group_advantages([[100 + 7 * score for score in scores]], epsilon=0).values
    assert moved == pytest.approx(values)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_advantage_is_clipped(sign: int) -> None:
    # 99 zeros and a one: mean 0.01, variance 0.01·0.99, the one's advantage 0.99/√0.0099 = 9.95
    [values] = group_advantages([[0.0] * 99 + [1.0 * sign]]).values
    assert values[-1] == 5.0 * sign
    assert values[0] == pytest.approx(-0.01 * sign / (math.sqrt(0.0099) + EPSILON))
    [wider] = group_advantages([[0.0] * 99 + [1.0 * sign]], clip=20, epsilon=0).values
    assert wider[-1] == pytest.approx(sign * math.sqrt(99))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, -0.7, 0.0, 1e-300, 1e8 + 0.1])
@pytest.mark.parametrize("scale", ["group", "global", "none"])
def test_a_constant_reward_says_nothing(scale: str, reward: float, size: int) -> None:
    groups = [[reward] * size, [reward] * size]
    dropped = group_advantages(groups, scale=scale)
    assert dropped.values == ((None,) * size,) * 2
    assert (dropped.zero_std_groups, dropped.dropped_groups, dropped.empty) == (2, 2, True)
    kept = group_advantages(groups, scale=scale, drop_zero_std=False)
    assert kept.values == ((0.0,) * size,) * 2
    assert (kept.zero_std_groups, kept.dropped_groups, kept.empty) == (2, 0, True)


def test_what_differs_by_less_than_epsilon_says_little() -> None:
    [values] = group_advantages([[0.5, 0.5 + 1e-9]]).values
    assert 0 < values[1] < 1e-5


def test_no_score_is_not_a_low_score() -> None:
    [values] = group_advantages([[1.0, None, 3.0]]).values
    assert values == pytest.approx((-1 / (1 + EPSILON), None, 1 / (1 + EPSILON)))


def test_groups_that_say_nothing_are_counted() -> None:
    found = group_advantages([[1.0, 2.0], [0.3, 0.3, None], [None, None], [4.0, None], []])
    assert [[value is None for value in group] for group in found.values] == [
        [False, False],
        [True] * 3,
        [True] * 2,
        [True] * 2,
        [],
    ]
    # A group without any score is none of them: it has nothing that could be equal.
    assert (found.zero_std_groups, found.dropped_groups, found.empty) == (2, 2, False)


def test_a_global_deviation_by_hand() -> None:
    # 0 1 10 14: mean 6.25, squares 39.0625 27.5625 14.0625 60.0625, variance 140.75/4 = 35.1875
    found = group_advantages([[0.0, 1.0], [10.0, 14.0]], scale="global")
    unit = math.sqrt(35.1875) + EPSILON
    assert found.values[0] == pytest.approx((-0.5 / unit, 0.5 / unit))
    assert found.values[1] == pytest.approx((-2 / unit, 2 / unit))


def test_a_global_deviation_knows_the_groups_that_are_dropped() -> None:
    found = group_advantages([[0.0, 0.0], [10.0, 14.0]], scale="global", epsilon=0)
    # 0 0 10 14: mean 6, squares 36 36 16 64, variance 38
    assert found.values == ((None, None), pytest.approx((-2 / math.sqrt(38), 2 / math.sqrt(38))))


def test_without_a_scale_they_are_deviations() -> None:
    found = group_advantages([[0.0, 1.0, 5.0], [2.0, 4.0]], scale="none")
    assert found.values == (pytest.approx((-2, -1, 3)), pytest.approx((-1, 1)))


def test_nothing_at_all() -> None:
    found = group_advantages([])
    assert (found.values, found.zero_std_groups, found.empty) == ((), 0, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"scores": [[1.0], [math.nan]]},
            r"^scores\[1\]=nan is not valid: give None where there is no score",
        ),
        ({"scores": [[math.inf, 0.0]]}, r"^scores\[0\]=inf"),
        ({"scale": "batch"}, r"^scale='batch' is not valid: use one of group, global, none"),
        ({"clip": 0.0}, r"^clip=0.0"),
        ({"clip": math.nan}, r"^clip=nan"),
        ({"epsilon": -1.0}, r"^epsilon=-1.0"),
    ],
)
def test_what_is_refused(given: dict, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        group_advantages(**{"scores": [[1.0, 2.0]], **given})


def test_a_flow_host_can_weigh_rewards() -> None:
    code = """
import sys
import mutoscope.platform.training.advantages, mutoscope.platform.training.methods.credit
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
