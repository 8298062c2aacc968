"""A worker process at work: what a run turns into."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mutoscope.platform.artifacts import ArtifactRef, codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine import numerics
from tests.support.deadline import until
from tests.support.tinycard.card import CARD
from tests.support.workshop import WorkerProcess, Workshop


def picture(workshop: Workshop, value: int) -> ArtifactRef:
    encoded = codecs.encode("image", np.full((4, 4, 3), value, dtype=np.uint8), {})
    return workshop.store.put(encoded.data, kind="image", media_type=encoded.media_type, meta=encoded.meta)


def reference(seed: int, steps: int, mean: float = 0.0) -> np.ndarray:
    """The test card's latent by definition: tanh(latent @ matrix), `steps` times, from seeded noise."""
    torch = pytest.importorskip("torch")
    matrix = torch.from_numpy(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32))
    latent = torch.randn(4, 4, generator=torch.Generator("cpu").manual_seed(seed)) + mean
    for _ in range(steps):
        latent = torch.tanh(latent @ matrix)
    return latent.numpy()


def latent_of(workshop: Workshop, run: RunRecord) -> np.ndarray:
    ref = workshop.catalog.runs.outputs(run.id)["latent"]
    return codecs.decode(ref.kind, workshop.store.get(ref.digest), ref.media_type)


@pytest.mark.usefixtures("serving")
class TestOutcome:
    def test_outputs_are_what_the_card_computes(self, shared: Workshop) -> None:
        run = shared.run(seed=11, image=picture(shared, 255), num_inference_steps=2)
        assert (run.state, run.attempt, run.error) == ("succeeded", 1, None)
        np.testing.assert_array_equal(latent_of(shared, run), reference(11, 2, mean=1.0))
        assert run.timings is not None
        assert set(run.timings) == {"worker.inputs", "worker.load", "denoise", "worker.outputs"}
        assert (run.stage, run.step, run.total) == ("denoise", 2, 2), "the last step is always reported"

    def test_lineage_names_inputs_and_pinned_weights(self, shared: Workshop) -> None:
        image = picture(shared, 9)
        run = shared.run(seed=12, image=image)
        live = {name: version.digest for name, version in shared.catalog.weights.live(CARD.id).items()}
        assert shared.catalog.runs.inputs(run.id) == {"image": image}
        assert shared.catalog.runs.weights(run.id) == live
        assert set(live) == {"net", "recipe"}

    def test_a_run_gets_the_weights_it_pinned_not_the_live_ones(self, workshop: Workshop) -> None:
        pinned = workshop.spec(seed=13, num_inference_steps=1)
        workshop.import_weights(seed=99)
        newer = workshop.spec(seed=13, num_inference_steps=1)
        with workshop.worker():
            runs = [
                workshop.wait(workshop.catalog.runs.enqueue(spec, present=workshop.store.contains).run.id)
                for spec in (newer, pinned)
            ]
        newest, oldest = (latent_of(workshop, run) for run in runs)
        np.testing.assert_array_equal(oldest, reference(13, 1))
        assert not np.array_equal(newest, oldest)

    def test_interleaved_runs_equal_serial_ones(self, shared: Workshop) -> None:
        together = [
            shared.enqueue(seed=seed, num_inference_steps=40, shared=False).run.id for seed in (20, 21, 20)
        ]
        interleaved = [shared.catalog.runs.outputs(shared.wait(run_id).id) for run_id in together]
        serial = [
            shared.catalog.runs.outputs(shared.run(seed=seed, num_inference_steps=40, shared=False).id)
            for seed in (20, 21, 20)
        ]
        assert interleaved == serial
        assert interleaved[0] == interleaved[2] != interleaved[1]
        assert shared.catalog.incidents.list() == []


@pytest.mark.usefixtures("serving")
class TestFailure:
    def test_an_error_is_recorded_once_and_not_retried(self, shared: Workshop) -> None:
        run = shared.run(seed=30, trouble="error", trouble_step=1)
        assert (run.state, run.attempt) == ("failed", 1)
        assert run.error is not None
        assert run.error["type"] == "RuntimeError"
        assert run.error["message"] == "RuntimeError: the matrix is singular", "one line, however many it had"
        assert "_misbehave" in run.error["traceback"]
        assert shared.catalog.runs.outputs(run.id) == {}

    def test_invalid_input_keeps_its_line(self, shared: Workshop) -> None:
        run = shared.run(seed=31, trouble="invalid")
        assert (run.state, run.attempt) == ("failed", 1)
        assert run.error is not None
        assert run.error["message"] == "trouble='invalid' is not valid: use none"

    def test_out_of_memory_fails_its_own_run_alone(self, shared: Workshop) -> None:
        neighbour = shared.enqueue(seed=32, num_inference_steps=300).run.id
        run = shared.run(seed=33, trouble="memory", trouble_step=2)
        assert run.state == "failed"
        assert run.error is not None
        assert "1.00 PiB" in run.error["message"]
        assert shared.wait(neighbour).state == "succeeded"

    def test_a_missing_input_is_named(self, shared: Workshop) -> None:
        image = picture(shared, 40)
        path = shared.store.local_path(image.digest)
        assert path is not None
        path.unlink()
        run = shared.run(seed=34, image=image)
        assert run.state == "failed"
        assert run.error is not None
        assert run.error["type"] == "ArtifactMissing"
        assert image.digest[:12] in run.error["message"]

    def test_a_damaged_input_is_named(self, shared: Workshop) -> None:
        image = picture(shared, 41)
        path = shared.store.local_path(image.digest)
        assert path is not None
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        run = shared.run(seed=35, image=image)
        assert run.state == "failed"
        assert run.error is not None
        assert run.error["type"] == "ArtifactCorrupt"
        assert image.digest[:12] in run.error["message"]

    def test_weights_missing_from_the_store_are_named_and_other_versions_served(
        self, workshop: Workshop
    ) -> None:
        digest = workshop.catalog.weights.live(CARD.id)["net"].digest
        path = workshop.store.local_path(digest)
        assert path is not None
        path.unlink()
        broken = workshop.enqueue(seed=36).run.id
        with workshop.worker() as worker:
            worker.wait_ready()
            run = workshop.wait(broken)
            assert run.error is not None
            assert run.error["type"] == "ArtifactMissing"
            workshop.import_weights(seed=5)
            assert workshop.run(seed=36).state == "succeeded"


class TestCancel:
    def test_stops_at_a_step_boundary_and_serves_on(self, shared: Workshop, serving: WorkerProcess) -> None:
        endless = 10**9
        run = shared.enqueue(seed=50, num_inference_steps=endless).run
        until(lambda: shared.catalog.runs.get(run.id).step, "the run under way")
        shared.catalog.runs.request_cancel(run.id)
        stopped = shared.wait(run.id)
        assert stopped.state == "cancelled"
        assert stopped.step is not None
        assert 0 < stopped.step < endless
        assert shared.catalog.runs.outputs(run.id) == {}
        assert shared.run(seed=51).state == "succeeded"
        until(lambda: f"cancelled run={run.id}" in serving.log, "the log line")

    def test_a_caller_who_attaches_saves_the_run(
        self, shared: Workshop, serving: WorkerProcess, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        run = shared.enqueue(seed=52, num_inference_steps=2, gate=str(gate), gate_step=1).run
        until(gate.with_name("gate.reached").exists, "the run at its gate")
        shared.catalog.runs.request_cancel(run.id)
        again = shared.enqueue(seed=52, num_inference_steps=2, gate=str(gate), gate_step=1)
        assert (again.disposition, again.run.id) == ("attached", run.id)
        gate.touch()
        assert shared.wait(run.id).state == "succeeded"


class TestSelection:
    def test_runs_for_other_code_or_another_contract_are_left_alone(
        self, shared: Workshop, serving: WorkerProcess
    ) -> None:
        from dataclasses import replace

        spec = shared.spec(seed=60)
        other_code = replace(spec, card_digest="0" * 64, memo_key="1" * 64)
        elsewhere = replace(spec, contract="0" * 64, memo_key="2" * 64)
        left = [
            shared.catalog.runs.enqueue(s, present=shared.store.contains).run.id
            for s in (other_code, elsewhere)
        ]
        assert shared.run(seed=60).state == "succeeded", "queued after the two, served before them"
        assert [shared.catalog.runs.get(run_id).state for run_id in left] == ["queued", "queued"]

    def test_its_row_says_what_it_serves(self, shared: Workshop, serving: WorkerProcess) -> None:
        (row,) = shared.catalog.workers.alive(CARD.id)
        facts = row.cards[CARD.id]
        assert row.pid == serving.pid
        assert facts["contract"] == shared.contract
        assert facts["contract_digest"] == numerics.contract_digest(shared.contract)
        assert facts["card_digest"] == numerics.card_digest(CARD)
        assert set(facts["weights"]) == {"net", "recipe"}
        assert (facts["features"]["hits"], facts["features"]["hit_rate"]) == (0, None), "no card here has any"
