"""Weight sync under live traffic: no output mixes versions, and serving stops for no longer than it must.

A sync goes through: stage, freeze, drain, transfer, prove, bump, resume. Which of these cost anything depends
on the memory:

*fence*  Where a second version of the synced components fits, it is built beside the first, proven, and put
         in the resident's place as a new instance that shares every other module. Requests in flight end on
         the old one, and nobody waits.
*drain*  Where it does not, requests of the module that have not begun are held back, those in flight are
         served to their end, and the tensors are overwritten. Their digests are read back from where they
         lie; if one is wrong, or anything else fails, the earlier version is put back, and proven too.

Either way only the synced components get another digest, and only what was cached under their old one is
dropped. The engine decides nothing here and knows no store: new weights come as tensors with a digest, from a
trainer or from whoever reads the artifacts.

Used in the thread that steps the engine; `stage` may run in any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import psutil
import torch
from torch import Tensor, nn

from mutoscope.platform.engine.adapters import adapt
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.features import FeatureCache
from mutoscope.platform.engine.held import note_replaced
from mutoscope.platform.engine.instance import Instance, with_components
from mutoscope.platform.engine.resident import Resident
from mutoscope.platform.engine.staging import (
    AdapterUpdate,
    Staged,
    Transfer,
    Update,
    backup,
    copy_tensor,
    stage,
    stage_adapter,
    write,
)
from mutoscope.platform.engine.views import origin_of, structure_of, weights_of, with_tensors
from mutoscope.platform.errors import SyncFailed

Strategy = Literal["fence", "drain"]

_SPARE = 0.1
"""Share of the free memory that a second version must leave for the steps of requests."""

_STAGING_POLL_S = 0.002
"""How long an engine without work waits for the staging thread before it looks for work again, seconds."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did and what it cost.

    Attributes:
        before, after: digests of the synced components.
        size: bytes of the synced tensors.
        stage_seconds: reading, checking and hashing, and building the second version of a fence; beside the
            stepping when `apply` does it.
        drain_seconds: from closing admission until the last request in flight was done; the device worked.
        pause_seconds: for how long nothing was stepped: transfer, proof, new program, bump.
        copy_seconds: the share of the pause that was transfer and proof; 0 for a fence.
        features_bytes: set free in the engine's node cache.
    """

    strategy: Strategy
    card: str
    before: Mapping[str, str | None]
    after: Mapping[str, str]
    size: int
    stage_seconds: float
    drain_seconds: float
    pause_seconds: float
    copy_seconds: float
    features_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class StagedSync:
    """New weights, checked, beside the instance they are for.

    Attributes:
        fresh: by component, the second version that a fence brings.
        earlier: by component, what a drain puts back if it fails.
    """

    instance: Instance
    strategy: Strategy
    updates: tuple[Staged, ...]
    fresh: Mapping[str, nn.Module]
    earlier: Mapping[str, Staged]
    seconds: float

    @property
    def size(self) -> int:
        """Bytes of the synced tensors."""
        return sum(staged.size for staged in self.updates)


@dataclass(slots=True, eq=False)
class PendingSync:
    """A sync between `begin` and `finish`. `frozen`: the modules whose requests are held back."""

    staged: StagedSync
    began: float
    frozen: list[nn.Module] = field(default_factory=list)


class WeightSync:
    """Brings new weights to one resident of an engine.

    Args:
        prepare: applied to every instance a sync makes, such as what makes a loaded one ready for batching.
        transfer: how bytes come to the device.
        room: free bytes on a device; decides between the strategies where the caller does not.
    """

    def __init__(
        self,
        engine: Engine,
        resident: Resident,
        *,
        prepare: Callable[[Instance], Instance] = lambda instance: instance,
        transfer: Transfer = copy_tensor,
        room: Callable[[torch.device], int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._engine = engine
        self._resident = resident
        # Copied now, while nothing runs: a fence fills them in another thread, when the modules are at work.
        self._structures = {
            name: structure_of(component)
            for name, component in resident.instance.components.items()
            if isinstance(component, nn.Module)
        }
        self._prepare = prepare
        self._transfer = transfer
        self._room = free_bytes if room is None else room
        self._clock = clock

    def apply(self, *updates: Update | AdapterUpdate, strategy: Strategy | None = None) -> SyncReport:
        """Sync components, all at once, and step the engine for as long as that takes to come about.

        Raises:
            SyncFailed: nothing has changed, and what was served is served on.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="weight-sync") as thread:
            staging = thread.submit(self.stage, *updates, strategy=strategy)
            while not staging.done():
                if not self._engine.step():
                    wait([staging], timeout=_STAGING_POLL_S)
        pending = self.begin(staging.result())
        while not self.is_ready(pending):
            if not self._engine.step():
                self.abandon(pending)
                raise SyncFailed(f"{self._name(pending.staged)} does not drain: a request in flight is stuck")
        return self.finish(pending)

    def stage(self, *updates: Update | AdapterUpdate, strategy: Strategy | None = None) -> StagedSync:
        """Check and hash new weights, and for a fence build their modules. Changes nothing.

        Args:
            updates: of different components. An adapter is always brought by a fence: its base is shared.
            strategy: None chooses a fence where the memory allows.

        Raises:
            SyncFailed: the weights are not a whole, sound version of the component.
            InvalidAdapter: an adapter does not fit the resident base.
        """
        started, instance = self._clock(), self._resident.instance
        fresh: dict[str, nn.Module] = {}
        staged: list[Staged] = []
        for update in updates:
            module = _module(instance, update.component)
            if isinstance(update, AdapterUpdate):
                fresh[update.component] = self._adapted(instance, update)
                staged.append(stage_adapter(update, fresh[update.component]))
            else:
                staged.append(stage(update, module))
        chosen = strategy or ("fence" if fresh else self._choose(instance, sum(one.size for one in staged)))
        earlier: dict[str, Staged] = {}
        for one in staged:
            module = _module(instance, one.component)
            if chosen == "drain":
                _require_own(one.component, fresh.get(one.component, module))
                before = instance.weights.get(one.component, "?")
                earlier[one.component] = backup(one.component, before, module)
            elif one.component not in fresh:
                structure = self._structures[one.component]
                fresh[one.component] = _beside(structure, module, one, self._transfer)
        return StagedSync(instance, chosen, tuple(staged), fresh, earlier, self._clock() - started)

    def begin(self, staged: StagedSync) -> PendingSync:
        """Hold back requests that a drain must not let begin. Step the engine until `is_ready`.

        Raises:
            SyncFailed: the resident has been synced since the weights were staged.
        """
        if self._resident.instance is not staged.instance:
            raise SyncFailed(f"{self._name(staged)} was staged over an earlier version: stage it again")
        pending = PendingSync(staged, self._clock())
        if staged.strategy == "drain":
            for one in staged.updates:
                module = _module(staged.instance, one.component)
                self._engine.freeze(module)
                pending.frozen.append(module)
        return pending

    def is_ready(self, pending: PendingSync) -> bool:
        """Whether no request in flight uses what is about to be overwritten."""
        return not any(self._engine.in_flight(module) for module in pending.frozen)

    def finish(self, pending: PendingSync) -> SyncReport:
        """Transfer, prove, bump, resume.

        Raises:
            SyncFailed: the earlier version has been put back and is served on. If even that failed, the line
                says so, and requests of the module are refused from now on.
        """
        if not self.is_ready(pending):
            raise RuntimeError("requests in flight still use the module: step the engine until it is ready")
        staged, started = pending.staged, self._clock()
        copy_seconds = 0.0
        try:
            if staged.strategy == "fence":
                instance = self._bumped(staged, staged.fresh)
            else:
                with self._restoring(staged):
                    copying = self._clock()
                    for one in staged.updates:
                        module = _module(staged.instance, one.component)
                        write(one, weights_of(module), self._transfer)
                    copy_seconds = self._clock() - copying
                    instance = self._bumped(staged, {})
                for one in staged.updates:
                    note_replaced(_module(staged.instance, one.component), one.digest)
            self._resident.bump(instance)
            freed = self._forget(staged)
        finally:
            self.abandon(pending)
        return SyncReport(
            strategy=staged.strategy,
            card=instance.card.id,
            before={one.component: staged.instance.weights.get(one.component) for one in staged.updates},
            after={one.component: one.digest for one in staged.updates},
            size=staged.size,
            stage_seconds=staged.seconds,
            drain_seconds=started - pending.began if staged.strategy == "drain" else 0.0,
            pause_seconds=self._clock() - started,
            copy_seconds=copy_seconds,
            features_bytes=freed,
        )

    def abandon(self, pending: PendingSync) -> None:
        """Let the requests that were held back begin. Without `finish`, nothing has changed for them."""
        while pending.frozen:
            self._engine.resume(pending.frozen.pop())

    def _adapted(self, instance: Instance, update: AdapterUpdate) -> nn.Module:
        """A view of the component's base, whichever adapter is on it now."""
        module = _module(instance, update.component)
        origin = origin_of(module)
        base, digest = (
            (module, instance.weights.get(update.component))
            if origin is None
            else (origin.base, origin.digest)
        )
        structure = self._structures[update.component]
        return adapt(base, update.adapter, digest=digest, structure=structure)

    def _bumped(self, staged: StagedSync, fresh: Mapping[str, nn.Module]) -> Instance:
        digests = {one.component: one.digest for one in staged.updates}
        return self._prepare(with_components(staged.instance, fresh, digests))

    @contextmanager
    def _restoring(self, staged: StagedSync) -> Iterator[None]:
        """Put the earlier version back if the block fails."""
        try:
            yield
        except BaseException as error:
            self._restore(staged, error)
            if not isinstance(error, Exception):
                raise
            raise SyncFailed(
                f"{self._name(staged)} failed ({error}): the earlier version is served on"
            ) from error

    def _restore(self, staged: StagedSync, cause: BaseException) -> None:
        for name, earlier in staged.earlier.items():
            module = _module(staged.instance, name)
            try:
                write(earlier, weights_of(module), copy_tensor)
            except Exception as error:
                for other in staged.earlier:
                    note_replaced(_module(staged.instance, other), None)
                raise SyncFailed(
                    f"{self._name(staged)} failed ({cause}) and the earlier version could not be put back "
                    f"({error}): load {staged.instance.card.id} anew"
                ) from cause

    def _forget(self, staged: StagedSync) -> int:
        cache, freed = self._engine.node_cache, 0
        if isinstance(cache, FeatureCache):
            for one in staged.updates:
                before = staged.instance.weights.get(one.component)
                freed += 0 if before in (None, one.digest) else cache.forget(one.component, str(before))
        return freed

    def _choose(self, instance: Instance, size: int) -> Strategy:
        return "fence" if size <= self._room(instance.device) * (1 - _SPARE) else "drain"

    def _name(self, staged: StagedSync) -> str:
        parts = ", ".join(f"{one.component} {one.digest[:12]}" for one in staged.updates)
        return f"sync of {staged.instance.card.id} to {parts}"


def free_bytes(device: torch.device) -> int:
    """Bytes that could be allocated on a device now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return int(psutil.virtual_memory().available)


@torch.no_grad()
def _beside(structure: nn.Module, module: nn.Module, staged: Staged, transfer: Transfer) -> nn.Module:
    """A module like another with the staged weights, in memory of its own, proven."""
    own: dict[str, Tensor] = {name: torch.empty_like(t.detach()) for name, t in weights_of(module).items()}
    write(staged, own, transfer)
    return with_tensors(structure, own)


def _module(instance: Instance, component: str) -> nn.Module:
    module: Any = instance.components.get(component)
    if not isinstance(module, nn.Module):
        raise SyncFailed(f"{instance.card.id} has no component {component} with weights: name one it has")
    return module


def _require_own(component: str, module: nn.Module) -> None:
    if origin_of(module) is not None:
        raise SyncFailed(f"{component} is an adapter over a base that others use: sync it with a fence")
