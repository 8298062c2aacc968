"""Calibration on tiny cards: what it finds, that equal machines find the same, and what goes into the key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mutoscope.platform.engine import numerics, stable
from mutoscope.platform.engine.batching import Batcher, Mode, Sizes, equal_bits, in_calls
from mutoscope.platform.engine.calibration import OFF, Calibration, calibrate, collect, example_of
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity.content import content
from mutoscope.platform.engine.parity.plants import BatchDependent, planted
from tests.engine.rowtoy import row_instance, row_request
from tests.support.cards import tiny_folder, tiny_instance

ROOT = Path(__file__).parents[2]
CARD = "flux-t2i"


@pytest.fixture(scope="module", autouse=True)
def _contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(CARD, tmp_path_factory.mktemp("calibration") / CARD)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    return tiny_instance(CARD, tmp_path_factory.mktemp("calibration") / CARD)


@pytest.fixture(scope="module")
def found(instance: Instance) -> Calibration:
    return calibrate(instance, most=8)


def test_every_size_agrees_once_its_leaves_fill_up(found: Calibration) -> None:
    (denoise,) = found.agreements
    assert denoise.kind == "denoise"
    assert denoise.sizes.agreeing == tuple(range(1, 9))
    assert found.remark == ""


def test_the_contract_names_calls_and_leaves_as_plain_data(found: Calibration) -> None:
    contract = found.contract()
    assert json.loads(json.dumps(contract)) == contract
    assert contract["mode"] == "bitwise"
    ((kind, shape, least),) = contract["calls"]
    assert (kind, least) == ("denoise", 1)
    assert all(isinstance(part, int) for part in shape)


def test_another_calibration_is_another_key(found: Calibration) -> None:
    device = numerics.cpu_contract(1)

    def digest(calibration: Calibration) -> str:
        return numerics.contract_digest(numerics.with_batching(device, calibration.contract()))

    (denoise,) = found.agreements
    unpadded = replace(found, leaves=found.leaves[1:])
    elsewhere = replace(found, agreements=(replace(denoise, shape=(1, 2, 3)),))
    keys = {digest(each) for each in (found, OFF, unpadded, elsewhere, Calibration(Mode.TOLERANCE, 8))}
    assert len(keys) == 5 if found.leaves else 4
    assert digest(replace(found, most=4)) == digest(found), "how many share a call decides no bit"
    assert digest(OFF) == numerics.contract_digest(device)


@pytest.mark.long
def test_another_process_finds_the_same(folder: Path, found: Calibration) -> None:
    program = (
        "import json, sys; from pathlib import Path\n"
        "from mutoscope.models.registry import get_card\n"
        "from mutoscope.platform.engine import numerics\n"
        "from mutoscope.platform.engine.calibration import calibrate\n"
        "from mutoscope.platform.engine.instance import load_instance\n"
        "numerics.configure_torch(numerics.cpu_contract(1))\n"
        "instance = load_instance(get_card(sys.argv[1]), Path(sys.argv[2]))\n"
        "print(json.dumps(calibrate(instance, most=8).contract()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, CARD, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4321"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == found.contract()


@pytest.mark.parametrize("card", ["flux-t2i", "reward-clip", "reward-scene"])
def test_what_agrees_agrees_for_contents_that_were_not_measured(card: str, tmp_path: Path) -> None:
    """Also of a card whose example has a single row, and whose activations' rows are uneven."""
    instance = tiny_instance(card, tmp_path / card)
    (agreement,) = calibrate(instance, most=8).agreements
    with torch.inference_mode():
        (pool,) = collect(instance, example_of(instance, num_inference_steps=1))
        torch.manual_seed(2)
        # Positions are the same for all who share a call.
        rows = [
            {
                name: part + 0.1 * torch.randn_like(part) * (name != "image_ids_BL3")
                for name, part in row.items()
            }
            for row in (pool.rows * 48)[:48]
        ]
        with stable.padding():
            alone = in_calls(pool.call, rows, Sizes((agreement.sizes.least,)))
            for size in agreement.sizes.agreeing:
                shared = in_calls(pool.call, rows, Sizes((size,)))
                assert all(map(equal_bits, shared, alone)), f"{size} rows"


def test_a_prepared_instance_serves_alone_and_in_company_alike(
    instance: Instance, found: Calibration
) -> None:
    prepared = found.prepare(instance)
    requests = [example_request(instance.card, instance.recipe, name=f"r{n}", seed=n) for n in range(4)]
    engine = Engine()
    tickets = [engine.submit(prepared, request) for request in requests]
    while engine.step():
        pass
    alone = [content(Engine().run(prepared, request)) for request in requests]
    assert [content(ticket.result()) for ticket in tickets] == alone


def test_the_modules_of_a_prepared_instance_serve_the_unbatched_contract_as_before(
    instance: Instance, found: Calibration, tmp_path: Path
) -> None:
    request = example_request(instance.card, instance.recipe, seed=3)
    untouched = tiny_instance(CARD, tmp_path / CARD)
    off = replace(found.prepare(instance), batcher=Batcher())
    assert content(Engine().run(off, request)) == content(Engine().run(untouched, request))


def test_a_card_whose_rows_depend_on_their_slot_runs_alone(instance: Instance) -> None:
    defective = planted(instance, BatchDependent)
    assert defective is not None
    measured = calibrate(defective, most=4)
    assert measured.mode is Mode.OFF
    assert measured.remark == "no two of the sizes 1 to 4 agree bit for bit"
    assert measured.contract() == {"mode": "off"}


def test_sizes_that_agree_only_from_some_number_on_are_padded_to_it() -> None:
    """A call that rounds otherwise below four rows, which no leaf module explains."""
    instance = _sensitive(below=4)
    measured = calibrate(instance, most=8, request=row_request("r", height=4, width=4))
    assert measured.agreements[0].sizes.agreeing == (4, 5, 6, 7, 8)
    prepared = measured.prepare(instance)
    requests = [row_request(f"r{n}", n, height=4, width=4) for n in range(3)]
    engine = Engine()
    tickets = [engine.submit(prepared, request) for request in requests]
    while engine.step():
        pass
    for request, ticket in zip(requests, tickets, strict=True):
        assert content(ticket.result()) == content(Engine().run(prepared, request))


def test_sizes_beyond_the_devices_memory_are_left_out() -> None:
    request = row_request("r", height=4, width=4, most_rows=5)
    measured = calibrate(row_instance(), most=8, request=request)
    assert measured.agreements[0].sizes.agreeing == (1, 2, 3, 4, 5)


def test_what_was_not_asked_for_is_not_measured(instance: Instance) -> None:
    assert calibrate(instance, mode=Mode.OFF, most=8) == Calibration(Mode.OFF, 8)
    tolerant = calibrate(instance, mode=Mode.TOLERANCE, most=8)
    assert tolerant.contract() == {"mode": "tolerance"}
    assert numerics.with_batching(numerics.cpu_contract(1), tolerant.contract())["mode"] == "tolerance"
    assert tolerant.prepare(instance).batcher.mode is Mode.TOLERANCE


def _sensitive(below: int) -> Instance:
    """The row toy, whose net adds a little to calls of fewer rows."""
    instance = row_instance()
    net = instance.components["net"]
    plain = net.forward

    def forward(x_BHW: Tensor, sigma_B: Tensor) -> Tensor:
        made: Tensor = plain(x_BHW, sigma_B)
        return made + torch.tensor(1e-3 * (len(x_BHW) < below))

    net.forward = forward
    return instance
