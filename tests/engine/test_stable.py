"""Leaf modules that fill up: their bits no longer depend on the batch, and nobody else notices."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers.activations import QuickGELUActivation

from mutoscope.platform.engine import numerics, stable
from mutoscope.platform.engine.leaf_probe import LeafProbe
from mutoscope.platform.engine.stable import LeafKind, Unit


@pytest.fixture(autouse=True)
def _contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(1))


@pytest.fixture
def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 384), nn.SiLU(), nn.Linear(384, 64)).eval().requires_grad_(False)


def counting(leaf: nn.Linear) -> list[int]:
    """Rows of every call that reaches the leaf's own class."""
    seen: list[int] = []
    leaf.register_parameter("_seen", None)  # a kind of its own, so that no other test's class is touched
    original = type(leaf)

    class Counting(original):  # type: ignore[misc, valid-type]
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            seen.append(len(given))
            return super().forward(given)

    leaf.__class__ = Counting
    return seen


def unit(leaf: nn.Module, rows: int, inner: tuple[int, ...] = (128,)) -> Unit:
    return Unit(LeafKind.of(leaf), inner, rows)


def test_rows_are_filled_up_inside_padding_only(net: nn.Sequential) -> None:
    seen = counting(net[0])
    stable.treat([net], [unit(net[0], 4)])
    x = torch.randn(5, 128)
    outside = net[0](x)
    with stable.padding():
        inside = net[0](x)
    assert seen == [5, 8]
    assert inside.shape == outside.shape
    assert torch.allclose(inside, outside, atol=1e-6)


def test_vectors_of_a_sample_count_as_rows_of_a_product(net: nn.Sequential) -> None:
    seen = counting(net[0])
    stable.treat([net], [unit(net[0], 16, (9, 128))])
    with stable.padding():
        assert net[0](torch.randn(1, 9, 128)).shape == (1, 9, 384)
        assert net[0](torch.randn(2, 9, 128)).shape == (2, 9, 384)
        net[0](torch.randn(1, 7, 128))
    assert seen == [16, 32, 1], "an input of another shape is left alone"


def test_names_state_and_identity_stay(net: nn.Sequential) -> None:
    names, tensors = list(net.state_dict()), [id(p) for p in net.parameters()]
    stable.treat([net], [unit(net[0], 4)])
    stable.treat([net], [unit(net[0], 4)])
    assert list(net.state_dict()) == names
    assert [id(p) for p in net.parameters()] == tensors
    assert isinstance(net[0], nn.Linear)
    net.load_state_dict(net.state_dict(), strict=True)


def test_a_copy_is_treated_too_and_undoing_leaves_the_class_as_it_was(net: nn.Sequential) -> None:
    stable.treat([net], [unit(net[0], 4)])
    twin = copy.deepcopy(net)
    assert type(twin[0]) is type(net[0]) is not nn.Linear
    stable.restore([net])
    assert type(net[0]) is nn.Linear
    assert not set(vars(net[0])) - set(vars(nn.Linear(1, 1)))
    assert type(twin[0]) is not nn.Linear


def test_what_two_cards_need_of_a_shared_module_is_kept_for_both(net: nn.Sequential) -> None:
    seen = counting(net[0])
    stable.treat([net], [unit(net[0], 4)])
    stable.treat([net], [unit(net[0], 6), unit(net[0], 2, (3, 128))])
    with stable.padding():
        net[0](torch.randn(1, 128))
        net[0](torch.randn(1, 3, 128))
    assert seen == [12, 4]


def test_the_probe_finds_the_products_whose_bits_follow_the_batch(net: nn.Sequential) -> None:
    """On a machine whose kernels do not differ there is nothing to find, and nothing to cure."""
    x = torch.randn(1, 128)
    probe = LeafProbe([net], 16)
    with probe.listening():
        for _ in range(3):
            net(torch.randn(1, 128))
    stable.treat([net], probe.found())

    def rows(size: int) -> torch.Tensor:
        return net(x.expand(size, 128).contiguous())

    with stable.padding():
        cured = [torch.equal(rows(size), rows(1).expand(size, 64)) for size in range(1, 17)]
    assert all(cured)
    plain = [torch.equal(rows(size)[:1], rows(1)) for size in range(1, 17)]
    assert all(plain) == (probe.found() == ())


def test_an_activation_of_uneven_rows_is_asked_about_enough_to_show_what_few_arguments_do() -> None:
    """What lies beyond the last whole register of a batch is computed in another way, which shows in about
    one argument of 26: one input of 629 elements, which puts 13 there, tells nothing."""
    torch.manual_seed(1)
    quick = QuickGELUActivation()
    probe = LeafProbe([quick], 8)
    with probe.listening():
        quick(torch.randn(1, 17, 37))
    contents = torch.randn(64, 17, 37)
    plain = _agrees(quick, contents)
    stable.treat([quick], probe.found())
    with stable.padding():
        assert _agrees(quick, contents)
    assert plain == (probe.found() == ()), "where nothing differs, nothing is filled up"


def _agrees(leaf: nn.Module, contents: torch.Tensor) -> bool:
    """Whether rows have the same bits in batches of up to eight as alone."""
    alone = torch.cat([leaf(row) for row in contents.split(1)])
    made = [torch.cat([leaf(batch) for batch in contents.split(size)]) for size in range(2, 9)]
    return all(torch.equal(each, alone) for each in made)


def test_kinds_are_told_apart_by_what_they_compute(net: nn.Sequential) -> None:
    kind = LeafKind.of(net[0])
    assert kind == LeafKind.of(nn.Linear(128, 384))
    assert kind != LeafKind.of(nn.Linear(128, 384, bias=False))
    assert kind != LeafKind.of(nn.Linear(128, 384, dtype=torch.float64))
    stable.treat([net], [unit(net[0], 4)])
    assert LeafKind.of(net[0]) == kind, "treated or not"
