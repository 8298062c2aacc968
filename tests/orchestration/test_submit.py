"""One engine run without Prefect: keys, memo, attaching, refusing, cancelling."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable

import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform import ids
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine import numerics
from mutoscope.platform.errors import (
    InvalidParameter,
    NoWorker,
    RunCancelled,
    RunFailed,
    UnknownCard,
    UnknownReference,
)
from mutoscope.platform.orchestration.context import observer
from mutoscope.platform.orchestration.plan import plan_run
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import submit_run, submit_spec
from mutoscope.platform.refs import ArtifactRef
from tests.orchestration.conftest import RECIPE
from tests.support.deadline import until
from tests.support.fake_worker import CONTRACT, FakeWorker, paint, publish_weights
from tests.support.tinycard.card import CARD

PATIENCE = 120.0


async def eventually(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(until, condition, "what the test arranged")


def an_image(runtime: Runtime, data: bytes = b"picture") -> ArtifactRef:
    ref = runtime.store.put(data, kind="image", media_type="image/png")
    runtime.catalog.artifacts.record(ref)
    return ref


class Held:
    """Performs a run only when it is let go, and tells when one has begun."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()

    def __call__(self, runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        self.begun.set()
        if not self.release.wait(PATIENCE):
            raise TimeoutError("never released")
        return paint(runtime, run)


def test_key_parts_hold_all_that_decides_the_output(runtime: Runtime, worker: FakeWorker) -> None:
    image = an_image(runtime)
    spec = plan_run(runtime, "tiny-test", {"image": image, "num_inference_steps": 2}, seed=5)
    live = {name: version.digest for name, version in runtime.catalog.weights.live("tiny-test").items()}
    assert spec.key_parts == {
        "card": "tiny-test",
        "card_digest": numerics.card_digest(CARD),
        "weights": live,
        "inputs": {"image": image.digest},
        "parameters": {
            "num_inference_steps": 2,
            "gate": None,
            "gate_step": 0,
            "trouble": None,
            "trouble_step": 0,
        },
        "seed": 5,
        "profile": "serve",
        "numeric": CONTRACT,
    }
    assert set(live) == {"net", "recipe"}
    assert spec.memo_key == ids.digest("mutoscope.memo/1", spec.key_parts)
    assert spec.contract == numerics.contract_digest(CONTRACT)


def test_recipe_fills_what_is_not_given(runtime: Runtime) -> None:
    spec = plan_run(runtime, "tiny-test", {"num_inference_steps": None}, seed=1)
    assert spec.parameters["num_inference_steps"] == RECIPE.num_inference_steps == 3


def test_another_recipe_is_another_key(runtime: Runtime) -> None:
    before = plan_run(runtime, "tiny-test", {"num_inference_steps": 2}, seed=1)
    publish_weights(runtime, CARD, RECIPE.model_copy(update={"guidance_scale": 2.0}))
    after = plan_run(runtime, "tiny-test", {"num_inference_steps": 2}, seed=1)
    assert before.parameters == after.parameters
    assert before.memo_key != after.memo_key


def test_without_any_worker_the_key_uses_this_machines_contract(runtime: Runtime) -> None:
    spec = plan_run(runtime, "tiny-test", {}, seed=1)
    assert spec.key_parts is not None
    assert spec.key_parts["numeric"] == numerics.cpu_contract(runtime.settings.threads)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, "7", True])
def test_seed_must_be_a_63_bit_integer(runtime: Runtime, seed: object) -> None:
    with pytest.raises(
        InvalidParameter, match=r"^seed=.* is not valid: use an integer from 0 to 2\*\*63 - 1$"
    ):
        plan_run(runtime, "tiny-test", {}, seed=seed)  # type: ignore[arg-type]


def test_drawn_seeds_differ_and_are_recorded(runtime: Runtime) -> None:
    seeds = {plan_run(runtime, "tiny-test", {}, seed=None).seed for _ in range(8)}
    assert len(seeds) == 8


def test_inputs_are_checked_against_the_card(runtime: Runtime) -> None:
    text = runtime.store.put(b"words", kind="text", media_type="text/plain")
    runtime.catalog.artifacts.record(text)
    with pytest.raises(
        InvalidParameter, match=f"^image='{text}' is not valid: tiny-test needs an artifact of kind"
    ):
        plan_run(runtime, "tiny-test", {"image": str(text)}, seed=1)
    with pytest.raises(
        InvalidParameter, match=r"^image=7 is not valid: use a reference such as image:3fa9c1$"
    ):
        plan_run(runtime, "tiny-test", {"image": 7}, seed=1)
    with pytest.raises(UnknownReference, match="no artifact is named 'image:ffff'"):
        plan_run(runtime, "tiny-test", {"image": "image:ffff"}, seed=1)
    with pytest.raises(
        InvalidParameter, match=r"^image=None is not valid: wan-i2v needs an artifact of kind image here$"
    ):
        plan_run(runtime, "wan-i2v", {"prompt": "a"}, seed=1)


def test_a_reference_and_its_text_are_the_same_input(runtime: Runtime) -> None:
    image = an_image(runtime)
    by_text = plan_run(runtime, "tiny-test", {"image": str(image)}, seed=1)
    assert by_text.memo_key == plan_run(runtime, "tiny-test", {"image": image}, seed=1).memo_key


def test_unknown_card_and_card_without_weights(runtime: Runtime) -> None:
    with pytest.raises(UnknownCard, match="card 'flux' is unknown: use one of"):
        plan_run(runtime, "flux", {}, seed=1)
    with pytest.raises(
        UnknownReference,
        match=r"^card flux-t2i has no weights: use `mutoscope weights import flux-t2i FOLDER`$",
    ):
        plan_run(runtime, "flux-t2i", {"prompt": "a"}, seed=1)


async def test_a_run_goes_through_the_queue_and_a_second_is_a_hit(
    runtime: Runtime, worker: FakeWorker
) -> None:
    first = await submit_run("tiny-test", seed=1)
    again = await submit_run("tiny-test", seed=1)
    other = await submit_run("tiny-test", seed=2)
    assert [first.disposition, again.disposition, other.disposition] == ["new", "hit", "new"]
    assert first.outputs == again.outputs
    assert set(first.outputs) == {slot.name for slot in get_card("tiny-test").outputs}
    assert worker.done == [first.run.id, other.run.id]


async def test_missing_bytes_are_computed_again(runtime: Runtime, worker: FakeWorker) -> None:
    first = await submit_run("tiny-test", seed=1)
    path = runtime.store.local_path(first.outputs["image"].digest)
    assert path is not None
    path.unlink()
    again = await submit_run("tiny-test", seed=1)
    assert again.disposition == "new"
    assert runtime.store.contains(first.outputs["image"].digest)
    assert again.outputs == first.outputs


async def test_equal_requests_at_once_share_one_run(runtime: Runtime) -> None:
    held = Held()
    worker = FakeWorker(runtime, ("tiny-test",), perform=held)
    with worker.serving():
        calls = [asyncio.ensure_future(submit_run("tiny-test", seed=1)) for _ in range(4)]
        await eventually(lambda: len(runtime.catalog.runs.list(kind="engine")) == 1 and held.begun.is_set())
        held.release.set()
        outcomes = await asyncio.gather(*calls)
    assert sorted(outcome.disposition for outcome in outcomes)[-1] == "new"
    assert len({outcome.run.id for outcome in outcomes}) == 1
    assert worker.done == [outcomes[0].run.id]


async def test_no_worker_is_said_at_once_and_the_run_stays_queued(runtime: Runtime) -> None:
    with pytest.raises(
        NoWorker, match=r"^card tiny-test: no live worker serves it; start one with `mutoscope up`\. Run"
    ):
        await submit_run("tiny-test", seed=1)
    (run,) = runtime.catalog.runs.list(kind="engine")
    assert run.state == "queued"


async def test_a_worker_of_another_contract_does_not_count(runtime: Runtime, worker: FakeWorker) -> None:
    spec = plan_run(runtime, "tiny-test", {}, seed=1)
    other = {**CONTRACT, "device": "other"}
    with FakeWorker(runtime, ("tiny-test",), contract=other).serving():
        runtime.catalog.workers.mark_stopped(worker.id)
        with pytest.raises(NoWorker, match="no live worker has its numeric contract"):
            await submit_spec(runtime, spec, present=runtime.store.contains)


async def test_a_run_left_queued_is_taken_by_the_first_worker(runtime: Runtime) -> None:
    with pytest.raises(NoWorker):
        await submit_run("tiny-test", seed=1)
    (queued,) = runtime.catalog.runs.list(kind="engine")
    # The key was made for this machine's contract; so the worker must keep that one.
    contract = numerics.cpu_contract(runtime.settings.threads)
    with FakeWorker(runtime, ("tiny-test",), contract=contract).serving():
        await eventually(lambda: runtime.catalog.runs.get(queued.id).state == "succeeded")
        assert (await submit_run("tiny-test", seed=1)).disposition == "hit"


async def test_failure_is_one_line_with_the_recorded_message(runtime: Runtime) -> None:
    def fail(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        raise RuntimeError("the matrix\nis singular")

    line = r"^run .{36} of tiny-test failed: the matrix is singular$"
    with (
        FakeWorker(runtime, ("tiny-test",), perform=fail).serving(),
        pytest.raises(RunFailed, match=line),
    ):
        await submit_run("tiny-test", seed=1)


async def test_cancelling_the_only_caller_cancels_the_run(runtime: Runtime) -> None:
    held = Held()
    with FakeWorker(runtime, ("tiny-test",), perform=held).serving():
        call = asyncio.ensure_future(submit_run("tiny-test", seed=1))
        await eventually(held.begun.is_set)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        (run,) = runtime.catalog.runs.list(kind="engine")
        assert run.cancel_requested
        held.release.set()
        await eventually(lambda: runtime.catalog.runs.get(run.id).finished)
    assert runtime.catalog.runs.get(run.id).state == "cancelled"


async def test_cancelling_one_of_two_callers_leaves_the_run_to_the_other(runtime: Runtime) -> None:
    held = Held()
    with FakeWorker(runtime, ("tiny-test",), perform=held).serving():
        first = asyncio.ensure_future(submit_run("tiny-test", seed=1))
        await eventually(held.begun.is_set)
        seen: list[RunRecord] = []
        token = observer.set(seen.append)
        second = asyncio.ensure_future(submit_run("tiny-test", seed=1))
        observer.reset(token)
        await eventually(lambda: bool(seen))  # it waits, so it has attached
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not runtime.catalog.runs.list(kind="engine")[0].cancel_requested
        held.release.set()
        outcome = await second
    assert outcome.disposition == "attached"
    assert outcome.run.state == "succeeded"


async def test_a_cancelled_run_is_told_to_whoever_waits(runtime: Runtime) -> None:
    held = Held()
    with FakeWorker(runtime, ("tiny-test",), perform=held).serving():
        call = asyncio.ensure_future(submit_run("tiny-test", seed=1))
        await eventually(held.begun.is_set)
        runtime.catalog.runs.request_cancel(runtime.catalog.runs.list(kind="engine")[0].id, force=True)
        held.release.set()
        with pytest.raises(RunCancelled, match="was cancelled: start the workflow again"):
            await call


async def test_the_observer_sees_every_change_once(runtime: Runtime) -> None:
    seen: list[RunRecord] = []
    token = observer.set(seen.append)
    held = Held()
    with FakeWorker(runtime, ("tiny-test",), perform=held).serving():
        call = asyncio.ensure_future(submit_run("tiny-test", seed=1))
        await eventually(lambda: bool(seen) and seen[-1].stage == "paint")
        held.release.set()
        await call
    observer.reset(token)
    assert seen[-1].state == "succeeded"
    assert all(before != after for before, after in itertools.pairwise(seen))
