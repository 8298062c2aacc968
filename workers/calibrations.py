"""How each card's steps share calls on this worker, and the numeric contracts it serves them under.

A card is calibrated on the first of its instances that is loaded, at start-up if it has weights by then. Its
contract says what was found. Until then, and beside it, the worker keeps the contract under which every row
has a call of its own: a run planned before any worker was there, or replayed from such a time, is served by
an instance over the same modules that shares nothing.

What an earlier start of this code found on this machine is looked at rather than measured again. A record
that is damaged, of other circumstances or does not hold is measured anew and replaced.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.batching import Batcher, Mode
from mutoscope.platform.engine.calibration import OFF, Calibration, calibrate
from mutoscope.platform.engine.calibration_record import from_record, to_record
from mutoscope.platform.engine.findings import Findings
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.spot_check import holds
from mutoscope.workers.lead import Lead
from mutoscope.workers.measurements import Conditions, Measurements

log = logging.getLogger(__name__)


class Calibrations:
    """The calibrations of one worker's cards.

    Args:
        contract: of the device, with every row in a call of its own.
        most: rows of the largest shared call.
        kept: what earlier starts measured; None: nothing is kept.
        lead: ranks that share each call's rows.
    """

    def __init__(
        self,
        contract: Mapping[str, Any],
        mode: Mode,
        most: int,
        kept: Measurements | None = None,
        lead: Lead | None = None,
    ) -> None:
        self._device_contract = dict(contract)
        self._alone = numerics.contract_digest(contract)
        self._mode, self._most = mode, most
        self._kept = kept or Measurements(None)
        self._lead = lead
        self._conditions = Conditions(contract, mode.value, most)
        self._findings = Findings()
        self._of: dict[str, Calibration] = {}
        self._digests: dict[str, str] = {}

    def prepare(self, instance: Instance) -> Instance:
        """The instance as it is served here; the first of a card is measured on the way."""
        card = instance.card
        if card.id not in self._of:
            self._of[card.id] = self._calibrated(instance)
            if self._lead is not None:
                self._lead.calibrated(card.id, self._of[card.id])
            self._digests[card.id] = numerics.contract_digest(self.contract(card.id))
        prepared = self._of[card.id].prepare(instance)
        return replace(prepared, batcher=self._spread(prepared.batcher))

    def under(self, instance: Instance, contract_digest: str | None) -> Instance:
        """The prepared instance as a run planned for that contract wants it."""
        if contract_digest == self._alone and instance.batcher.mode is not Mode.OFF:
            return replace(instance, batcher=self._spread(Batcher()))
        return instance

    def contract(self, card_id: str) -> dict[str, Any]:
        """The contract under which runs of the card are to be planned."""
        calibration = self._of.get(card_id, OFF)
        return numerics.with_batching(self._device_contract, calibration.contract())

    def digest(self, card_id: str) -> str:
        """Digest of that contract."""
        return self._digests.get(card_id, self._alone)

    def knows(self, card_id: str) -> bool:
        """Whether the card is calibrated."""
        return card_id in self._of

    def alone(self, card_ids: Iterable[str]) -> list[tuple[str, str]]:
        """Cards with the contract that is kept for them besides: every row in a call of its own."""
        return [(card_id, self._alone) for card_id in card_ids]

    def _spread(self, batcher: Batcher) -> Batcher:
        return batcher if self._lead is None else self._lead.spread(batcher)

    def _calibrated(self, instance: Instance) -> Calibration:
        card = instance.card
        if card.run_kind == "train_step":
            return OFF  # a trainer's steps share nothing, and its example would be a training
        if self._mode is not Mode.BITWISE or not card.components:
            return self._measured(instance)  # that takes no time
        parts = {**self._conditions.parts(instance), "what": "calibration"}
        known = self._known(instance, parts)
        if known is not None:
            return known
        with self._kept.alone(parts):
            known = self._known(instance, parts)
            if known is not None:
                return known  # another worker was faster
            found = self._measured(instance)
            if found is not OFF:
                self._kept.keep(parts, to_record(found, self._findings))
            return found

    def _known(self, instance: Instance, parts: Mapping[str, Any]) -> Calibration | None:
        """What an earlier start found, if it holds still."""
        content = self._kept.find(parts)
        if content is None:
            return None
        card, started = instance.card.id, time.perf_counter()
        try:
            calibration, findings = from_record(content)
            if not holds(calibration, instance):
                raise ValueError("rows have other bits in company than alone")
        except Exception as error:
            log.warning("kept calibration of card=%s not believed, measured anew: %s", card, error)
            return None
        self._findings.add(findings)
        log.info(
            "known calibration card=%s batching=%s seconds=%.2f",
            card,
            calibration.mode,
            time.perf_counter() - started,
        )
        return calibration

    def _measured(self, instance: Instance) -> Calibration:
        """A card that cannot be measured runs unbatched: that must not keep it from being served."""
        card, started = instance.card.id, time.perf_counter()
        try:
            found = calibrate(instance, mode=self._mode, most=self._most, findings=self._findings)
        except Exception as error:
            log.error("card=%s not calibrated, its steps run alone: %s", card, error)
            return OFF
        log.info(
            "calibrated card=%s batching=%s seconds=%.2f%s",
            card,
            found.mode,
            time.perf_counter() - started,
            f" ({found.remark})" if found.remark else "",
        )
        return found
