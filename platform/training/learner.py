"""What learns in a training step, where it begins, and what it leaves behind.

Three policies may differ: the *pinned* one, which the run was given as weights; the one that *learns*; and
the one that is *published* for the next rollouts. Under DiffusionNFT the published one follows the learning
one slowly (`old_decay`), and the learning one lives on in the state. Otherwise they are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mutoscope.platform.engine.request import Output
from mutoscope.platform.engine.views import origin_of
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.methods.nft import decay
from mutoscope.platform.training.optimiser import AdamW
from mutoscope.platform.training.state import TrainingState, fingerprint, to_file
from mutoscope.platform.training.trainable import ATTENTION, FullWeights, Leaves, Lora, Trainable
from mutoscope.platform.weights import GivenWeights

ADAPTER_FILE = "pytorch_lora_weights.safetensors"
STATE_COMPONENT = "training-state"


@dataclass(slots=True, kw_only=True, eq=False)
class Learner:
    """One component's.

    Attributes:
        resident: the pinned module, which is never changed. digest: of its weights.
        base: digest of the weights below a LoRA; None for full weights.
        published: leaves of the policy that sampled, under DiffusionNFT; else None.
        ema: moving average of the learning policy's leaves; None: not kept.
        updates: optimiser steps and skipped ones, of the whole training.
        moved: whether the learning policy is another than the pinned one by now.
    """

    component: str
    parameters: Mapping[str, Any]
    resident: nn.Module
    digest: str
    base: str | None
    trainable: Trainable
    optimiser: AdamW
    published: Leaves | None = None
    ema: Leaves | None = None
    epochs: int = 0
    skipped: int = 0
    moved: bool = False
    _before: TrainingState | None = field(default=None)

    @property
    def updates(self) -> int:
        """Optimiser steps so far, those that were skipped included."""
        return self.optimiser.steps + self.skipped

    def step(self, *, skip: bool) -> None:
        """Move by the gradients, or leave them unused."""
        trainable = self.trainable
        if skip:
            self.skipped += 1
        else:
            with torch.no_grad():
                self.optimiser.step(trainable.leaves, trainable.gradients)
            trainable.refresh()
            self.moved = True
            if self.ema is not None:
                self.ema = decay(self.ema, trainable.leaves, self.parameters["ema_decay"])
        trainable.forget()

    def outputs(self) -> dict[str, Output]:
        """Weights, state and moving average."""
        leaves = self.trainable.leaves
        if self.published is not None:
            leaves = (
                decay(self.published, leaves, self.parameters["old_decay"]) if self.moved else self.published
            )
        made = {"weights": self._weights(leaves), "state": self._state(leaves)}
        if self.ema is not None:
            made["ema"] = self._weights(self.ema)
        return made

    def _weights(self, leaves: Leaves) -> Output:
        if isinstance(self.trainable, Lora):
            files = {ADAPTER_FILE: to_file(self.trainable.file(leaves))}
            return Output("weights", files, {"component": self.component, "base": self.base})
        assert isinstance(self.trainable, FullWeights)
        changed, tied = self.trainable.changed(self.resident, leaves), self.trainable.tied()
        return Output("weights", changed, {"component": self.component, "like": self.digest, "tied": tied})

    def _state(self, published: Leaves) -> Output:
        tensors = {f"adam.mean/{name}": tensor for name, tensor in self.optimiser.mean.items()}
        tensors |= {f"adam.square/{name}": tensor for name, tensor in self.optimiser.square.items()}
        if isinstance(self.trainable, Lora):
            tensors |= {f"policy/{name}": tensor for name, tensor in published.items()}
        if self.published is not None:
            tensors |= {f"student/{name}": tensor for name, tensor in self.trainable.leaves.items()}
        if self.ema is not None:
            tensors |= {f"ema/{name}": tensor for name, tensor in self.ema.items()}
        state = TrainingState(
            component=self.component,
            method=self.parameters["method"],
            lora=self._lora(),
            steps=self.optimiser.steps,
            epochs=self.epochs,
            skipped=self.skipped,
            weights=fingerprint(published),
            tensors=tensors,
        )
        return Output("weights", state.files(), {"component": STATE_COMPONENT})

    def _lora(self) -> dict[str, Any] | None:
        lora = self.trainable
        if not isinstance(lora, Lora):
            return None
        return {"rank": lora.rank, "alpha": lora.alpha, "base": self.base, "layers": sorted(lora.base)}


def learner_of(
    resident: nn.Module,
    digest: str,
    parameters: Mapping[str, Any],
    state: TrainingState | None,
    seed: int,
) -> Learner:
    """A learner where the state left it, or at the pinned weights.

    Raises:
        InvalidParameter: a state of another training or of other weights, a LoRA where whole weights are
            trained, or no layer to put one on.
    """
    component = parameters["component"]
    if state is not None:
        _require_own(state, component, parameters)
    trainable, base = _trainable(resident, digest, parameters, state, seed)
    asked = ("learning_rate", "beta1", "beta2", "epsilon", "weight_decay")
    learner = Learner(
        component=component,
        parameters=parameters,
        resident=resident,
        digest=digest,
        base=base,
        trainable=trainable,
        optimiser=AdamW(**{name: parameters[name] for name in asked}),
    )
    begun = {name: leaf.clone() for name, leaf in trainable.leaves.items()}
    if parameters["method"] == "nft":
        learner.published = begun
    if parameters["ema_decay"] is not None:
        learner.ema = begun
    if state is not None:
        _restore(learner, state, begun)
    return learner


def _trainable(
    resident: nn.Module, digest: str, parameters: Mapping[str, Any], state: TrainingState | None, seed: int
) -> tuple[Trainable, str | None]:
    """What learns, holding the published leaves; and the digest of what a LoRA lies over."""
    origin = origin_of(resident)
    rank = parameters["lora_rank"]
    if rank is None:
        if origin is not None:
            remedy = "the pinned weights are a LoRA: set lora_rank, or begin from whole weights"
            raise InvalidParameter("lora_rank", None, remedy)
        return FullWeights.of(resident), None
    below, base = (resident, digest)
    if state is not None and state.lora is not None:
        base = state.lora["base"]
        below = _below(resident, digest, base)
    alpha = float(rank if parameters["lora_alpha"] is None else parameters["lora_alpha"])
    targets = tuple(parameters["lora_targets"] or ATTENTION)
    lora = Lora.over(below, parameters["component"], rank=rank, alpha=alpha, targets=targets, seed=seed)
    if state is not None:
        lora.hold(_moved(state.part("policy"), lora))
    return lora, base


def _below(resident: nn.Module, digest: str, base: str) -> nn.Module:
    """The module under the LoRA that a state goes on with."""
    origin = origin_of(resident)
    if origin is not None and origin.digest == base:
        return origin.base
    if digest == base:
        return resident
    remedy = f"it goes on with a LoRA over {base[:12]}: pin the weights that were made with it"
    raise InvalidParameter("state", digest[:12], remedy)


def _require_own(state: TrainingState, component: str, parameters: Mapping[str, Any]) -> None:
    lora = parameters["lora_rank"] is not None
    for name, was, asked in (
        ("component", state.component, component),
        ("method", state.method, parameters["method"]),
        ("lora", state.lora is not None, lora),
    ):
        if was != asked:
            remedy = f"it is of a training with {name}={was}: leave it out to begin anew"
            raise InvalidParameter(f"state.{name}", asked, remedy)


def _restore(learner: Learner, state: TrainingState, begun: Leaves) -> None:
    """Put a learner where its training was left."""
    if not _is_given(learner, state, begun):
        remedy = "it belongs to other weights than the pinned ones: pass those that the same step made"
        raise InvalidParameter("state", learner.digest[:12], remedy)
    trainable, optimiser = learner.trainable, learner.optimiser
    optimiser.steps, learner.epochs, learner.skipped = state.steps, state.epochs, state.skipped
    optimiser.mean = _moved(state.part("adam.mean"), trainable)
    optimiser.square = _moved(state.part("adam.square"), trainable)
    if learner.published is not None:
        student = _moved(state.part("student"), trainable)
        learner.moved = any(not torch.equal(student[name], leaf) for name, leaf in begun.items())
        trainable.hold(student)
    if learner.ema is not None and (average := state.part("ema")):
        learner.ema = _moved(average, trainable)


def _is_given(learner: Learner, state: TrainingState, begun: Leaves) -> bool:
    """Whether the pinned weights are those that the state belongs to."""
    if isinstance(learner.trainable, Lora) and not learner.trainable.serves(learner.resident, begun):
        return False
    return state.weights == fingerprint(begun)


def _moved(leaves: Mapping[str, torch.Tensor], trainable: Trainable) -> Leaves:
    """Leaves of a state, on the device, each of a known name and shape."""
    for name, leaf in leaves.items():
        if name not in trainable.leaves or leaf.shape != trainable.leaves[name].shape:
            raise InvalidParameter("state", name, "it is of a training of other layers or of another rank")
    return {name: leaf.to(trainable.leaves[name].device) for name, leaf in leaves.items()}


def reference_of(given: GivenWeights, resident: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of given whole weights by the names that a resident module has for them.

    Raises:
        InvalidParameter: they are an adapter's, or lack a tensor.
    """
    if given.base is not None:
        remedy = f"it is a LoRA: give the whole weights that it lies over, {given.base[:12]}"
        raise InvalidParameter("reference", given.digest[:12], remedy)
    found = {}
    for name, parameter in resident.named_parameters():
        if name not in given.tensors:
            raise InvalidParameter(
                "reference", given.digest[:12], f"it has no {name}: give the same component"
            )
        found[name] = given.tensors[name].to(parameter.device, parameter.dtype)
    return found
