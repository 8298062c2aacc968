"""All gates of a card, and for each the control that shows it can fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mutoscope.platform import ids
from mutoscope.platform.engine.batching import Mode
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity import gates
from mutoscope.platform.engine.parity.plants import (
    BatchDependent,
    GlobalGenerator,
    RemembersRollouts,
    SharedState,
    planted,
    swapped_weights,
)
from mutoscope.platform.engine.parity.report import Finding, Report, Verdict
from mutoscope.platform.engine.parity.serving import serial
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.validation import checked_request

STEPS = 3
_UNRECORDED_DOMAIN = "mutoscope.unrecorded-weights/1"


def check(
    instance: Instance,
    *,
    variants: Sequence[Mapping[str, Any]] | None = None,
    most_orders: int = 6,
) -> Report:
    """Run every gate and control on an instance, as its batcher serves it.

    Args:
        variants: parameter sets to mix; see `mixture` for the default.
        most_orders: orders of arrival to try.

    Raises:
        InvalidInput: the card has no example request.
    """
    instance = named(instance)
    requests = mixture(instance, variants)
    together = partial(gates.serving_together, most_orders=most_orders)
    found = [
        together(instance, requests),
        gates.capture_off(instance, requests),
        gates.rollout_repeats(instance, requests),
        gates.log_probs_recomputed(instance, requests),
    ]
    if instance.batcher.mode is Mode.TOLERANCE:
        found.insert(1, gates.within_tolerance(instance, requests))
    return Report(instance.card.id, (*found, *controls(instance, requests, found)))


def controls(instance: Instance, requests: Sequence[Request], found: Sequence[Finding]) -> list[Finding]:
    """Every gate that passed, over the card with the gate's defect planted in it."""
    passed = {finding.name for finding in found if finding.verdict is Verdict.PASSED}
    together = partial(gates.serving_together, most_orders=1)
    results = []
    if gates.TOGETHER in passed:
        shared = planted(instance, SharedState) if _takes_steps(instance, requests[0]) else None
        results.append(_caught("planted global", shared, together, requests))
        if instance.batcher.mode is Mode.BITWISE:
            trusting = replace(instance, batcher=instance.batcher.trusting())
            mixing = planted(trusting, BatchDependent)
            results.append(_caught("batch-dependent operation", mixing, together, requests))
    if gates.CAPTURE_OFF in passed:
        remembering = planted(instance, RemembersRollouts)
        results.append(_caught("capture left on", remembering, gates.capture_off, requests))
    if gates.ROLLOUT in passed:
        drawing = planted(instance, GlobalGenerator)
        results.append(_caught("planted generator", drawing, gates.rollout_repeats, requests))
    if gates.C2 in passed:
        other = partial(gates.log_probs_recomputed, sampling=partial(swapped_weights, instance))
        results.append(_caught("swapped weight", instance, other, requests))
    return results


def mixture(instance: Instance, variants: Sequence[Mapping[str, Any]] | None = None) -> tuple[Request, ...]:
    """Example requests of different seeds and parameters, few steps each, and a twin of the first.

    Args:
        variants: parameter sets, one request each. Left out: guidance as it comes and off, and another
            number of steps, as far as the card knows these parameters.
    """
    known = instance.card.parameters.model_fields
    steps: dict[str, Any] = {"num_inference_steps": STEPS} if "num_inference_steps" in known else {}
    if variants is None:
        asked: tuple[dict[str, Any], ...] = ({}, {"guidance_scale": 1.0}, {"num_inference_steps": STEPS - 1})
        variants = [each for each in asked if set(each) <= set(known)]
    wanted = [(f"r{at}", at, {**steps, **variant}) for at, variant in enumerate(variants)]
    wanted.append(("twin", 0, wanted[0][2]))
    return tuple(
        example_request(instance.card, instance.recipe, name=name, seed=seed, **parameters)
        for name, seed, parameters in wanted
    )


def named(instance: Instance) -> Instance:
    """The instance with a digest for every component, as a trajectory must name the weights it came from;
    stand-ins where no artifact is known."""
    stand_ins = {name: ids.digest(_UNRECORDED_DOMAIN, name) for name in instance.components}
    return replace(instance, weights={**stand_ins, **instance.weights})


def _takes_steps(instance: Instance, request: Request) -> bool:
    """Whether any loop of the card takes more than one step for the request."""
    request = checked_request(instance.card, instance.recipe, request)
    program = instance.program
    return program.total({"request": request, **request.inputs}) > len(program.nodes)


def _caught(
    label: str,
    defective: Instance | None,
    gate: Callable[[Instance, Sequence[Request]], Finding],
    requests: Sequence[Request],
) -> Finding:
    """Whether a gate notices a defect. One that keeps the card from serving at all would prove nothing."""
    if defective is None:
        reason = "no loop takes several steps, between which it would show"
        return Finding(label, Verdict.NOT_APPLICABLE, reason, control=True)
    lone = serial(defective, requests[:1])[requests[0].id]
    if "error" in lone:
        detail = f"proves nothing, the card breaks altogether: {lone['error'].decode()}"
        return Finding(label, Verdict.FAILED, detail, control=True)
    seen = gate(defective, requests)
    verdict = Verdict.PASSED if seen.verdict is Verdict.FAILED else Verdict.FAILED
    how = "caught by" if verdict is Verdict.PASSED else "not caught by"
    return Finding(label, verdict, f"{how} {seen.name}: {seen.detail}", seen.figures, control=True)
