"""What a weight sync is given: proven to be a whole version before anything is touched."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mutoscope.platform.engine import staging
from mutoscope.platform.engine.instance import with_components
from mutoscope.platform.engine.staging import Update, copy_tensor
from mutoscope.platform.engine.sync import Strategy
from mutoscope.platform.errors import SyncFailed
from tests.engine.sync.bench import STRATEGIES, Bench
from tests.support.interleaving import content
from tests.support.versions import (
    alone,
    digest_of,
    request,
    update,
)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trainer_may_go_on_changing_its_tensors_once_they_are_staged(
    bench: Bench, strategy: Strategy
) -> None:
    given = bench.update(1)
    staged = bench.sync.stage(given, strategy=strategy)
    expected = bench.quiet(1)
    for tensor in given.tensors.values():
        tensor.add_(1.0)
    bench.sync.finish(bench.sync.begin(staged))
    after = bench.submit()
    bench.finish()
    assert content(after.result()) == expected


def test_weights_staged_over_an_earlier_version_are_refused(bench: Bench) -> None:
    early = bench.sync.stage(bench.update(1), strategy="drain")
    bench.sync.apply(bench.update(2), strategy="fence")
    with pytest.raises(SyncFailed, match="was staged over an earlier version: stage it again"):
        bench.sync.begin(early)
    after = bench.submit()
    bench.finish()
    assert content(after.result()) == bench.quiet(2)


NAME = "x_embedder.weight"


def _without(tensors: dict[str, Tensor]) -> None:
    del tensors[NAME]


def _with_another(tensors: dict[str, Tensor]) -> None:
    tensors["head.weight"] = torch.zeros(1)


def _of_another_shape(tensors: dict[str, Tensor]) -> None:
    tensors[NAME] = tensors[NAME][:1]


def _not_finite(tensors: dict[str, Tensor]) -> None:
    tensors[NAME] = tensors[NAME].clone()
    tensors[NAME][0, 0] = torch.nan


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (_without, f"lacks {NAME}: sync the module's whole state"),
        (_with_another, "has head.weight, which the module does not"),
        (_of_another_shape, rf"has {NAME} of shape \[1, 16\] where the module takes \[32, 16\]"),
        (_not_finite, f"has NaN or infinity in {NAME}"),
    ],
)
def test_weights_that_are_no_whole_version_are_named(
    bench: Bench, change: Callable[[dict[str, Tensor]], None], line: str
) -> None:
    tensors = dict(bench.update(1).tensors)
    change(tensors)
    with pytest.raises(SyncFailed, match=f"^transformer {digest_of('x')[:12]} {line}"):
        bench.sync.apply(Update("transformer", digest_of("x"), tensors))
    assert bench.resident.instance is bench.first


def test_bytes_that_are_not_what_the_artifact_lists_are_refused(bench: Bench) -> None:
    given = bench.update(1)
    proofs = {name: staging.fingerprint(tensor) for name, tensor in given.tensors.items()}
    good = Update(given.component, given.digest, given.tensors, proofs)
    assert bench.sync.stage(good, strategy="fence").updates[0].proofs == proofs
    bad = Update(given.component, given.digest, given.tensors, {**proofs, NAME: "0" * 64})
    with pytest.raises(SyncFailed, match=f"has other bytes in {NAME} than its digest names"):
        bench.sync.apply(bad)


def test_tied_weights_may_be_named_once_but_not_apart(bench: Bench) -> None:
    given = update(bench.first, 1, "text_encoder_2")
    first, second = "shared.weight", "encoder.embed_tokens.weight"
    assert {first, second} <= set(given.tensors)
    staged = [
        bench.sync.stage(
            Update(given.component, given.digest, {k: v for k, v in given.tensors.items() if k != left_out})
        )
        for left_out in (first, second)
    ]
    assert len({tuple(sorted(one.updates[0].proofs.items())) for one in staged}) == 1
    apart = {**given.tensors, second: given.tensors[second] + 1}
    with pytest.raises(SyncFailed, match=f"different values in {first} and {second}, which the module ties"):
        bench.sync.stage(Update(given.component, given.digest, apart))
    bench.sync.finish(bench.sync.begin(staged[1]))
    after = bench.submit()
    bench.finish()
    loaded = copy.deepcopy(bench.first.components["text_encoder_2"])
    loaded.load_state_dict(given.tensors)
    instance = with_components(bench.first, {"text_encoder_2": loaded}, {})
    assert content(after.result()) == alone(instance, request("r"))


@pytest.mark.parametrize("component", ["unet", "tokenizer"])
def test_components_without_weights_are_refused(bench: Bench, component: str) -> None:
    with pytest.raises(SyncFailed, match=f"flux-t2i has no component {component} with weights"):
        bench.sync.apply(Update(component, digest_of("x"), {}))


def test_half_precision_is_proven_in_the_precision_that_serves(bench: Bench) -> None:
    module = nn.Linear(3, 2, dtype=torch.bfloat16).requires_grad_(False)
    given = {"weight": torch.randn(2, 3), "bias": torch.randn(2)}
    staged = staging.stage(Update("net", digest_of("x"), given), module)
    staging.write(staged, module.state_dict(), copy_tensor)
    assert module.weight.equal(given["weight"].bfloat16())
    assert staged.size == 8 * 2
