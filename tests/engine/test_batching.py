"""The batcher: which rows share a call, what pads it, and who notices when sharing changes bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mutoscope.platform.engine.batching import Batcher, Mode, Sizes, equal_bits, in_calls
from mutoscope.platform.engine.loop import Rows, WorkPlan

KIND, SHAPE = "denoise", (3,)
ALL = Sizes(tuple(range(1, 9)))


class Model:
    """Doubles rows, and remembers how many each call held. What `spoil` adds depends on the call's size."""

    def __init__(self, spoil: Callable[[int], float] = lambda size: 0.0) -> None:
        self.sizes: list[int] = []
        self._spoil = spoil

    def call(self, rows: Mapping[str, Tensor]) -> Tensor:
        self.sizes.append(len(rows["x"]))
        return 2 * rows["x"] + self._spoil(len(rows["x"]))


def plan(model: Model, *values: float, combine: Callable[[Sequence[Any]], Any] = list) -> WorkPlan:
    """A step with a row for each value."""
    rows = Rows(model.call, len(values), lambda: [{"x": torch.full((1, 3), v)} for v in values], combine)
    return WorkPlan.of_rows(KIND, SHAPE, rows)


def bitwise(sizes: Sizes = ALL, prove: bool = False) -> Batcher:
    return Batcher(Mode.BITWISE, {(KIND, SHAPE): sizes}, prove=prove)


def values(results: list[Any]) -> list[list[float]]:
    """The first element of each row, by plan."""
    return [[float(row[0, 0]) for row in rows] for rows in results]


def test_rows_of_several_plans_share_one_call_and_come_back_to_their_own() -> None:
    model = Model()
    assert values(bitwise().run([plan(model, 1, 2), plan(model, 3), plan(model, 4, 5)])) == [
        [2, 4],
        [6],
        [8, 10],
    ]
    assert model.sizes == [5]


def test_without_batching_every_row_has_a_call_of_its_own() -> None:
    model = Model()
    batcher = Batcher()
    assert batcher.capacity(plan(model, 1, 2)) == 1
    assert values(batcher.run([plan(model, 1, 2)])) == [[2, 4]]
    assert model.sizes == [1, 1]


@pytest.mark.parametrize("batcher", [Batcher(), bitwise(), bitwise(Sizes((2, 3)))])
def test_where_a_row_lies_in_memory_changes_no_bit(batcher: Batcher) -> None:
    """A product of a vector that begins within a cache line is summed in another order."""
    torch.manual_seed(1)
    net = torch.nn.Linear(384, 37)
    row = torch.randn(1, 384)

    def made(offset: int) -> Tensor:
        line = torch.empty(512)[offset:][:384].view(1, 384).copy_(row)
        rows = Rows(lambda given: net(given["x"]), 1, lambda: [{"x": line}], lambda results: results[0])
        (result,) = batcher.run([WorkPlan.of_rows(KIND, SHAPE, rows)])
        assert isinstance(result, Tensor)
        return result

    with torch.inference_mode():
        assert all(torch.equal(made(offset), made(0)) for offset in range(16))


def test_a_shape_that_was_not_calibrated_shares_nothing() -> None:
    model = Model()
    rows = Rows(model.call, 2, lambda: [{"x": torch.ones(1, 4)}] * 2, list)
    other = WorkPlan.of_rows(KIND, (4,), rows)
    assert bitwise().capacity(other) == 1
    bitwise().run([other])
    assert model.sizes == [1, 1]


def test_a_call_is_filled_up_to_the_next_agreeing_size() -> None:
    model, batcher = Model(), bitwise(Sizes((4, 8)))
    assert values(batcher.run([plan(model, 1), plan(model, 2, 3, 4, 5)])) == [[2], [4, 6, 8, 10]]
    batcher.run([plan(model, 1)])
    assert model.sizes == [8, 4]
    assert [batcher.padding(plan(model, 1), rows) for rows in (1, 4, 5, 8)] == [3, 0, 3, 0]


def test_more_rows_than_a_call_holds_are_cut_into_several() -> None:
    model = Model()
    assert values(bitwise(Sizes((1, 2, 3))).run([plan(model, *range(7))])) == [[2.0 * n for n in range(7)]]
    assert model.sizes == [3, 3, 1]


def test_tolerance_shares_at_any_size_and_shape() -> None:
    model, batcher = Model(), Batcher(Mode.TOLERANCE, most=4)
    assert batcher.capacity(plan(model, 1)) == 4
    batcher.run([plan(model, 1, 2), plan(model, 3)])
    assert model.sizes == [3]


def test_results_have_memory_of_their_own() -> None:
    """A view of the batch's result would keep all of it, and lie wherever its row happens to."""
    first, second = bitwise().run([plan(Model(), 1), plan(Model(), 2)])
    for (row,) in (first, second):
        assert row.untyped_storage().nbytes() == row.numel() * row.element_size()
        assert row.storage_offset() == 0


def test_a_tuple_of_results_is_cut_part_by_part() -> None:
    def call(rows: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return rows["x"], rows["x"].sum(1)

    rows = [{"x": torch.full((1, 2), float(n))} for n in range(3)]
    results = in_calls(call, rows, Sizes((1, 2, 3)))
    assert [(part[0].tolist(), part[1].tolist()) for part in results] == [
        ([[n, n]], [2 * n]) for n in (0.0, 1.0, 2.0)
    ]


def test_trouble_in_combining_is_the_plans_own() -> None:
    def refuse(results: Sequence[Any]) -> Any:
        raise ArithmeticError("planted")

    model = Model()
    sound, broken, after = bitwise().run([plan(model, 1), plan(model, 2, combine=refuse), plan(model, 3)])
    assert isinstance(broken, ArithmeticError)
    assert values([sound, after]) == [[2], [6]]
    assert model.sizes == [3]


def test_rows_that_cannot_be_made_are_the_plans_own() -> None:
    def refuse() -> Any:
        raise ArithmeticError("planted")

    model = Model()
    broken = WorkPlan.of_rows(KIND, SHAPE, Rows(model.call, 2, refuse, list))
    outcomes = bitwise().run([broken, plan(model, 3)])
    assert isinstance(outcomes[0], ArithmeticError)
    assert values(outcomes[1:]) == [[6]]


def test_a_call_that_breaks_breaks_the_run() -> None:
    """Whoever chose the plans can choose fewer of them."""

    def call(rows: Mapping[str, Tensor]) -> Tensor:
        raise torch.OutOfMemoryError("planted")

    step = WorkPlan.of_rows(KIND, SHAPE, Rows(call, 1, lambda: [{"x": torch.ones(1, 3)}], list))
    with pytest.raises(torch.OutOfMemoryError, match="planted"):
        bitwise().run([step])


class TestProof:
    """A call that shares for the first time is compared with its rows one by one."""

    def test_once_for_a_call_that_keeps_bits(self) -> None:
        model, batcher = Model(), bitwise(prove=True)
        for _ in range(3):
            assert values(batcher.run([plan(model, 1), plan(model, 2)])) == [[2], [4]]
        assert model.sizes == [2, 1, 1, 2, 2]

    def test_a_call_that_changes_bits_is_never_shared_and_returns_what_it_does_alone(self) -> None:
        model = Model(spoil=lambda size: 0.5 * (size > 1))
        batcher = bitwise(prove=True)
        assert values(batcher.run([plan(model, 1), plan(model, 2)])) == [[2], [4]]
        assert batcher.capacity(plan(model, 1)) == 1
        assert values(batcher.run([plan(model, 1, 2)])) == [[2, 4]]
        assert model.sizes == [2, 1, 1, 1, 1]

    def test_control_without_the_proof_the_bits_would_change(self) -> None:
        model = Model(spoil=lambda size: 0.5 * (size > 1))
        assert values(bitwise(prove=True).trusting().run([plan(model, 1), plan(model, 2)])) == [[2.5], [4.5]]

    def test_another_models_verdict_does_not_count(self) -> None:
        batcher = bitwise(prove=True)
        bad, good = Model(spoil=float), Model()
        batcher.run([plan(bad, 1), plan(bad, 2)])
        assert (batcher.capacity(plan(bad, 1)), batcher.capacity(plan(good, 1))) == (1, 8)


def test_one_by_one_keeps_the_bits_and_shares_nothing() -> None:
    model = Model()
    alone = bitwise(Sizes((2, 4))).one_by_one()
    assert values(alone.run([plan(model, 1, 2)])) == [[2, 4]]
    assert model.sizes == [2, 2], "each row at the least size, by itself"
    assert alone.capacity(plan(model, 1)) == 1


def test_bits_are_compared_as_bits() -> None:
    assert equal_bits(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    assert not equal_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not equal_bits(torch.ones(2), torch.ones(1, 2))
    assert not equal_bits((torch.ones(1), torch.ones(1)), (torch.ones(1),))
