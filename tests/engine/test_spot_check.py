"""A kept calibration: what is taken over, what is looked at, and what is not believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mutoscope.platform.engine import calibration as module
from mutoscope.platform.engine import numerics, stable
from mutoscope.platform.engine.batching import Sizes
from mutoscope.platform.engine.calibration import OFF, Calibration, calibrate
from mutoscope.platform.engine.calibration_record import from_record, to_record
from mutoscope.platform.engine.findings import Findings, structure_digest
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.spot_check import holds
from tests.support.cards import tiny_instance

CARD, MOST = "flux-t2i", 6


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    numerics.configure_torch(numerics.cpu_contract(1))
    return tiny_instance(CARD, tmp_path_factory.mktemp("spot") / CARD)


@pytest.fixture(scope="module")
def findings() -> Findings:
    return Findings()


@pytest.fixture(scope="module")
def found(instance: Instance, findings: Findings) -> Calibration:
    return calibrate(instance, most=MOST, findings=findings)


def test_a_record_gives_back_what_went_in(found: Calibration, findings: Findings) -> None:
    record = json.loads(json.dumps(to_record(found, findings)))
    assert from_record(record) == (found, findings)
    assert from_record(record)[0].contract() == found.contract()


@pytest.mark.parametrize(
    "damage",
    [
        {"mode": "nonesuch"},
        {"agreements": [["denoise", [1], [2, 1]]]},
        {"agreements": [["denoise", [1], []]]},
        {"leaves": [["Linear", "", [], [4], 0]]},
        {"units": 3},
    ],
)
def test_what_is_no_record_is_refused(
    found: Calibration, findings: Findings, damage: dict[str, object]
) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        from_record({**to_record(found, findings), **damage})


def test_it_holds_where_it_was_found(instance: Instance, found: Calibration) -> None:
    assert holds(found, instance)
    assert holds(OFF, instance), "nothing is claimed"


def test_leaves_that_no_longer_fill_up_are_noticed(instance: Instance, found: Calibration) -> None:
    """The control: without its leaves this card's rows do change bits in company."""
    assert found.leaves
    stable.restore(instance.components.values())
    try:
        assert not holds(replace(found, leaves=()), instance)
    finally:
        found.prepare(instance)


def test_a_calibration_of_other_calls_is_not_believed(instance: Instance, found: Calibration) -> None:
    (denoise,) = found.agreements
    elsewhere = replace(found, agreements=(replace(denoise, shape=(1, 2, 3)),))
    assert not holds(elsewhere, instance)


def test_a_size_that_does_not_agree_is_noticed(instance: Instance, found: Calibration) -> None:
    """A call that rounds otherwise in company, which the record denies."""
    net = instance.components["transformer"]
    plain = net.forward

    def forward(hidden_states: object, *args: object, **named: object) -> object:
        made = plain(hidden_states, *args, **named)
        return tuple(part + 1e-3 * (len(part) > 1) for part in made)

    net.forward = forward
    try:
        assert not holds(found, instance)
        (denoise,) = found.agreements
        assert holds(replace(found, agreements=(replace(denoise, sizes=Sizes((2, 3))),)), instance)
    finally:
        del net.forward


def test_a_card_of_the_same_components_measures_nothing_again(
    instance: Instance,
    found: Calibration,
    findings: Findings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tiny_instance(CARD, tmp_path / CARD)
    monkeypatch.setattr(module, "_agreeing", None)
    monkeypatch.setattr("mutoscope.platform.engine.leaf_probe._unit", None)
    assert calibrate(other, most=MOST, findings=findings) == found


def test_architecture_counts_and_weights_do_not(instance: Instance, tmp_path: Path) -> None:
    net = instance.components["transformer"]
    other = tiny_instance(CARD, tmp_path / CARD).components["transformer"]
    next(other.parameters()).data.add_(1.0)
    assert structure_digest(other) == structure_digest(net), "treated or not, whatever its weights"
    other.register_to_config(attention_head_dim=2 * net.config.attention_head_dim)
    assert structure_digest(other) != structure_digest(net)
