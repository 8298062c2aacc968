"""What `doctor --card` and `card check` share: a card loaded here, calibrated, and put through its gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.engine.calibration import Calibration
    from mutoscope.platform.engine.card import Card
    from mutoscope.platform.engine.instance import Instance
    from mutoscope.platform.engine.parity.report import Report
    from mutoscope.workers.device import Device


@dataclass(frozen=True, slots=True)
class Examined:
    """A card's calibration on this machine, and what its gates say."""

    device: str
    calibration: Calibration
    report: Report

    def plain(self) -> dict[str, Any]:
        """As JSON has it; `batching` is what the numeric contract holds."""
        calls = [
            {"kind": each.kind, "shape": each.shape, "rows": each.sizes.agreeing}
            for each in self.calibration.agreements
        ]
        return {
            "device": self.device,
            "batching": {**self.calibration.contract(), "remark": self.calibration.remark},
            "shared_calls": calls,
            "stable_leaves": len(self.calibration.leaves),
            **self.report.plain(),
        }

    def lines(self) -> Iterator[str]:
        """As people read it."""
        yield from batching_lines(self.calibration)
        yield from (str(finding) for finding in self.report.findings)


def load(home: Home, device: Device, card: Card, folder: Path | None) -> Instance:
    """A card from a folder; without one, at its live weights here, else from the weights that ship with it.

    Raises:
        InvalidFolder: the folder is not one of the card.
        InvalidInput: there are no weights of it here.
    """
    from mutoscope.models.starter.folders import starter_folder
    from mutoscope.platform.engine.instance import load_instance
    from mutoscope.platform.errors import InvalidInput

    live = home.catalog.weights.live(card.id) if folder is None and home.has_catalog else {}
    if live:
        return _at_live_weights(home, device, card, {name: v.digest for name, v in live.items()})
    source: Path | Mapping[str, Path] | None = folder or starter_folder(card.id)
    if source is None and not card.components:
        source = {}
    if source is None:
        raise InvalidInput(f"card {card.id} has no weights here: name a folder with --folder")
    recipe: Mapping[str, Any] | None = {} if source == {} else None
    return load_instance(card, source, device=device.torch_device, dtype=device.dtype, recipe=recipe)


def examine(home: Home, device: Device, instance: Instance) -> Examined:
    """Calibrate an instance as a worker with these settings would, and ask every gate."""
    from mutoscope.platform.engine.batching import Mode
    from mutoscope.platform.engine.calibration import calibrate
    from mutoscope.platform.engine.parity.check import check

    calibration = calibrate(instance, mode=Mode(home.settings.batching), most=home.settings.batch_rows)
    report = check(calibration.prepare(instance), most_orders=2)
    return Examined(str(device), calibration, report)


def batching_lines(calibration: Calibration) -> Iterator[str]:
    """How the card's steps share calls."""
    remark = f" ({calibration.remark})" if calibration.remark else ""
    yield f"batching  {calibration.mode}{remark}"
    for each in calibration.agreements:
        sizes = each.sizes.agreeing
        whole = len(sizes) == sizes[-1] - sizes[0] + 1
        rows = f"{sizes[0]} to {sizes[-1]}" if whole else ", ".join(str(size) for size in sizes)
        yield f"  {each.kind} {each.shape}: calls of {rows} rows agree bit for bit"
    if calibration.leaves:
        yield f"  {len(calibration.leaves)} kinds of leaf modules fill up to keep them so"


def conclusion(examined: Examined) -> str:
    """What it comes to."""
    return "all gates hold" if examined.report.ok else "some gate does not hold: see the lines above"


def _at_live_weights(home: Home, device: Device, card: Card, weights: Mapping[str, str]) -> Instance:
    from mutoscope.workers.residency import Residency
    from mutoscope.workers.weight_cache import WeightCache

    cache = WeightCache(home.store, home.path / "cache" / "weights")
    return Residency({card.id: card}, home.store, cache, device).acquire(card.id, weights)
