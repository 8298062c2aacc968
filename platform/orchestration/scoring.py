"""Scores for those who need one per sample, whatever happens: a sample never gets a number that nobody gave.

A reward card's run succeeds with a reward, which may say that the sample cannot be scored. A run that ends
otherwise says nothing about the sample; here it becomes a reward without a score and without an artifact, so
that a caller handles one type and the catalog still knows the failed run.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from mutoscope.platform.errors import RunCancelled, RunFailed, ScoreTimeout
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.reward import Reward


@dataclass(frozen=True, slots=True)
class Scored:
    """A reward, and the artifact that holds it; None where the run ended without one."""

    reward: Reward
    ref: ArtifactRef | None


async def score(card_id: str, *, patience: float | None = None, **given: Any) -> Scored:
    """Score one sample with a reward card at its live weights.

    Args:
        patience: seconds to wait, queueing included, before the score is given up and the run is withdrawn.
        given: the sample, as `image` or `video`, and what it is held against.

    Raises:
        InvalidInput: the card or a parameter is wrong, or nobody serves the card: no sample is at fault.
    """
    try:
        async with asyncio.timeout(patience):
            made = await engine_run(card_id, **given)
    except TimeoutError:
        return Scored(Reward.timeout(card_id, "", f"there was no score within {patience:g} s"), None)
    except ScoreTimeout as error:
        return Scored(Reward.timeout(card_id, "", str(error)), None)
    except (RunFailed, RunCancelled) as error:
        return Scored(Reward.failed(card_id, "", str(error)), None)
    reward = await asyncio.to_thread(read_reward, get_runtime(), made["reward"])
    return Scored(reward, made["reward"])


def read_reward(runtime: Runtime, ref: ArtifactRef) -> Reward:
    """The reward in an artifact. Raises ArtifactMissing, ArtifactCorrupt, InvalidParameter."""
    return Reward.from_json(json.loads(runtime.store.get(ref.digest)))
