"""A reward as it is stored: a score, or why there is none.

The absence of a score is a status of its own and never a number: a scorer that fails must not look like a
sample that deserves nothing. No torch; cards make rewards, training and pages read them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from mutoscope.platform.errors import InvalidParameter

Status = Literal["score", "failed", "timeout", "non_finite"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Reward:
    """What a reward card says of one sample.

    Attributes:
        card: the reward card's id.
        subject: digest of what was scored and against what: equal scores of two samples are two rewards.
            Empty where no scorer got to see the sample.
        score: a finite number; None exactly if the status is another than ``score``.
        reason: why there is no score, one line; None exactly if there is one.
        details: what the score is made of: criteria by name, and facts such as the text that was read. Plain
            JSON; a number that is not finite is spelled as text.
    """

    card: str
    subject: str
    status: Status
    score: float | None = None
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise InvalidParameter("status", self.status, f"use one of {', '.join(STATUSES)}")
        scored = self.status == "score"
        if scored and (self.score is None or not math.isfinite(self.score)):
            raise InvalidParameter("score", self.score, "use a finite number, or a status that says why not")
        if not scored and self.score is not None:
            raise InvalidParameter("score", self.score, f"leave it out: a {self.status} reward has none")
        if scored == (self.reason is not None):
            raise InvalidParameter("reason", self.reason, "say it where there is no score, and only there")

    @classmethod
    def of(cls, card: str, subject: str, value: float, details: Mapping[str, Any] | None = None) -> Reward:
        """A score, or a `non_finite` reward where the scorer's value is no finite number."""
        plain = {name: _plain(detail) for name, detail in (details or {}).items()}
        if math.isfinite(value):
            return cls(card, subject, "score", float(value), None, plain)
        return cls(card, subject, "non_finite", None, f"the scorer's value is {value}", plain)

    @classmethod
    def failed(cls, card: str, subject: str, reason: str) -> Reward:
        """The scorer cannot judge this sample."""
        return cls(card, subject, "failed", None, " ".join(reason.split()))

    @classmethod
    def timeout(cls, card: str, subject: str, reason: str) -> Reward:
        """The score did not come in time."""
        return cls(card, subject, "timeout", None, " ".join(reason.split()))

    def __str__(self) -> str:
        return f"{self.score:.4f}" if self.score is not None else f"{self.status}: {self.reason}"

    @property
    def meta(self) -> dict[str, Any]:
        """What is kept beside the artifact, so that a list of rewards needs no bytes."""
        return {"status": self.status} if self.score is None else {"status": "score", "score": self.score}

    def to_json(self) -> dict[str, Any]:
        """As the artifact holds it."""
        return {
            "card": self.card,
            "subject": self.subject,
            "status": self.status,
            "score": self.score,
            "reason": self.reason,
            "details": dict(self.details),
        }

    @classmethod
    def from_json(cls, value: Any) -> Reward:
        """The reward that `to_json` wrote. Raises InvalidParameter for anything else."""
        try:
            return cls(**{name: value[name] for name in (entry.name for entry in fields(cls))})
        except (KeyError, TypeError):
            raise InvalidParameter("reward", value, "use the JSON of an artifact of kind reward") from None


def told(meta: Mapping[str, Any]) -> str:
    """What an artifact's facts tell of a reward, in a word or two: ``score 0.9312`` or ``timeout``; nothing
    where they tell nothing."""
    if isinstance(meta.get("score"), int | float):
        return f"score {meta['score']:.4f}"
    return str(meta.get("status", ""))


def _plain(value: Any) -> Any:
    """Numbers that JSON does not know become text, also within lists and mappings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
