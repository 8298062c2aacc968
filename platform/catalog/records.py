"""What the catalog hands out and takes in about runs: plain frozen records, no SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mutoscope.platform.refs import ArtifactRef

RunState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Disposition = Literal["new", "attached", "hit"]
Standing = Literal["kept", "cancel", "lost"]

WEIGHTS_ROLE = "weights:"
"""Prefix of the roles under which a run used (or made) weights; the component's name follows."""

REPLAYABLE_KINDS = ("engine", "reward")
"""Kinds of runs that a card computed from weights, inputs and parameters: a replay computes them again."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run to be queued: all that decides its output, and who asked.

    Attributes:
        kind: ``engine`` for a card's run, ``reward`` for a score.
        card_digest: digest of the card's declaration and code.
        contract: digest of the numeric contract the memo key was computed for; only such a worker may claim
            the run.
        parameters: resolved; complete.
        inputs: slot to artifact. weights: component to the digest of its ``weights`` artifact.
        key_parts: what `memo_key` is the digest of; stored, so that a miss explains itself.
        memo_key: None for a run that is never shared.
        priority: higher is claimed first; equals in order of creation.
        max_attempts: times the run may be claimed before it is given up.
        time_limit_seconds: how long one attempt may take on a worker; None: as long as it needs.
    """

    kind: str
    card: str
    card_digest: str
    contract: str
    parameters: Mapping[str, Any]
    seed: int | None
    inputs: Mapping[str, ArtifactRef] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    key_parts: Mapping[str, Any] | None = None
    memo_key: str | None = None
    profile: str = "serve"
    workflow_run_id: str | None = None
    prefect_flow_run_id: str | None = None
    prefect_task_run_id: str | None = None
    priority: int = 0
    max_attempts: int = 3
    time_limit_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A row of `runs`, column by column in the table's order. Times are seconds since the epoch by the
    database's clock; `timings` are seconds per node; `warnings` are lines that its user should read although
    it succeeded; `weights_key` and `weights_bytes` name and size what it pins (see `placement`)."""

    id: str
    kind: str
    card: str | None
    card_digest: str | None
    contract: str | None
    profile: str | None
    memo_key: str | None
    key_parts: Mapping[str, Any] | None
    parameters: Mapping[str, Any]
    seed: int | None
    state: RunState
    priority: int
    attempt: int
    max_attempts: int
    waiters: int
    cancel_requested: bool
    worker: str | None
    lease_expires_at: float | None
    stage: str | None
    step: int | None
    total: int | None
    workflow_run_id: str | None
    prefect_flow_run_id: str | None
    prefect_task_run_id: str | None
    created_at: float
    started_at: float | None
    finished_at: float | None
    timings: Mapping[str, float] | None
    error: Mapping[str, Any] | None
    warnings: Sequence[str] | None = None
    weights_key: str | None = None
    weights_bytes: int | None = None
    time_limit_seconds: float | None = None

    @property
    def finished(self) -> bool:
        """No state follows this one."""
        return self.state in ("succeeded", "failed", "cancelled")

    @property
    def replayable(self) -> bool:
        """Whether it is of a kind that can be made again, given its key parts."""
        return self.kind in REPLAYABLE_KINDS

    def __str__(self) -> str:
        """``flux-t2i run …`` for what a card made or scored, ``flux-t2i import …`` for other work on it."""
        if self.card is None:
            return f"{self.kind} run {self.id}"
        return f"{self.card} {'run' if self.replayable else self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a spec: a new queued run, an equal run under way, or one that has succeeded.

    `call` is the id of the row that says who asked: what a caller that goes withdraws.
    """

    run: RunRecord
    disposition: Disposition
    call: int


@dataclass(frozen=True, slots=True)
class RenewResult:
    """Of what a holder renewed: what is no longer its own, and what it should stop."""

    lost: frozenset[str]
    cancelled: frozenset[str]
