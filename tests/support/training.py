"""Rollouts of starter weights and training steps on them, by an engine in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform import ids
from mutoscope.platform.engine.adapters import read_adapter, with_adapter
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, assemble, load_instance, with_components
from mutoscope.platform.engine.request import Output, Profile, Request
from mutoscope.platform.engine.views import origin_of, with_tensors
from mutoscope.platform.training.groups import Draw, RolloutRecord, Sample
from mutoscope.platform.training.state import fingerprint
from mutoscope.platform.trajectory import joined
from mutoscope.platform.weights import GivenWeights

COMPONENT = {"flux-t2i": "transformer", "refiner-lm": "llm", "wan-i2v": "transformer"}


def digest_of(name: str) -> str:
    """A digest for weights that lie in no store."""
    return ids.sha256(name.encode())


@cache
def starter(card_id: str) -> Instance:
    """A card at its starter weights, every component at version "0"."""
    card, folder = get_card(card_id), starter_folder(card_id)
    assert folder is not None
    names = card.inspect(folder).components
    return load_instance(card, folder, weights={name: digest_of(f"{card_id}/{name} 0") for name in names})


def trainer(served: Instance) -> Instance:
    """The trainer of a served card, over the same modules."""
    card = get_card(f"{served.card.id}-trainer")
    recipe = card.recipe.model_validate(served.recipe.model_dump())
    return assemble(
        card,
        served.components,
        recipe,
        device=served.device,
        dtype=served.dtype,
        weights=served.weights,
    )


def image(seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A picture for a video to begin with."""
    return np.random.default_rng(seed).integers(0, 256, (64, 64, 3), dtype=np.uint8)


@dataclass
class Rollouts:
    """Inputs of a trainer, one record after another."""

    rollouts: list[Any] = field(default_factory=list)
    trajectories: list[Any] = field(default_factory=list)
    tokens: list[Any] = field(default_factory=list)
    images: list[Any] = field(default_factory=list)

    @property
    def inputs(self) -> dict[str, Any]:
        return {name: list(files) for name, files in vars(self).items() if files}

    def scored(self, *scores: Sequence[float | None]) -> Rollouts:
        """The same samples with other scores."""
        changed = []
        for value, own in zip(self.rollouts, scores, strict=True):
            record = RolloutRecord.from_json(value)
            samples = [
                s.model_copy(update={"score": score, "status": "failed" if score is None else "score"})
                for s, score in zip(record.samples, own, strict=True)
            ]
            changed.append(record.model_copy(update={"samples": tuple(samples)}).to_json())
        return Rollouts(changed, self.trajectories, self.tokens, self.images)


def collect(
    served: Instance, prompts: Sequence[str], scores: Sequence[float | None], **parameters: Any
) -> Rollouts:
    """A group of each prompt, whose samples get these scores."""
    found = Rollouts()
    for place, prompt in enumerate(prompts):
        _collect(found, served, prompt, scores, place, parameters)
    return found


def _collect(
    found: Rollouts,
    served: Instance,
    prompt: str,
    scores: Sequence[float | None],
    place: int,
    parameters: Mapping[str, Any],
) -> None:
    card, engine = served.card, Engine()
    draw = Draw(seed=7, iteration=0, prompt_index=place)
    flows = any(slot.kind == "trajectory" for slot in card.outputs)
    asked = {"prompt": prompt, **parameters}
    if flows:
        asked |= {"group_seed": draw.group_seed}
    inputs = {"image": image(place)} if card.id == "wan-i2v" else {}
    requests = [
        Request(f"{place}.{at}", card.id, inputs, asked, draw.sample_seed(at), Profile.ROLLOUT)
        for at in range(len(scores))
    ]
    tickets = [engine.submit(served, request) for request in requests]
    while engine.step():
        pass
    outputs = [ticket.result().outputs for ticket in tickets]
    resolved = card.resolve(asked, served.recipe, Profile.ROLLOUT)
    samples = [
        Sample(
            seed=request.seed,
            prompt=prompt,
            status="failed" if score is None else "score",
            score=score,
            trajectory=(0, at) if flows else None,
            tokens={} if flows else {COMPONENT[card.id]: at},
            image=0 if inputs else None,
        )
        for at, (request, score) in enumerate(zip(requests, scores, strict=True))
    ]
    captured = [made["trajectory"].value for made in outputs if "trajectory" in made]
    written = [made["tokens"].value for made in outputs if "tokens" in made]
    record = RolloutRecord(
        card=card.id,
        prompt=prompt,
        target=prompt,
        draw=draw,
        parameters=resolved,
        group_seed=draw.group_seed,
        law=captured[0].facts.law if flows else None,
        window=captured[0].facts.window if flows else None,
        noise_scale=resolved["noise_scale"] if flows else None,
        weights=served.weights,
        versions={},
        rewards={"reward-scene": 1.0},
        samples=tuple(samples),
        joined=flows,
        trajectories=tuple(digest_of(f"{prompt} {at}") for at in range(len(captured))),
        tokens=tuple(digest_of(f"{prompt} tokens {at}") for at in range(len(written))),
        images=(digest_of("image"),) if inputs else (),
    )
    found.rollouts.append(record.to_json())
    found.tokens += written
    if flows:
        found.trajectories.append(joined(captured))
    if inputs:
        found.images.append(inputs["image"])


def train(
    served: Instance, rollouts: Rollouts, *, engine: Engine | None = None, **asked: Any
) -> dict[str, Output]:
    """A training step on a served card's weights; its outputs. See `request`."""
    return dict((engine or Engine()).run(trainer(served), request(served, rollouts, **asked)).outputs)


def request(
    served: Instance,
    rollouts: Rollouts,
    *,
    state: Mapping[str, bytes] | None = None,
    reference: GivenWeights | None = None,
    seed: int = 3,
    **parameters: Any,
) -> Request:
    """What `train` asks."""
    inputs = dict(rollouts.inputs)
    if state is not None:
        inputs["state"] = given("training-state", state)
    if reference is not None:
        inputs["reference"] = reference
    asked = {"component": COMPONENT.get(served.card.id), **parameters}
    return Request("step", f"{served.card.id}-trainer", inputs, asked, seed)


def given(component: str, files: Mapping[str, bytes]) -> GivenWeights:
    """Files of a component as a worker opens them."""
    tensors: dict[str, Tensor] = {}
    for name, data in files.items():
        if name.endswith(".safetensors"):
            tensors |= load(data)
    small = {name: data for name, data in files.items() if name.endswith(".json")}
    return GivenWeights(ids.sha256(b"".join(files.values())), component, tensors, small)


def advanced(served: Instance, weights: Output, version: int) -> Instance:
    """A served card at the weights that a step made, as a worker serves them, under a digest of their own."""
    name, digest = weights.meta["component"], digest_of(f"{served.card.id} {version}")
    module = served.components[name]
    if "base" in weights.meta:
        origin = origin_of(module)
        below = served
        if origin is not None:
            assert origin.digest is not None
            below = with_components(served, {name: origin.base}, {name: origin.digest})
        assert below.weights[name] == weights.meta["base"]
        with TemporaryDirectory() as folder:
            paths = [Path(folder) / file for file in weights.value]
            for path in paths:
                path.write_bytes(weights.value[path.name])
            return with_adapter(below, read_adapter(paths, name), digest)
    known = {key for key, _ in module.named_parameters()}
    own = {key: tensor.clone() for key, tensor in weights.value.items() if key in known}
    return with_components(served, {name: with_tensors(module, own)}, {name: digest})


def content(outputs: Mapping[str, Output]) -> dict[str, str]:
    """Every byte of a step's outputs, by slot, hashed."""
    found = {}
    for slot, output in outputs.items():
        if output.kind == "json":
            found[slot] = ids.sha256(json.dumps(output.value, sort_keys=True).encode())
            continue
        parts = output.value
        if parts and isinstance(next(iter(parts.values())), torch.Tensor):
            found[slot] = fingerprint(parts)
        else:
            found[slot] = ids.sha256(b"".join(parts[name] for name in sorted(parts)))
        found[slot] += json.dumps(dict(output.meta), sort_keys=True)
    return found
