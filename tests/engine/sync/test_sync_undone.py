"""A weight sync that goes wrong leaves what was there, or says that it cannot."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
import torch
from torch import Tensor

from mutoscope.platform.engine import staging, sync
from mutoscope.platform.engine.staging import copy_tensor
from mutoscope.platform.engine.sync import Strategy, WeightSync
from mutoscope.platform.errors import RunFailed, SyncFailed
from tests.engine.sync.bench import STRATEGIES, Bench
from tests.support.interleaving import content
from tests.support.versions import (
    update,
)


def test_an_abandoned_sync_changes_nothing(bench: Bench) -> None:
    pending = bench.sync.begin(bench.sync.stage(bench.update(1), strategy="drain"))
    waiting = bench.submit()
    bench.finish()
    assert not waiting.done
    bench.sync.abandon(pending)
    bench.finish()
    assert content(waiting.result()) == bench.quiet(0)


def corrupted() -> Callable[[Tensor, Tensor], None]:
    """A transfer that flips one bit of the fifth tensor, once."""
    calls = count(1)

    def transfer(target: Tensor, source: Tensor) -> None:
        copy_tensor(target, source)
        if next(calls) == 5:
            target.view(-1)[:1].view(torch.uint8)[0] ^= 1

    return transfer


def broken(error: BaseException) -> Callable[[Tensor, Tensor], None]:
    """A transfer that ends after four tensors, once."""
    calls = count(1)

    def transfer(target: Tensor, source: Tensor) -> None:
        if next(calls) == 5:
            raise error
        copy_tensor(target, source)

    return transfer


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("transfer", "line"),
    [
        (corrupted, "arrived damaged in .*: its bytes are not the ones sent"),
        (lambda: broken(OSError("link is down")), "link is down"),
    ],
    ids=["corrupted", "broken"],
)
def test_a_transfer_that_goes_wrong_is_undone(
    bench: Bench, strategy: Strategy, transfer: Callable[[], staging.Transfer], line: str
) -> None:
    before = bench.quiet(0)
    failing = WeightSync(bench.engine, bench.resident, transfer=transfer())
    in_flight = bench.submit("a")
    bench.engine.step()
    with pytest.raises((SyncFailed, OSError), match=line) as caught:
        failing.apply(bench.update(1), strategy=strategy)
    assert "\n" not in str(caught.value)
    assert bench.resident.instance is bench.first
    after = bench.submit("b")
    bench.finish()
    assert content(in_flight.result()) == content(after.result()) == before
    assert after.result().weights == bench.first.weights
    assert bench.sync.apply(bench.update(2), strategy=strategy).strategy == strategy
    final = bench.submit("c")
    bench.finish()
    assert content(final.result()) == bench.quiet(2)


def test_an_interrupt_in_the_transfer_restores_and_goes_on(bench: Bench) -> None:
    failing = WeightSync(bench.engine, bench.resident, transfer=broken(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        failing.apply(bench.update(1), strategy="drain")
    after = bench.submit()
    bench.finish()
    assert content(after.result()) == bench.quiet(0)


def test_where_not_even_the_old_version_can_be_put_back_nothing_is_served(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(target: Tensor, source: Tensor) -> None:
        raise OSError("device is gone")

    monkeypatch.setattr(sync, "copy_tensor", fail)
    failing = WeightSync(bench.engine, bench.resident, transfer=fail)
    with pytest.raises(SyncFailed, match=r"could not be put back \(device is gone\): load flux-t2i anew"):
        failing.apply(bench.update(1), strategy="drain")
    with pytest.raises(RunFailed, match="transformer of this flux-t2i holds unknown weights since a sync"):
        bench.submit()


def test_a_second_component_that_fails_takes_the_first_back(bench: Bench) -> None:
    before = bench.quiet(0)
    first = len(bench.first.components["transformer"].state_dict())
    calls = count(1)

    def transfer(target: Tensor, source: Tensor) -> None:
        if next(calls) == first + 2:
            raise OSError("link is down")
        copy_tensor(target, source)

    failing = WeightSync(bench.engine, bench.resident, transfer=transfer)
    with pytest.raises(SyncFailed, match="link is down"):
        failing.apply(bench.update(1), update(bench.first, 1, "vae"), strategy="drain")
    after = bench.submit()
    bench.finish()
    assert content(after.result()) == before
