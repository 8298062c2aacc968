"""New weights on their way into a module: read, checked and hashed before anything is served differently.

All that can be found wrong with weights is found here, while the earlier version is served: a tensor that is
missing, of another shape, not finite, or not what its digest says. What is left for the moment in which
nothing is stepped is a copy, and the proof that the copy is what was staged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mutoscope.platform.engine.adapters import Adapter
from mutoscope.platform.engine.finite import all_finite
from mutoscope.platform.engine.views import names_of, weights_of
from mutoscope.platform.errors import SyncFailed
from mutoscope.platform.refs import SHOWN_DIGITS

Transfer = Callable[[Tensor, Tensor], None]
"""`(target, source)`: makes the target's bytes those of the source, wherever the two lie."""


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """New weights of one component.

    Attributes:
        digest: what they are recorded as: the digest of their `weights` artifact.
        tensors: the module's whole state dict by name; each is asked for once. A trainer's own tensors may
            be given: they are copied before `stage` returns.
        proofs: SHA-256 of each tensor's bytes as the artifact lists them; None if the caller vouches for the
            tensors, having computed `digest` from them.
    """

    component: str
    digest: str
    tensors: Mapping[str, Tensor]
    proofs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AdapterUpdate:
    """A new adapter of one component, over the base that is resident. `digest`: what it is recorded as."""

    digest: str
    adapter: Adapter

    @property
    def component(self) -> str:
        """The component it changes."""
        return self.adapter.component


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """Checked weights in host memory, in the types of the module they are for.

    Attributes:
        proofs: SHA-256 of each tensor's bytes, in that type; none for an adapter's, which are computed where
            they are used.
    """

    component: str
    digest: str
    tensors: Mapping[str, Tensor]
    proofs: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


@torch.no_grad()
def stage(update: Update, module: nn.Module) -> Staged:
    """Check new weights and copy them to where nobody changes them.

    Raises:
        SyncFailed: they are not a whole, sound version of the module; names the tensor.
    """
    label = f"{update.component} {update.digest[:SHOWN_DIGITS]}"
    names = names_of(module)
    _require_known(label, update.tensors, names)
    tensors, proofs = {}, {}
    for name, target in weights_of(module).items():
        given = _given(label, update, names[name])
        if given.shape != target.shape:
            raise SyncFailed(
                f"{label} has {name} of shape {list(given.shape)} where the module takes "
                f"{list(target.shape)}: sync weights of the same model"
            )
        if not all_finite(given):
            raise SyncFailed(f"{label} has NaN or infinity in {name}: sync weights that are sound")
        tensors[name] = given.detach().to("cpu", target.dtype, copy=True).contiguous()
        proofs[name] = fingerprint(tensors[name])
    return Staged(update.component, update.digest, tensors, proofs)


@torch.no_grad()
def stage_adapter(update: AdapterUpdate, view: nn.Module) -> Staged:
    """What an adapter's view has of its own.

    Raises:
        SyncFailed: a merged weight is not finite; names it.
    """
    own = {f"{name}.weight": view.get_parameter(f"{name}.weight") for name in update.adapter.changes}
    for name, tensor in own.items():
        if not all_finite(tensor):
            label = f"{update.component} {update.digest[:SHOWN_DIGITS]}"
            raise SyncFailed(f"{label} has NaN or infinity in {name} once merged: sync a sound adapter")
    return Staged(update.component, update.digest, own, {})


@torch.no_grad()
def backup(component: str, digest: str, module: nn.Module) -> Staged:
    """What a module holds now, to put back."""
    tensors = {name: target.detach().to("cpu", copy=True) for name, target in weights_of(module).items()}
    return Staged(component, digest, tensors, {name: fingerprint(tensor) for name, tensor in tensors.items()})


@torch.no_grad()
def write(staged: Staged, targets: Mapping[str, Tensor], transfer: Transfer) -> None:
    """Copy staged weights into the tensors of a module, and prove that they have arrived.

    Raises:
        SyncFailed: a tensor's bytes are not the staged ones; names it.
    """
    for name, target in targets.items():
        transfer(target, staged.tensors[name])
    for name, target in targets.items():
        if fingerprint(target) != staged.proofs[name]:
            raise SyncFailed(
                f"{staged.component} {staged.digest[:SHOWN_DIGITS]} arrived damaged in {name}: its bytes are "
                "not the ones sent"
            )


def copy_tensor(target: Tensor, source: Tensor) -> None:
    """The usual transfer: within the host, or from the host to the device."""
    target.copy_(source)


def fingerprint(tensor: Tensor) -> str:
    """Hex SHA-256 of a tensor's bytes in row-major order, read back from wherever it lies."""
    data = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(data.numpy().data).hexdigest()


def _require_known(label: str, given: Iterable[str], names: Mapping[str, list[str]]) -> None:
    known = {name for tied in names.values() for name in tied}
    if unknown := sorted(set(given) - known):
        raise SyncFailed(f"{label} has {unknown[0]}, which the module does not: sync the same model")


def _given(label: str, update: Update, names: list[str]) -> Tensor:
    """The new value of a tensor that the module knows by these names; weights may name it once or often."""
    told = [name for name in names if name in update.tensors]
    if not told:
        raise SyncFailed(f"{label} lacks {names[0]}: sync the module's whole state")
    first, *others = told
    given = update.tensors[first]
    if update.proofs is not None and fingerprint(given) != update.proofs.get(first):
        raise SyncFailed(f"{label} has other bytes in {first} than its digest names: read it again")
    for other in others:
        if not given.equal(update.tensors[other]):
            raise SyncFailed(f"{label} has different values in {first} and {other}, which the module ties")
    return given
