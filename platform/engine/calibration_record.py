"""A calibration and what it was made of as plain data, for a later process to take up.

Reading is strict: what this release did not write itself is no record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mutoscope.platform.engine.batching import Mode, Sizes
from mutoscope.platform.engine.calibration import Agreement, Calibration
from mutoscope.platform.engine.findings import Findings, LeafInput
from mutoscope.platform.engine.stable import LeafKind, Unit


def to_record(calibration: Calibration, findings: Findings) -> dict[str, Any]:
    """Both as JSON has it."""
    return {
        "mode": calibration.mode.value,
        "most": calibration.most,
        "remark": calibration.remark,
        "agreements": [[each.kind, each.shape, list(each.sizes.agreeing)] for each in calibration.agreements],
        "leaves": [_from_leaf((unit.kind, unit.inner), unit.rows) for unit in calibration.leaves],
        "units": [_from_leaf(leaf, rows) for leaf, rows in sorted(findings.units.items())],
        "sizes": {call: sorted(sizes) for call, sizes in sorted(findings.sizes.items())},
    }


def from_record(record: Mapping[str, Any]) -> tuple[Calibration, Findings]:
    """Both as they were. Raises KeyError, TypeError or ValueError for what is no record."""
    calibration = Calibration(
        mode=Mode(record["mode"]),
        most=int(record["most"]),
        agreements=tuple(
            Agreement(str(kind), _tuples(shape), _sizes(sizes)) for kind, shape, sizes in record["agreements"]
        ),
        leaves=tuple(Unit(*leaf, rows) for leaf, rows in map(_to_leaf, record["leaves"])),
        remark=str(record["remark"]),
    )
    units = dict(map(_to_leaf, record["units"]))
    sizes = {str(call): frozenset(map(int, found)) for call, found in record["sizes"].items()}
    return calibration, Findings(units, sizes)


def _from_leaf(leaf: LeafInput, rows: int) -> list[Any]:
    kind, inner = leaf
    return [kind.name, kind.options, kind.tensors, inner, rows]


def _to_leaf(stored: Sequence[Any]) -> tuple[LeafInput, int]:
    name, options, tensors, inner, rows = stored
    kind = LeafKind(str(name), str(options), _tuples(tensors))
    return (kind, tuple(map(int, inner))), _positive(rows)


def _sizes(stored: Sequence[int]) -> Sizes:
    sizes = tuple(map(_positive, stored))
    if not sizes or list(sizes) != sorted(set(sizes)):
        raise ValueError(f"agreeing sizes {stored} do not ascend")
    return Sizes(sizes)


def _positive(value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is no number of rows")
    return value


def _tuples(value: Any) -> Any:
    """Lists as the tuples they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
