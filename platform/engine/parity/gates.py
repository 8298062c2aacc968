"""The gates: what must hold of every card, each as a question asked of an instance.

A gate returns a finding and never raises for what it finds: a card that breaks inside one has failed it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np

from mutoscope.platform.engine.batching import Mode
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity.content import differing, largest_difference
from mutoscope.platform.engine.parity.report import Finding, Verdict
from mutoscope.platform.engine.parity.serving import (
    Served,
    Watched,
    orders,
    serial,
    standstill,
    together,
    unshared,
)
from mutoscope.platform.engine.recompute import recompute_log_probs
from mutoscope.platform.engine.request import Profile, Request
from mutoscope.platform.engine.rollout import DEFAULTS
from mutoscope.platform.engine.sampling import FlowSchedule
from mutoscope.platform.trajectory import Floats, TrajectoryGroup

STAGGERS = (0, 2)
"""Steps between arrivals: all at once, and one on its way when the next one comes."""

C2_LIMIT = 1e-5
"""Largest difference between a captured log-probability and the one recomputed under its weights."""

TOLERANCE = 1e-3
"""Largest difference of a latent or sample that the mode `tolerance` may make."""

TOGETHER = "serial == interleaved == batched"
CAPTURE_OFF = "serving is untouched by capture"
ROLLOUT = "seeded rollout repeats"
C2 = "log-probabilities recomputed == captured"


def serving_together(instance: Instance, requests: Sequence[Request], *, most_orders: int = 6) -> Finding:
    """Serial, interleaved and batched serving return equal bytes, in every order of arrival tried."""
    watched = Watched(instance.batcher)
    batched = replace(instance, batcher=watched)
    try:
        alone = serial(instance, requests)
        if broken := _broken(alone):
            return _failed(TOGETHER, f"alone, {broken}")
        served = {"interleaved": unshared(instance)}
        if instance.batcher.mode is Mode.BITWISE:
            served["batched"] = batched
        mixes = differ = 0
        first = ""
        for order in orders(requests, most_orders):
            for stagger in STAGGERS:
                for how, on in served.items():
                    mixes += 1
                    if wrong := _unequal(alone, together(on, order, stagger)):
                        differ += 1
                        first = first or f"{how}, {wrong}"
    except Exception as error:
        return _failed(TOGETHER, f"{type(error).__name__}: {error}")
    figures = {"mixes": mixes, "differ": differ, "shared_calls": watched.shared, "rows": watched.largest}
    if differ:
        return _failed(TOGETHER, f"{differ} of {mixes} mixes differ, first {first}", figures)
    return Finding(TOGETHER, Verdict.PASSED, _equal(instance, requests, figures), figures)


def within_tolerance(instance: Instance, requests: Sequence[Request]) -> Finding:
    """In the mode `tolerance`, batched results stay near those of single rows."""
    name = "batched within tolerance"
    if instance.batcher.mode is not Mode.TOLERANCE:
        return _inapplicable(name, f"the card is served with batching {instance.batcher.mode}")
    try:
        alone = {request.id: Engine().run(unshared(instance), request) for request in requests}
        engine = Engine(clock=standstill)
        tickets = [engine.submit(instance, request) for request in requests]
        while engine.step():
            pass
        worst = max(largest_difference(alone[each.request_id], each.result()) for each in tickets)
    except Exception as error:
        return _failed(name, f"{type(error).__name__}: {error}")
    figures = {"largest_difference": worst, "limit": TOLERANCE}
    verdict = Verdict.PASSED if worst <= TOLERANCE else Verdict.FAILED
    return Finding(name, verdict, f"differs by {worst:.2g} at most, limit {TOLERANCE:g}", figures)


def capture_off(instance: Instance, requests: Sequence[Request]) -> Finding:
    """Serving returns the same bytes beside rollouts as alone, and those of a rollout without noise."""
    if (reason := _no_rollout(instance)) is not None:
        return _inapplicable(CAPTURE_OFF, reason)
    try:
        rollouts = [_rollout(request, f"{request.id}-rollout") for request in requests]
        mixed = [each for pair in zip(rollouts, requests, strict=True) for each in pair]
        alone, beside = serial(instance, requests), together(instance, mixed)
        wrong = _unequal(alone, {name: beside[name] for name in alone})
        if not wrong and (broken := _broken(beside)):
            return _failed(CAPTURE_OFF, broken)
        if not wrong and _euler(instance):
            wrong = _unequal_to_ode(instance, requests)
    except Exception as error:
        return _failed(CAPTURE_OFF, f"{type(error).__name__}: {error}")
    if wrong:
        return _failed(CAPTURE_OFF, wrong)
    ode = " and to their rollouts under the ODE" if _euler(instance) else ""
    return Finding(
        CAPTURE_OFF, Verdict.PASSED, f"{len(requests)} requests equal beside as many rollouts{ode}"
    )


def rollout_repeats(instance: Instance, requests: Sequence[Request]) -> Finding:
    """A rollout returns equal bytes, trajectory included, twice alone and once among others."""
    if (reason := _no_rollout(instance)) is not None:
        return _inapplicable(ROLLOUT, reason)
    try:
        rollouts = [_rollout(request, request.id) for request in requests]
        first = serial(instance, rollouts)
        if broken := _broken(first):
            return _failed(ROLLOUT, broken)
        wrong = _unequal(first, serial(instance, rollouts)) or _unequal(first, together(instance, rollouts))
    except Exception as error:
        return _failed(ROLLOUT, f"{type(error).__name__}: {error}")
    if wrong:
        return _failed(ROLLOUT, wrong)
    values = sum(len(made) for made in first.values())
    detail = f"{len(rollouts)} rollouts of {values} values equal alone, again and together"
    return Finding(ROLLOUT, Verdict.PASSED, detail, {"rollouts": len(rollouts), "values": values})


def log_probs_recomputed(
    instance: Instance,
    requests: Sequence[Request],
    sampling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Finding:
    """C2: captured log-probabilities equal those recomputed under the same weights.

    Args:
        sampling: entered while sampling; a control samples under other weights than it recomputes with.
    """
    if (reason := _no_rollout(instance)) is not None:
        return _inapplicable(C2, reason)
    try:
        pairs = [pair for request in requests for pair in _log_probs(instance, request, sampling)]
    except Exception as error:
        return _failed(C2, f"{type(error).__name__}: {error}")
    return compared_log_probs(pairs)


def compared_log_probs(pairs: Sequence[tuple[Floats, Floats]]) -> Finding:
    """The verdict on captured and recomputed log-probabilities, sample by sample."""
    if not pairs:
        return _inapplicable(
            C2, "its rollouts record no latents; log-probabilities of tokens are for its family's tests"
        )
    delta = max(float(np.abs(captured - again).max()) for captured, again in pairs)
    ratio = max(abs(math.expm1(float(d))) for captured, again in pairs for d in again - captured)
    count = sum(len(captured) for captured, _ in pairs)
    figures = {"steps": count, "largest_delta": delta, "ratio_off_one": ratio, "limit": C2_LIMIT}
    verdict = Verdict.PASSED if delta < C2_LIMIT else Verdict.FAILED  # NaN fails too
    detail = f"{count} steps, |delta| <= {delta:.2g} (limit {C2_LIMIT:g}), ratio 1 within {ratio:.2g}"
    return Finding(C2, verdict, detail, figures)


def _log_probs(
    instance: Instance, request: Request, sampling: Callable[[], AbstractContextManager[None]]
) -> Iterator[tuple[Floats, Floats]]:
    """Captured and recomputed log-probabilities of a rollout's steps, by sample."""
    rollout = _rollout(request, request.id)
    with sampling():
        output = Engine().run(instance, rollout).outputs.get("trajectory")
    group = output.value if output is not None else None
    if not isinstance(group, TrajectoryGroup):
        return
    again = recompute_log_probs(instance, rollout, group)
    for sample, recomputed in zip(group.samples, again, strict=True):
        if len(recomputed):
            yield sample.log_probs_W, recomputed


def _rollout(request: Request, name: str, **parameters: object) -> Request:
    """The request as a rollout, without guidance unless it sets it."""
    return replace(request, id=name, profile=Profile.ROLLOUT, parameters={**request.parameters, **parameters})


def _unequal_to_ode(instance: Instance, requests: Sequence[Request]) -> str:
    """A rollout under the ODE is serving with capture on: nothing but the trajectory may differ."""
    first = requests[0].parameters
    if "law" not in instance.card.resolve(first, instance.recipe, Profile.ROLLOUT):
        return ""
    known = instance.card.parameters.model_fields
    defaults = {name: value for name, value in DEFAULTS.items() if name in known}
    plain = [replace(r, parameters={**defaults, **r.parameters}) for r in requests]
    served = serial(instance, plain)
    captured = serial(instance, [_rollout(request, request.id, law="ode") for request in plain])
    bare = {
        name: {path: value for path, value in made.items() if path in served[name]}
        for name, made in captured.items()
    }
    wrong = _unequal(served, bare)
    return f"under the ODE, {wrong}" if wrong else ""


def _euler(instance: Instance) -> bool:
    """Whether serving takes the Euler steps that a rollout takes; a multistep solver has others."""
    return isinstance(instance.components.get("scheduler"), FlowSchedule)


def _no_rollout(instance: Instance) -> str | None:
    if Profile.ROLLOUT in instance.card.profiles:
        return None
    return f"{instance.card.id} is not rolled out"


def _unequal(expected: Served, made: Served) -> str:
    """The first request whose bytes differ, and where; empty if none does."""
    for name, values in expected.items():
        if paths := differing(values, made[name]):
            if "error" in made[name]:
                return f"{name} fails: {made[name]['error'].decode()}"
            return f"{name} differs in {paths[0]}"
    return ""


def _broken(served: Served) -> str:
    """The first request that failed, and with what; empty if none did."""
    errors = ((name, made["error"].decode()) for name, made in served.items() if "error" in made)
    return next((f"{name} fails: {error}" for name, error in errors), "")


def _equal(instance: Instance, requests: Sequence[Request], figures: Mapping[str, float]) -> str:
    mixes = f"{len(requests)} requests equal bit for bit in {figures['mixes']:.0f} mixes"
    if instance.batcher.mode is not Mode.BITWISE:
        return f"{mixes}, interleaved only: batching is {instance.batcher.mode}"
    return f"{mixes}, {figures['shared_calls']:.0f} calls shared, up to {figures['rows']:.0f} rows"


def _failed(name: str, detail: str, figures: Mapping[str, float] | None = None) -> Finding:
    return Finding(name, Verdict.FAILED, " ".join(detail.split())[:300], figures or {})


def _inapplicable(name: str, reason: str) -> Finding:
    return Finding(name, Verdict.NOT_APPLICABLE, reason)
