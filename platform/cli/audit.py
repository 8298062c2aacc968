"""audit: a rollout's log-probabilities computed again, under the weights that its record names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.engine.instance import Instance
    from mutoscope.platform.refs import ArtifactRef
    from mutoscope.platform.training.audit import Audited, Evidence
    from mutoscope.workers.device import Device


def audit(
    trajectory: Annotated[
        str,
        typer.Argument(help="A trajectory (trajectory:3fa9), a group's record, or what a refiner wrote."),
    ],
    weights: Annotated[
        list[str] | None,
        typer.Option(help="Try these versions instead of the recorded ones: flux-t2i/transformer@12."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Reload the recorded weights from the store, recompute every step's log-probability, and compare.

    Exit code 1 if any differs by 1e-5 or more: other weights, another prompt or a changed latent.

    Example: mutoscope audit trajectory:3fa9
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    ref = home.catalog.artifacts.resolve(trajectory)

    from mutoscope.platform.training.audit import find  # here: it brings torch
    from mutoscope.workers.device import open_device

    found = find(home.catalog, home.store, ref)
    device = open_device(home.settings)
    audited = recomputed(home, device, found, tuple(weights or ()))
    if json:
        render.emit_json(_plain(home, ref, device, found, audited))
    else:
        _print(home, ref, device, found, audited)
    if not all(each.holds for each in audited):
        raise typer.Exit(1)


def recomputed(
    home: Home, device: Device, found: Sequence[Evidence], instead: Sequence[str] = ()
) -> list[Audited]:
    """Each rollout recomputed, from weights that are fetched from the store for this alone.

    Raises:
        InvalidParameter, UnknownReference: `instead` names no versions of the card.
        ArtifactMissing, ArtifactCorrupt: of weights, or of what a rollout began with.
    """
    from tempfile import TemporaryDirectory

    from mutoscope.platform.training.audit import recompute
    from mutoscope.workers.executor import Executor

    executor = Executor(home.catalog, home.store, "audit")
    folder = home.path / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="audit-", dir=folder) as cold:
        instances = _Instances(home, device, cold)
        audited = []
        for each in found:
            instance = instances.at(str(each.run.card), {**each.weights, **_selected(home, each, instead)})
            request = executor.request(each.run, home.catalog.runs.inputs(each.run.id))
            audited.append(recompute(instance, request, each))
    return audited


class _Instances:
    """Cards loaded from a folder that held nothing before. One is kept at a time."""

    def __init__(self, home: Home, device: Device, cold: str | Path) -> None:
        from pathlib import Path

        from mutoscope.models.registry import cards
        from mutoscope.workers.residency import Residency
        from mutoscope.workers.weight_cache import WeightCache

        self._residency = Residency(cards(), home.store, WeightCache(home.store, Path(cold)), device)
        self._held: tuple[str, Mapping[str, str]] | None = None

    def at(self, card_id: str, weights: Mapping[str, str]) -> Instance:
        if self._held is not None and self._held != (card_id, weights):
            self._residency.release(*self._held)
            self._residency.unload(self._held[0])
            self._held = None
        if self._held is None:
            self._held = (card_id, dict(weights))
            return self._residency.acquire(card_id, weights)
        instance = self._residency.acquire(card_id, weights)
        self._residency.release(card_id, weights)
        return instance


def _selected(home: Home, evidence: Evidence, instead: Sequence[str]) -> dict[str, str]:
    from mutoscope.platform.orchestration.selection import digests_of, select

    return digests_of(select(home.catalog, str(evidence.run.card), instead))


def _names(home: Home, evidence: Evidence) -> dict[str, str]:
    """What people call the weights that sampled it, by component."""
    from mutoscope.models.registry import get_card
    from mutoscope.platform.catalog.weights import name_for

    card = get_card(str(evidence.run.card)).weights_card
    return {
        component: name_for(card, digest, home.catalog.weights.versions_of_digest(digest))
        for component, digest in sorted(evidence.named.items())
    }


def _print(
    home: Home, ref: ArtifactRef, device: Device, found: Sequence[Evidence], audited: Sequence[Audited]
) -> None:
    from mutoscope.platform.engine.parity.gates import C2_LIMIT
    from mutoscope.platform.training.audit import per_step

    first = found[0]
    many = "1 rollout" if len(found) == 1 else f"{len(found)} rollouts"
    render.say(f"{ref}  {many} of {first.run.card}, {_how(first)}")
    named = {component: name for each in found for component, name in _names(home, each).items()}
    for component, name in named.items():
        render.say(f"weights  {component:<16} {name}")
    recorded = (first.run.key_parts or {}).get("numeric", {}).get("device")
    if recorded != str(device):
        render.say(f"device   sampled on {recorded}, recomputed on {device}")
    for step, delta in per_step(audited).items():
        mark = "" if delta < C2_LIMIT else "  DIFFERS"
        render.say(f"step {step:<4} max |Δlog p| {delta:.2e}{mark}")
    for each in audited:
        if each.contradiction is not None:
            render.say(f"run {each.run}: {each.contradiction}")
    render.say(_verdict(audited))


def _how(evidence: Evidence) -> str:
    if evidence.trajectory is None:
        return f"the answer of {evidence.part}"
    facts = evidence.trajectory.facts
    begin, end = facts.window
    window = f"steps {begin} to {end - 1} of {facts.steps}" if end > begin else f"{facts.steps} steps"
    return f"{facts.law}, {window}"


def _verdict(audited: Sequence[Audited]) -> str:
    from mutoscope.platform.engine.parity.gates import C2_LIMIT

    steps = sum(len(each.deltas) for each in audited)
    wrong = sum(not each.holds for each in audited)
    if wrong:
        return f"MISMATCH in {wrong} of {len(audited)}: these weights did not take the steps on record"
    if not steps:
        return "nothing to compare: no step was drawn at random"
    largest = max(each.largest for each in audited)
    return f"holds: |Δlog p| <= {largest:.2e} over {steps} steps (limit {C2_LIMIT:g})"


def _plain(
    home: Home, ref: ArtifactRef, device: Device, found: Sequence[Evidence], audited: Sequence[Audited]
) -> dict[str, Any]:
    from mutoscope.platform.engine.parity.gates import C2_LIMIT
    from mutoscope.platform.training.audit import per_step

    return {
        "artifact": str(ref),
        "holds": all(each.holds for each in audited),
        "limit": C2_LIMIT,
        "device": str(device),
        "per_step": {str(step): _number(delta) for step, delta in per_step(audited).items()},
        "rollouts": [
            {
                "run": each.run,
                "card": evidence.run.card,
                "seed": each.seed,
                "part": evidence.part or None,
                "weights": {
                    component: {"digest": evidence.named[component], "version": name}
                    for component, name in _names(home, evidence).items()
                },
                "deltas": [_number(delta) for delta in each.deltas],
                "largest": _number(each.largest),
                "contradiction": each.contradiction,
                "holds": each.holds,
            }
            for evidence, each in zip(found, audited, strict=True)
        ],
    }


def _number(value: float) -> float | str:
    """JSON has no NaN."""
    import math

    return value if math.isfinite(value) else str(value)
