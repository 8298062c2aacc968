"""A platform on which rollouts are made by the real engine, from tiny folders of the real classes."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from mutoscope.flows.rl.asks import Ask
from mutoscope.flows.rl.collected import Collected
from mutoscope.flows.rl.collecting import collect
from mutoscope.flows.rl.grouping import Shape
from mutoscope.flows.rl.settling import Limits, Plan
from mutoscope.flows.rl.stages import Stage
from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.cards import tiny_folder
from tests.support.platform import platform_in
from tests.support.real_engine import RealEngine, publish_folders

CAPTION = "a red circle left of a blue square"
OTHER = "a green ring above a blue cross"
SCENE = "reward-scene"
GROUP = "rollout-group"


@cache
def _root() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mutoscope-tiny-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def folder_of(card_id: str, seed: int = 0) -> Path:
    """A card's tiny folder, written once."""
    return tiny_folder(card_id, _root() / f"{card_id}-{seed}", seed)


@contextmanager
def rollout_platform(home: Path, *card_ids: str) -> Iterator[RealEngine]:
    """A platform in a folder with these cards' tiny weights live, and an engine that serves them.

    A composed card and FLUX share a folder's classes, not its bytes.
    """
    with platform_in(home) as runtime:
        publish_folders(runtime, {card_id: folder_of(card_id) for card_id in card_ids})
        engine = RealEngine(runtime)
        with engine.serving(*card_ids, GROUP):
            yield engine


def publish_other(runtime: Runtime, card_id: str, seed: int = 1) -> None:
    """Make other weights of a card live."""
    publish_folders(runtime, {card_id: folder_of(card_id, seed)})


def plan(
    *asks: str | Ask,
    card: str = "flux-t2i",
    stages: Sequence[Stage] | None = None,
    rewards: Mapping[str, float] | None = None,
    parameters: Mapping[str, Any] | None = None,
    laws: Sequence[str] = ("flow-sde",),
    weights: Any = (),
    limits: Limits | None = None,
    **shape: Any,
) -> Plan:
    """A small collection: two samples of each prompt, four steps."""
    settings = {"num_inference_steps": 4, **(parameters or {})}
    more = {name: shape.pop(name) for name in ("seed", "iteration", "at_once") if name in shape}
    return Plan(
        stages=stages if stages is not None else [Stage(card, weights, settings, laws)],
        asks=[Ask(prompt=ask) if isinstance(ask, str) else ask for ask in asks],
        shape=Shape(**{"samples": 2, **shape}),
        rewards={SCENE: 1.0} if rewards is None else rewards,
        limits=limits or Limits(),
        **{"seed": 1, **more},
    )


async def collected(*asks: str | Ask, **how: Any) -> Collected:
    """What `plan` comes to."""
    return await collect(plan(*asks, **how))
