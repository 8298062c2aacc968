"""A worker's calibrations: what it publishes, and under which contracts it serves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.catalog import RunSpec
from mutoscope.platform.engine import numerics, stable
from mutoscope.platform.engine.batching import Mode
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity.content import content
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.plan import plan_run
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.workers.calibrations import Calibrations
from mutoscope.workers.measurements import Conditions, Measurements
from tests.engine.toy import toy_instance
from tests.support.cards import tiny_folder, tiny_instance
from tests.support.workshop import Workshop

CARD = "flux-t2i"
CONTRACT = numerics.cpu_contract(1)
ALONE = numerics.contract_digest(CONTRACT)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    numerics.configure_torch(CONTRACT)
    return tiny_instance(CARD, tmp_path_factory.mktemp("calibrations") / CARD)


def test_a_card_is_planned_with_the_device_contract_until_it_is_calibrated(instance: Instance) -> None:
    calibrations = Calibrations(CONTRACT, Mode.BITWISE, 4)
    assert not calibrations.knows(CARD)
    assert (calibrations.contract(CARD), calibrations.digest(CARD)) == (CONTRACT, ALONE)
    prepared = calibrations.prepare(instance)
    assert calibrations.knows(CARD)
    assert prepared.batcher.mode is Mode.BITWISE
    assert calibrations.contract(CARD)["batching"]["mode"] == "bitwise"
    assert calibrations.digest(CARD) == numerics.contract_digest(calibrations.contract(CARD)) != ALONE


def test_a_card_is_measured_once(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrations = Calibrations(CONTRACT, Mode.BITWISE, 4)
    calibrations.prepare(instance)
    monkeypatch.setattr("mutoscope.workers.calibrations.calibrate", None)
    assert calibrations.prepare(instance).batcher.mode is Mode.BITWISE


def test_a_second_start_looks_instead_of_measuring(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Measurements(tmp_path)
    first = Calibrations(CONTRACT, Mode.BITWISE, 4, kept)
    first.prepare(instance)
    other = Calibrations(CONTRACT, Mode.BITWISE, 2, kept)
    other.prepare(instance)  # another largest call is another measurement: both stay
    monkeypatch.setattr("mutoscope.workers.calibrations.calibrate", None)
    second = Calibrations(CONTRACT, Mode.BITWISE, 4, kept)
    assert second.prepare(instance).batcher.mode is Mode.BITWISE
    assert second.contract(CARD) == first.contract(CARD)


def without_leaves(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "leaves": []}


def of_another_shape(record: dict[str, Any]) -> dict[str, Any]:
    (kind, _, sizes), *_ = record["agreements"]
    return {**record, "agreements": [[kind, [1, 2, 3], sizes]]}


def no_record(record: dict[str, Any]) -> dict[str, Any]:
    return {"mode": record["mode"]}


@pytest.mark.parametrize("poison", [without_leaves, of_another_shape, no_record])
def test_a_poisoned_record_is_measured_anew_and_replaced(
    instance: Instance, tmp_path: Path, caplog: pytest.LogCaptureFixture, poison: Any
) -> None:
    """Whole by its checksum, and yet not true: what only a look at the card can tell."""
    kept = Measurements(tmp_path)
    true = Calibrations(CONTRACT, Mode.BITWISE, 4, kept)
    true.prepare(instance)
    stable.restore(instance.components.values())
    (path,) = tmp_path.glob("*.json")
    stored = json.loads(path.read_bytes())
    kept.keep(stored["parts"], poison(stored["content"]))
    second = Calibrations(CONTRACT, Mode.BITWISE, 4, kept)
    second.prepare(instance)
    assert f"kept calibration of card={CARD} not believed" in caplog.text
    assert second.contract(CARD) == true.contract(CARD)
    assert json.loads(path.read_bytes()) == stored


def test_what_was_measured_under_other_circumstances_is_not_found(instance: Instance) -> None:
    """The control of the key: each part by itself makes it another one."""
    conditions = Conditions(CONTRACT, "bitwise", 4)
    recipe = instance.recipe.model_copy(update={"height": 2 * instance.recipe.height})
    scheduled = replace(instance, weights={**instance.weights, "scheduler": "0" * 64})
    versions = {**CONTRACT["versions"], "torch": "1.0"}
    others = [
        conditions.parts(replace(instance, recipe=recipe)),
        conditions.parts(replace(instance, card=replace(instance.card, sources=("json",)))),
        conditions.parts(scheduled),
        Conditions({**CONTRACT, "versions": versions}, "bitwise", 4).parts(instance),
        Conditions({**CONTRACT, "device": "cpu-other"}, "bitwise", 4).parts(instance),
        Conditions(CONTRACT, "tolerance", 4).parts(instance),
        Conditions(CONTRACT, "bitwise", 8).parts(instance),
    ]
    mine = conditions.parts(instance)
    assert all(parts != mine for parts in others)
    trained = replace(instance, weights={**instance.weights, "transformer": "0" * 64})
    assert conditions.parts(trained) == mine, "a new version of the weights finds the same"


def test_a_run_of_the_unbatched_contract_gets_what_it_was_planned_for(instance: Instance) -> None:
    calibrations = Calibrations(CONTRACT, Mode.BITWISE, 4)
    request = example_request(instance.card, instance.recipe)
    expected = content(Engine().run(instance, request))
    prepared = calibrations.prepare(instance)
    off = calibrations.under(prepared, ALONE)
    assert off.batcher.mode is Mode.OFF
    assert off.program is prepared.program
    assert content(Engine().run(off, request)) == expected
    assert calibrations.under(prepared, calibrations.digest(CARD)) is prepared
    assert (CARD, ALONE) in calibrations.alone([CARD])


def test_a_card_that_cannot_be_measured_is_served_unbatched(caplog: pytest.LogCaptureFixture) -> None:
    broken = toy_instance()

    def refuse(request: object) -> None:
        raise ArithmeticError("planted")

    broken = replace(broken, program=replace(broken.program, check=refuse))
    calibrations = Calibrations(CONTRACT, Mode.BITWISE, 4)
    assert calibrations.prepare(broken).batcher.mode is Mode.OFF
    assert calibrations.digest("toy") == ALONE
    assert "card=toy not calibrated, its steps run alone: planted" in caplog.text


def test_a_trainer_is_not_run_for_it() -> None:
    def refuse(request: object) -> None:
        raise AssertionError("measured")

    toy = toy_instance()
    trainer = replace(toy, card=replace(toy.card, run_kind="train_step"))
    trainer = replace(trainer, program=replace(trainer.program, check=refuse))
    assert Calibrations(CONTRACT, Mode.BITWISE, 4).prepare(trainer).batcher.mode is Mode.OFF


def enqueue(workshop: Workshop, spec: RunSpec) -> str:
    """The id of the queued run."""
    return workshop.catalog.runs.enqueue(spec, present=workshop.store.contains).run.id


def test_a_worker_serves_what_it_measured_and_what_was_planned_before(
    workshop: Workshop, tmp_path: Path
) -> None:
    runtime = Runtime(workshop.settings, workshop.catalog, workshop.store)
    import_folder(workshop.catalog, workshop.store, get_card(CARD), tiny_folder(CARD, tmp_path / CARD))
    given = {"prompt": "a red circle"}
    before = plan_run(runtime, CARD, given, seed=1)
    assert before.key_parts is not None
    assert before.key_parts["numeric"]["batching"] == {"mode": "off"}
    early = enqueue(workshop, before)
    with workshop.worker("--card", CARD) as worker:
        worker.wait_ready()
        after = plan_run(runtime, CARD, given, seed=1)
        assert after.key_parts is not None
        assert after.key_parts["numeric"]["batching"]["mode"] == "bitwise"
        assert after.memo_key != before.memo_key
        strange = replace(after, contract="0" * 64, memo_key="1" * 64)
        left, late = enqueue(workshop, strange), enqueue(workshop, after)
        assert workshop.wait(early).state == "succeeded"
        assert workshop.wait(late).state == "succeeded"
    assert workshop.catalog.runs.get(left).state == "queued", "another calibration is another contract"
