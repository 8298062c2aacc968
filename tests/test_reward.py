"""The reward record: a score or a reason, never both, never neither."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.reward import STATUSES, Reward, told

SUBJECT = "ab" * 32


def test_a_finite_value_is_a_score() -> None:
    reward = Reward.of("reward-x", SUBJECT, 0.25, {"colour": 0.5})
    assert (reward.status, reward.score, reward.reason) == ("score", 0.25, None)
    assert reward.meta == {"status": "score", "score": 0.25}
    assert told(reward.meta) == "score 0.2500"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_any_other_value_is_said_to_be_none(value: float) -> None:
    reward = Reward.of("reward-x", SUBJECT, value, {"parts": [1.0, value], "deep": {"part": value}})
    assert (reward.status, reward.score) == ("non_finite", None)
    assert reward.reason == f"the scorer's value is {value}"
    assert reward.details == {"parts": [1.0, str(value)], "deep": {"part": str(value)}}
    assert reward.meta == {"status": "non_finite"}
    json.dumps(reward.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    "given",
    [
        {"status": "score"},
        {"status": "score", "score": float("nan")},
        {"status": "score", "score": 0.5, "reason": "because"},
        {"status": "failed"},
        {"status": "failed", "score": 0.0, "reason": "because"},
        {"status": "timeout", "score": 0.0, "reason": "because"},
        {"status": "skipped", "reason": "because"},
    ],
)
def test_contradictions_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        Reward("reward-x", SUBJECT, **given)


def test_a_reward_survives_its_artifact() -> None:
    rewards = [
        Reward.of("reward-x", SUBJECT, 1.0, {"read": ["OPEN"]}),
        Reward.of("reward-x", SUBJECT, float("nan")),
        Reward.failed("reward-x", SUBJECT, "two\nlines"),
        Reward.timeout("reward-x", SUBJECT, "late"),
    ]
    assert {reward.status for reward in rewards} == set(STATUSES)
    assert rewards[2].reason == "two lines"
    for reward in rewards:
        assert Reward.from_json(json.loads(json.dumps(reward.to_json()))) == reward


@pytest.mark.parametrize("value", [None, [], {}, {"card": "reward-x", "status": "score"}])
def test_other_json_is_no_reward(value: Any) -> None:
    with pytest.raises(InvalidParameter, match="use the JSON of an artifact of kind reward"):
        Reward.from_json(value)
